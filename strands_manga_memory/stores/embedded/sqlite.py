"""Table in a local SQLite file."""

from __future__ import annotations

import logging
import os
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from strands_manga_memory.exceptions import CorruptRecordError
from strands_manga_memory.stores.embedded.sqlite_file import FILE_VERSION, SQLiteFile
from strands_manga_memory.stores.encoding.codec import dump
from strands_manga_memory.stores.items import WritingTable, check_limit, checked_index, loaded, normal, place_in, target_of
from strands_manga_memory.stores.table import ABSENT, SESSIONS, Condition, Index, Item, Key, TableSchema, Write

logger = logging.getLogger(__name__)

_PAGE = 64


class SQLiteTable(WritingTable):
    """Durable table in a SQLite file.

    Several processes and threads can use the file safely. Several schemas can share the file.

    The file is in WAL mode with ``synchronous=NORMAL``. A crash of the process loses no data. A power failure may lose
    the last writes, but never damages the file. Each process has one connection. The connection is opened at the first
    use and closed around a fork, because connections must not be inherited.

    Deleted and replaced data is overwritten in the file and removed from the write-ahead log before a write returns.
    Records stay after their TTL attribute has passed, as they may in DynamoDB. Readers check the attribute.

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
        if not deadline > 0:
            raise ValueError(f"deadline must be above 0 seconds, got {deadline!r:.200}")
        self.schema = schema
        self._file = SQLiteFile(path, table=schema.name, deadline=deadline, create=self._create)
        self._name = _quoted(schema.name)
        self._select = f"SELECT item FROM {self._name} WHERE partition = ? AND sort = ?"  # noqa: S608
        self._delete = f"DELETE FROM {self._name} WHERE partition = ? AND sort = ?"  # noqa: S608
        self._insert = f"INSERT INTO {self._name} (partition, sort, item) VALUES (?, ?, ?) ON CONFLICT DO NOTHING"  # noqa: S608

    def __repr__(self) -> str:
        return f"SQLiteTable({str(self.path)!r}, {self.schema.name!r})"

    @property
    def path(self) -> Path:
        """Path of the file."""
        return self._file.path

    def create_if_missing(self) -> None:
        """Create the file, the table and its indexes if they are missing."""
        with self._file.connected(create=True) as connection:
            self._create(connection)

    def _create(self, connection: sqlite3.Connection) -> None:
        with self._file.transaction(connection):
            connection.execute(
                f"CREATE TABLE IF NOT EXISTS {self._name} (partition TEXT NOT NULL, sort TEXT NOT NULL, "
                "item BLOB NOT NULL, PRIMARY KEY (partition, sort)) WITHOUT ROWID"
            )
            for index in self.schema.indexes:
                connection.execute(
                    f"CREATE TABLE IF NOT EXISTS {self._index(index)} (value TEXT NOT NULL, position NOT NULL, "
                    "partition TEXT NOT NULL, sort TEXT NOT NULL, PRIMARY KEY (value, position, partition, sort)) WITHOUT ROWID"
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
        """Write a whole record.

        Returns False without writing if ``when`` is not met. ``Table.put`` describes the arguments.
        """
        if when != ABSENT or self.schema.indexes:
            return self._write([Write(item=item, when=when)], scrub=scrub)
        key, data = target_of(self.schema, Write(item=item)), dump(normal(item))
        with self._file.connected() as connection, self._file.transaction(connection):
            return bool(connection.execute(self._insert, (*key, data)).rowcount)

    def query(
        self,
        partition: str,
        *,
        first: str | float | None = None,
        last: str | float | None = None,
        reverse: bool = False,
        limit: int | None = None,
        index: str | None = None,
        attributes: Sequence[str] | None = None,
    ) -> Iterator[Item]:
        """Yield the records of a partition, in the order of their sort values.

        ``Table.query`` describes the arguments.

        Raises:
            ValueError: The index does not exist, or ``limit`` is negative.
        """
        check_limit(limit)
        if index is None:
            source, where, columns = self._name, ["partition = ?"], ["sort"]
        else:
            source = f"{self._index(checked_index(self.schema, index))} JOIN {self._name} USING (partition, sort)"
            where, columns = ["value = ?"], ["position", "partition", "sort"]
        values: list[Any] = [partition]
        for comparison, bound in ((">=", first), ("<=", last)):
            if bound is not None:
                where.append(f"{columns[0]} {comparison} ?")
                values.append(bound)
        names, direction = ", ".join(columns), " DESC" if reverse else ""
        beyond = f"({names}) {'<' if reverse else '>'} ({', '.join('?' * len(columns))})"
        select = f"SELECT item, partition, {names} FROM {source} WHERE {' AND '.join(where)}"  # noqa: S608
        order = f" ORDER BY {', '.join(column + direction for column in columns)} LIMIT ?"
        wanted = None if attributes is None else set(attributes)
        return self._rows(select + order, f"{select} AND {beyond}{order}", values, limit, wanted)

    def _rows(
        self, start: str, resume: str, values: Sequence[Any], limit: int | None, wanted: set[str] | None
    ) -> Iterator[Item]:
        seen: tuple[Any, ...] = ()
        while limit is None or limit > 0:
            count = _PAGE if limit is None else min(limit, _PAGE)
            with self._file.connected() as connection:  # released before the caller processes a record
                rows = connection.execute(resume if seen else start, (*values, *seen, count)).fetchall()
            for row in rows:
                key = {self.schema.partition: row[1], self.schema.sort: row[-1]}
                item = loaded(row[0], (row[1], row[-1]), self.schema) if wanted is None or wanted else {}
                yield item if wanted is None else {**key, **{name: item[name] for name in item if name in wanted}}
            if len(rows) < count:
                return
            seen = rows[-1][2:]
            limit = None if limit is None else limit - count

    def close(self) -> None:
        """Close the connection.

        The table remains usable, and opens a new connection.
        """
        self._file.close()

    def _write(self, writes: Sequence[Write], *, scrub: bool = True) -> bool:
        rows = [
            (target_of(self.schema, write), write.when, write.item, None if write.item is None else dump(normal(write.item)))
            for write in writes
        ]
        removed, read = 0, dict[Key, Item | None]()
        with self._file.connected() as connection:
            with self._file.transaction(connection):
                for key, when, _, _ in rows:
                    if when is None:
                        continue
                    read[key] = self._stored(connection, key)
                    if not when.met_by(read[key]):
                        return False
                for write, (key, _, item, data) in zip(writes, rows, strict=True):
                    if write.is_check:
                        continue
                    self._reindex(connection, key, item, read)
                    removed += connection.execute(self._delete, key).rowcount
                    if data is not None:
                        connection.execute(self._insert, (*key, data))
            if removed and scrub:
                self._file.scrub(connection)
        return True

    def _stored(self, connection: sqlite3.Connection, key: Key) -> Item | None:
        row = connection.execute(self._select, key).fetchone()
        return None if row is None else loaded(row[0], key, self.schema)

    def _reindex(self, connection: sqlite3.Connection, key: Key, item: Item | None, read: Mapping[Key, Item | None]) -> None:
        if not self.schema.indexes:
            return
        try:
            stored = read[key] if key in read else self._stored(connection, key)
            listed = [place_in(index, stored) for index in self.schema.indexes]
        except (
            CorruptRecordError,
            ValueError,
        ):  # a damaged record, whose index entries are unknown
            listed = [None] * len(self.schema.indexes)
            for index in self.schema.indexes:
                connection.execute(f"DELETE FROM {self._index(index)} WHERE partition = ? AND sort = ?", key)  # noqa: S608
        for index, before in zip(self.schema.indexes, listed, strict=True):
            after = place_in(index, item)
            if before != after and before is not None:
                connection.execute(
                    f"DELETE FROM {self._index(index)} WHERE value = ? AND position = ? AND partition = ? AND sort = ?",  # noqa: S608
                    (*before, *key),
                )
            if before != after and after is not None:
                connection.execute(
                    f"INSERT INTO {self._index(index)} (value, position, partition, sort) VALUES (?, ?, ?, ?)",  # noqa: S608
                    (*after, *key),
                )

    def _index(self, index: Index) -> str:
        return _quoted(f"{self.schema.name}/{index.name}")


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
