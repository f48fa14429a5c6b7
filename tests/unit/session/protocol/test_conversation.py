"""Requests, bytes and expiry of a conversation with many live agents and earlier writers."""

from typing import Any

import pytest

from strands_manga_memory.session.protocol.conversation_storage import ConversationStorage
from strands_manga_memory.session.protocol.durable_tier import DurableTier
from strands_manga_memory.session.protocol.record import Turn, TurnKey
from strands_manga_memory.session.tiers import ConversationKey, Tiers
from strands_manga_memory.stores.codec import dump
from strands_manga_memory.testing import FakeClock
from tests.faults.protocol.process import load_fully, save
from tests.unit.session.support import MemoryTable, SurvivingHotStore


class CountingStore:
    """A store that counts requests and written bytes."""

    def __init__(self, store: Any) -> None:
        self.store, self.requests, self.written = store, 0, 0

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self.store, name)

        def call(*given: Any, **named: Any) -> Any:
            self.requests += 1
            if name in ("write", "put"):
                fields = given[1].fields if name == "write" else given[0]
                self.written += sum(len(field) + _size(value) for field, value in fields.items())
            return attribute(*given, **named)

        return call if callable(attribute) else attribute


def _size(value: Any) -> int:
    return len(value) if isinstance(value, bytes | str) else 8


class Stores:
    """Both tiers of one conversation in memory."""

    def __init__(self) -> None:
        self.hot: Any = CountingStore(SurvivingHotStore(clock=FakeClock()))
        self.durable: Any = CountingStore(MemoryTable())

    def storage(self) -> ConversationStorage:
        """Return a new process's storage of the conversation."""
        tiers = Tiers.of(self.hot, self.durable, clock=FakeClock())
        conversation = ConversationStorage(ConversationKey("s", "A:a"), tiers, ids={})
        load_fully(conversation)
        return conversation


def turn(storage: ConversationStorage, number: int) -> None:
    """Take a turn: evict all but 40 turns, save, and flush if this writer has to."""
    storage.refresh()
    storage.complete()
    view = storage.local.adopt_window()
    keys = list(dict.fromkeys(slot.key for slot in view))
    if len(keys) > 40:
        storage.local.set_view([slot for slot in view if slot.key in keys[-33:]])
    storage.local.begin_turn()
    for role in ("user", "assistant"):
        text = f"{role} {number} " + "x" * 300
        storage.local.append(dump({"role": role, "content": [{"text": text}]}))
    storage.local.end_turn()
    save(storage)
    if storage.is_flush_due:
        storage.flush()


def test_turn_of_an_interrupted_flush_counts_as_use_of_the_session() -> None:
    """A turn that only the log has is found before the session ends by age."""
    stores = Stores()
    writer = stores.storage()
    turn(writer, 1)
    writer.flush()
    used = writer.local.base.last_used
    tiers = Tiers.of(stores.hot, stores.durable, clock=FakeClock())
    log = DurableTier(ConversationKey("s", "A:a"), tiers, {})
    log.put_turn(1, key := TurnKey(int(used + 50) * 1000, "w"), Turn((dump("hi"),), (used + 50,)))
    assert not stores.storage().expire(unused_since=used + 10)
    ending = stores.storage()
    assert ending.expire(unused_since=used + 60)
    assert key in ending.local.base.seen


@pytest.mark.parametrize("writers", [1, 8, 50])
def test_durable_requests_and_bytes_do_not_grow_with_live_agents(writers: int) -> None:
    """Of N agents that take turns together one flushes every five turns."""
    stores = Stores()
    storages = [stores.storage() for _ in range(writers)]
    for number in range(2 * writers):
        turn(storages[number % writers], number)
    before, hot_bytes, durable_bytes, turns = (
        stores.durable.requests,
        stores.hot.written,
        stores.durable.written,
        max(50, 2 * writers),
    )
    for number in range(turns):
        turn(storages[number % writers], 1000 + number)
    assert (stores.durable.requests - before) / turns <= 1.6
    written = (stores.hot.written - hot_bytes + stores.durable.written - durable_bytes) / turns
    assert written <= 4096


@pytest.mark.parametrize("writers", [200, pytest.param(500, marks=pytest.mark.long)])
def test_durable_requests_do_not_grow_with_earlier_writers(writers: int) -> None:
    """An agent for each request costs one read more, after many earlier writers as after 20."""
    stores = Stores()

    def cost(first: int) -> float:
        before = stores.durable.requests
        for number in range(first, first + 20):
            turn(stores.storage(), number)
        return (stores.durable.requests - before) / 20

    turn(stores.storage(), 0)  # the first head is also listed in the expiry index
    early = cost(1)
    for number in range(21, writers):
        turn(stores.storage(), number)
    assert cost(writers) <= early <= 2.6
    assert len(stores.storage().history()) == writers + 20
