"""One contract for every Table: SQLite, and DynamoDB's API over a socket."""

import itertools
import json
import os
import sqlite3
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import boto3
import pytest
from botocore.stub import ANY, Stubber

from strands_manga_memory.exceptions import (
    CorruptRecordError,
    StoreError,
    StoreRefusedError,
    StoreUnavailableError,
)
from strands_manga_memory.scope import ConversationScope
from strands_manga_memory.stores import (
    ABSENT,
    SESSIONS,
    USER_MEMORY,
    Condition,
    DynamoDBTable,
    PostgresTable,
    SQLiteTable,
    Table,
    TableSchema,
    Write,
    dynamodb,
)
from strands_manga_memory.testing import FakeClock
from tests import clocks, servers
from tests.faults.forks import result_of_child

BY_TYPE, BY_IMPORTANCE = "user_id-memory_type-index", "user_id-importance-index"
Make = Callable[..., Table]

KEYS = {
    "KeySchema": [
        {"AttributeName": "session_id", "KeyType": "HASH"},
        {"AttributeName": "sk", "KeyType": "RANGE"},
    ],
    "AttributeDefinitions": [
        {"AttributeName": "session_id", "AttributeType": "S"},
        {"AttributeName": "sk", "AttributeType": "S"},
    ],
}
"""Published keys of a table of sessions."""


@pytest.fixture(
    params=[
        "sqlite",
        "dynamodb",
        pytest.param("postgres", marks=pytest.mark.xdist_group("postgres")),
    ]
)
def make(request: pytest.FixtureRequest, tmp_path: Path, unique: str) -> Make:
    """Return a function that makes a table of a schema, without creating it."""
    if request.param == "sqlite":
        return lambda schema=SESSIONS: SQLiteTable(tmp_path / "tables.db", schema)
    if request.param == "postgres":
        url = request.getfixturevalue("postgres_server").url
        return lambda schema=SESSIONS: PostgresTable(
            url, replace(schema, name=f"{unique}.{schema.name}"), deadline=20
        )
    client = request.getfixturevalue("dynamodb_client")
    return lambda schema=SESSIONS: DynamoDBTable(
        client, schema, name=f"{unique}.{schema.name}", deadline=20
    )


@pytest.fixture(scope="session")
def dynamodb_client(dynamodb_server: servers.DynamoDB) -> Any:
    return dynamodb_server.client()


@pytest.fixture
def table(make: Make) -> Table:
    table = make()
    table.create_if_missing()
    return table


@pytest.fixture
def memories(make: Make) -> Table:
    table = make(USER_MEMORY)
    table.create_if_missing()
    return table


def record(sort: str = "k", partition: str = "p", /, **attributes: Any) -> dict[str, Any]:
    return {"session_id": partition, "sk": sort, **attributes}


def sorts(items: Iterator[dict[str, Any]]) -> list[str]:
    return [item["sk"] for item in items]


# Records


def test_creating_twice_keeps_what_is_there(table: Table) -> None:
    table.put(record(n=1))
    table.create_if_missing()
    assert table.get("p", "k") == record(n=1)


def test_a_table_that_was_not_created_says_what_to_do(make: Make) -> None:
    table = make()
    for operation in (
        lambda: table.get("p", "k"),
        lambda: table.put(record()),
        lambda: list(table.query("p")),
    ):
        with pytest.raises(
            StoreRefusedError,
            match=r"create_if_missing\(\) or `strands-manga-memory init-table` makes it",
        ) as caught:
            operation()
        assert caught.value.reason == "table"


def test_values_come_back_with_their_types(table: Table) -> None:
    values: dict[str, Any] = {
        "text": "日本語 \U0001f4da \x00 '\"\\",
        "empty": "",
        "int": 7,
        "negative": -5,
        "large": 10**30,
        "float": 0.1,
        "small": 1.5e-7,
        "true": True,
        "false": False,
        "null": None,
        "bytes": bytes(range(256)),
        "no bytes": b"",
        "list": ["a", 1, 1.5, None, True, b"\xff", [], {}],
        "dict": {"a.b": {"日": [1]}, "#": ""},
        "name": "a reserved word",
        "a.b-c#d": 1,
    }
    table.put(record(**values))
    item = table.get("p", "k")
    assert item == record(**values)
    assert {name: type(value) for name, value in item.items()} == {
        name: type(value) for name, value in record(**values).items()
    }
    assert [type(value) for value in item["list"]] == [type(value) for value in values["list"]]
    assert table.batch_get([("p", "k")]) == {("p", "k"): item}
    assert list(table.query("p")) == [item]


def test_whole_numbers_come_back_as_int_and_tuples_as_lists(table: Table) -> None:
    table.put(record(number=2.0, deep={"n": [3.0, -0.0]}, pair=(1, 2), raw=bytearray(b"x")))
    item = table.get("p", "k")
    assert item == record(number=2, deep={"n": [3, 0]}, pair=[1, 2], raw=b"x")
    assert [type(value) for value in (item["number"], *item["deep"]["n"], item["raw"])] == [
        int,
        int,
        int,
        bytes,
    ]


@pytest.mark.parametrize(
    "value", [float("nan"), float("inf"), -float("inf"), [float("nan")], {"a": float("inf")}]
)
def test_a_number_must_be_finite(table: Table, value: Any) -> None:
    with pytest.raises(ValueError, match="must be finite, got"):
        table.put(record(value=value))
    assert table.get("p", "k") is None


@pytest.mark.parametrize("value", [{1, 2}, object(), [1j]])
def test_other_types_are_refused(table: Table, value: Any) -> None:
    with pytest.raises(TypeError, match="a stored value must be"):
        table.batch_write(puts=[record("a"), record("b", value=value)])
    assert list(table.query("p")) == []


@pytest.mark.parametrize(
    "item", [{}, {"session_id": "p"}, {"session_id": "", "sk": "k"}, {"session_id": "p", "sk": 1}]
)
def test_a_record_needs_its_key(table: Table, item: dict[str, Any]) -> None:
    for operation in (
        lambda: table.put(item),
        lambda: table.batch_write(puts=[item]),
        lambda: table.transact([Write(item=item)]),
    ):
        with pytest.raises(
            ValueError, match=r"item must have a non-empty string as '(session_id|sk)', got"
        ):
            operation()


def test_a_put_replaces_the_whole_record(table: Table) -> None:
    table.put(record(a=1, b=2))
    table.put(record(a=3))
    assert table.get("p", "k") == record(a=3)
    assert table.delete("p", "k")
    assert table.get("p", "k") is None
    assert table.delete("p", "k")


def test_a_record_of_350_kb(table: Table) -> None:
    item = record(data=os.urandom(350_000))
    table.put(item)
    assert table.get("p", "k") == item


def test_ids_never_cross(table: Table) -> None:
    ids = ["a", "a*", "a:b", "a#b", "{x}", "x", "a/b", "日本", "a" * 512, "日" * 512]
    names = [ConversationScope("u", id_).storage_session_id for id_ in ids]
    names += [ConversationScope(id_, "s").storage_session_id for id_ in ids]
    table.batch_write(puts=[record("head", name, original=name) for name in names])
    for name in names[::2]:
        table.delete(name, "head")
    for name in names[1::2]:
        assert list(table.query(name)) == [record("head", name, original=name)]
    assert table.batch_get([(name, "head") for name in names[::2]]) == {}


# Conditions


STORED: list[dict[str, Any] | None] = [
    *(None, {}, {"v": 1}, {"v": 2, "s": "x"}, {"v": 1, "s": None}),
    *({"v": "1", "b": b"x"}, {"v": 1.5, "l": [1, {"a": 2}]}),
]


@pytest.mark.parametrize(
    "when",
    [
        ABSENT,
        Condition(),
        Condition(equals={"v": 1}),
        Condition(absent=True, equals={"v": 1}),
        Condition(equals={"v": 1, "s": "x"}),
        Condition(equals={"s": None}),
        Condition(equals={"b": b"x"}),
        Condition(equals={"l": [1, {"a": 2}]}),
        Condition(below={"v": 2}),
        Condition(below={"v": 1.5}),
        Condition(absent=True, below={"v": 2}),
        Condition(equals={"s": "x"}, below={"v": 3}),
    ],
)
def test_conditions_are_judged_as_they_say(table: Table, when: Condition) -> None:
    for stored in STORED:
        expected = when.met_by(stored)
        before = None if stored is None else record(**stored)

        def restore(before: dict[str, Any] | None = before) -> None:
            table.delete("p", "k") if before is None else table.put(before)

        restore()
        assert table.put(record(new=True), when=when) is expected, stored
        assert table.get("p", "k") == (record(new=True) if expected else before)
        restore()
        assert table.delete("p", "k", when=when) is expected, stored
        assert table.get("p", "k") == (None if expected else before)
    restore()
    checked = [Write(item=record("other")), Write(key=("p", "k"), when=when, is_check=True)]
    assert table.transact(checked) is expected
    assert table.get("p", "k") == before
    assert (table.get("p", "other") is not None) is expected
    table.delete("p", "other")
    restore()
    assert (
        table.transact([Write(item=record("other")), Write(item=record(new=True), when=when)])
        is expected
    )
    assert table.get("p", "k") == (record(new=True) if expected else before)
    assert (table.get("p", "other") is not None) is expected


def test_of_many_writers_exactly_one_wins_each_version(table: Table) -> None:
    table.put(record(v=0))
    wins: list[int] = []

    def compete(_: int) -> None:
        for _ in range(8):
            while True:
                item = table.get("p", "k")
                if table.put(record(v=item["v"] + 1), when=Condition(equals={"v": item["v"]})):
                    wins.append(item["v"] + 1)
                    break

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(compete, range(4)))
    assert sorted(wins) == list(range(1, 33))


# Batches


def test_batches_larger_than_one_request(table: Table) -> None:
    items = [record(f"k{number:03}", f"p{number % 3}", n=number) for number in range(130)]
    table.batch_write(puts=items)
    keys = [(item["session_id"], item["sk"]) for item in items]
    found = table.batch_get([*keys, ("p0", "none"), ("none", "k000"), *keys[:5]])
    assert found == dict(zip(keys, items, strict=True))
    table.batch_write(puts=[{**items[0], "n": -1}], deletes=[*keys[1:60], ("p", "none")])
    assert table.get(*keys[0]) == {**items[0], "n": -1}
    assert set(table.batch_get(keys)) == {keys[0], *keys[60:]}


def test_empty_batches_do_nothing(table: Table) -> None:
    table.batch_write()
    assert table.batch_get([]) == {}
    assert table.transact([])


def test_a_record_that_a_batch_puts_and_deletes_is_put(table: Table) -> None:
    table.batch_write(puts=[record()], deletes=[("p", "k")])
    assert table.get("p", "k") == record()


def test_of_two_puts_of_one_record_in_a_batch_the_last_counts(table: Table) -> None:
    table.batch_write(puts=[record(n=1), record(n=2)])
    assert table.get("p", "k") == record(n=2)


# Transactions


def test_a_transaction_writes_all_or_nothing(table: Table) -> None:
    table.put(record("head", v=1))
    table.put(record("old"))
    new_head, segments = record("head", v=2), [record(f"m{number:02}") for number in range(97)]
    writes = [
        Write(item=new_head, when=Condition(equals={"v": 1})),
        Write(key=("p", "old"), when=Condition(equals={"sk": "old"})),
        *(Write(item=segment, when=ABSENT) for segment in segments),
    ]
    assert table.transact(writes)
    assert sorts(table.query("p")) == ["head", *(segment["sk"] for segment in segments)]
    assert not table.transact(writes)
    assert table.transact([Write(key=("p", "head")), Write(key=("p", "never"))])
    assert table.get("p", "head") is None


@pytest.mark.parametrize(
    ("writes", "message"),
    [
        (
            [Write(item=record(str(number))) for number in range(101)],
            "writes must be at most 100, got 101",
        ),
        ([Write(item=record()), Write(key=("p", "k"))], "writes must be of different records"),
    ],
)
def test_a_wrong_transaction_is_refused(table: Table, writes: list[Write], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        table.transact(writes)
    assert list(table.query("p")) == []


# Queries


def test_a_query_goes_in_the_order_of_utf_8(table: Table) -> None:
    names = ["!", "Z", "a", "a!", "aa", "b", "é", "日", "\uffee", "\U0001f4da"]
    assert names == sorted(names, key=str.encode)
    table.batch_write(puts=[record(name) for name in reversed(names)] + [record("zz", "other")])
    assert sorts(table.query("p")) == names
    assert sorts(table.query("p", reverse=True)) == names[::-1]
    assert list(table.query("none")) == []


@pytest.mark.parametrize(
    ("bounds", "expected"),
    [
        ({}, "abcdefg"),
        ({"first": "c"}, "cdefg"),
        ({"last": "c"}, "abc"),
        ({"first": "b", "last": "d"}, "bcd"),
        ({"first": "b", "last": "b"}, "b"),
        ({"first": "bb", "last": "cc"}, "c"),
        ({"first": "d", "last": "b"}, ""),
        ({"first": ""}, "abcdefg"),
        ({"last": ""}, ""),
        ({"first": "h"}, ""),
    ],
)
def test_a_query_takes_bounds_direction_and_limit(
    table: Table, bounds: dict[str, Any], expected: str
) -> None:
    table.batch_write(puts=[record(name) for name in "gfedcba"])
    assert "".join(sorts(table.query("p", **bounds))) == expected
    assert "".join(sorts(table.query("p", **bounds, reverse=True))) == expected[::-1]
    for limit in (0, 1, 2, 100):
        assert "".join(sorts(table.query("p", **bounds, limit=limit))) == expected[:limit]
        assert (
            "".join(sorts(table.query("p", **bounds, limit=limit, reverse=True)))
            == expected[::-1][:limit]
        )


def test_a_query_pages_until_limit_or_end(table: Table) -> None:
    names = [f"k{number:04}" for number in range(300)]
    table.batch_write(puts=[record(name, data=b"x" * 100) for name in names])
    assert sorts(table.query("p")) == names
    assert sorts(table.query("p", limit=64)) == names[:64]
    assert sorts(table.query("p", limit=200, first="k0010")) == names[10:210]
    assert sorts(table.query("p", limit=129, reverse=True)) == names[:-130:-1]


def test_a_query_reads_only_what_is_asked_and_the_key(table: Table) -> None:
    table.put(record(**{"name": "n", "size": 1, "body": b"x" * 1000, "a.b": 2}))
    assert list(table.query("p", attributes=["name", "a.b", "none"])) == [
        record(**{"name": "n", "a.b": 2})
    ]
    assert list(table.query("p", attributes=[])) == [record()]
    assert list(table.query("p", attributes=["sk", "size"])) == [record(size=1)]


def test_a_table_can_be_written_while_it_is_queried(table: Table) -> None:
    table.batch_write(puts=[record(f"k{number:03}") for number in range(70)])
    seen = []
    for item in table.query("p"):
        table.delete("p", item["sk"])
        seen.append(item["sk"])
    assert len(seen) == 70
    assert list(table.query("p")) == []


def memory(memory_id: str, user: str = "u", **attributes: Any) -> dict[str, Any]:
    return {"user_id": user, "memory_id": memory_id, **attributes}


def ids(items: Iterator[dict[str, Any]]) -> list[str]:
    return [item["memory_id"] for item in items]


# Process and connections


def test_it_can_be_used_after_close(table: Table) -> None:
    table.put(record())
    table.close()
    table.close()
    assert table.get("p", "k") == record()


def test_it_can_be_used_after_a_fork(table: Table) -> None:
    table.put(record(v=1))

    def write_in_child() -> list[Any]:
        item = table.get("p", "k")
        return [item["v"], table.put(record(v=2), when=Condition(equals={"v": item["v"]}))]

    assert result_of_child(write_in_child) == [1, True]
    assert table.get("p", "k") == record(v=2)
    assert table.put(record(v=3), when=Condition(equals={"v": 2}))


def test_it_can_be_used_after_a_fork_in_the_middle_of_writes(table: Table) -> None:
    stop = threading.Event()

    def write() -> None:
        for number in itertools.count():
            if stop.is_set():
                return
            table.put(record(f"busy{number % 5}"))

    with ThreadPoolExecutor(2) as pool:
        running = [pool.submit(write) for _ in range(2)]
        try:
            for number in range(3):
                assert result_of_child(partial(table.put, record(f"child{number}")))
        finally:
            stop.set()
        for future in running:
            future.result()
    assert sorts(table.query("p", first="child0", last="child9")) == ["child0", "child1", "child2"]


# SQLite

COUNT = """
import sys
from strands_manga_memory.stores import Condition, SQLiteTable
table = SQLiteTable(sys.argv[1])
table.create_if_missing()
for _ in range(int(sys.argv[2])):
    while True:
        item = table.get("p", "k")
        new = {"session_id": "p", "sk": "k", "v": item["v"] + 1 if item else 1}
        when = Condition(equals={"v": item["v"]}) if item else Condition(absent=True)
        if table.put(new, when=when):
            break
"""


def test_sqlite_is_safe_with_several_processes(tmp_path: Path) -> None:
    path = tmp_path / "new folder" / "shared.db"
    workers = [subprocess.Popen([sys.executable, "-c", COUNT, str(path), "60"]) for _ in range(3)]
    assert [worker.wait(60) for worker in workers] == [0, 0, 0]
    assert SQLiteTable(path).get("p", "k") == record(v=180)


WRITE_WITHOUT_A_PAUSE = """
import itertools, sys, threading
from strands_manga_memory.stores import SQLiteTable
table = SQLiteTable(sys.argv[1])
def write():
    for number in itertools.count():
        table.put({"session_id": "p", "sk": f"busy{number % 5}"})
for _ in range(2):
    threading.Thread(target=write, daemon=True).start()
table.put({"session_id": "p", "sk": "begun"})
print("writing", flush=True)
sys.stdin.read()
"""


def test_sqlite_serves_a_process_beside_one_that_writes_without_a_pause(tmp_path: Path) -> None:
    """SQLite's own waiting is unfair: a busy process may pass for seconds."""
    path = tmp_path / "shared.db"
    table = SQLiteTable(path, deadline=2)
    table.create_if_missing()
    code = [sys.executable, "-c", WRITE_WITHOUT_A_PAUSE, str(path)]
    with subprocess.Popen(code, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as busy:
        busy.stdout.readline()
        for number in range(100):
            assert table.put(record(f"k{number}")), "no write waits until the deadline"
        assert busy.poll() is None
        busy.kill()
    table.close()


def test_sqlite_files_are_private(tmp_path: Path) -> None:
    path = tmp_path / "one" / "two" / "manga.db"
    table = SQLiteTable(path)
    table.create_if_missing()
    table.put(record())
    modes = {f.name: stat.S_IMODE(f.stat().st_mode) for f in (tmp_path / "one").rglob("*")}
    assert modes == {"two": 0o700, "manga.db": 0o600, "manga.db-wal": 0o600, "manga.db-shm": 0o600}
    assert stat.S_IMODE((tmp_path / "one").stat().st_mode) == 0o700


def test_sqlite_settings(tmp_path: Path) -> None:
    table = SQLiteTable(tmp_path / "manga.db", deadline=2.5)
    table.create_if_missing()
    pragmas = {
        name: table._connection.execute(f"PRAGMA {name}").fetchone()[0]
        for name in ("journal_mode", "synchronous", "busy_timeout")
    }
    assert pragmas == {"journal_mode": "wal", "synchronous": 1, "busy_timeout": 2500}


def test_sqlite_stays_where_it_was_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    table = SQLiteTable("manga.db")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    table.create_if_missing()
    assert (tmp_path / "manga.db").exists()


def test_sqlite_keeps_several_schemas_in_one_file(tmp_path: Path) -> None:
    odd = TableSchema('odd "name"; DROP', "session_id", "sk")
    tables = [SQLiteTable(tmp_path / "manga.db", schema) for schema in (SESSIONS, odd)]
    for number, table in enumerate(tables):
        table.create_if_missing()
        table.put(record(n=number))
    assert [table.get("p", "k") for table in tables] == [record(n=0), record(n=1)]


def test_sqlite_queries_are_index_lookups(tmp_path: Path) -> None:
    table = SQLiteTable(tmp_path / "manga.db", USER_MEMORY)
    table.create_if_missing()
    statements: list[str] = []
    table._connection.set_trace_callback(statements.append)
    list(table.query("u", first="a", last="b"))
    table.batch_write(
        puts=[memory(f"{n:03}", memory_type="t", importance_score=n) for n in range(100)]
    )
    list(table.query("u"))
    list(table.query("u", reverse=True))
    table._connection.set_trace_callback(None)
    queries = [statement for statement in statements if " LIMIT " in statement]
    assert len(queries) == 5
    for query in queries:
        plan = [row[3] for row in table._connection.execute(f"EXPLAIN QUERY PLAN {query}")]
        assert all(step.startswith("SEARCH ") for step in plan), plan


def test_sqlite_refuses_a_newer_file_and_leaves_it(tmp_path: Path) -> None:
    path = tmp_path / "manga.db"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE manga_sessions (other)")
        connection.execute("PRAGMA user_version = 2")
    connection.close()
    before = path.read_bytes()
    table = SQLiteTable(path)
    for operation in (
        table.create_if_missing,
        lambda: table.get("p", "k"),
        lambda: table.put(record()),
    ):
        with pytest.raises(
            CorruptRecordError, match="has version 2, this package reads up to 1"
        ) as caught:
            operation()
        assert caught.value.record == str(path)
    assert path.read_bytes() == before
    assert [found.name for found in tmp_path.iterdir()] == ["manga.db"]


def test_sqlite_refuses_a_file_that_is_none_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "manga.db"
    path.write_bytes(b"not a database, but long enough to look like one" * 100)
    with pytest.raises(StoreRefusedError, match="not a database") as caught:
        SQLiteTable(path).create_if_missing()
    assert caught.value.reason == "damaged"
    assert path.read_bytes().startswith(b"not a database")


def test_sqlite_notices_a_damaged_file_and_a_damaged_record(tmp_path: Path) -> None:
    path = tmp_path / "manga.db"
    table = SQLiteTable(path)
    table.create_if_missing()
    table.put(record(data="x"))
    table._connection.execute("UPDATE manga_sessions SET item = x'7b22'")
    key = {"session_id": "p", "sk": "k"}
    assert table.get("p", "k") == key
    assert table.batch_get([("p", "k")]) == {("p", "k"): key}
    assert list(table.query("p")) == list(table.query("p", attributes=["data"])) == [key]
    assert not table.put(record(), when=Condition(equals={"v": 1}))
    assert table._connection.execute("SELECT item FROM manga_sessions").fetchall() == [(b'{"',)]
    table.batch_write(puts=[record(f"k{number}", data="x" * 2000) for number in range(50)])
    table.close()
    data = bytearray(path.read_bytes())
    for page in range(2, len(data) // 4096):
        data[page * 4096 : page * 4096 + 64] = b"\xee" * 64
    path.write_bytes(data)
    with pytest.raises(StoreRefusedError, match="malformed") as refused:
        list(table.query("p"))
    assert (refused.value.reason, refused.value.record) == ("damaged", "")


def test_sqlite_waits_for_a_lock_no_longer_than_its_deadline(tmp_path: Path) -> None:
    table = SQLiteTable(tmp_path / "manga.db", deadline=0.1)
    table.create_if_missing()
    other = sqlite3.connect(tmp_path / "manga.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with clocks.Idle() as idle:
        for when in (None, ABSENT):
            with pytest.raises(StoreUnavailableError, match="locked"):
                table.put(record(), when=when)
    assert idle.seconds < 2.0
    assert table.get("p", "k") is None
    other.execute("ROLLBACK")
    other.close()
    assert table.put(record(), when=ABSENT)


def test_sqlite_judges_a_condition_in_the_same_step_as_it_writes(tmp_path: Path) -> None:
    table, other = (SQLiteTable(tmp_path / "manga.db", deadline=0.05) for _ in range(2))
    table.create_if_missing()

    class Watched(Condition):
        def met_by(self, item: Any) -> bool:
            with pytest.raises(StoreUnavailableError):
                other.put(record(v="other"))
            return item is None

    assert table.put(record(v=1), when=Watched())
    assert other.get("p", "k") == record(v=1)


def test_sqlite_waits_for_other_threads_no_longer_than_its_deadline(tmp_path: Path) -> None:
    table = SQLiteTable(tmp_path / "manga.db", deadline=0.05)
    table.create_if_missing()
    with table._lock, pytest.raises(StoreUnavailableError, match="other threads"):
        table.get("p", "k")


def test_sqlite_reports_a_place_that_cannot_be_opened(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    for path in (tmp_path / "file" / "manga.db", tmp_path):
        with pytest.raises(StoreUnavailableError):
            SQLiteTable(path).create_if_missing()


# DynamoDB


class Recorder:
    """Notes what a client asks."""

    def __init__(self, client: Any) -> None:
        self.requests: list[tuple[str, dict[str, Any]]] = []
        client.meta.events.register("provide-client-params.dynamodb", self._note)

    def _note(self, params: dict[str, Any], model: Any, **_: Any) -> None:
        self.requests.append((model.name, params))

    def take(self) -> list[tuple[str, dict[str, Any]]]:
        taken, self.requests = self.requests, []
        return taken


@pytest.fixture
def dynamo(dynamodb_server: servers.DynamoDB, unique: str) -> DynamoDBTable:
    table = DynamoDBTable(dynamodb_server.client(), USER_MEMORY, name=unique)
    table.create_if_missing()
    return table


def test_dynamodb_makes_the_table_as_it_is_published(
    dynamo: DynamoDBTable, dynamodb_client: Any, unique: str
) -> None:
    description = dynamodb_client.describe_table(TableName=unique)["Table"]
    assert description["BillingModeSummary"]["BillingMode"] == "PAY_PER_REQUEST"
    assert [key["AttributeName"] for key in description["KeySchema"]] == ["user_id", "memory_id"]
    indexes = {
        index["IndexName"]: (
            [key["AttributeName"] for key in index["KeySchema"]],
            index["Projection"]["ProjectionType"],
        )
        for index in description["GlobalSecondaryIndexes"]
    }
    assert indexes == {
        BY_TYPE: (["user_id", "memory_type"], "ALL"),
        BY_IMPORTANCE: (["user_id", "importance_score"], "ALL"),
    }
    types = {e["AttributeName"]: e["AttributeType"] for e in description["AttributeDefinitions"]}
    assert types == {"user_id": "S", "memory_id": "S", "memory_type": "S", "importance_score": "N"}
    ttl = dynamodb_client.describe_time_to_live(TableName=unique)["TimeToLiveDescription"]
    assert ttl == {"TimeToLiveStatus": "ENABLED", "AttributeName": "expires_at"}


def test_dynamodb_records_are_readable_with_plain_boto3(
    dynamo: DynamoDBTable, dynamodb_server: servers.DynamoDB, unique: str
) -> None:
    dynamo.put(memory("m", memory_type="preference", importance_score=0.9, tags=["a"], raw=b"\x00"))
    plain: Any = boto3.resource(
        "dynamodb", endpoint_url=dynamodb_server.endpoint, region_name="us-east-1"
    ).Table(unique)
    item: Any = plain.get_item(Key={"user_id": "u", "memory_id": "m"})["Item"]
    assert item["memory_type"] == "preference"
    assert float(item["importance_score"]) == 0.9
    assert (item["tags"], item["raw"].value) == (["a"], b"\x00")
    plain.put_item(Item={"user_id": "u", "memory_id": "set", "tags": {"b"}, "numbers": {1, 2}})
    found = dynamo.get("u", "set")
    assert (found["tags"], sorted(found["numbers"])) == (["b"], [1, 2])


@pytest.mark.parametrize("existing", [None, "expires_at", "other"])
def test_dynamodb_switches_ttl_on_for_a_table_that_lacks_it(
    dynamodb_client: Any, unique: str, existing: str | None
) -> None:
    table = DynamoDBTable(dynamodb_client, name=unique)
    dynamodb_client.create_table(TableName=unique, BillingMode="PAY_PER_REQUEST", **KEYS)
    if existing:
        dynamodb_client.update_time_to_live(
            TableName=unique, TimeToLiveSpecification={"Enabled": True, "AttributeName": existing}
        )
    if existing == "other":
        with pytest.raises(StoreError, match="its TTL is enabled for the attribute 'other'"):
            table.create_if_missing()
    else:
        table.create_if_missing()
        ttl = dynamodb_client.describe_time_to_live(TableName=unique)["TimeToLiveDescription"]
        assert ttl == {"TimeToLiveStatus": "ENABLED", "AttributeName": "expires_at"}


def test_dynamodb_may_be_created_by_many_at_once(
    dynamodb_server: servers.DynamoDB, unique: str
) -> None:
    tables = [DynamoDBTable(dynamodb_server.client(), name=unique) for _ in range(4)]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda table: table.create_if_missing(), tables))
    assert tables[0].put(record())


def test_dynamodb_reads_are_consistent(dynamo: DynamoDBTable) -> None:
    asked = Recorder(dynamo.client)
    dynamo.get("u", "m")
    dynamo.batch_get([("u", "m")])
    list(dynamo.query("u"))
    get, batch, query = (params for _, params in asked.take())
    assert get["ConsistentRead"]
    assert batch["RequestItems"][dynamo.name]["ConsistentRead"]
    assert query["ConsistentRead"]


def test_dynamodb_asks_for_no_more_than_is_needed(dynamo: DynamoDBTable) -> None:
    dynamo.batch_write(puts=[memory(f"{number:03}") for number in range(40)])
    asked = Recorder(dynamo.client)
    assert len(list(dynamo.query("u", limit=7))) == 7
    [(name, params)] = asked.take()
    assert (name, params["Limit"]) == ("Query", 7)
    assert list(dynamo.query("u", limit=0)) == []
    assert asked.take() == []
    dynamo.batch_get([("u", f"{number:03}") for number in range(101)])
    dynamo.batch_write(deletes=[("u", f"{number:03}") for number in range(26)])
    assert [name for name, _ in asked.take()] == ["BatchGetItem"] * 2 + ["BatchWriteItem"] * 2


def test_dynamodb_pages_are_read_as_they_are_needed(dynamo: DynamoDBTable) -> None:
    """The server has no 1 MB page, so pages are made small from outside."""
    dynamo.batch_write(puts=[memory(f"{number:03}", data=b"x" * 50_000) for number in range(12)])

    def small_page(params: dict[str, Any], **_: Any) -> None:
        params["Limit"] = min(5, params.get("Limit", 5))

    dynamo.client.meta.events.register("provide-client-params.dynamodb.Query", small_page)
    asked = Recorder(dynamo.client)
    items = dynamo.query("u")
    assert asked.take() == []
    assert [next(items)["memory_id"] for _ in range(5)] == [f"{number:03}" for number in range(5)]
    assert len(asked.take()) == 1
    assert next(items)["memory_id"] == "005"
    assert len(asked.take()) == 1
    assert ids(items) == [f"{number:03}" for number in range(6, 12)]
    assert ids(dynamo.query("u", limit=7, reverse=True)) == [f"{n:03}" for n in range(11, 4, -1)]
    assert [params["Limit"] for _, params in asked.take()][-2:] == [5, 2]


def test_dynamodb_refuses_an_item_it_cannot_hold(dynamo: DynamoDBTable) -> None:
    with pytest.raises(StoreError, match="Item size") as caught:
        dynamo.put(memory("m", data=b"x" * 410_000))
    assert not isinstance(caught.value, StoreUnavailableError)


@pytest.fixture
def faulty(
    dynamodb_server: servers.DynamoDB, unique: str
) -> Iterator[tuple[DynamoDBTable, servers.FaultyProxy]]:
    with servers.FaultyProxy(dynamodb_server.host, dynamodb_server.port) as proxy:
        client = dynamodb_server.client(f"http://{proxy.host}:{proxy.port}", read_timeout=10)
        table = DynamoDBTable(client, name=unique, deadline=10)
        table.create_if_missing()
        yield table, proxy
        client.close()


def test_dynamodb_repeats_when_an_answer_was_lost(
    faulty: tuple[DynamoDBTable, servers.FaultyProxy],
) -> None:
    table, proxy = faulty
    steps: list[tuple[Callable[[], object], object]] = [
        (lambda: table.put(record(v=1)), True),
        (lambda: table.get("p", "k"), record(v=1)),
        (lambda: table.batch_write(puts=[record("b")]), None),
        (lambda: sorts(table.query("p")), ["b", "k"]),
        (
            lambda: table.transact([Write(item=record("t", v=1), when=ABSENT)]),
            True,
        ),  # known by its token
        (lambda: table.put(record("c"), when=ABSENT), False),  # the caller compares: it is there
        (lambda: table.get("p", "c"), record("c")),
        (lambda: table.delete("p", "c"), True),
    ]
    for number, (step, expected) in enumerate(steps, 1):
        proxy.drop_next_answer()
        assert step() == expected
        assert proxy.dropped_answers == number


def test_dynamodb_uses_connections_of_its_own_after_a_fork(
    faulty: tuple[DynamoDBTable, servers.FaultyProxy],
) -> None:
    table, proxy = faulty
    table.put(record(v=1))
    proxy.clear_counts()
    assert result_of_child(lambda: table.get("p", "k") == record(v=1))
    assert proxy.connections == 1
    table.get("p", "k")
    assert proxy.connections == 1


@pytest.mark.parametrize("fault", ["blackhole", "reset"])
def test_dynamodb_is_unavailable_within_its_deadline(
    faulty: tuple[DynamoDBTable, servers.FaultyProxy],
    dynamodb_server: servers.DynamoDB,
    unique: str,
    fault: str,
) -> None:
    patient, proxy = faulty
    patient.put(record())
    client = dynamodb_server.client(
        f"http://{proxy.host}:{proxy.port}", read_timeout=0.3, connect_timeout=0.3
    )
    table = DynamoDBTable(client, name=unique, deadline=0.5)
    getattr(proxy, fault)()
    with clocks.Idle() as idle, pytest.raises(StoreUnavailableError) as caught:
        table.get("p", "k")
    assert idle.seconds < 1.5
    assert caught.value.__cause__ is not None
    proxy.passing()

    def answers() -> bool:
        with suppress(StoreUnavailableError):
            return table.get("p", "k") == record()
        return False

    servers.wait_until(answers, "recovery")
    client.close()


@pytest.fixture
def stubbed(
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[tuple[DynamoDBTable, Stubber, list[float]]]:
    clock, sleeps = FakeClock(), []

    def sleep(seconds: float) -> None:
        sleeps.append(seconds)
        clock.advance(seconds)

    client = boto3.client("dynamodb", region_name="us-east-1")
    monkeypatch.setattr(dynamodb, "time", SimpleNamespace(monotonic=clock, sleep=sleep))
    monkeypatch.setattr(dynamodb, "_CREATE_SECONDS", 10.0)
    monkeypatch.setattr(dynamodb, "_RANDOM", SimpleNamespace(random=lambda: 0.0))
    with Stubber(client) as stubber:
        table = DynamoDBTable(client, name="stubbed")
        yield table, stubber, sleeps
        stubber.assert_no_pending_responses()


Stubbed = tuple[DynamoDBTable, Stubber, list[float]]


@pytest.mark.parametrize(
    ("code", "status"),
    [
        ("ProvisionedThroughputExceededException", 400),
        ("ThrottlingException", 400),
        ("RequestLimitExceeded", 400),
        ("InternalServerError", 500),
        ("Whatever", 503),
        ("TransactionConflictException", 400),
    ],
)
def test_dynamodb_waits_when_it_is_throttled(stubbed: Stubbed, code: str, status: int) -> None:
    table, stubber, sleeps = stubbed
    for _ in range(3):
        stubber.add_client_error("put_item", code, http_status_code=status)
    stubber.add_response("put_item", {})
    assert table.put(record())
    assert sleeps == [0.0125, 0.025, 0.05]


def test_dynamodb_gives_up_at_its_deadline(stubbed: Stubbed) -> None:
    table, stubber, sleeps = stubbed
    for _ in range(8):
        stubber.add_client_error(
            "get_item", "ThrottlingException", "slow down", http_status_code=400
        )
    with pytest.raises(StoreUnavailableError, match="slow down") as caught:
        table.get("p", "k")
    assert caught.value.__cause__ is not None
    assert sum(sleeps) < 1.0
    assert len(sleeps) == 7


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("AccessDeniedException", "permission"),
        ("UnrecognizedClientException", "authentication"),
        ("ExpiredTokenException", "authentication"),
        ("ValidationException", None),
    ],
)
def test_dynamodb_does_not_repeat_what_cannot_succeed(
    stubbed: Stubbed, code: str, reason: str | None
) -> None:
    table, stubber, sleeps = stubbed
    stubber.add_client_error("put_item", code, http_status_code=400)
    with pytest.raises(StoreError) as caught:
        table.put(record())
    assert getattr(caught.value, "reason", None) == reason
    assert isinstance(caught.value, StoreUnavailableError) == (reason is not None)
    assert sleeps == []


def test_dynamodb_asks_again_for_what_was_not_processed(stubbed: Stubbed) -> None:
    table, stubber, sleeps = stubbed
    puts = [{"PutRequest": {"Item": {"session_id": {"S": "p"}, "sk": {"S": n}}}} for n in "abc"]
    for asked, left in ((puts, puts[1:]), (puts[1:], puts[2:]), (puts[2:], [])):
        unprocessed = {"UnprocessedItems": {"stubbed": left} if left else {}}
        stubber.add_response("batch_write_item", unprocessed, {"RequestItems": {"stubbed": asked}})
    table.batch_write(puts=[record(name) for name in "abc"])
    keys = [{"session_id": {"S": "p"}, "sk": {"S": name}} for name in "ab"]
    stubber.add_response(
        "batch_get_item",
        {"Responses": {"stubbed": keys[:1]}, "UnprocessedKeys": {"stubbed": {"Keys": keys[1:]}}},
    )
    stubber.add_response(
        "batch_get_item",
        {"Responses": {"stubbed": keys[1:]}},
        {"RequestItems": {"stubbed": {"Keys": keys[1:], "ConsistentRead": True}}},
    )
    assert table.batch_get([("p", "a"), ("p", "b")]) == {("p", name): record(name) for name in "ab"}
    assert len(sleeps) == 3


def test_dynamodb_goes_on_as_long_as_a_batch_makes_progress(stubbed: Stubbed) -> None:
    table, stubber, sleeps = stubbed
    puts = [
        {"PutRequest": {"Item": {"session_id": {"S": "p"}, "sk": {"S": f"k{number:02}"}}}}
        for number in range(25)
    ]
    for number in range(1, 25):
        stubber.add_response("batch_write_item", {"UnprocessedItems": {"stubbed": puts[number:]}})
    stubber.add_response("batch_write_item", {})
    table.batch_write(puts=[record(f"k{number:02}") for number in range(25)])
    assert sleeps == [0.0125] * 24


def test_dynamodb_gives_up_when_nothing_is_processed(stubbed: Stubbed) -> None:
    table, stubber, sleeps = stubbed
    for _ in range(8):
        left = {"stubbed": [{"PutRequest": {"Item": {"session_id": {"S": "p"}, "sk": {"S": "k"}}}}]}
        stubber.add_response("batch_write_item", {"UnprocessedItems": left})
    with pytest.raises(StoreUnavailableError, match="1 records of a batch are throttled"):
        table.batch_write(puts=[record()])
    assert 0.5 < sum(sleeps) < 1.0


@pytest.mark.parametrize(
    ("reasons", "outcome"),
    [
        (["None", "ConditionalCheckFailed"], False),
        (["TransactionConflict", "ConditionalCheckFailed"], False),
        (["TransactionConflict", "None"], True),
        (["ThrottlingError"], True),
        (["ValidationError", "None"], StoreError),
    ],
)
def test_dynamodb_reads_why_a_transaction_was_cancelled(
    stubbed: Stubbed, reasons: list[str], outcome: Any
) -> None:
    table, stubber, _ = stubbed
    stubber.add_client_error(
        "transact_write_items",
        "TransactionCanceledException",
        modeled_fields={"CancellationReasons": [{"Code": reason} for reason in reasons]},
    )
    if outcome is True:
        stubber.add_response(
            "transact_write_items", {}, {"TransactItems": ANY, "ClientRequestToken": ANY}
        )
    if outcome is StoreError:
        with pytest.raises(StoreError):
            table.transact([Write(item=record())])
    else:
        assert table.transact([Write(item=record())]) is outcome


def test_dynamodb_waits_for_a_new_table_but_not_forever(stubbed: Stubbed) -> None:
    table, stubber, sleeps = stubbed
    stubber.add_client_error("describe_table", "ResourceNotFoundException")
    stubber.add_response("create_table", {})
    stubber.add_client_error("describe_table", "ResourceNotFoundException")
    stubber.add_response("describe_table", described("CREATING"))
    stubber.add_response("describe_table", described("ACTIVE"))
    stubber.add_response(
        "describe_time_to_live", {"TimeToLiveDescription": {"TimeToLiveStatus": "DISABLED"}}
    )
    stubber.add_response("update_time_to_live", {})
    table.create_if_missing()
    assert sleeps == [0.1, 0.2]
    for _ in range(10):
        stubber.add_response("describe_table", described("CREATING"))
    with pytest.raises(StoreUnavailableError, match=r"not active after 10 s .status CREATING"):
        table.create_if_missing()


def described(status: str) -> dict[str, Any]:
    return {"Table": {"TableStatus": status, **KEYS}}


def ttl_is(status: str) -> dict[str, Any]:
    on = {"AttributeName": "expires_at"} if status.startswith("ENABL") else {}
    return {"TimeToLiveDescription": {"TimeToLiveStatus": status, **on}}


def test_dynamodb_table_with_other_keys_is_refused_and_gets_no_ttl(
    dynamodb_server: servers.DynamoDB, unique: str
) -> None:
    """An expiry of its items by one of their attributes could delete another application's data."""
    client = dynamodb_server.client()
    keys = json.loads(json.dumps(KEYS).replace('"sk"', '"at"'))
    client.create_table(TableName=unique, BillingMode="PAY_PER_REQUEST", **keys)
    with pytest.raises(StoreError, match=r"keys are .* at \(S, RANGE\), not .* sk \(S, RANGE\)"):
        DynamoDBTable(client, name=unique).create_if_missing()
    ttl = client.describe_time_to_live(TableName=unique)["TimeToLiveDescription"]
    assert ttl["TimeToLiveStatus"] == "DISABLED"


@pytest.mark.parametrize("others", ["ENABLING", "DISABLING"])
def test_dynamodb_ttl_may_be_switched_on_by_somebody_else(stubbed: Stubbed, others: str) -> None:
    table, stubber, _ = stubbed
    stubber.add_response("describe_table", described("ACTIVE"))
    stubber.add_response("describe_time_to_live", ttl_is("DISABLED"))
    stubber.add_client_error(
        "update_time_to_live", "ValidationException", "TimeToLive is already enabled"
    )
    stubber.add_response("describe_time_to_live", ttl_is(others))
    if others == "ENABLING":
        table.create_if_missing()
        stubber.add_response("describe_table", described("UPDATING"))
        stubber.add_response("describe_time_to_live", ttl_is("ENABLING"))
        table.create_if_missing()
    else:
        with pytest.raises(StoreError, match="TimeToLive"):
            table.create_if_missing()
