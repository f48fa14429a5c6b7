"""Damaged, cut or newer stored records are refused by name and never overwritten."""

from collections.abc import Iterator
from typing import Any

import pytest
import redis
from strands.agent.conversation_manager import SlidingWindowConversationManager

from strands_manga_memory import Codec
from strands_manga_memory.exceptions import CorruptRecordError
from strands_manga_memory.session.protocol.record_format import (
    open_json,
    seal_json,
    state_part,
)
from strands_manga_memory.stores import SQLiteTable, Table, open_table
from strands_manga_memory.stores.codec import VERSION, dump
from tests import servers
from tests.faults import talk
from tests.faults.conftest import NewProcess, Process
from tests.faults.talk import Stores
from tests.support import UNREADABLE_TEXT

pytestmark = pytest.mark.xdist_group("services")

UNREAD = {"member", "expires_at", "state", "v", "session_id", "sk"}
"""Attributes that restoring takes nothing from; the keys are how a record is found at all."""


def flips(value: bytes) -> Iterator[bytes]:
    """Yield the value with one bit flipped in each of its first and some later bytes."""
    places = [*range(min(12, len(value))), *range(12, len(value), max(1, len(value) // 12))]
    for place in places:
        yield value[:place] + bytes([value[place] ^ (1 << place % 8)]) + value[place + 1 :]


def conversation(new_process: NewProcess, stores: Stores, **settings: Any) -> Process:
    """Return a process with state, an evicted turn, an edited message and manager state."""
    window = SlidingWindowConversationManager(8, should_truncate_results=False)
    process = new_process(stores, agent={"conversation_manager": window}, **settings)
    process.agent.state.set("cart", ["第108巻"])
    for number, kind in enumerate(["tool", "parallel", "japanese"]):
        process.agent(f"t{number} {kind}")
    process.agent.messages[0]["content"].append({"text": "edited"})
    process.agent("t3 tool")
    process.manager.set_metadata("librarian", locale="ja")
    process.manager.flush()
    return process


def lost_process(new_process: NewProcess, stores: Stores) -> tuple[Process, Any]:
    """Return a process that ended, and its messages and state."""
    process = conversation(new_process, stores)
    process.lose()
    return process, (talk.plain(process.agent.messages), process.agent.state.get())


def restored(new_process: NewProcess, stores: Stores, **settings: Any) -> Any:
    window = SlidingWindowConversationManager(8, should_truncate_results=False)
    agent = new_process(stores, agent={"conversation_manager": window}, **settings).agent
    return talk.plain(agent.messages), agent.state.get()


def refused_or_exact(new_process: NewProcess, stores: Stores, wanted: Any, **settings: Any) -> bool:
    """Restore; return True if it gave exactly what is wanted.

    Else it must be refused with the record's name, or tell which messages are damaged, with all the
    others as they were.
    """
    try:
        found = restored(new_process, stores, **settings)
    except CorruptRecordError as error:
        named = bool(error.record) and error.record.split("/")[-1].split("#")[0] in str(error)
        return not named
    messages = [message for message in found[0] if UNREADABLE_TEXT not in str(message)]
    if len(messages) < len(found[0]):
        assert (all(message in wanted[0] for message in messages), found[1]) == (True, wanted[1])
        return False
    assert found == wanted
    return True


@pytest.fixture
def valkey(valkey_server: servers.Valkey) -> Iterator[redis.Redis]:
    with valkey_server.client() as client:
        yield client


def test_a_flipped_bit_in_any_field_of_the_hot_tier(
    new_process: NewProcess, services: Stores, valkey: redis.Redis
) -> None:
    process, wanted = lost_process(new_process, services)
    key: bytes = next(valkey.scan_iter(f"*:c:{process.manager.session_id}/*"))
    kept: Any = valkey.hgetall(key)
    looking = {"hot": process.hot, "durable": process.durable}
    for field, value in kept.items():
        for flipped in flips(value):
            valkey.hset(key, field, flipped)
            refused_or_exact(new_process, services, wanted, **looking)
            there: Any = valkey.hgetall(key)
            if field not in (
                b"t",
                b"x",
            ):  # a read prolongs the time to live, unless that itself is damaged
                there[b"x"] = kept[b"x"]
            assert there == {**kept, field: flipped}
            valkey.hset(key, mapping={field: value, b"x": kept[b"x"]})
    assert restored(new_process, services, **looking) == wanted


def test_a_flipped_bit_in_a_durable_attribute(new_process: NewProcess, stores: Stores) -> None:
    process, wanted = lost_process(new_process, stores)
    cold = Stores(None, stores.durable)
    table = open_table(stores.durable)
    looking = {"durable": table}
    rows = [row for row in table.query(process.manager.session_id) if "librarian" in str(row["sk"])]
    assert len(rows) >= 2
    for row in rows:
        for name, value in row.items():
            for flipped in _flipped(value):
                table.put({**row, name: flipped}) if name not in ("session_id", "sk") else None
                exact = refused_or_exact(new_process, cold, wanted, **looking)
                is_head = str(row["sk"]).endswith("#HEAD")
                if name == "data" or (is_head and name not in UNREAD):
                    # A turn that no message of the window is in is not read.
                    assert not exact or not is_head, (row["sk"], name)
                if name not in ("session_id", "sk"):
                    assert table.get(row["session_id"], row["sk"]) == {**row, name: flipped}
            table.put(row)
    assert restored(new_process, cold, **looking) == wanted
    for row in rows:
        if "#TURN#" in str(row["sk"]):
            table.put(
                {
                    **row,
                    **{name: next(_flipped(row[name])) for name in ("data", "turn") if name in row},
                }
            )
    assert UNREADABLE_TEXT in str(list(new_process(cold, durable=table, agent={}).log()))
    table.close()


def _flipped(value: Any) -> Iterator[Any]:
    if isinstance(value, bytes):
        yield from flips(value)
    elif isinstance(value, int) and not isinstance(value, bool):
        yield from (value ^ 1, value ^ 64)
    elif isinstance(value, str):
        yield chr(ord(value[0]) ^ 1) + value[1:]


def test_a_flipped_bit_in_the_sqlite_file(new_process: NewProcess, sqlite: Stores) -> None:
    """Also the names of attributes are stored there."""
    process, wanted = lost_process(new_process, sqlite)
    table = open_table(sqlite.durable)
    assert isinstance(table, SQLiteTable)
    rows = [
        (row["session_id"], row["sk"])
        for row in table.query(process.manager.session_id)
        if "librarian" in str(row["sk"])
    ]
    write = "UPDATE manga_sessions SET item = ? WHERE partition = ? AND sort = ?"
    for key in rows:
        with table._connected() as connection:
            item = connection.execute(
                "SELECT item FROM manga_sessions WHERE partition = ? AND sort = ?", key
            ).fetchone()[0]
        for flipped in flips(item):
            with table._connected() as connection:
                connection.execute(write, (flipped, *key))
            refused_or_exact(new_process, sqlite, wanted, durable=table)
            with table._connected() as connection:
                there = connection.execute(
                    "SELECT item FROM manga_sessions WHERE partition = ? AND sort = ?", key
                ).fetchone()
                assert there[0] == flipped
                connection.execute(write, (item, *key))
    assert restored(new_process, sqlite, durable=table) == wanted
    table.close()


@pytest.mark.parametrize("left", [0, 1, 6, 7, -1])
def test_a_record_that_is_cut(
    new_process: NewProcess, services: Stores, valkey: redis.Redis, left: int
) -> None:
    process, wanted = lost_process(new_process, services)
    key: bytes = next(valkey.scan_iter(f"*:c:{process.manager.session_id}/*"))
    kept: Any = valkey.hgetall(key)
    for field in (
        field for field in kept if field.startswith(b"f:") and kept[field][:left] != kept[field]
    ):
        valkey.hset(key, field, kept[field][:left])
        refused_or_exact(new_process, services, wanted, hot=process.hot, durable=process.durable)
        assert valkey.hget(key, field) == kept[field][:left]
        valkey.hset(key, field, kept[field])


def test_a_live_agent_does_not_write_over_a_record_that_was_damaged_meanwhile(
    new_process: NewProcess, services: Stores, valkey: redis.Redis
) -> None:
    one, other = new_process(services), new_process(services)
    one.agent("a0 tool")
    one.settle()
    key: bytes = next(valkey.scan_iter(f"*:c:{one.manager.session_id}/*"))
    value: Any = valkey.hget(key, "f:head")
    valkey.hset(key, "f:head", next(flips(value)))
    kept: Any = valkey.hgetall(key)
    with pytest.raises(CorruptRecordError, match="#head"):
        other.agent("b0 tool")
    with pytest.raises(CorruptRecordError, match="#head"):
        other.agent("b1 tool")
    there: Any = valkey.hgetall(key)
    assert there == {**kept, b"x": there[b"x"]}  # it may live on


def test_a_flush_leaves_a_damaged_turn_and_keeps_its_own_copy_in_the_head(
    new_process: NewProcess, services: Stores
) -> None:
    """A flush was cut between the turn and the head, and the turn was damaged before the next."""
    process, table = new_process(services), open_table(services.durable)
    process.agent("t0 tool")
    session = process.manager.session_id
    [head] = [row for row in table.query(session) if str(row["sk"]).endswith("#HEAD")]
    process.manager.flush()
    [turn] = [row for row in table.query(session) if "#TURN#" in str(row["sk"])]
    damaged = {**turn, "turn": "?"}
    table.put(head)
    table.put(damaged)
    process.agent("t1 text")
    process.manager.flush()
    assert table.get(turn["session_id"], turn["sk"]) == damaged
    assert new_process(Stores(None, services.durable)).agent.messages == process.agent.messages
    table.close()


def test_a_damaged_conversation_can_be_deleted(
    new_process: NewProcess, services: Stores, valkey: redis.Redis
) -> None:
    table = open_table(services.durable)
    damages: list[dict[str, Any]] = [
        {"epoch": "x"},
        {"version": 7},
        {"data": b"?"},
        {"parts": "many"},
        {"member": "nobody"},
        {},
    ]
    for damage in damages:
        process = conversation(new_process, services)
        session = process.manager.session_id
        process.lose()
        key: bytes = next(valkey.scan_iter(f"*:c:{session}/A:librarian"))
        valkey.hset(key, mapping={"v": "x", "f:head": b"?", "f:window": "1-"})
        rows: list[Any] = [row for row in table.query(session) if "librarian" in str(row["sk"])]
        for row in rows:
            table.put({**row, **({"turn": "?"} if "TURN" in row["sk"] else damage)})
        manager = services.manager(session)
        with pytest.raises(CorruptRecordError):
            manager.exists("librarian")
        manager.delete_session()
        assert not manager.exists("librarian")
        assert [row["sk"] for row in table.query(session, first="A:l", attributes=[])] == [
            "A:librarian#HEAD"
        ]
        found = new_process(services)
        assert found.agent.messages == []
        found.agent("t9 text")
        found.manager.flush()
        assert new_process(Stores(None, services.durable)).agent.messages == found.agent.messages
        found.manager.delete_session()
    table.close()


def stored_head(new_process: NewProcess, stores: Stores) -> tuple[Stores, Table, Any, str]:
    """Return the stores without a hot tier, their table, a head in it, and the head's name."""
    process = conversation(new_process, stores)
    process.lose()
    table = open_table(stores.durable)
    row: Any = table.get(process.manager.session_id, "A:librarian#HEAD")
    return Stores(None, stores.durable), table, row, f"{row['session_id']}/{row['sk']}"


def test_a_record_of_a_newer_version(new_process: NewProcess, stores: Stores) -> None:
    cold, table, row, name = stored_head(new_process, stores)
    sealed = Codec().seal(b"{}", name)
    newer = bytes([sealed[0], VERSION + 1]) + sealed[2:]
    table.put({**row, "data": newer})
    with pytest.raises(CorruptRecordError, match="upgrade the package") as caught:
        restored(new_process, cold, durable=table)
    assert caught.value.record == name
    assert table.get(row["session_id"], row["sk"]) == {**row, "data": newer}
    table.close()


def test_what_a_later_release_has_added_is_kept(new_process: NewProcess, stores: Stores) -> None:
    cold, table, row, name = stored_head(new_process, stores)
    parts = open_json(row["data"], name, Codec())
    mood = {"name": "mood", "version": [1, "a", 0], "value": "good"}
    text = dump({**parts, state_part("mood"): mood})
    table.put({**row, "data": seal_json(text, name, Codec())})
    later = new_process(cold, durable=table)
    later.agent("t4 tool")
    later.manager.flush()
    row = table.get(row["session_id"], row["sk"])
    assert mood in open_json(row["data"], name, Codec()).values()
    table.close()
