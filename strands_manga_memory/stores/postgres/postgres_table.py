"""Table on a PostgreSQL server."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import psycopg
from psycopg import errors

from strands_manga_memory.arguments import seconds
from strands_manga_memory.exceptions import StoreUnavailableError
from strands_manga_memory.stores.items import SQLTable, loaded
from strands_manga_memory.stores.postgres.postgres_connections import Connection, Connections, translated
from strands_manga_memory.stores.table import SESSIONS, Condition, Item, Key, TableSchema, Write

_TRIES = 20


class _WriteConflict(Exception):  # noqa: N818 - no error: after a write conflict the conditions are checked again
    pass


class PostgresTable(SQLTable):
    """Durable table on a PostgreSQL server of version 13 or later. It needs psycopg 3, from the extra ``postgres``.

    Each record is a row with its partition value, its sort value and the serialized record. The values are UTF-8, which sorts
    as in DynamoDB.

    A pool opens up to 16 connections. A forked process opens its own connections. PgBouncer is supported in session and
    transaction mode. A connection that was idle for over a second is checked before its next use, because gateways drop idle
    connections without notice.

    Reads also return records whose TTL attribute has passed, until ``strands-manga-memory sweep`` deletes the records.

    Args:
        conninfo: URL or connection string of libpq: ``postgresql://user:password@host:5432/database?sslmode=require``.
        schema: Names of the table and its keys. Default ``SESSIONS``.
        deadline: Seconds that an operation may take. Default 2. A new connection may take 2 seconds even if this is less.

    Raises:
        ValueError: ``conninfo`` is invalid, or ``deadline`` is not above 0.
    """

    _mark = "%s"

    def __init__(self, conninfo: str, schema: TableSchema = SESSIONS, *, deadline: float = 2.0) -> None:
        seconds("deadline", deadline)
        try:
            psycopg.conninfo.conninfo_to_dict(conninfo)
        except psycopg.Error:
            raise ValueError("conninfo is not a URL or connection string of PostgreSQL") from None  # it may hold a password
        self.schema = schema
        self.conninfo = conninfo
        self._connections = Connections(conninfo, deadline)

    def __repr__(self) -> str:
        known = psycopg.conninfo.conninfo_to_dict(self.conninfo)
        return f"PostgresTable({known.get('host', '')}/{known.get('dbname', '')}, {self.schema.name!r})"

    def create_if_missing(self) -> None:
        """Create the table if it is missing."""
        columns = "partition bytea NOT NULL, sort bytea NOT NULL, item bytea NOT NULL, PRIMARY KEY (partition, sort)"
        with self._connected() as connection:
            if connection.execute("SELECT to_regclass(%s)", (super()._name(),)).fetchone() == (None,):
                with suppress(errors.UniqueViolation, errors.DuplicateTable):  # another process creates it at this moment
                    connection.execute(f"CREATE TABLE IF NOT EXISTS {self._name()} ({columns})", ())

    def get(self, partition: str, sort: str) -> Item | None:
        """Return a record, or None if the record is absent."""
        return self.batch_get([(partition, sort)]).get((partition, sort))

    def batch_get(self, keys: Sequence[Key]) -> dict[Key, Item]:
        """Return the existing records, keyed by their keys, in one request."""
        if not keys:
            return {}
        wanted = [_bytes(key) for key in keys]
        statement = (
            "SELECT t.partition, t.sort, t.item FROM unnest(%s::bytea[], %s::bytea[]) AS k(partition, sort) "  # noqa: S608
            f"JOIN {self._name()} t USING (partition, sort)"
        )
        with self._connected() as connection:
            rows = connection.execute(
                statement, ([key[0] for key in wanted], [key[1] for key in wanted]), binary=True
            ).fetchall()
        found = {(row[0].decode(), row[1].decode()): row[2] for row in rows}
        return {key: loaded(found[key], key, self.schema) for key in keys if key in found}

    def put(self, item: Item, *, when: Condition | None = None, scrub: bool = True) -> bool:
        """Write a whole record, or return False if the stored record does not meet the condition. See ``Table.put``."""
        return self._write([Write(item=item, when=when)])

    def _fetch(self, statement: str, values: Sequence[Any]) -> list[tuple[Any, ...]]:
        with self._connected() as connection:  # returned before the caller processes a record
            return connection.execute(statement, values, binary=True).fetchall()

    def _column(self, value: str) -> bytes:
        return value.encode()

    def _text(self, column: bytes) -> str:
        return column.decode()

    def _name(self) -> str:
        return super()._name().replace("%", "%%")  # psycopg reads a % as the beginning of a placeholder

    def close(self) -> None:
        """Close the idle connections. The table remains usable, and opens new connections."""
        self._connections.close()

    def _write(self, writes: Sequence[Write]) -> bool:
        planned = self._planned(writes)
        for _ in range(_TRIES):
            try:
                with self._connected() as connection, connection.transaction():
                    read = [write.key for write in planned if write.when is not None]
                    stored = {key: self._locked(connection, key) for key in read}
                    if not self._all_met(planned, stored):
                        return False
                    for write in planned:
                        is_absent = write.when is not None and stored[write.key] is None
                        if not write.is_check:
                            self._replace(connection, write.key, write.data, was_absent=is_absent)
                        elif is_absent:  # it cannot be locked: keep it absent until the end of the transaction
                            self._replace(connection, write.key, b"", was_absent=True)
                            self._replace(connection, write.key, None, was_absent=True)
                    return True
            except _WriteConflict:
                continue
        raise StoreUnavailableError(f"table=<{self.schema.name}> | {_TRIES} attempts failed because of concurrent writes")

    def _locked(self, connection: Connection, key: Key) -> bytes | None:
        """Return the serialized record of a key, or None, and lock its row until the end of the transaction."""
        statement = f"SELECT item FROM {self._name()} WHERE partition = %s AND sort = %s FOR UPDATE"  # noqa: S608
        row = connection.execute(statement, _bytes(key), binary=True).fetchone()
        return None if row is None else bytes(row[0])

    def _replace(self, connection: Connection, key: Key, data: bytes | None, *, was_absent: bool) -> None:
        """Write the serialized record ``data``, or delete the record if ``data`` is None.

        ``was_absent`` is true if this transaction found no record, and therefore could not lock it. If another process has
        stored the record since, a put raises ``_WriteConflict``.
        """
        if data is None:
            connection.execute(f"DELETE FROM {self._name()} WHERE partition = %s AND sort = %s", _bytes(key))  # noqa: S608
            return
        insert = f"INSERT INTO {self._name()} (partition, sort, item) VALUES (%s, %s, %s) ON CONFLICT "  # noqa: S608
        insert += "DO NOTHING" if was_absent else "(partition, sort) DO UPDATE SET item = EXCLUDED.item"
        if connection.execute(insert, (*_bytes(key), data)).rowcount == 0:
            raise _WriteConflict

    @contextmanager
    def _connected(self) -> Iterator[Connection]:
        try:
            with self._connections.one() as connection:
                yield connection
        except (psycopg.Error, OSError) as error:
            raise translated(error, self.schema.name) from error


def _bytes(key: Key) -> tuple[bytes, bytes]:
    return key[0].encode(), key[1].encode()
