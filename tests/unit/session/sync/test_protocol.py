"""What the protocol's page says, sentence by sentence; each test is named after the one that it proves."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest

from strands_manga_memory.exceptions import StoreUnavailableError
from strands_manga_memory.session.core.identity import new_grave
from strands_manga_memory.session.core.merge import merge
from tests.unit.session.support import CountingHot, CountingTable, user
from tests.unit.session.sync.test_saving import World


@pytest.fixture
def world() -> World:
    return World()


def _names(world: World) -> list[tuple[str, int]]:
    return [tuple(message.name) for message in world.process().history()]


def test_nothing_that_a_store_may_have_seen_is_ever_renamed(world: World) -> None:
    a, b = world.process(tag="a"), world.process(tag="b")
    a.talk("one")
    world.hot.fail_next(after=True)
    with pytest.raises(StoreUnavailableError):
        a.save()
    before = sorted(a.author.copy.messages)
    b.turn("meanwhile")
    a.save()

    assert set(before) <= set(_names(world))
    assert len(_names(world)) == 4


def test_a_replica_that_lost_everything_or_went_back_just_lacks_more(world: World) -> None:
    a = world.process()
    a.turn("one")
    earlier = world.store.copy()
    a.turn("two")
    for back in (earlier, {}):
        world.store.go_back(back)
        a.turn("goes on")
        assert world.process().shown() == a.shown()
    assert a.shown()[::2] == ["one", "two", "goes on", "goes on"]


def test_a_merge_makes_no_version_and_writing_ends(world: World) -> None:
    a, b = world.process(), world.process()
    a.turn("a")
    b.turn("b")
    for one in (a, b, a, b):
        one.refresh()
        one.save()
        one.flush()
    hot, table = CountingHot(world.store), CountingTable(world.table)
    for one in (a, b):
        one.hot._store, one.durable._table, one.durable.segments._table = hot, table, table
        one.save()
        one.flush()

    assert (hot.calls, table.calls) == ([], [])


def test_what_the_windows_vector_includes_and_its_slots_lack_comes_back_in_no_merge_with_what_is_older(world: World) -> None:
    a = world.process()
    a.turn("one")
    old = world.store.copy()
    a.turn("two")
    del a.live[:2]
    a.author.capture(a.live)
    a.save()
    world.store.go_back(old)
    b = world.process()
    b.turn("of one who saw the old copy")
    a.refresh()
    a.save()

    assert "one" not in a.shown()
    assert a.shown() == world.process().shown()


def test_whoever_flushes_flushes_all_that_it_has(world: World) -> None:
    a, b = world.process(), world.process()
    a.turn("said by a")
    b.refresh()
    b.flush()
    world.store.go_back({})

    assert world.process().shown() == ["said by a", "ok"]


def test_no_writer_however_late_puts_a_text_back_that_was_redacted(world: World) -> None:
    a = world.process()
    a.turn("secret")
    late = world.process()
    name = a.history()[0].name
    assert a.redact(name, user("redacted"))
    late.durable.segments.put(late.author.copy.messages.values())

    assert world.process().log() == ["redacted", "ok"]


def test_if_a_tier_cannot_be_read_the_other_one_serves(world: World) -> None:
    a = world.process()
    a.turn("one")
    a.flush()
    for tier in (world.hot, world.durable):
        tier.down = True
        assert world.process().shown() == ["one", "ok"]
        tier.down = False


def test_no_merge_of_copies_contains_a_message_of_a_life_that_a_known_grave_ended(world: World) -> None:
    a = world.process()
    a.turn("one")
    before = a.author.copy
    a.delete()
    a.turn("anew")

    for one, other in ((before, a.author.copy), (a.author.copy, before)):
        assert len(merge(one, other).messages) == 2
        assert merge(one, other).lives == a.author.copy.lives


def test_a_sweeper_that_dies_or_fails_leaves_a_claim_that_binds_nobody(world: World) -> None:
    a = world.process()
    a.turn("one")
    world.clock.advance(3_000)
    assert world.store.claim("s/A:default") is not None
    counting = CountingHot(world.store)
    a.hot._store = counting

    a.turn("two")

    assert len(counting.calls) <= 3
    assert world.process().shown() == ["one", "ok", "two", "ok"]


@pytest.mark.parametrize("at", range(5))
def test_whoever_ends_a_users_conversations_finds_that_head_or_whoever_put_it_finds_the_grave(world: World, at: int) -> None:
    a = world.process()
    a.turn("not flushed yet")
    user_grave = {"session_id": "user/u", "sk": "GRAVE", "graves": [new_grave()]}
    found: list[bool] = []

    def dig_and_look(call: int) -> None:
        if call == at:
            world.table.put(user_grave)
            found.append(world.table.get("s", "A:default#HEAD") is not None)

    a.durable._table = a.durable.segments._table = Calling(world.table, dig_and_look)
    a.flush()

    if found and not found[0]:
        assert "not flushed yet" not in str(world.table.rows)
    assert not found or a.shown() == world.process().shown() == []
    assert (at < 4) == bool(found), "every call of the flush is tried"


class Calling:
    """A table that tells before each of its calls how many there were."""

    def __init__(self, table: Any, before: Callable[[int], None]) -> None:
        self._table, self._before, self._calls = table, before, itertools.count()

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self._table, name)
        if not callable(attribute):
            return attribute

        def call(*given: Any, **named: Any) -> Any:
            self._before(next(self._calls))
            return attribute(*given, **named)

        return call
