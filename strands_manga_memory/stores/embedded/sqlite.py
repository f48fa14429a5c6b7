"""SQLiteTable: durable records in a local file."""

from __future__ import annotations

import logging
import os
import sqlite3
import threading
import time
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from strands_manga_memory.exceptions import CorruptRecordError, StoreError, StoreRefusedError, StoreUnavailableError
from strands_manga_memory.forks import at_fork
from strands_manga_memory.stores.encoding.codec import dump
from strands_manga_memory.stores.items import (
    check_batch,
    check_limit,
    check_transaction,
    checked_index,
    loaded,
    normal,
    place_in,
    target_of,
)
from strands_manga_memory.stores.table import ABSENT, SESSIONS, Condition, Index, Item, Key, TableSchema, Write

logger = logging.getLogger(__name__)

FILE_VERSION = 1
"""``PRAGMA user_version`` of the files written here. A file of a newer version is refused and left as it is."""

_PAGE = 64
_MOST_SCRUB_SECONDS = 1.0
_PASSING = {
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_LOCKED,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_PROTOCOL,
}
_DAMAGED = "damaged", "the file is damaged, or is none of SQLite's: restore it from a backup, or from `sqlite3 FILE .recover`"
_REFUSED = {
    sqlite3.SQLITE_CORRUPT: _DAMAGED,
    sqlite3.SQLITE_NOTADB: _DAMAGED,
    sqlite3.SQLITE_FULL: ("disk", "its disk is full: make room"),
    sqlite3.SQLITE_READONLY: ("read-only", "the file or its folder cannot be written: mend the permissions, or its mount"),
    sqlite3.SQLITE_PERM: ("permission", "the file or its folder cannot be used: mend the permissions"),
    sqlite3.SQLITE_AUTH: ("permission", "the file or its folder cannot be used: mend the permissions"),
}


class SQLiteTable:
    """A ``Table`` in a SQLite file, safe with several processes and threads.

    The file is in WAL mode with ``synchronous=NORMAL``: a crash of the process loses nothing; a power cut may lose the last
    writes, but never damages the file. One connection per process, opened on first use and closed around a fork, because a
    connection must not be carried over one. What a write deletes or replaces is overwritten in the file, and taken out of the
    write-ahead log, before it returns. Several schemas can live in one file. Records stay when their TTL attribute
    has passed, as they may in DynamoDB: readers look at the attribute.

    Args:
        path: The file. Missing folders are created for the owner only (0700), as is the file (0600).
        schema: Names of the table, its keys and its indexes. Default ``SESSIONS``.
        deadline: Seconds an operation waits for other threads, and again for other processes. Default 5.

    Raises:
        ValueError: ``path`` is empty or ``:memory:``, or ``deadline`` is not above 0.
    """

    def __init__(self, path: str | os.PathLike[str], schema: TableSchema = SESSIONS, *, deadline: float = 5.0) -> None:
        if os.fspath(path) in ("", ":memory:"):
            raise ValueError(f"path must name a file, got {path!r:.200}: a table in memory is neither shared nor durable")
        if not deadline > 0:
            raise ValueError(f"deadline must be above 0 seconds, got {deadline!r:.200}")
        self.schema = schema
        self._path = Path(path).absolute()  # a later change of the working directory must not move the table
        self._deadline = deadline
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        self._file: tuple[int, int] | None = None
        self._is_scrub_due = False
        self._name = _quoted(schema.name)
        self._select = f"SELECT item FROM {self._name} WHERE partition = ? AND sort = ?"  # noqa: S608
        self._delete = f"DELETE FROM {self._name} WHERE partition = ? AND sort = ?"  # noqa: S608
        self._insert = f"INSERT INTO {self._name} (partition, sort, item) VALUES (?, ?, ?) ON CONFLICT DO NOTHING"  # noqa: S608
        _tables.add(self)

    def __repr__(self) -> str:
        return f"SQLiteTable({str(self._path)!r}, {self.schema.name!r})"

    def __del__(self) -> None:
        if getattr(self, "_connection", None) is not None:
            self._connection.close()  # type: ignore[union-attr]

    @property
    def path(self) -> Path:
        """The file."""
        return self._path

    def create_if_missing(self) -> None:
        """Create the file, the table and its indexes, as far as they are missing."""
        with self._connected() as connection:
            self._create(connection)

    def _create(self, connection: sqlite3.Connection) -> None:
        with _transaction(connection):
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
        """Return one record, or None."""
        with self._connected() as connection:
            row = connection.execute(self._select, (partition, sort)).fetchone()
        return None if row is None else loaded(row[0], (partition, sort), self.schema)

    def batch_get(self, keys: Sequence[Key]) -> dict[Key, Item]:
        """Return the records that exist among ``keys``."""
        with self._connected() as connection:
            rows = {key: connection.execute(self._select, key).fetchone() for key in keys}
        return {key: loaded(row[0], key, self.schema) for key, row in rows.items() if row is not None}

    def put(self, item: Item, *, when: Condition | None = None, scrub: bool = True) -> bool:
        """Write a record whole; return False, and write nothing, if ``when`` is not met; see ``Table.put``."""
        if when != ABSENT or self.schema.indexes:
            return self._write([Write(item=item, when=when)], scrub=scrub)
        key, data = target_of(self.schema, Write(item=item)), dump(normal(item))
        with self._connected() as connection:  # one statement is a transaction of its own
            return bool(connection.execute(self._insert, (*key, data)).rowcount)

    def delete(self, partition: str, sort: str, *, when: Condition | None = None) -> bool:
        """Delete a record; return False, and delete nothing, if ``when`` is not met. An absent record is no error."""
        return self._write([Write(key=(partition, sort), when=when)])

    def batch_write(self, *, puts: Sequence[Item] = (), deletes: Sequence[Key] = ()) -> None:
        """Write and delete many records without conditions, in one transaction.

        Raises:
            ValueError: A key is both in ``puts`` and in ``deletes``.
        """
        check_batch(self.schema, puts, deletes)
        self._write([*(Write(item=item) for item in puts), *(Write(key=key) for key in deletes)])

    def transact(self, writes: Sequence[Write]) -> bool:
        """Do all writes (at most 100) or none; return False if a condition is not met.

        Raises:
            ValueError: There are more than 100 writes, or two of the same record, or one that is no put and no delete.
        """
        check_transaction(self.schema, writes)
        return self._write(writes)

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
        """Yield the records of a partition whose sort value is from ``first`` to ``last``; see ``Table.query``.

        Raises:
            ValueError: There is no such index, or ``limit`` is negative.
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
            with self._connected() as connection:  # never held while the caller looks at a record
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
        """Close the connection. The table can still be used: it opens a new one."""
        with self._lock:
            self._close()

    def _close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            if self._is_scrub_due:
                self._scrub(connection)
            connection.close()

    def _write(self, writes: Sequence[Write], *, scrub: bool = True) -> bool:
        rows = [
            (target_of(self.schema, write), write.when, write.item, None if write.item is None else dump(normal(write.item)))
            for write in writes
        ]
        removed = 0
        with self._connected() as connection:
            with _transaction(connection):
                for key, when, _, _ in rows:
                    if when is not None and not when.met_by(self._stored(connection, key)):
                        return False
                for key, _, item, data in rows:
                    self._reindex(connection, key, item)
                    removed += connection.execute(self._delete, key).rowcount
                    if data is not None:
                        connection.execute(self._insert, (*key, data))
            if removed and scrub:
                self._scrub(connection)
        return True

    def _scrub(self, connection: sqlite3.Connection, *, wait: float = _MOST_SCRUB_SECONDS) -> None:
        """Empty the write-ahead log, which has what was deleted or replaced; while it is in use, try with each use."""
        was_due = self._is_scrub_due
        connection.execute(f"PRAGMA busy_timeout = {int(1000 * min(self._deadline, wait))}")
        try:
            self._is_scrub_due = bool(connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0])
        except sqlite3.OperationalError:  # SQLite calls it locked while another connection of this process is at it
            self._is_scrub_due = True
        finally:
            connection.execute(f"PRAGMA busy_timeout = {int(1000 * self._deadline)}")
        if self._is_scrub_due and not was_due:
            logger.warning("table=<%s> | what was erased stays in the write-ahead log while others read it", self.schema.name)

    def _stored(self, connection: sqlite3.Connection, key: Key) -> Item | None:
        row = connection.execute(self._select, key).fetchone()
        return None if row is None else loaded(row[0], key, self.schema)

    def _reindex(self, connection: sqlite3.Connection, key: Key, item: Item | None) -> None:
        if not self.schema.indexes:
            return
        try:
            stored = self._stored(connection, key)
            listed = [place_in(index, stored) for index in self.schema.indexes]
        except (CorruptRecordError, ValueError):  # it can be replaced and deleted, but does not say where it is listed
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

    @contextmanager
    def _connected(self) -> Iterator[sqlite3.Connection]:
        if not self._lock.acquire(timeout=self._deadline):
            raise StoreUnavailableError(f"table=<{self.schema.name}> | other threads kept it busy for {self._deadline} s")
        try:
            if self._connection is None:
                self._connection = self._opened()
            elif self._identity() != self._file:  # what is written to a file without a name is lost with the process
                self._close()
                remedy = "it is opened anew; put back what is to be kept while nobody uses it"
                raise StoreRefusedError(f"file=<{self._path}> | deleted or replaced while in use", reason="file", remedy=remedy)
            if self._is_scrub_due:
                self._scrub(self._connection, wait=0)
            yield self._connection
        except (sqlite3.Error, OSError) as error:
            raise self._translated(error) from error
        finally:
            self._lock.release()

    def _opened(self) -> sqlite3.Connection:
        is_new = not self._path.exists()
        for folder in reversed([folder for folder in self._path.parents if not folder.exists()]):
            folder.mkdir(mode=0o700, exist_ok=True)
        connection = sqlite3.connect(
            self._path, timeout=self._deadline, isolation_level=None, check_same_thread=False, cached_statements=64
        )
        try:
            self._check_version(connection)
            if is_new:  # still empty; the WAL file gets the same mode
                self._path.chmod(0o600)
            self._use_wal(connection)
            connection.execute("PRAGMA synchronous = NORMAL")
            connection.execute("PRAGMA secure_delete = ON")  # some builds of SQLite leave what was redacted in free pages
            connection.execute("PRAGMA temp_store = MEMORY")
            self._scrub(connection)  # a process that was killed may have left what it was about to erase
            known, self._file = self._file, self._identity()
            if known is not None and not self._is_created(connection):
                self._create(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _is_created(self, connection: sqlite3.Connection) -> bool:
        found = connection.execute("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?", (self.schema.name,))
        return found.fetchone() is not None

    def _identity(self) -> tuple[int, int] | None:
        try:
            found = self._path.stat()
        except FileNotFoundError:
            return None
        return found.st_dev, found.st_ino

    def _check_version(self, connection: sqlite3.Connection) -> None:
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        if version > FILE_VERSION:
            raise CorruptRecordError(
                f"record={str(self._path)!r} has version {version}, this package reads up to {FILE_VERSION}; upgrade it",
                record=str(self._path),
            )

    def _use_wal(self, connection: sqlite3.Connection) -> None:
        end = time.monotonic() + self._deadline
        while True:
            try:
                connection.execute("PRAGMA journal_mode = WAL")
                return
            except sqlite3.OperationalError:  # SQLite does not wait for another process that does the same
                if time.monotonic() >= end:
                    raise
                time.sleep(0.005)

    def _translated(self, error: sqlite3.Error | OSError) -> StoreError:
        code = (getattr(error, "sqlite_errorcode", None) or 0) & 0xFF
        what = f"table=<{self.schema.name}> | {error}"
        if code in _PASSING or isinstance(error, OSError):
            return StoreUnavailableError(what)
        if code in _REFUSED:
            reason, remedy = _REFUSED[code]
            return StoreRefusedError(what, reason=reason, remedy=remedy)
        if "no such table" in str(error):
            return StoreRefusedError(what, reason="table", remedy="there is no such table: call create_if_missing() first")
        return StoreError(what)


@contextmanager
def _transaction(connection: sqlite3.Connection) -> Iterator[None]:
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


_tables: weakref.WeakSet[SQLiteTable] = weakref.WeakSet()
_fork_lock = threading.Lock()
_forking: list[SQLiteTable] = []


def _before_fork() -> None:
    _fork_lock.acquire()
    for table in list(_tables):
        table._lock.acquire()  # noqa: SLF001
        _forking.append(table)
        with suppress(sqlite3.Error):
            table._close()  # noqa: SLF001


def _after_fork_in_parent() -> None:
    for table in _forking:
        table._lock.release()  # noqa: SLF001
    _forking.clear()
    _fork_lock.release()


def _after_fork_in_child() -> None:
    global _fork_lock
    for table in _forking:
        table._lock = threading.Lock()  # noqa: SLF001
    _forking.clear()
    _fork_lock = threading.Lock()


at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child)
