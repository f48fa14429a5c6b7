"""Durable table in a local SQLite file."""

from __future__ import annotations

import logging
import os
import random
import sqlite3
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from strands_manga_memory.arguments import PositiveSeconds, checked
from strands_manga_memory.exceptions import (
    NO_TABLE,
    CorruptRecordError,
    StoreError,
    StoreRefusedError,
    StoreUnavailableError,
)
from strands_manga_memory.lifecycle import renew_in_child
from strands_manga_memory.stores.table import (
    SESSIONS,
    Item,
    Key,
    SQLTable,
    TableSchema,
    Write,
    parse_item,
)

logger = logging.getLogger(__name__)

FILE_VERSION = 1
"""``PRAGMA user_version`` of the files that this package writes.
Files of newer versions are rejected and not changed.
"""

_MOST_SCRUB_SECONDS = 1.0
_LOCK_PAUSE = (0.0005, 0.003)
"""Shortest and longest pause between attempts to use a locked file, in seconds."""
_LOCKED = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_PROTOCOL)
"""Error codes while another process locks the file, or switches its mode."""

_PASSING = {  # error codes after which a retry may succeed
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_LOCKED,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_PROTOCOL,
}
_DAMAGED = (
    "damaged",
    "the file is damaged or not a SQLite file: restore it from a backup, or from `sqlite3 FILE"
    " .recover`",
)
_FORBIDDEN = "permission", "the file or its folder cannot be used: correct the permissions"
_REFUSED = {
    sqlite3.SQLITE_CORRUPT: _DAMAGED,
    sqlite3.SQLITE_NOTADB: _DAMAGED,
    sqlite3.SQLITE_FULL: ("disk", "the disk is full: free some space"),
    sqlite3.SQLITE_READONLY: (
        "read-only",
        "the file or its folder cannot be written: correct the permissions or the mount",
    ),
    sqlite3.SQLITE_PERM: _FORBIDDEN,
    sqlite3.SQLITE_AUTH: _FORBIDDEN,
}


class SQLiteTable(SQLTable):
    """Durable table in a SQLite file.

    Several processes and threads can use the file at the same time. Several tables can share the
    file.

    The file is in WAL mode with ``synchronous=NORMAL``. A crash of the process loses no data. A
    power failure may lose the latest writes, but never damages the file. Each table object has one
    connection, which is opened at the first use and closed before a fork.

    Before a write returns, deleted and replaced data is overwritten in the file and removed from
    the write-ahead log. The data is removed later in two cases: another process reads the log for
    over a second, or the write is a ``put`` with ``scrub=False``.

    SQLite has no automatic expiry. Reads also return expired records. Callers must therefore check
    the TTL attribute.

    Args:
        path: Path of the file. A missing file is created with the mode 0600, and missing folders
            with 0700.
        schema: Names of the table and its keys. Default ``SESSIONS``.
        deadline: Longest wait of an operation for other threads, in seconds. The same limit applies
            separately to the wait for other processes. Default 5.

    Attributes:
        schema: Names of the table and its keys.
        path: Absolute path of the file.

    Raises:
        ValueError: ``path`` is empty or ``:memory:`` or has a NUL character, or ``deadline`` is not
            above 0.
    """

    _connection: sqlite3.Connection | None = None

    @checked
    def __init__(
        self,
        path: str | os.PathLike[str],
        schema: TableSchema = SESSIONS,
        *,
        deadline: PositiveSeconds = 5.0,
    ) -> None:
        if os.fspath(path) in ("", ":memory:"):
            raise ValueError(
                f"path must name a file, got {path!r:.200}: a table in memory is neither shared nor"
                " durable"
            )
        if "\0" in os.fspath(path):
            raise ValueError(f"path must have no NUL character, got {path!r:.200}")
        self.schema = schema
        # a later change of the working directory must not move the table
        self.path = Path(path).absolute()
        self._deadline = deadline
        self._lock = threading.Lock()
        self._file: tuple[int, int] | None = None
        self._is_scrub_due = False
        self._select = f"SELECT item FROM {self._name()} WHERE partition = ? AND sort = ?"  # noqa: S608
        self._delete = f"DELETE FROM {self._name()} WHERE partition = ? AND sort = ?"  # noqa: S608
        self._insert = f"INSERT INTO {self._name()} (partition, sort, item) VALUES (?, ?, ?)"  # noqa: S608
        renew_in_child(self)

    def __repr__(self) -> str:
        return f"SQLiteTable({str(self.path)!r}, {self.schema.name!r})"

    def __del__(self) -> None:
        if self._connection is not None:
            self._connection.close()

    def with_schema(self, schema: TableSchema) -> SQLiteTable:
        """Return an object for another table of the same SQLite file, with the given schema.

        The schema names the table and its key attributes. If the file has no such table, this
        method does not create it: see ``create_if_missing``.
        """
        return SQLiteTable(self.path, schema)

    def create_if_missing(self) -> None:
        """Create the SQLite file and the table if they are missing."""
        with self._connected(create=True) as connection:
            self._create(connection)

    def _create(self, connection: sqlite3.Connection) -> None:
        with self._transaction(connection):
            connection.execute(
                f"CREATE TABLE IF NOT EXISTS {self._name()} (partition TEXT NOT NULL, sort TEXT NOT"
                " NULL, item BLOB NOT NULL, PRIMARY KEY (partition, sort)) WITHOUT ROWID"
            )
            connection.execute(f"PRAGMA user_version = {FILE_VERSION}")

    def batch_get(self, keys: Sequence[Key]) -> dict[Key, Item]:
        """Read many records. The result maps each existing key to its record."""
        found: dict[Key, Item] = {}
        with self._connected() as connection:
            for key in keys:
                row = connection.execute(self._select, key).fetchone()
                if row is not None:
                    found[key] = parse_item(row[0], key, self.schema)
        return found

    def _fetch(self, statement: str, values: Sequence[Any]) -> list[tuple[Any, ...]]:
        with self._connected() as connection:  # released before the caller processes a record
            return connection.execute(statement, values).fetchall()

    def _write(self, writes: Sequence[Write], *, scrub: bool = True) -> bool:
        planned, removed = self._serialize_writes(writes), 0
        with self._connected() as connection:
            with self._transaction(connection):
                for key, write, _ in planned:
                    if write.when is not None:
                        row = connection.execute(self._select, key).fetchone()
                        if not self._is_met(write.when, key, None if row is None else row[0]):
                            return False
                for key, write, data in planned:
                    if write.is_check:
                        continue
                    removed += connection.execute(self._delete, key).rowcount
                    if data is not None:
                        connection.execute(self._insert, (*key, data))
            if removed and scrub:
                self._scrub(connection)
        return True

    @contextmanager
    def _connected(self, *, create: bool = False) -> Iterator[sqlite3.Connection]:
        """Reserve the connection to the SQLite file for the calling thread in a ``with`` block.

        A missing connection is opened. A missing file is created only with ``create``.
        """
        if not self._lock.acquire(timeout=self._deadline):
            raise StoreUnavailableError(
                f"table=<{self.schema.name}> | other threads used the table for {self._deadline} s;"
                " try again later, or raise deadline"
            )
        try:
            if self._connection is None:
                if not create and self._file is None and not self.path.exists():
                    what = f"table=<{self.schema.name}> | there is no file {self.path}"
                    raise StoreRefusedError(what, reason="table", remedy=NO_TABLE)
                self._connection = self._opened()
            elif self._file_identity() != self._file:  # writes to a deleted file would be lost
                self._close()
                remedy = "the file is opened again; restore data while no process uses it"
                raise StoreRefusedError(
                    f"file=<{self.path}> | deleted or replaced while in use",
                    reason="file",
                    remedy=remedy,
                )
            if self._connection.in_transaction:  # left by a thread that Ctrl-C interrupted
                self._connection.execute("ROLLBACK")
            if self._is_scrub_due:
                self._scrub(self._connection, wait=0)
            yield self._connection
        except (sqlite3.Error, OSError) as error:
            raise package_error(error, self.schema.name) from error
        finally:
            self._lock.release()

    def _opened(self) -> sqlite3.Connection:
        is_new = not self.path.exists()
        for folder in reversed([folder for folder in self.path.parents if not folder.exists()]):
            folder.mkdir(mode=0o700, exist_ok=True)
        connection = sqlite3.connect(
            self.path,
            timeout=self._deadline,
            isolation_level=None,
            check_same_thread=False,
            cached_statements=64,
        )
        try:
            version = connection.execute("PRAGMA user_version").fetchone()[0]
            if version > FILE_VERSION:
                what = (
                    f"record={str(self.path)!r} has version {version}, this package reads up to"
                    f" {FILE_VERSION}; upgrade the package"
                )
                raise CorruptRecordError(what, record=str(self.path))
            if is_new:  # still empty; the WAL file gets the same mode
                self.path.chmod(0o600)
            self._execute_when_unlocked(connection, "PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = NORMAL")
            # some builds of SQLite leave deleted data in free pages
            connection.execute("PRAGMA secure_delete = ON")
            connection.execute("PRAGMA temp_store = MEMORY")
            self._scrub(connection)  # of data that a killed process was about to erase
            known, self._file = self._file, self._file_identity()
            query = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?"
            if (
                known is not None
                and connection.execute(query, (self.schema.name,)).fetchone() is None
            ):
                self._create(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _file_identity(self) -> tuple[int, int] | None:
        try:
            found = self.path.stat()
        except FileNotFoundError:
            return None
        return found.st_dev, found.st_ino

    def _execute_when_unlocked(self, connection: sqlite3.Connection, statement: str) -> None:
        end = time.monotonic() + self._deadline
        while True:
            try:
                connection.execute(statement)
                return
            except sqlite3.OperationalError as error:
                is_locked = error.sqlite_errorcode & 0xFF in _LOCKED  # also with extended codes
                if not is_locked or time.monotonic() >= end:
                    raise
                # SQLite waits up to 0.1 s between attempts, and could find the file locked each
                # time.
                time.sleep(random.uniform(*_LOCK_PAUSE))  # noqa: S311

    @contextmanager
    def _transaction(self, connection: sqlite3.Connection) -> Iterator[None]:
        connection.execute("PRAGMA busy_timeout = 0")
        try:
            self._execute_when_unlocked(connection, "BEGIN IMMEDIATE")
        finally:
            connection.execute(f"PRAGMA busy_timeout = {int(1000 * self._deadline)}")
        try:
            yield
            connection.execute("COMMIT")
        finally:
            if connection.in_transaction:
                connection.execute("ROLLBACK")

    def close(self) -> None:
        """Close the connection to the SQLite file. The next use of the table opens a new one."""
        with self._lock:
            self._close()

    def prepare_fork(self) -> None:
        """Close the connection before a fork, and prevent a new connection until ``end_fork``."""
        self._lock.acquire()
        with suppress(sqlite3.Error):
            self._close()

    def end_fork(self) -> None:
        """Allow the parent process to open a connection again after a fork."""
        self._lock.release()

    def renew_after_fork(self) -> None:
        """Replace the lock in a forked process, where no thread would release the old lock."""
        self._lock = threading.Lock()

    def _close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            if self._is_scrub_due:
                self._scrub(connection)
            connection.close()

    def _scrub(self, connection: sqlite3.Connection, *, wait: float = _MOST_SCRUB_SECONDS) -> None:
        """Empty SQLite's write-ahead log, which still contains deleted and replaced data.

        The call waits up to ``wait`` seconds for other connections that read the log. If they read
        for longer, the log is emptied at the next use of the connection.
        """
        was_due = self._is_scrub_due
        connection.execute(f"PRAGMA busy_timeout = {int(1000 * min(self._deadline, wait))}")
        try:
            self._is_scrub_due = bool(
                connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
            )
        except sqlite3.OperationalError:  # another connection of this process runs a checkpoint
            self._is_scrub_due = True
        finally:
            connection.execute(f"PRAGMA busy_timeout = {int(1000 * self._deadline)}")
        if self._is_scrub_due and not was_due:
            logger.warning(
                "table=<%s> | erased data stays in the write-ahead log while other processes"
                " read it",
                self.schema.name,
            )


def package_error(error: sqlite3.Error | OSError, table: str) -> StoreError:
    """Convert an error of sqlite3 or of the file system to a ``StoreError`` of this package."""
    code = (getattr(error, "sqlite_errorcode", None) or 0) & 0xFF
    what = f"table=<{table}> | {error}"
    if code in _PASSING or isinstance(error, OSError):
        return StoreUnavailableError(what)
    if code in _REFUSED:
        reason, remedy = _REFUSED[code]
        return StoreRefusedError(what, reason=reason, remedy=remedy)
    if "no such table" in str(error):
        return StoreRefusedError(what, reason="table", remedy=NO_TABLE)
    return StoreError(what)
