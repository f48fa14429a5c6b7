"""SQLiteTable: what the contract suite cannot see."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest

from strands_manga_memory.stores import SQLiteTable


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
            table.put({"session_id": "s", "sk": f"k{number:02d}", "text": secret})
        table.close()  # what was in the write-ahead log goes into the file, and the log goes
        assert (b"secret" in path.read_bytes()) == (round_ == 0)
