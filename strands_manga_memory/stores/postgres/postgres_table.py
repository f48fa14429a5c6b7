"""Table on a PostgreSQL server."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg import errors, sql

from strands_manga_memory.exceptions import CorruptRecordError, StoreUnavailableError
from strands_manga_memory.stores.encoding.codec import dump
from strands_manga_memory.stores.items import WritingTable, check_limit, checked_index, loaded, normal, place_in, target_of
from strands_manga_memory.stores.postgres.postgres_connections import Connection, Connections, translated
from strands_manga_memory.stores.table import SESSIONS, Condition, Index, Item, Key, TableSchema, Write

_PAGE = 64
_TRIES = 20
_Row = tuple[bytes, ...]


class _WriteConflict(Exception):  # noqa: N818 - no error: after a write conflict the conditions are checked again
    pass


class PostgresTable(WritingTable):
    """Durable table on a PostgreSQL server.

    The server must have version 13 or later. The table needs psycopg 3, from the extra ``postgres``.

    Each record is a row with its partition value, its sort value and the serialized record. The values are UTF-8, which
    sorts as in DynamoDB. Each index of the schema is a separate table, written in the same transaction.

    A pool opens up to 16 connections. A forked process opens its own connections. PgBouncer is supported in session and
    transaction mode. A connection that was idle for over a second is checked before its next use, because gateways drop
    idle connections without notice.

    Records stay after their TTL attribute has passed, until the sweeper deletes the records.

    Args:
        conninfo: A URL or connection string of libpq:
            ``postgresql://user:password@host:5432/database?sslmode=require``.
        schema: Names of the table, its keys and its indexes. Default ``SESSIONS``.
        deadline: Seconds that an operation may take. Default 2. A new connection may take 2 seconds even if this is less.

    Raises:
        ValueError: ``conninfo`` is invalid, or ``deadline`` is not above 0.
    """

    def __init__(self, conninfo: str, schema: TableSchema = SESSIONS, *, deadline: float = 2.0) -> None:
        if not deadline > 0:
            raise ValueError(f"deadline must be above 0 seconds, got {deadline!r:.80}")
        try:
            psycopg.conninfo.conninfo_to_dict(conninfo)
        except psycopg.Error:
            raise ValueError("conninfo is not a URL or connection string of PostgreSQL") from None  # it may hold a password
        self.schema = schema
        self.conninfo = conninfo
        self._connections = Connections(conninfo, deadline)
        self._name = sql.Identifier(schema.name)

    def __repr__(self) -> str:
        known = psycopg.conninfo.conninfo_to_dict(self.conninfo)
        return f"PostgresTable({known.get('host', '')}/{known.get('dbname', '')}, {self.schema.name!r})"

    def create_if_missing(self) -> None:
        """Create the table and its indexes if they are missing."""
        columns = "partition bytea NOT NULL, sort bytea NOT NULL"
        wanted = {self.schema.name: f"{columns}, item bytea NOT NULL, PRIMARY KEY (partition, sort)"}
        for index in self.schema.indexes:
            keys = "PRIMARY KEY (value, position, partition, sort)"
            wanted[self._index_name(index)] = f"value bytea NOT NULL, position bytea NOT NULL, {columns}, {keys}"
        for name, body in wanted.items():
            statement = sql.SQL("CREATE TABLE IF NOT EXISTS {} ({})").format(sql.Identifier(name), _text(body))
            with self._connected() as connection:
                found = connection.execute("SELECT to_regclass(%s)", (sql.Identifier(name).as_string(),)).fetchone()
                if found != (None,):
                    continue
                try:
                    connection.execute(statement)
                except (errors.UniqueViolation, errors.DuplicateTable):  # another process creates it at this moment
                    continue

    def get(self, partition: str, sort: str) -> Item | None:
        """Return a record, or None if the record is absent."""
        return self.batch_get([(partition, sort)]).get((partition, sort))

    def batch_get(self, keys: Sequence[Key]) -> dict[Key, Item]:
        """Return the existing records, keyed by their keys.

        The server is asked once.
        """
        if not keys:
            return {}
        wanted = [_bytes(key) for key in keys]
        statement = self._sql(
            "SELECT t.partition, t.sort, t.item FROM unnest(%s::bytea[], %s::bytea[]) AS k(partition, sort) "
            "JOIN {} t USING (partition, sort)"
        )
        with self._connected() as connection:
            rows = connection.execute(
                statement, ([key[0] for key in wanted], [key[1] for key in wanted]), binary=True
            ).fetchall()
        found = {(row[0].decode(), row[1].decode()): row[2] for row in rows}
        return {key: loaded(found[key], key, self.schema) for key in keys if key in found}

    def put(self, item: Item, *, when: Condition | None = None, scrub: bool = True) -> bool:
        """Write a whole record.

        Returns False without writing if ``when`` is not met. ``Table.put`` describes the arguments.
        """
        return self._write([Write(item=item, when=when)])

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
            source, key, columns = "{} t", "t.partition", ["t.sort"]
        else:
            source = "{} i JOIN {} t USING (partition, sort)"
            key, columns = "i.value", ["i.position", "i.partition", "i.sort"]
        where, values = [f"{key} = %s"], [partition.encode()]
        for comparison, bound in ((">=", first), ("<=", last)):
            if bound is not None:
                where.append(f"{columns[0]} {comparison} %s")
                values.append(_position(bound))
        data = "t.item" if attributes is None or attributes else "NULL::bytea"
        direction, names = " DESC" if reverse else "", ", ".join(columns)
        select = f"SELECT {data}, t.partition, t.sort, {names} FROM {source} WHERE {' AND '.join(where)}"  # noqa: S608
        beyond = f" AND ({names}) {'<' if reverse else '>'} ({', '.join(['%s'] * len(columns))})"
        order = f" ORDER BY {', '.join(column + direction for column in columns)} LIMIT %s"
        tables = [] if index is None else [sql.Identifier(self._index_name(checked_index(self.schema, index)))]
        start, resume = (self._sql(text, *tables) for text in (select + order, select + beyond + order))
        return self._rows(start, resume, values, limit, None if attributes is None else set(attributes))

    def close(self) -> None:
        """Close the idle connections.

        The table remains usable, and opens new connections.
        """
        self._connections.close()

    def _rows(
        self, start: sql.Composed, resume: sql.Composed, values: Sequence[Any], limit: int | None, wanted: set[str] | None
    ) -> Iterator[Item]:
        seen: tuple[Any, ...] = ()
        while limit is None or limit > 0:
            count = _PAGE if limit is None else min(limit, _PAGE)
            with self._connected() as connection:  # returned before the caller processes a record
                rows = connection.execute(resume if seen else start, (*values, *seen, count), binary=True).fetchall()
            for data, *row in rows:
                key = row[0].decode(), row[1].decode()
                item = {} if data is None else loaded(data, key, self.schema)
                named = dict(zip((self.schema.partition, self.schema.sort), key, strict=True))
                yield item if wanted is None else {**named, **{name: item[name] for name in item if name in wanted}}
            if len(rows) < count:
                return
            seen = tuple(rows[-1][3:])
            limit = None if limit is None else limit - count

    def _write(self, writes: Sequence[Write]) -> bool:
        rows = [
            (target_of(self.schema, write), write.when, write.item, None if write.item is None else dump(normal(write.item)))
            for write in writes
        ]
        checked = {write.key for write in writes if write.is_check}
        rows = [rows[at] for at in sorted({row[0]: at for at, row in enumerate(rows)}.values(), key=lambda at: rows[at][0])]
        for _ in range(_TRIES):
            try:
                with self._connected() as connection, connection.transaction():
                    stored = {row[0]: self._locked(connection, row[0]) for row in rows if row[1] or self.schema.indexes}
                    if not all(when.met_by(_trusted(stored[key], key, self.schema)) for key, when, _, _ in rows if when):
                        return False
                    for key, when, item, data in rows:
                        if key in checked:
                            self._hold_absent(connection, key, stored[key])
                            continue
                        self._reindex(connection, key, stored.get(key), item)
                        self._replace(connection, key, data, was_absent=when is not None and stored[key] is None)
                    return True
            except _WriteConflict:
                continue
        raise StoreUnavailableError(f"table=<{self.schema.name}> | {_TRIES} attempts failed because of concurrent writes")

    def _locked(self, connection: Connection, key: Key) -> bytes | None:
        """Return a stored record, and lock the record until the end of the transaction."""
        statement = self._sql("SELECT item FROM {} WHERE partition = %s AND sort = %s FOR UPDATE")
        row = connection.execute(statement, _bytes(key), binary=True).fetchone()
        return None if row is None else bytes(row[0])

    def _replace(self, connection: Connection, key: Key, data: bytes | None, *, was_absent: bool) -> None:
        """Write or delete a record.

        A record that was absent when its condition was checked could not be locked. If such a record exists now,
        ``_WriteConflict`` is raised.
        """
        if data is None:
            connection.execute(self._sql("DELETE FROM {} WHERE partition = %s AND sort = %s"), _bytes(key))
            return
        text = "INSERT INTO {} (partition, sort, item) VALUES (%s, %s, %s) ON CONFLICT "
        text += "DO NOTHING" if was_absent else "(partition, sort) DO UPDATE SET item = EXCLUDED.item"
        if connection.execute(self._sql(text), (*_bytes(key), data)).rowcount == 0:
            raise _WriteConflict

    def _hold_absent(self, connection: Connection, key: Key, stored: bytes | None) -> None:
        """Keep an absent record absent until the end of the transaction.

        An absent record cannot be locked.
        """
        if stored is None:
            self._replace(connection, key, b"", was_absent=True)
            self._replace(connection, key, None, was_absent=True)

    def _reindex(self, connection: Connection, key: Key, stored: bytes | None, item: Item | None) -> None:
        for index in self.schema.indexes:
            name = sql.Identifier(self._index_name(index))
            if stored is not None:
                delete = sql.SQL("DELETE FROM {} WHERE partition = %s AND sort = %s AND value = %s AND position = %s")
                try:
                    before = place_in(index, loaded(stored, key, self.schema))
                except (CorruptRecordError, ValueError):  # its index entries are unknown
                    connection.execute(sql.SQL("DELETE FROM {} WHERE partition = %s AND sort = %s").format(name), _bytes(key))
                else:
                    if before is not None:
                        connection.execute(delete.format(name), (*_bytes(key), before[0].encode(), _position(before[1])))
            after = place_in(index, item)
            if after is not None:
                insert = sql.SQL(
                    "INSERT INTO {} (value, position, partition, sort) VALUES (%s, %s, %s, %s) ON CONFLICT DO NOTHING"
                )
                connection.execute(insert.format(name), (after[0].encode(), _position(after[1]), *_bytes(key)))

    def _index_name(self, index: Index) -> str:
        return f"{self.schema.name}/{index.name}"

    def _sql(self, text: str, *before: sql.Identifier) -> sql.Composed:
        return _text(text).format(*before, self._name)

    @contextmanager
    def _connected(self) -> Iterator[Connection]:
        try:
            with self._connections.one() as connection:
                yield connection
        except (psycopg.Error, OSError) as error:
            raise translated(error, self.schema.name) from error


def _text(text: str) -> sql.SQL:
    return sql.SQL(text)


def _bytes(key: Key) -> tuple[bytes, bytes]:
    return key[0].encode(), key[1].encode()


def _position(value: str | float) -> bytes:
    """Convert a text or a number to bytes that sort in the same order."""
    if isinstance(value, str):
        return value.encode()
    data = struct.pack(">d", value + 0.0)
    return bytes((data[0] ^ 0x80, *data[1:])) if data[0] < 0x80 else bytes(0xFF - byte for byte in data)


def _trusted(data: bytes | None, key: Key, schema: TableSchema) -> Item | None:
    return None if data is None else loaded(data, key, schema)
