"""Which messages share a field of the hot tier, and what becomes of them."""

from __future__ import annotations

from typing import Any

import pytest

from strands_manga_memory.session.core.identity import Name
from strands_manga_memory.stores import Codec, InMemoryHotStore
from tests.unit.session.replicas.parts import Process
from tests.unit.session.support import MemoryTable, assistant, texts, user

PLAIN = Codec(compress_from=1 << 30)


class World:
    """Both tiers, and who works on them."""

    def __init__(self) -> None:
        self.hot, self.table = InMemoryHotStore(), MemoryTable()

    def process(self, **tiers: Any) -> Process:
        both = {"hot": self.hot, "durable": self.table, **tiers}
        return Process(*both.values(), "s", ttl=lambda: 60.0, codec=PLAIN).open()

    def fields(self) -> list[bytes]:
        """Return what the hot tier has of messages, the fields of most of them first."""
        [(name, kept)] = self.hot._conversations.items()
        opened = [PLAIN.unseal(data, f"{name}#{field}") for field, data in kept.fields.items() if field[0] == "m"]
        return sorted((data for data in opened if held_in(data)), key=held_in, reverse=True)


def held_in(data: bytes) -> int:
    return data.count(b'["m",')


def without(process: Process, at: int) -> None:
    del process.live[at]
    process.author.capture(process.live)
    process.save()


def test_the_messages_of_a_turn_share_a_field_unless_they_are_large() -> None:
    world = World()
    one = world.process()
    one.turn("first")
    one.turn("x" * 2_000, answer="y" * 2_000)

    assert list(map(held_in, world.fields())) == [2, 1, 1]
    assert world.process().live == one.live


def test_of_a_turn_of_many_messages_a_few_share_a_field() -> None:
    world = World()
    one = world.process()
    one.begin()
    for at in range(5):
        one.say(user(f"question {at}"), begins=at == 0)
        one.say(assistant(f"answer {at}"))
    one.author.capture(one.live)
    one.save()

    assert list(map(held_in, world.fields())) == [4, 4, 2]
    assert world.process().live == one.live


def test_a_message_that_left_stays_beside_one_that_is_shown_and_goes_with_it() -> None:
    world = World()
    one = world.process()
    for at in range(3):
        one.turn(f"turn {at}")
    one.flush()

    without(one, 0)
    assert list(map(held_in, world.fields())) == [2, 2, 2]
    other = world.process()
    assert other.live == one.live
    other.turn("goes on")
    assert list(map(held_in, world.fields())) == [2, 2, 2, 2]
    assert world.process().live == other.live

    other.flush()
    without(other, 0)
    assert list(map(held_in, world.fields())) == [2, 2, 2]
    assert world.process().live == other.live
    assert texts(message.value for message in other.history())[:2] == ["turn 0", "ok"]


@pytest.mark.parametrize("by_whom", ["who wrote it", "another one", "one without a hot tier"])
def test_a_redacted_message_that_left_is_in_no_field_beside_one_that_is_shown(by_whom: str) -> None:
    world = World()
    one = world.process()
    one.turn("a secret")
    one.turn("another turn")
    one.flush()
    name = Name(one.author.outbox.writer, 1)
    without(one, 0)
    assert b"a secret" in b"".join(world.fields())

    others = {"another one": {}, "one without a hot tier": {"hot": None}}
    who = world.process(**others[by_whom]) if by_whom in others else one
    assert who.redact(name, user("redacted"))
    one.refresh()
    one.save()

    assert b"a secret" not in b"".join(world.fields())
    assert world.process().live == one.live
    assert texts(message.value for message in world.process().history()) == ["redacted", "ok", "another turn", "ok"]


def test_who_keeps_the_log_in_the_hot_tier_gives_each_message_a_field_of_its_own() -> None:
    world = World()
    one = world.process()
    one.turn("first")
    one.turn("second")
    assert list(map(held_in, world.fields())) == [2, 2]

    other = world.process(durable=None)
    without(other, 0)

    assert list(map(held_in, world.fields())) == [1, 1, 1, 1]
    assert world.process(durable=None).live == other.live
    assert texts(message.value for message in other.history()) == ["first", "ok", "second", "ok"]


def test_a_field_that_cannot_be_read_costs_its_turn() -> None:
    world = World()
    one = world.process()
    one.turn("first")
    one.turn("second")
    [(name, kept)] = world.hot._conversations.items()
    field = next(key for key, data in kept.fields.items() if b"first" in data)
    damaged = dict(kept.fields) | {field: kept.fields[field][:-1]}
    object.__setattr__(kept, "fields", damaged)

    found = world.process()

    assert [text.startswith("[This message could not be read") for text in texts(found.live)] == [True, True, False, False]
    found.turn("goes on")
    assert world.hot._conversations[name].fields[field] == damaged[field]


def test_what_left_beside_another_message_is_in_the_log_of_who_goes_on_with_the_hot_tier_alone() -> None:
    world = World()
    one = world.process()
    one.turn("first")
    one.turn("second")
    one.flush()
    without(one, 0)
    assert list(map(held_in, world.fields())) == [2, 2]

    alone = world.process(durable=None)
    alone.turn("third")
    without(alone, 0)
    assert list(map(held_in, world.fields())) == [1] * 6
    assert world.process(durable=None).live == alone.live
    assert texts(message.value for message in alone.history()) == ["first", "ok", "second", "ok", "third", "ok"]
    assert world.process().live == alone.live
