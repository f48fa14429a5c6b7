"""A damaged record stops no turn, hides nothing, is exported, and is not overwritten."""

import asyncio
import re
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from typing import Any

import psycopg
import pytest
from strands.types.exceptions import StorageError

from strands_manga_memory import ConversationScope, CorruptRecordError, MangaMemory
from strands_manga_memory.memory import (
    CallablePreferenceSink,
    Owner,
    Preference,
    PreferenceOutbox,
    TableProfileSource,
)
from strands_manga_memory.stores import (
    USER_MEMORY,
    PostgresTable,
    SQLiteTable,
    Table,
    TieredStorage,
)
from strands_manga_memory.testing import ScriptedModel
from tests import servers
from tests.support import DAY, settle, store_signal, summary_id

USER, LEASE = "u1", "~spool.lease"
DERIVED = ("~by_age", "~ledger#", "~words#")
"""Beginnings of the ids of records that the package makes again from others, or deletes after they
were counted.
"""


@pytest.fixture
def postgres_tables(
    postgres_server: servers.Postgres, unique: str
) -> Iterator[tuple[Table, Table]]:
    with psycopg.connect(postgres_server.url, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {unique}")
    url = postgres_server.url.replace("/postgres", f"/{unique}")
    made = PostgresTable(url, deadline=20), PostgresTable(url, USER_MEMORY, deadline=20)
    for table in made:
        table.create_if_missing()
    yield made
    for table in made:
        table.close()


def remembered(tables: tuple[Table, Table]) -> MangaMemory:
    """Return a memory whose user has each kind of record, including a deletion."""
    memory = MangaMemory(hot="memory://", durable=tables[0], memories=tables[1], flush_every=1)
    user, now = memory.user(USER), time.time()
    summary = user.store_session_summary("old", "The user asked about Pluto.", topics=["Pluto"])
    for days in (9, 35):
        ended_at = now - days * DAY
        metadata = {**summary.metadata, "session_id": f"s{days}", "ended_at": ended_at}
        old = replace(
            summary,
            memory_id=summary_id(f"s{days}", ended_at),
            updated_at=ended_at,
            metadata=metadata,
        )
        tables[1].put(user.partition.item_of(old))
    turn(memory, "monday", "My favorite genre is horror. When does volume 4 of 『Uzumaki』 arrive?")
    user.remember("Owns a lamp.")
    user.record_feedback("Great", rating=5)
    user.prefer("author", "Junji Ito")
    user.forget(user.store_session_summary("gone", "The user asked.").memory_id)
    memory.finalize(ConversationScope(USER, "monday"))
    user.recall(query="lamp")
    settle(memory)
    return memory


def turn(memory: MangaMemory, session_id: str, text: str) -> None:
    model = ScriptedModel(lambda _: "I will check and come back to you.")
    memory.agent(model, user_id=USER, session_id=session_id)(text)


def damage(table: Any, partition: str, sort: str) -> None:
    """Truncate the row of a record in a SQL table.

    Delete all attributes of a record in a DynamoDB table except its key.
    """
    change = (
        f'UPDATE "{table.schema.name}" SET item = substr(item, 1, length(item) / 2) WHERE partition'
        " = {0} AND sort = {0}"
    )
    if isinstance(table, SQLiteTable):
        with closing(sqlite3.connect(table.path)) as connection, connection:
            connection.execute(change.format("?"), (partition, sort))
    elif isinstance(table, PostgresTable):
        with psycopg.connect(table.conninfo) as connection:
            connection.execute(change.format("%s"), (partition.encode(), sort.encode()))
    else:
        table.put({table.schema.partition: partition, table.schema.sort: sort})


def each_kind(table: Table, *partitions: str) -> Iterator[dict[str, Any]]:
    """Yield one record of each kind in some partitions of a table."""
    seen = set()
    for partition in partitions:
        for row in list(table.query(partition)):
            kind = partition, re.sub(r"#(?!HEAD|TURN).*", "", row[table.schema.sort])
            if kind not in seen:
                seen.add(kind)
                yield row


def check(tables: tuple[Table, Table]) -> None:
    memory = remembered(tables)
    rows = [(tables[1], row) for row in each_kind(tables[1], USER, f"changes/{USER}")]
    rows += [(tables[0], row) for row in each_kind(tables[0], ":u1:monday", "user/:u1")]
    assert len(rows) >= 15
    for number, (table, row) in enumerate(rows):
        partition, sort = row[table.schema.partition], row[table.schema.sort]
        table.put(row)  # the recalls of an earlier round may have been counted meanwhile
        damage(table, partition, sort)
        damaged = table.get(partition, sort)
        assert damaged == {table.schema.partition: partition, table.schema.sort: sort}
        turn(memory, f"session {number}", f"Do I own a lamp? I love the color {number}.")
        assert sort.startswith("fact#") or "Owns a lamp." in [
            each.content for each in memory.user(USER).recall(query="lamp")
        ]
        assert len(memory.user(USER).recall(limit=None)) >= 5
        exported = memory.export_user(USER)
        is_memory = table is tables[1] and not sort.startswith(("~", "user/"))
        if is_memory or sort == "~changes" or sort.endswith("#HEAD") or "#TURN#" in sort:
            assert len(exported["unreadable"]) == 1, (sort, exported["unreadable"])
        assert len(exported["memories"]) >= 8
        if sort == "~changes":  # which deletions there were is unknown
            with pytest.raises(CorruptRecordError, match="~changes"):
                memory.finalize(ConversationScope(USER, f"session {number}"))
        else:
            memory.finalize(ConversationScope(USER, f"session {number}"))
        if not sort.startswith(DERIVED):
            assert table.get(partition, sort) == damaged, sort
        table.put(row)
    damage(
        tables[0],
        ":u1:monday",
        next(each["sk"] for _, each in rows if str(each.get("sk")).endswith("#HEAD")),
    )
    damage(tables[1], f"changes/{USER}", "~changes")
    assert memory.forget_user(USER).complete
    assert not memory.user(USER).recall()
    memory.close()


def test_a_damaged_record_hides_no_other_one(tables: tuple[Table, Table]) -> None:
    check(tables)


@pytest.mark.long
@pytest.mark.xdist_group("postgres")
def test_damaged_record_in_postgresql_hides_no_other(postgres_tables: tuple[Table, Table]) -> None:
    check(postgres_tables)


def test_a_damaged_erasure_marker_restores_no_erased_data(tables: tuple[Table, Table]) -> None:
    memory = MangaMemory(hot="memory://", durable=tables[0], memories=tables[1], flush_every=1)
    turn(memory, "monday", "My favorite genre is horror. When does volume 4 of 『Uzumaki』 arrive?")
    settle(memory)
    key = {"user_id": USER, "memory_id": "~erased"}
    tables[1].put({**key, "mark": "1", "at": time.time() + 1})
    for row in list(tables[1].query(USER)):
        if not row["memory_id"].startswith("~"):
            tables[1].delete(USER, row["memory_id"])
    damage(tables[1], USER, "~erased")
    with pytest.raises(CorruptRecordError, match="~erased"):
        memory.finalize(ConversationScope(USER, "monday"))
    turn(memory, "tuesday", "Do you have lamps?")
    assert memory.user(USER).recall(limit=None) == []
    assert tables[1].get(USER, "~erased") == key
    assert memory.forget_user(USER).complete
    memory.close()


def test_a_damaged_stored_value_hides_no_other_one(tables: tuple[Table, Table]) -> None:
    memory = MangaMemory(hot="memory://", durable=tables[0], memories=tables[1])
    storage = memory.storage(user_id=USER)
    turn(memory, "monday", "Hello")
    for key, value in {"good": b"1", "small": b"2", "large": b"3" * 900_000}.items():
        asyncio.run(storage.write(key, value))
    for row in list(tables[0].query(f"storage/{USER}")):
        if row["sk"] == "k/small" or row["sk"].startswith("p/"):
            damage(tables[0], f"storage/{USER}", row["sk"])
    cold = TieredStorage(durable=tables[0], user_id=USER)
    assert asyncio.run(cold.read("good")) == b"1"
    for key in ("small", "large"):
        with pytest.raises(StorageError, match="is damaged"):
            asyncio.run(cold.read(key))
    with pytest.raises(StorageError, match="is damaged"):
        asyncio.run(cold.write("small", b"4"))
    assert tables[0].get(f"storage/{USER}", "k/small") == {
        "session_id": f"storage/{USER}",
        "sk": "k/small",
    }
    assert cold.keys() == ["good", "large", "small"]
    exported = memory.export_user(USER)
    assert "good" in [each["key"] for each in exported["stored_values"]]
    assert f"storage/{USER}/k/small" in exported["unreadable"]
    asyncio.run(cold.delete("small"))
    assert cold.keys() == ["good", "large"]
    assert memory.forget_user(USER).complete
    memory.close()


def test_a_damaged_profile_is_not_an_empty_profile(tables: tuple[Table, Table]) -> None:
    tables[1].put({"user_id": USER, "memory_id": "profile", "preferences": {"genre": "horror"}})
    source = TableProfileSource(tables[1])
    assert source.read(USER) is not None
    damage(tables[1], USER, "profile")
    with pytest.raises(CorruptRecordError, match="u1/profile"):
        source.read(USER)


def test_a_damaged_entry_of_signals_stops_no_other_user(tables: tuple[Table, Table]) -> None:
    received = list[str]()
    outbox = PreferenceOutbox(
        tables[1], CallablePreferenceSink(lambda signal: received.append(signal.user_id))
    )
    store_signal(outbox, Owner("u2"), Preference("genre", "horror"))
    [bucket] = (key for key in map("spool/{:02d}".format, range(16)) if list(tables[1].query(key)))
    tables[1].put({"user_id": bucket, "memory_id": "a", "owner": Owner("a").ids})
    damage(tables[1], bucket, "a")
    assert outbox.drain_all() == 1
    assert received == ["u2"]


@pytest.mark.parametrize("until", [None, "soon", 1e12])
def test_a_damaged_lease_is_replaced(tables: tuple[Table, Table], until: Any) -> None:
    """Without an expiry in reach, no worker would ever send the user's signals again."""
    received = list[str]()
    outbox = PreferenceOutbox(tables[1], CallablePreferenceSink(lambda s: received.append(s.value)))
    owner = Owner(USER)
    store_signal(outbox, owner, Preference("genre", "horror"))
    lease = {"user_id": USER, "memory_id": LEASE, "holder": "h", "until": until}
    tables[1].put(lease)
    if until is None:
        damage(tables[1], USER, LEASE)
    assert outbox.drain(owner) == 1
    assert received == ["horror"]
    assert tables[1].get(USER, LEASE) is None
