"""Conversations of a session manager: ids, index items, tombstones."""

from __future__ import annotations

import secrets
from typing import Any

import pytest
from strands import Agent

from strands_manga_memory import SessionSweeper, TieredSessionManager
from strands_manga_memory.scope import ConversationScope
from strands_manga_memory.session.protocol.conversation import Conversation
from strands_manga_memory.session.tiers import (
    HOT,
    Place,
    Tiers,
    directory_key,
    put_group_tombstone,
    tombstone_key,
)
from strands_manga_memory.stores.codec import dump
from strands_manga_memory.testing import FakeClock, ScriptedModel
from tests.faults.protocol.process import open_hold
from tests.unit.session.protocol.test_conversation import expected, say, texts
from tests.unit.session.support import MemoryTable, SurvivingHotStore

SCOPE = ConversationScope("u", "s")
PLACE = Place.of(SCOPE.storage_session_id, "A", "default")
IDS = {"session": "s", "user": "u", "tenant": None, "member": "default"}


class Connections:
    """Both tiers in memory, and connected conversations in them."""

    def __init__(self, **tiers: bool) -> None:
        self.clock = FakeClock()
        self.hot: Any = SurvivingHotStore(clock=self.clock) if tiers.get("hot", True) else None
        self.table: Any = MemoryTable() if tiers.get("durable", True) else None
        self.tiers = Tiers.of(self.hot, self.table, clock=self.clock)

    def load(self, place: Place = PLACE) -> Conversation:
        """Return a new process's hold of a conversation."""
        hold = Conversation(place, self.tiers, ids=IDS)
        open_hold(hold)
        return hold

    def end(self, key: tuple[str, str]) -> int:
        """Put the tombstone of a session or user."""
        return put_group_tombstone(
            self.table, key[0], now=self.clock(), until=self.clock() + 90_000
        )


SESSION_KEY = tombstone_key(PLACE.session)
_DIRECTORY = directory_key("", {"user": "u"})
assert _DIRECTORY is not None
USER_KEY = tombstone_key(_DIRECTORY[0])


@pytest.mark.parametrize(
    "tiers", [{}, {"hot": False}, {"durable": False}], ids=["both", "durable", "hot"]
)
def test_ids_are_stored_with_the_conversation(tiers: dict[str, bool]) -> None:
    """A process that knows only the place of a conversation reads its original ids."""
    connections = Connections(**tiers)
    hold = connections.load()
    say(hold, 1)
    hold.save()
    reader = Conversation(PLACE, connections.tiers, ids={})
    reader.load(touch=False)
    assert reader.local.base.ids == {"session": "s", "user": "u", "member": "default"}


def test_head_says_whether_a_hot_tier_may_have_a_copy() -> None:
    """The mark stays when a process without a hot tier writes the head."""
    connections = Connections()
    hold = connections.load()
    say(hold, 1)
    hold.save()
    alone = Tiers.of(None, connections.table, clock=connections.clock)
    writer = Conversation(PLACE, alone, ids=IDS)
    open_hold(writer)
    say(writer, 2)
    writer.save()
    assert connections.table.rows[PLACE.session, f"{PLACE.member}#HEAD"][HOT] is True


@pytest.mark.parametrize("key", [SESSION_KEY, USER_KEY], ids=["session", "user"])
def test_deletion_of_a_session_ends_conversations_that_no_store_lists(key: tuple[str, str]) -> None:
    """A turn saved after the deletion is dropped; the next begins anew."""
    connections = Connections()
    hold = connections.load()
    say(hold, 1)
    connections.end(key)
    hold.save()
    assert texts(connections.load()) == []
    assert hold.local.dropped == 2
    say(hold, 2)
    hold.save()
    hold.flush()
    assert texts(connections.load()) == expected(2)


def test_first_head_that_a_deletion_does_not_see_becomes_a_tombstone() -> None:
    """The deletion is noticed after the put of the first head."""
    connections = Connections()
    hold = connections.load()
    say(hold, 1)
    put = connections.table.put

    def put_behind_the_tombstone(item: dict[str, Any], **options: Any) -> bool:
        if item["sk"].endswith("#HEAD") and SESSION_KEY not in connections.table.rows:
            connections.end(SESSION_KEY)
        return bool(put(item, **options))

    connections.table.put = put_behind_the_tombstone
    hold.save()
    assert texts(connections.load()) == []
    assert hold.local.dropped == 2
    assert "user 1" not in str(connections.table.rows)
    assert "user 1" not in str(connections.hot._conversations)


def test_second_deletion_within_a_second_ends_what_began_between_the_two() -> None:
    """Tombstones of a session have growing numbers, whatever the clock says."""
    connections = Connections()
    first = connections.end(SESSION_KEY)
    hold = connections.load()
    say(hold, 1)
    hold.save()
    assert texts(connections.load()) == expected(1)
    assert connections.end(SESSION_KEY) > first
    assert texts(connections.load()) == []


def test_conversation_that_begins_after_a_deletion_is_listed_again() -> None:
    """Directory and expiry index list a conversation whose head was a tombstone before."""
    connections = Connections()
    hold = connections.load()
    say(hold, 1)
    hold.save()
    hold.delete()
    listed = [
        key
        for key in connections.table.rows
        if key[0].partition("/")[0] in ("user", "expiry", "ended")
    ]
    assert len(listed) == 3
    for key in listed:
        del connections.table.rows[key]
    say(hold, 2)
    hold.save()
    assert set(listed) <= connections.table.rows.keys()


def test_damaged_head_that_is_split_is_deleted_with_all_its_parts() -> None:
    """Parts are found by their keys, although the head does not say which there are."""
    connections = Connections()
    hold = connections.load()
    hold.local.append(dump({"role": "user", "content": [{"text": secrets.token_hex(600_000)}]}))
    hold.save()
    parts = [key for key in connections.table.rows if "~" in key[1]]
    assert parts
    connections.table.rows[PLACE.session, f"{PLACE.member}#HEAD"] |= {"parts": 1}
    Conversation(PLACE, connections.tiers, ids=IDS).delete()
    assert not [key for key in connections.table.rows if "~" in key[1]]


class _TickingClock(FakeClock):
    """A clock on which a second passes with each look."""

    def __call__(self) -> float:
        self.advance(1.0)
        return super().__call__()


def test_conversation_that_begins_after_a_deletion_is_not_ended_by_it() -> None:
    """The session's tombstone may come seconds after the conversation's."""
    table = MemoryTable()
    manager = TieredSessionManager("s", durable=table, clock=_TickingClock())
    agent = Agent(model=ScriptedModel(["yes"] * 3), session_manager=manager, callback_handler=None)
    for text in ("before", "after", "after another deletion"):
        manager.delete_session()
        agent(text)
        manager.flush()
        restored = TieredSessionManager("s", durable=table, clock=_TickingClock())
        assert [message["content"] for message in restored.history()] == [
            [{"text": text}],
            [{"text": "yes"}],
        ]


def sweep(connections: Connections, place: Place = PLACE, **options: Any) -> int:
    """Store two turns of a process that ends then, let their hot copy expire, and sweep once."""
    hold = connections.load(place)
    for number in (1, 2):
        say(hold, number)
        hold.save()
    connections.clock.advance(1801)
    if "durable" not in options:
        connections.table.rows.clear()
    given = {
        "hot": connections.hot,
        "durable": connections.table,
        "clock": connections.clock,
        **options,
    }
    return SessionSweeper(**given).run_once()


def test_cache_in_the_hot_tier_is_dropped_without_a_finalizer() -> None:
    """Names of caches have two slashes."""
    connections, finalized = Connections(), []
    cache = Place("cache/u", "A:default")
    assert sweep(connections, cache, finalizer=finalized.append, durable=None) == 0
    assert finalized == []
    assert not connections.hot._conversations


def test_sweeper_that_knows_only_a_name_keeps_the_conversation_listed() -> None:
    """Head and indexes have the original ids, also in an emptied table."""
    connections = Connections()
    assert sweep(connections) == 1
    assert connections.table.rows[PLACE.session, f"{PLACE.member}#HEAD"]["member"] == "default"
    listed = [
        row
        for key, row in connections.table.rows.items()
        if key[0].partition("/")[0] in ("user", "expiry")
    ]
    assert [(row["user"], row["session"]) for row in listed] == [("u", "s"), ("u", "s")]
