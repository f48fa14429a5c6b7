"""A process's hold of a conversation over stores that count requests."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from typing import Any

import pytest

from strands_manga_memory.exceptions import StoreUnavailableError
from strands_manga_memory.session.protocol.conversation import Conversation
from strands_manga_memory.session.tiers import Place, Tiers
from strands_manga_memory.stores.codec import dump, load
from strands_manga_memory.testing import FakeClock
from tests.faults.protocol.process import open_hold
from tests.unit.session.support import MemoryTable, SurvivingHotStore

DAY = 86_400.0


class CountingStore:
    """A store that counts requests and written bytes, and is down on request."""

    def __init__(self, store: Any) -> None:
        self.store, self.calls, self.is_down, self.written = store, Counter[str](), False, 0
        self.puts_left: int | None = None

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self.store, name)

        def call(*given: Any, **named: Any) -> Any:
            self.calls[name] += 1
            if self.is_down or (self.puts_left == 0 and name == "put"):
                raise StoreUnavailableError("it is down")
            if self.puts_left is not None and name == "put":
                self.puts_left -= 1
            if name == "write":
                self.written += sum(
                    len(field) + len(data) for field, data in given[1].fields.items()
                )
            if name == "put":
                self.written += sum(len(field) + _size(value) for field, value in given[0].items())
            return attribute(*given, **named)

        return call if callable(attribute) else attribute


def _size(value: Any) -> int:
    return len(value) if isinstance(value, bytes | str) else 8


class Stores:
    """Both tiers of one conversation in memory."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.hot, self.durable = (
            CountingStore(SurvivingHotStore(clock=self.clock)),
            CountingStore(MemoryTable()),
        )

    def hold(self, *, hot: bool = True, durable: bool = True, load: bool = True) -> Conversation:
        """Return a new process's hold of the conversation."""
        tier: Any = self.hot if hot else None
        table: Any = self.durable if durable else None
        conversation = Conversation(
            Place("s", "A:a"), Tiers.of(tier, table, clock=self.clock), ids={}
        )
        if load:
            open_hold(conversation)
        return conversation

    @property
    def requests(self) -> int:
        """Requests to the durable tier."""
        return self.durable.calls.total()


def say(hold: Conversation, number: int, *, ends: bool = True, size: int = 300) -> None:
    """Add a turn of a question and an answer."""
    hold.local.begin_turn()
    for role in ("user", "assistant"):
        hold.local.append(
            dump({"role": role, "content": [{"text": f"{role} {number} " + "x" * size}]})
        )
    if ends:
        hold.local.end_turn()


def turn(hold: Conversation, number: int) -> None:
    """Take a turn: evict all but 40 turns, save, and flush if this writer has to."""
    hold.refresh()
    hold.complete()
    view = hold.local.adopt_window()
    keys = list(dict.fromkeys(slot.key for slot in view))
    if len(keys) > 40:
        hold.local.set_view([slot for slot in view if slot.key in keys[-33:]])
    say(hold, number)
    hold.save()
    if hold.is_flush_due:
        hold.flush()


def texts(hold: Conversation) -> list[str]:
    """Return the first words of each message in the window."""
    messages = [hold.local.message(slot) for slot in hold.local.window]
    return [
        "?" if message is None else " ".join(load(message)["content"][0]["text"].split()[:2])
        for message in messages
    ]


def expected(*numbers: int) -> list[str]:
    """Return the texts of some turns."""
    return [f"{role} {number}" for number in numbers for role in ("user", "assistant")]


@pytest.mark.parametrize("writers", [1, 8, 50])
def test_durable_requests_and_bytes_do_not_grow_with_live_agents(writers: int) -> None:
    """Of N agents that take turns together one flushes every five turns."""
    stores = Stores()
    holds = [stores.hold() for _ in range(writers)]
    for number in range(2 * writers):
        turn(holds[number % writers], number)
    before, hot_bytes, durable_bytes, turns = (
        stores.requests,
        stores.hot.written,
        stores.durable.written,
        max(50, 2 * writers),
    )
    for number in range(turns):
        turn(holds[number % writers], 1000 + number)
    assert (stores.requests - before) / turns <= 1.6
    written = (stores.hot.written - hot_bytes + stores.durable.written - durable_bytes) / turns
    assert written <= 4096


@pytest.mark.parametrize("writers", [200, pytest.param(500, marks=pytest.mark.long)])
def test_durable_requests_do_not_grow_with_earlier_writers(writers: int) -> None:
    """An agent for each request costs one read more, after many earlier writers as after 20."""
    stores = Stores()

    def cost(first: int) -> float:
        before = stores.requests
        for number in range(first, first + 20):
            turn(stores.hold(), number)
        return (stores.requests - before) / 20

    turn(stores.hold(), 0)  # the first head is also listed in the expiry index
    early = cost(1)
    for number in range(21, writers):
        turn(stores.hold(), number)
    late = cost(writers)
    assert late <= early <= 2.6
    assert texts(stores.hold())[-2:] == expected(writers + 19)
    assert len(stores.hold().history()) == writers + 20


def test_each_fifth_turn_that_is_missing_in_the_log_starts_a_flush() -> None:
    """The next one does so if the process of the fifth dies before its flush."""
    hold = Stores().hold()
    due = []
    for number in range(1, 12):
        say(hold, number)
        hold.save()
        due += [number] if hold.is_flush_due else []
    assert due == [5, 10]


def test_flush_that_died_before_its_head_loses_no_turn_with_the_hot_tier() -> None:
    """A restore from the durable tier alone finds turns of the log that no head lists."""
    stores = Stores()
    hold = stores.hold()
    for number in range(1, 8):
        turn(hold, number)
    write, hold.durable.write = hold.durable.write, _die  # type: ignore[union-attr,method-assign,assignment]
    with pytest.raises(ConnectionAbortedError):
        hold.flush()
    assert write is not None
    stores.hot.store._conversations.clear()
    assert texts(stores.hold()) == expected(*range(1, 8))


def _die(*_: Any) -> bool:
    raise ConnectionAbortedError


@pytest.mark.parametrize("days", [0.6, 2.0])
def test_deleted_conversation_stays_deleted_when_a_process_sleeps_longer_than_tombstones_live(
    days: float,
) -> None:
    """A process that has seen no store for long reads both tiers before it writes."""
    stores = Stores()
    sleeper = stores.hold()
    turn(sleeper, 1)
    say(sleeper, 2)
    stores.hold().delete()
    stores.clock.advance(days * DAY)
    if days > 1:
        stores.durable.store.rows.clear()
        stores.hot.store._conversations.clear()
    sleeper.save()
    assert texts(stores.hold()) == []
    assert sleeper.local.dropped == 2


def test_deletion_ends_what_an_expiry_of_the_same_second_carries_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The durable tier has lost the expiry's tombstone."""
    stores = Stores()
    late = stores.hold()
    turn(late, 1)
    deleting = stores.hold()
    assert stores.hold().expire(unused_since=stores.clock() + 1)
    stores.durable.store.rows.clear()
    say(late, 2)
    with monkeypatch.context() as patch:
        patch.setattr(deleting.hot, "read_to_delete", lambda: (patch.undo(), _fail()))
        deleting.delete()
    late.save()
    assert texts(stores.hold()) == []
    assert late.local.dropped == 2


def test_expiry_continues_unsaved_turns_and_ends_the_others() -> None:
    """A session that ended by age begins anew with the turns of a writer that was late."""
    stores = Stores()
    late = stores.hold()
    turn(late, 1)
    late.flush()
    stores.clock.advance(100)
    say(late, 2)
    assert stores.hold().expire(unused_since=stores.clock() - 50)
    late.save()
    assert texts(stores.hold()) == expected(2)
    assert not stores.hold().expire(unused_since=stores.clock() - 50)


def test_first_flush_that_is_cut_loses_no_turn_with_the_hot_tier() -> None:
    """The durable head comes before the log, so each prefix of a flush restores."""
    for puts in range(10):
        stores = Stores()
        hold = stores.hold()
        stores.durable.is_down = True
        for number in range(6):
            say(hold, number)
            hold.save()
        stores.durable.is_down = False
        stores.durable.puts_left = puts
        with suppress(StoreUnavailableError):
            stores.hold().flush()
        stores.durable.puts_left = None
        if ("s", "A:a#HEAD") not in stores.durable.store.rows:
            continue
        stores.hot.store._conversations.clear()
        assert texts(stores.hold()) == expected(*range(6))


def test_edit_of_the_window_survives_turns_of_others() -> None:
    """Of two edits at once, the first one stored stays."""
    stores = Stores()
    hold = stores.hold()
    for number in range(4):
        turn(hold, number)
    one, other = stores.hold(), stores.hold()
    turn(other, 4)
    one.local.set_view(one.local.view[4:])
    one.save()
    assert texts(stores.hold()) == expected(2, 3, 4)
    first, second = stores.hold(), stores.hold()
    first.local.set_view(first.local.view[2:])
    first.save()
    second.local.set_view(second.local.view[:2])
    say(second, 5)
    second.save()
    assert texts(stores.hold()) == expected(3, 4, 5)


def test_save_during_an_outage_of_hot_puts_no_turn_into_a_restored_table_without_a_head() -> None:
    """An old head is read again before the save."""
    stores = Stores()
    hold = stores.hold()
    turn(hold, 0)
    other = stores.hold()
    for number in range(1, 6):
        turn(other, number)
    other.flush()
    hold.refresh()
    assert not hold.local.base.unlogged
    stores.durable.store.rows.clear()
    stores.hot.is_down, stores.durable.puts_left = True, 1
    say(hold, 6)
    with suppress(StoreUnavailableError):
        hold.save()
    assert ("s", "A:a#HEAD") in stores.durable.store.rows
    assert texts(stores.hold(hot=False)) == expected(*range(7))


def test_new_conversation_shows_nothing_of_a_log_without_a_head() -> None:
    """Turns of a lost or deleted conversation are deleted."""
    stores = Stores()
    hold = stores.hold()
    for number in range(6):
        turn(hold, number)
    hold.flush()
    stores.hot.store._conversations.clear()
    del stores.durable.store.rows["s", "A:a#HEAD"]
    turn(stores.hold(), 7)
    assert texts(stores.hold()) == texts(stores.hold(hot=False)) == expected(7)
    hold = stores.hold()
    hold.durable.purge(hold.local.base.incarnation)
    assert [len(found.messages) for _, found in stores.hold().history()] == [2]
    assert "user 1 " not in str(stores.durable.store.rows)


def test_turn_of_a_broken_flush_that_is_evicted_later_stays_evicted() -> None:
    """A turn found in the log stays unlogged until a head lists it."""
    stores = Stores()
    hold = stores.hold()
    for number in range(5):
        say(hold, number)
        hold.save()
    put = stores.durable.store.put

    def die_before_the_head(item: Any, **options: Any) -> bool:
        if item["sk"].endswith("#HEAD"):
            raise StoreUnavailableError("the process died here")
        return bool(put(item, **options))

    stores.durable.store.put = die_before_the_head
    with pytest.raises(StoreUnavailableError):
        hold.flush()
    stores.durable.store.put = put
    stores.hot.store._conversations.clear()
    reader = stores.hold()
    assert texts(reader) == expected(0, 1, 2, 3, 4)
    reader.local.set_view(reader.local.view[6:])
    say(reader, 5)
    reader.save()
    assert texts(stores.hold()) == expected(3, 4, 5)
    stores.hot.store._conversations.clear()
    assert texts(stores.hold()) == expected(3, 4, 5)


def test_evicted_turn_that_only_the_log_proves_is_not_shown_again() -> None:
    """A head from a backup lists turns that no process holds."""
    stores = Stores()
    hold = stores.hold()
    key = ("s", "A:a#HEAD")
    say(hold, 0)
    hold.save()
    backup = dict(stores.durable.store.rows[key])
    for number in range(1, 6):
        say(hold, number)
        hold.save()
    hold.flush()
    hold.local.set_view(hold.local.view[6:])
    say(hold, 6)
    hold.save()
    stores.durable.store.rows[key] = backup
    writer = stores.hold()
    say(writer, 7)
    writer.save()
    writer.flush()
    assert texts(stores.hold()) == expected(3, 4, 5, 6, 7)
    stores.hot.store._conversations.clear()
    assert texts(stores.hold()) == expected(3, 4, 5, 6, 7)


def test_head_that_could_not_be_joined_is_not_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a read that fails between head and log, the next save joins first."""
    stores = Stores()
    other, hold = stores.hold(hot=False), stores.hold()
    say(other, 1)
    other.save()
    with monkeypatch.context() as patch:
        patch.setattr(stores.durable.store, "query", _fail)
        with pytest.raises(StoreUnavailableError):
            hold.refresh()
    say(hold, 2)
    hold.save()
    assert sorted(texts(stores.hold())) == sorted(expected(1, 2))


def test_first_save_continues_a_conversation_that_has_just_begun(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Turns that another process has just logged are no rest of a deletion."""
    stores = Stores()
    hold, other = stores.hold(), stores.hold(hot=False)
    say(other, 1)
    other.save()
    other.flush()
    say(hold, 2)
    monkeypatch.setattr(stores.durable.store, "put", _fail)
    with suppress(StoreUnavailableError):
        hold.save()
    monkeypatch.undo()
    hold.save()
    assert sorted(texts(stores.hold())) == sorted(expected(1, 2))


def _fail(*given: Any, **named: Any) -> Any:
    raise StoreUnavailableError("it failed")
