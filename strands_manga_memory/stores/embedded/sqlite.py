"""Table in a local SQLite file."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from strands_manga_memory.arguments import seconds
from strands_manga_memory.stores.embedded.sqlite_file import FILE_VERSION, SQLiteFile
from strands_manga_memory.stores.items import SQLTable, loaded
from strands_manga_memory.stores.table import ABSENT, SESSIONS, Condition, Item, Key, TableSchema, Write


class SQLiteTable(SQLTable):
    """Durable table in a SQLite file.

    Several processes and threads can use the file safely. Several schemas can share the file.

    The file is in WAL mode with ``synchronous=NORMAL``. A crash of the process loses no data. A power failure may lose the last
    writes, but never damages the file. Each process has one connection, which is opened at the first use and closed around a
    fork.

    Deleted and replaced data is overwritten in the file and removed from the write-ahead log before a write returns. Reads
    also return records whose TTL attribute has passed, as DynamoDB may. The caller checks the attribute.

    Args:
        path: The file. Missing folders are created for the owner only (0700), as is the file (0600).
        schema: Names of the table, its keys and its indexes. Default ``SESSIONS``.
        deadline: Seconds that an operation waits for other threads, and then again for other processes. Default 5.

    Raises:
        ValueError: ``path`` is empty or ``:memory:``, or ``deadline`` is not above 0.
    """

    def __init__(self, path: str | os.PathLike[str], schema: TableSchema = SESSIONS, *, deadline: float = 5.0) -> None:
        if os.fspath(path) in ("", ":memory:"):
            raise ValueError(f"path must name a file, got {path!r:.200}: a table in memory is neither shared nor durable")
        seconds("deadline", deadline)
        self.schema = schema
        self._file = SQLiteFile(path, table=schema.name, deadline=deadline, create=self._create)
        self._select = f"SELECT item FROM {self._name()} WHERE partition = ? AND sort = ?"  # noqa: S608
        self._delete = f"DELETE FROM {self._name()} WHERE partition = ? AND sort = ?"  # noqa: S608
        self._insert = f"INSERT INTO {self._name()} (partition, sort, item) VALUES (?, ?, ?) ON CONFLICT DO NOTHING"  # noqa: S608

    def __repr__(self) -> str:
        return f"SQLiteTable({str(self.path)!r}, {self.schema.name!r})"

    @property
    def path(self) -> Path:
        """Path of the SQLite file."""
        return self._file.path

    def create_if_missing(self) -> None:
        """Create the SQLite file and the table if they are missing."""
        with self._file.connected(create=True) as connection:
            self._create(connection)

    def _create(self, connection: sqlite3.Connection) -> None:
        with self._file.transaction(connection):
            connection.execute(
                f"CREATE TABLE IF NOT EXISTS {self._name()} (partition TEXT NOT NULL, sort TEXT NOT NULL, "
                "item BLOB NOT NULL, PRIMARY KEY (partition, sort)) WITHOUT ROWID"
            )
            connection.execute(f"PRAGMA user_version = {FILE_VERSION}")

    def get(self, partition: str, sort: str) -> Item | None:
        """Return a record, or None if the record is absent."""
        with self._file.connected() as connection:
            row = connection.execute(self._select, (partition, sort)).fetchone()
        return None if row is None else loaded(row[0], (partition, sort), self.schema)

    def batch_get(self, keys: Sequence[Key]) -> dict[Key, Item]:
        """Return the existing records, keyed by their keys."""
        with self._file.connected() as connection:
            rows = {key: connection.execute(self._select, key).fetchone() for key in keys}
        return {key: loaded(row[0], key, self.schema) for key, row in rows.items() if row is not None}

    def put(self, item: Item, *, when: Condition | None = None, scrub: bool = True) -> bool:
        """Write a whole record, or return False if the stored record does not meet the condition. See ``Table.put``."""
        if when != ABSENT:
            return self._write([Write(item=item, when=when)], scrub=scrub)
        [write] = self._planned([Write(item=item)])
        with self._file.connected() as connection, self._file.transaction(connection):
            return bool(connection.execute(self._insert, (*write.key, write.data)).rowcount)

    def _fetch(self, statement: str, values: Sequence[Any]) -> list[tuple[Any, ...]]:
        with self._file.connected() as connection:  # released before the caller processes a record
            return connection.execute(statement, values).fetchall()

    def close(self) -> None:
        """Close the connection to the SQLite file. The table remains usable, and opens a new connection."""
        self._file.close()

    def _write(self, writes: Sequence[Write], *, scrub: bool = True) -> bool:
        planned, removed = self._planned(writes), 0
        with self._file.connected() as connection:
            with self._file.transaction(connection):
                read = [write.key for write in planned if write.when is not None]
                rows = {key: connection.execute(self._select, key).fetchone() for key in read}
                stored = {key: None if row is None else row[0] for key, row in rows.items()}
                if not self._all_met(planned, stored):
                    return False
                for write in planned:
                    if write.is_check:
                        continue
                    removed += connection.execute(self._delete, write.key).rowcount
                    if write.data is not None:
                        connection.execute(self._insert, (*write.key, write.data))
            if removed and scrub:
                self._file.scrub(connection)
        return True
