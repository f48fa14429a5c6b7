"""Durable table on a PostgreSQL server, with deadlines for all operations."""

from __future__ import annotations

import math
import selectors
import threading
import time
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import psycopg
from psycopg import errors
from psycopg.pq import TransactionStatus
from psycopg_pool import ConnectionPool, PoolClosed, PoolTimeout

from strands_manga_memory.arguments import PositiveSeconds, checked
from strands_manga_memory.exceptions import (
    NO_TABLE,
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

_TRIES = 20


class _WriteConflict(Exception):  # noqa: N818 - no error: after a write conflict the conditions are checked again
    pass


class PostgresTable(SQLTable):
    """Durable table on a PostgreSQL server of version 13 or later.

    The class needs psycopg 3, from the extra ``postgres``.

    Each record is a row with the columns ``partition``, ``sort`` and ``item`` (the serialized
    record). Partition and sort values are stored as UTF-8, which sorts as in DynamoDB.

    A table object has a pool of up to 16 connections. A forked process opens its own connections.
    PgBouncer is supported in session and transaction mode. A connection that was idle for over a
    second is checked before its next use, because gateways drop idle connections without notice.

    PostgreSQL has no automatic expiry. Expired records are returned until ``strands-manga-memory
    sweep`` deletes them.

    Args:
        conninfo: URL or connection string of libpq:
            ``postgresql://user:password@host:5432/database?sslmode=verify-full``.
        schema: Names of the table and its keys. Default ``SESSIONS``.
        deadline: Longest time of an operation in seconds. Default 2. The wait for a free connection
            is separate, with the same limit but at least 2 seconds.

    Attributes:
        schema: Names of the table and its keys.
        conninfo: The URL or connection string.

    Raises:
        ValueError: ``conninfo`` is invalid, or ``deadline`` is not above 0.
    """

    _placeholder = "%s"
    _pool: ConnectionPool[Connection] | None = None

    @checked
    def __init__(
        self, conninfo: str, schema: TableSchema = SESSIONS, *, deadline: PositiveSeconds = 2.0
    ) -> None:
        try:
            psycopg.conninfo.conninfo_to_dict(conninfo)
        except psycopg.Error:  # whose text may contain a password
            raise ValueError(
                "conninfo must be a URL or connection string of PostgreSQL, such as"
                " postgresql://user:password@host:5432/database"
            ) from None
        self.schema = schema
        self.conninfo = conninfo
        self._deadline = deadline
        self._lock = threading.Lock()
        self.failure: tuple[float, psycopg.Error | None] = (-math.inf, None)
        """Time and error of the latest failed connection attempt."""
        renew_in_child(self)

    def __repr__(self) -> str:
        known = psycopg.conninfo.conninfo_to_dict(self.conninfo)
        return (
            f"PostgresTable({known.get('host', '')}/{known.get('dbname', '')},"
            f" {self.schema.name!r})"
        )

    def with_schema(self, schema: TableSchema) -> PostgresTable:
        """Return an object for another table of the same database, with the given schema.

        The schema names the table and its key attributes. If the database has no such table, this
        method does not create it: see ``create_if_missing``.
        """
        return PostgresTable(self.conninfo, schema)

    def create_if_missing(self) -> None:
        """Create the PostgreSQL table if it is missing."""
        columns = (
            "partition bytea NOT NULL, sort bytea NOT NULL, item bytea NOT NULL, PRIMARY KEY"
            " (partition, sort)"
        )
        with self._connected() as connection:
            found = connection.execute("SELECT to_regclass(%s)", (super()._name(),)).fetchone()
            if found == (None,):
                # Another process may create the table at this moment.
                with suppress(errors.UniqueViolation, errors.DuplicateTable):
                    connection.execute(f"CREATE TABLE IF NOT EXISTS {self._name()} ({columns})", ())

    def batch_get(self, keys: Sequence[Key]) -> dict[Key, Item]:
        """Read many records in one request. The result maps each existing key to its record."""
        if not keys:
            return {}
        partitions, sorts = zip(*map(_bytes, keys), strict=True)
        statement = (
            "SELECT t.partition, t.sort, t.item"  # noqa: S608
            " FROM unnest(%s::bytea[], %s::bytea[]) AS k(partition, sort)"
            f" JOIN {self._name()} t USING (partition, sort)"
        )
        rows = self._fetch(statement, (list(partitions), list(sorts)))
        found = {(partition.decode(), sort.decode()): data for partition, sort, data in rows}
        return {key: parse_item(data, key, self.schema) for key, data in found.items()}

    def _fetch(self, statement: str, values: Sequence[Any]) -> list[tuple[Any, ...]]:
        with self._connected() as connection:  # returned before the caller processes a record
            return connection.execute(statement, values, binary=True).fetchall()

    def _to_column(self, value: str) -> bytes:
        return value.encode()

    def _from_column(self, column: bytes) -> str:
        return column.decode()

    def _name(self) -> str:
        # psycopg reads a % as the beginning of a placeholder
        return super()._name().replace("%", "%%")

    def __del__(self) -> None:
        if self._pool is not None:
            self.close()

    def close(self) -> None:
        """Close the idle connections to PostgreSQL.

        The table stays usable, and opens new connections.
        """
        with self._lock:
            pool, self._pool = self._pool, None
        if pool is not None:
            pool.close(timeout=0.1)

    def _write(self, writes: Sequence[Write], *, scrub: bool = True) -> bool:
        planned = self._serialize_writes(writes)
        for _ in range(_TRIES):
            try:
                with self._connected() as connection, connection.transaction():
                    absent = set()
                    for key, write, _ in planned:
                        if write.when is not None:
                            stored = self._lock_row(connection, key)
                            if not self._is_met(write.when, key, stored):
                                return False
                            if stored is None:
                                absent.add(key)
                    for key, write, data in planned:
                        if not write.is_check:
                            self._replace(connection, key, data, was_absent=key in absent)
                        elif key in absent:  # no row to lock: keep it absent in the transaction
                            self._replace(connection, key, b"", was_absent=True)
                            self._replace(connection, key, None, was_absent=True)
                    return True
            except _WriteConflict:
                continue
        raise StoreUnavailableError(
            f"table=<{self.schema.name}> | {_TRIES} attempts failed because of concurrent"
            " writes; try again later"
        )

    def _lock_row(self, connection: Connection, key: Key) -> bytes | None:
        statement = f"SELECT item FROM {self._name()} WHERE partition = %s AND sort = %s FOR UPDATE"  # noqa: S608
        row = connection.execute(statement, _bytes(key), binary=True).fetchone()
        return None if row is None else bytes(row[0])

    def _replace(
        self, connection: Connection, key: Key, data: bytes | None, *, was_absent: bool
    ) -> None:
        if data is None:
            where = "WHERE partition = %s AND sort = %s"
            connection.execute(f"DELETE FROM {self._name()} {where}", _bytes(key))  # noqa: S608
            return
        update = "(partition, sort) DO UPDATE SET item = EXCLUDED.item"
        insert = (
            f"INSERT INTO {self._name()} (partition, sort, item) VALUES (%s, %s, %s)"  # noqa: S608
            f" ON CONFLICT {'DO NOTHING' if was_absent else update}"
        )
        if connection.execute(insert, (*_bytes(key), data)).rowcount == 0:
            # Another process stored the record after the check, because a missing row cannot be
            # locked.
            raise _WriteConflict

    @contextmanager
    def _connected(self) -> Iterator[Connection]:
        try:
            pool, connection = self._working_connection()
            connection.until = time.monotonic() + self._deadline
            try:
                yield connection
            finally:
                connection.used_at = time.monotonic()
                if connection.info.transaction_status != TransactionStatus.IDLE:
                    connection.close()
                pool.putconn(connection)
        except (psycopg.Error, OSError) as error:
            raise package_error(error, self.schema.name) from error

    def _working_connection(self) -> tuple[ConnectionPool[Connection], Connection]:
        started = time.monotonic()
        until = started + max(_LEAST_CONNECT_SECONDS, self._deadline)
        while True:
            pool = self._opened()
            try:
                connection = pool.getconn(min(_POLL_SECONDS, until - time.monotonic()))
            except PoolClosed:  # by another thread that shares the table
                continue
            except PoolTimeout as error:
                at, failure = self.failure
                if failure is not None and at >= started:
                    raise type(failure)(str(failure)) from failure
                if time.monotonic() < until:
                    continue
                raise psycopg.OperationalError(
                    "no connection within the deadline: the server does not answer"
                ) from error
            if connection.is_alive(min(_CHECK_SECONDS, _CHECK_SHARE * self._deadline)):
                return pool, connection
            # Connections that idled as long have probably ended, too. A failed ``check`` of the
            # pool would replace only this one, after a pause of a second.
            connection.close()
            pool.putconn(connection)
            pool.drain()

    def _opened(self) -> ConnectionPool[Connection]:
        with self._lock:
            if self._pool is None:
                self._pool = ConnectionPool(
                    self.conninfo,
                    connection_class=Connection,
                    kwargs={
                        "owner": weakref.ref(self),
                        "autocommit": True,
                        "connect_timeout": max(_LEAST_CONNECT_SECONDS, math.ceil(self._deadline)),
                        # PgBouncer may use another server connection per transaction
                        "prepare_threshold": None,
                    },
                    min_size=0,
                    max_size=_MAX_CONNECTIONS,
                    reconnect_timeout=0,  # the next operation retries
                    num_workers=2,
                    open=True,
                )
            return self._pool

    def renew_after_fork(self) -> None:
        """Discard the parent's pool of connections in a forked process.

        The pool stays in memory, because its deletion would also close the parent's connections.
        """
        _inherited.append(self._pool)
        self._lock, self._pool = threading.Lock(), None


def _bytes(key: Key) -> tuple[bytes, bytes]:
    return key[0].encode(), key[1].encode()


_MAX_CONNECTIONS = 16
_LEAST_CONNECT_SECONDS = 2
_TRUSTED_SECONDS = 1.0
"""Longest idle time, in seconds, after which a connection is used without a test query."""
_CHECK_SECONDS, _CHECK_SHARE = 0.5, 0.25
"""Longest test of an idle connection: 0.5 s, or a quarter of the deadline if that is less."""
_POLL_SECONDS = 0.05
"""Interval in seconds at which waiting threads check whether a connection attempt failed."""


class Connection(psycopg.Connection[Any]):
    """Connection to a PostgreSQL server on which each operation has a deadline."""

    until: float = math.inf
    used_at: float = -math.inf

    @classmethod
    def connect(  # type: ignore[override]
        cls, conninfo: str = "", *, owner: weakref.ref[PostgresTable], **options: Any
    ) -> Any:
        """Connect to the PostgreSQL server, or store the error in ``PostgresTable.failure``.

        Waiting threads read the error there, because the pool does not report it.
        """
        try:
            return super().connect(conninfo, **options)
        except psycopg.Error as error:
            if (table := owner()) is not None:
                table.failure = time.monotonic(), error
            raise

    def wait(self, gen: Any, interval: float = 0.1, timeout: float | None = None) -> Any:
        """Run an operation of psycopg for at most ``timeout`` seconds.

        Without ``timeout``, the operation may run until the deadline of the connection (``until``).
        """
        if timeout is None and self.until < math.inf:
            timeout = max(0.0, self.until - time.monotonic())
        try:
            return super().wait(gen, interval, timeout)
        except Exception as error:
            if time.monotonic() >= self.until:
                raise psycopg.OperationalError(
                    "the server does not answer within the deadline"
                ) from error
            raise

    def is_alive(self, seconds: float) -> bool:
        """Return whether the PostgreSQL server still responds on this connection.

        A connection that the server has closed is recognized without a request. A connection that
        was idle for over a second is also tested by a query, for at most ``seconds``.
        """
        with selectors.DefaultSelector() as selector:
            selector.register(self.pgconn.socket, selectors.EVENT_READ)
            if selector.select(timeout=0):  # the server reports the end unasked
                return False
        if time.monotonic() - self.used_at < _TRUSTED_SECONDS:
            return True
        self.until = time.monotonic() + seconds
        try:
            ConnectionPool.check_connection(self)
        except psycopg.Error:
            return False
        return True


_inherited: list[ConnectionPool[Connection] | None] = []


_REFUSED: dict[type[psycopg.Error], tuple[str, str]] = {
    errors.UndefinedTable: ("table", NO_TABLE),
    errors.InsufficientPrivilege: (
        "permission",
        "grant SELECT, INSERT, UPDATE and DELETE on the table to this user",
    ),
    errors.InvalidPassword: ("permission", "correct the user's password"),
    errors.InvalidAuthorizationSpecification: (
        "permission",
        "correct the user's name, or the server's pg_hba.conf",
    ),
    errors.InvalidCatalogName: ("database", "there is no such database: create it"),
    errors.DiskFull: ("disk", "the disk is full: free some space"),
    errors.ReadOnlySqlTransaction: (
        "read-only",
        "connect to the primary server: target_session_attrs=read-write",
    ),
}
_REFUSED_LOGINS = (
    ("authentication failed", errors.InvalidPassword),
    ("no pg_hba.conf entry", errors.InvalidAuthorizationSpecification),
    ("role ", errors.InvalidAuthorizationSpecification),
    ("database ", errors.InvalidCatalogName),
)
"""Parts of the server's error text that show why it rejected a login."""

_PASSING = (
    errors.QueryCanceled,
    errors.DeadlockDetected,
    errors.SerializationFailure,
    errors.LockNotAvailable,
    errors.TooManyConnections,
    psycopg.InterfaceError,
    psycopg.OperationalError,
    OSError,
)


def package_error(error: psycopg.Error | OSError, table: str) -> StoreError:
    """Convert an error of psycopg to the corresponding ``StoreError`` of this package."""
    # Without the details of the server's answer, which may quote the record.
    text = (error.diag.message_primary if isinstance(error, psycopg.Error) else None) or str(
        error
    ).strip()
    what = f"table=<{table}> | {type(error).__name__}: {text}"
    _, refused, why = str(error).partition("FATAL:")
    login = next((kind for text, kind in _REFUSED_LOGINS if refused and text in why), None)
    for kind, (reason, remedy) in _REFUSED.items():
        if isinstance(error, kind) or login is kind:
            return StoreRefusedError(what, reason=reason, remedy=remedy)
    return StoreUnavailableError(what) if isinstance(error, _PASSING) else StoreError(what)
