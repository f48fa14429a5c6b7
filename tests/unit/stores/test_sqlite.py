"""SQLiteTable: what the contract suite cannot see."""

import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from strands_manga_memory.stores import ABSENT, Condition, SQLiteTable, Write


def test_what_is_replaced_is_overwritten_in_the_file_whatever_sqlite_was_built_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect = sqlite3.connect

    def careless(*arguments: Any, **named: Any) -> sqlite3.Connection:
        connection = connect(*arguments, **named)
        connection.execute("PRAGMA secure_delete = OFF")  # the default of many builds
        return connection

    monkeypatch.setattr(sqlite3, "connect", careless)
    path = tmp_path / "t.sqlite3"
    for round_ in range(2):
        table = SQLiteTable(path)
        table.create_if_missing()
        for number in range(20):
            secret = "" if round_ else f"secret {number} " * 20
            table.put({"session_id": "s", "sk": f"k{number:02d}", "text": secret}, scrub=False)
        table.close()  # what was in the write-ahead log goes into the file, and the log goes
        assert (b"secret" in path.read_bytes()) == (round_ == 0)


def files_of(table: SQLiteTable) -> bytes:
    """Return all bytes of the table's files, including the write-ahead log."""
    return b"".join(path.read_bytes() for path in table.path.parent.iterdir())


def record(text: str, sort: str = "k") -> dict[str, Any]:
    return {"session_id": "s", "sk": sort, "text": text}


ERASURES: dict[str, Callable[[SQLiteTable], object]] = {
    "delete": lambda table: table.delete("s", "k"),
    "batch delete": lambda table: table.batch_write(deletes=[("s", "k"), ("s", "j")]),
    "transaction": lambda table: table.transact([Write(key=("s", "k"))]),
    "put": lambda table: table.put(record("harmless")),
    "conditional put": lambda table: table.put(
        record("harmless"), when=Condition(equals={"text": "the secret " * 30})
    ),
    "batch put": lambda table: table.batch_write(puts=[record("harmless")]),
}


@pytest.mark.parametrize("erasure", ERASURES.values(), ids=ERASURES)
def test_what_is_deleted_or_replaced_is_in_no_file_while_the_table_is_open(
    erasure: Callable[[SQLiteTable], object], tmp_path: Path
) -> None:
    table = SQLiteTable(tmp_path / "t.sqlite3")
    table.create_if_missing()
    for number in range(20):  # the page is rewritten with every one of them
        table.put(record(f"other {number} " * 20, f"other{number:02d}"), when=ABSENT)
    table.put(record("the secret " * 30), when=ABSENT)
    assert b"the secret" in files_of(table)
    erasure(table)
    assert b"the secret" not in files_of(table)


def test_what_may_linger_goes_with_the_next_erasure(tmp_path: Path) -> None:
    table = SQLiteTable(tmp_path / "t.sqlite3")
    table.create_if_missing()
    table.put(record("the secret " * 30), when=ABSENT)
    table.put(record("harmless"), scrub=False)
    table.delete("s", "k")
    assert b"the secret" not in files_of(table)


@pytest.mark.parametrize(
    "use",
    [lambda table: table.get("s", "other"), lambda table: table.put(record("anything", "other"))],
)
def test_what_another_process_kept_from_being_erased_goes_with_the_next_use(
    use: Callable[[SQLiteTable], object], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    table = SQLiteTable(tmp_path / "t.sqlite3", deadline=0.05)
    table.create_if_missing()
    table.put(record("the secret " * 30), when=ABSENT)
    with closing(sqlite3.connect(table.path)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT * FROM sqlite_master").fetchall()
        table.delete("s", "k")
        assert table.get("s", "k") is None
        assert b"the secret" in files_of(table)
    assert caplog.text.count("stays in the write-ahead log") == 1
    use(table)
    assert b"the secret" not in files_of(table)


_KILLED = """
import os, signal, sys
from strands_manga_memory.stores import SQLiteTable
table = SQLiteTable(sys.argv[1])
table.create_if_missing()
table.put({"session_id": "s", "sk": "k", "text": "the secret " * 30})
if sys.argv[2] == "before":  # what erases is committed, nothing else is done
    table._scrub = lambda connection: None
table.delete("s", "k")
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("when", ["before", "after"])
def test_nothing_erased_is_in_a_file_after_a_kill(when: str, tmp_path: Path) -> None:
    table = SQLiteTable(tmp_path / "t.sqlite3")
    child = subprocess.run([sys.executable, "-c", _KILLED, str(table.path), when], check=False)
    assert child.returncode == -signal.SIGKILL
    assert (b"the secret" in files_of(table)) == (when == "before")
    assert table.get("s", "k") is None
    assert b"the secret" not in files_of(table)


def test_a_record_is_read_once_when_it_is_replaced_on_a_condition(tmp_path: Path) -> None:
    table = SQLiteTable(tmp_path / "t.sqlite3")
    table.create_if_missing()
    table.put(record("first"))
    statements: list[str] = []
    connection = table._connection
    connection.set_trace_callback(statements.append)

    assert table.put(record("second"), when=Condition(equals={"text": "first"}))

    connection.set_trace_callback(None)
    assert sum(statement.startswith("SELECT item") for statement in statements) == 1
    assert table.get("s", "k") == record("second")


def test_no_number_is_below_nan(tmp_path: Path) -> None:
    table = SQLiteTable(tmp_path / "t.sqlite3")
    table.create_if_missing()
    table.put({**record("old"), "expires_at": 1})
    assert not table.put(record("new"), when=Condition(below={"expires_at": float("nan")}))


def test_writes_of_an_interrupted_transaction_are_never_seen(tmp_path: Path) -> None:
    table = SQLiteTable(tmp_path / "t.sqlite3")
    table.create_if_missing()
    for operation in (lambda: table.get("s", "half"), lambda: table.put(record("next"))):
        with (
            table._connected() as connection
        ):  # as if Ctrl-C had been pressed between the writes and the rollback
            connection.execute("BEGIN IMMEDIATE")
            connection.execute(table._insert, ("s", "half", b"{}"))
        operation()
        with closing(sqlite3.connect(table.path, timeout=0.1, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")  # the lock of the file is free
            assert (
                other.execute("SELECT sort FROM manga_sessions WHERE sort = 'half'").fetchall()
                == []
            )
            other.execute("ROLLBACK")
