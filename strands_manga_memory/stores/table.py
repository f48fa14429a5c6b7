"""Protocol of durable tables with conditional writes, and base class of the SQL tables."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Protocol

from strands_manga_memory.stores.codec import MALFORMED, dump, load

Item = dict[str, Any]
"""Record of a table: attributes by name, with JSON values or bytes."""

Key = tuple[str, str]
"""Partition and sort value of a record."""


@dataclass(frozen=True)
class Index:
    """Secondary index of a DynamoDB table, which groups and sorts the records by other attributes.

    The indexes are for other applications. This package does not query them.
    """

    name: str
    partition: str
    sort: str
    sort_is_number: bool = False


@dataclass(frozen=True)
class TableSchema:
    """Names of a table, its key attributes, its expiry attribute and its indexes.

    The key of a record is the pair of a partition value and a sort value. ``partition`` and
    ``sort`` are the names of the attributes with these values. ``ttl`` is the name of the attribute
    with the time at which a record expires.

    A DynamoDB table of another application may have no sort key. ``sort`` is then empty, and this
    package only reads single records of the table.
    """

    name: str
    partition: str
    sort: str
    ttl: str = "expires_at"
    indexes: tuple[Index, ...] = ()


SESSIONS = TableSchema(name="manga_sessions", partition="session_id", sort="sk")
"""Table of conversations: their current states, their logs (all turns), and lists of sessions."""

USER_MEMORY = TableSchema(
    name="manga_user_memory",
    partition="user_id",
    sort="memory_id",
    indexes=(
        Index("user_id-memory_type-index", "user_id", "memory_type"),
        Index("user_id-importance-index", "user_id", "importance_score", sort_is_number=True),
    ),
)
"""Table of long-term user memories, readable with plain boto3 by these names."""


@dataclass(frozen=True)
class Condition:
    """Condition on the stored record, which is checked in the same atomic step as a write.

    For example, ``Condition(equals={"version": 3})`` allows a write only if the stored record has
    version 3. ``Condition(absent=True)`` allows a write only if there is no record.
    ``Condition(absent=True, equals={"version": 3})`` allows a write in both cases.

    Attributes:
        absent: Whether the write is allowed if there is no record.
        equals: Values that an existing record must have, keyed by attribute name. The value None
            also accepts a missing attribute.
        below: Upper limits of numbers in an existing record, keyed by attribute name. Each number
            must be below its limit.
    """

    absent: bool = False
    equals: Mapping[str, Any] = field(default_factory=dict)
    below: Mapping[str, float] = field(default_factory=dict)

    def met_by(self, item: Mapping[str, Any] | None) -> bool:
        """Return whether a stored record meets the condition.

        ``item`` is None if there is no record.
        """
        if item is None:
            return self.absent
        if not self.equals and not self.below:
            return False
        are_equal = all(item.get(name) == value for name, value in self.equals.items())
        return are_equal and all(
            isinstance(number := item.get(name), int | float) and number < limit
            for name, limit in self.below.items()
        )


ABSENT = Condition(absent=True)
"""Condition that no record exists yet."""


@dataclass(frozen=True)
class Write:
    """One write of a transaction: a put, a delete or a check.

    A put stores a whole record, and a delete removes a record. A check only tests a condition on a
    record. The transaction is executed if the conditions of all its writes are met.

    Attributes:
        item: New record of a put. None for a delete or a check.
        key: Key of the record for a delete or a check. None for a put.
        when: Condition on the stored record. None for no condition.
        is_check: Whether the write is a check.
    """

    item: Item | None = None
    key: Key | None = None
    when: Condition | None = None
    is_check: bool = False


class Table(Protocol):
    """Protocol of durable tables, which group records by partition and sort each partition.

    The methods are synchronous, thread-safe, independent of event loops, and usable after a fork.
    Every read is strongly consistent. A store that does not respond within its deadline raises
    ``StoreUnavailableError``. Other errors of the driver raise ``StoreError``. For a damaged
    record, reads return a record with only its key.
    """

    schema: TableSchema

    def create_if_missing(self) -> None:
        """Create the table if it is missing.

        In DynamoDB, also create its indexes and enable its TTL.
        """

    def get(self, partition: str, sort: str) -> Item | None:
        """Return the record of a partition and a sort value, or None if it is missing."""

    def batch_get(self, keys: Sequence[Key]) -> dict[Key, Item]:
        """Read many records in as few requests as possible.

        The result maps each existing key to its record.
        """

    def put(self, item: Item, *, when: Condition | None = None, scrub: bool = True) -> bool:
        """Write a record, in place of an earlier record with the same key.

        Args:
            item: The record.
            when: Condition on the stored record. None for no condition.
            scrub: Whether a replaced record must be unreadable in all files of the store when the
                call returns. False is faster; the record may then stay in a file until any record
                is deleted, or replaced with ``scrub=True``.

        Returns:
            Whether the record was written. False if the condition is not met.
        """

    def delete(self, partition: str, sort: str, *, when: Condition | None = None) -> bool:
        """Delete a record, if there is one.

        ``when`` is a condition on the stored record. If the condition is not met, nothing is
        deleted, and the result is False.
        """

    def batch_write(self, *, puts: Sequence[Item] = (), deletes: Sequence[Key] = ()) -> None:
        """Write and delete many records without conditions, in any order.

        If a key is in both ``puts`` and ``deletes``, the record is written. Retries may execute a
        write more than once.
        """

    def query(
        self,
        partition: str,
        *,
        first: str | None = None,
        last: str | None = None,
        reverse: bool = False,
        limit: int | None = None,
        attributes: Sequence[str] | None = None,
    ) -> Iterator[Item]:
        """Yield the records of a partition, in the order of their sort values.

        Args:
            partition: Partition value.
            first: Lowest sort value, included; None for no lower limit.
            last: Highest sort value, included; None for no upper limit.
            reverse: Whether to yield the highest sort value first.
            limit: Largest number of records; None for all.
            attributes: Names of the attributes to read; None for all. The key is always included.
        """

    def transact(self, writes: Sequence[Write]) -> bool:
        """Execute at most 100 writes, of at most 4 MB in total, in one transaction.

        Returns:
            Whether the writes were executed. If a condition is not met, no write is executed.
        """

    def close(self) -> None:
        """Close the connections to the database. The table stays usable, and opens new ones."""


def delete_rows(table: Table, rows: Iterable[Item]) -> None:
    """Delete records from a table, in batches. Only the key of each given record is used."""
    table.batch_write(deletes=[key_of(table.schema, row) for row in rows])


MAX_TRANSACT = 100
"""Maximum number of writes in a ``transact`` call, a limit of DynamoDB."""


def key_of(schema: TableSchema, item: Item) -> Key:
    """Return the key of a record: its partition value and its sort value.

    Raises:
        ValueError: A part of the key is missing, empty or not a string.
    """
    for name in (schema.partition, schema.sort):
        value = item.get(name)
        if not isinstance(value, str) or not value:
            raise ValueError(
                f"item must have a non-empty string as {name!r:.80}, got {value!r:.80}"
            )
    return item[schema.partition], item[schema.sort]


def key_of_write(schema: TableSchema, write: Write) -> Key:
    """Return the key of the record to which a ``Write`` (put, delete or check) applies."""
    return key_of(schema, write.item) if write.item is not None else write.key  # type: ignore[return-value]


def check_transaction(schema: TableSchema, writes: Sequence[Write]) -> None:
    """Raise ``ValueError`` for over 100 writes, or for two writes of the same record."""
    if len(writes) > MAX_TRANSACT:
        raise ValueError(f"writes must be at most {MAX_TRANSACT}, got {len(writes)}")
    keys = [key_of_write(schema, write) for write in writes]
    if twice := [key for key in keys if keys.count(key) > 1]:
        raise ValueError(f"writes must be of different records, got two of {twice[0]!r:.80}")


def normalize(value: Any) -> Any:
    """Convert a value to the form in which DynamoDB would return it.

    For example, 2.0 becomes 2, and a tuple becomes a list.

    Raises:
        ValueError: A number is not finite.
        TypeError: The value has a type that a record cannot store.
    """
    if isinstance(value, str | int | bytes) or value is None:
        return value
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError(f"a stored number must be finite, got {value!r:.80}")
        return int(value) if value.is_integer() else value
    if isinstance(value, Mapping):
        return {name: normalize(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [normalize(item) for item in value]
    if isinstance(value, bytearray):
        return bytes(value)
    raise TypeError(
        "a stored value must be str, int, float, bool, bytes, None, list or dict, got"
        f" {type(value).__name__}"
    )


def parse_item(data: bytes, key: Key, schema: TableSchema) -> Item:
    """Parse a serialized record. If the data is damaged, the result has only the key.

    No error is raised, so that other records can be read. A record with another key than ``key``
    also counts as damaged.
    """
    with suppress(*MALFORMED):
        item = load(data)
        if isinstance(item, dict) and (item.get(schema.partition), item.get(schema.sort)) == tuple(
            key
        ):
            return item
    return {schema.partition: key[0], schema.sort: key[1]}


_PAGE = 64
"""Maximum number of records that a query reads at once."""


class SQLTable:
    """Base class of the tables in SQL databases.

    Each record is a row with the columns ``partition``, ``sort`` and ``item`` (the serialized
    record). Secondary indexes are not created, because this package does not query them.
    """

    schema: TableSchema
    _placeholder = "?"

    def _write(self, writes: Sequence[Write], *, scrub: bool = True) -> bool:
        """Execute all writes in one transaction, and return True, if all conditions are met.

        With ``scrub``, replaced records are unreadable in the store's files when the call returns.
        """
        raise NotImplementedError

    def _fetch(self, statement: str, values: Sequence[Any]) -> list[tuple[Any, ...]]:
        raise NotImplementedError

    def _to_column(self, value: str) -> Any:
        return value

    def _from_column(self, column: Any) -> str:
        return str(column)

    def _name(self) -> str:
        return '"' + self.schema.name.replace('"', '""') + '"'

    def batch_get(self, keys: Sequence[Key]) -> dict[Key, Item]:
        """Read many records. The result maps each existing key to its record."""
        raise NotImplementedError

    def get(self, partition: str, sort: str) -> Item | None:
        """Return the record of a partition and a sort value, or None if it is missing."""
        return self.batch_get([(partition, sort)]).get((partition, sort))

    def query(
        self,
        partition: str,
        *,
        first: str | None = None,
        last: str | None = None,
        reverse: bool = False,
        limit: int | None = None,
        attributes: Sequence[str] | None = None,
    ) -> Iterator[Item]:
        """Yield the records of a partition, in the order of their sort values."""
        limits = {"partition =": partition, "sort >=": first, "sort <=": last}
        bounds = {column: value for column, value in limits.items() if value is not None}
        shown = None if attributes is None else frozenset(attributes)
        data = "NULL" if shown is not None and not shown else "item"
        while limit is None or limit > 0:
            count = _PAGE if limit is None else min(limit, _PAGE)
            where = " AND ".join(f"{bound} {self._placeholder}" for bound in bounds)
            order = f"sort{' DESC' if reverse else ''} LIMIT {self._placeholder}"
            statement = f"SELECT {data}, sort FROM {self._name()} WHERE {where} ORDER BY {order}"  # noqa: S608
            rows = self._fetch(statement, (*map(self._to_column, bounds.values()), count))
            for stored, sort in rows:
                key = bounds["partition ="], self._from_column(sort)
                item = {} if stored is None else parse_item(stored, key, self.schema)
                if shown is not None:
                    named = {name: item[name] for name in item if name in shown}
                    item = {self.schema.partition: key[0], self.schema.sort: key[1], **named}
                yield item
            if len(rows) < count:
                return
            bounds["sort <" if reverse else "sort >"] = self._from_column(rows[-1][1])
            limit = None if limit is None else limit - count

    def _serialize_writes(self, writes: Sequence[Write]) -> list[tuple[Key, Write, bytes | None]]:
        planned = {}
        for write in writes:
            data = None if write.item is None else dump(normalize(write.item))
            planned[key_of_write(self.schema, write)] = write, data
        # All processes lock records in the order of keys, which prevents deadlocks.
        return [(key, *planned[key]) for key in sorted(planned)]

    def _is_met(self, when: Condition, key: Key, data: bytes | None) -> bool:
        return when.met_by(None if data is None else parse_item(data, key, self.schema))

    def put(self, item: Item, *, when: Condition | None = None, scrub: bool = True) -> bool:
        """Write a record, in place of an earlier record with the same key.

        Return False if the stored record does not meet the condition ``when``. Nothing is written
        then.
        """
        return self._write([Write(item=item, when=when)], scrub=scrub)

    def delete(self, partition: str, sort: str, *, when: Condition | None = None) -> bool:
        """Delete a record, if there is one. Return False if the condition ``when`` is not met."""
        return self._write([Write(key=(partition, sort), when=when)])

    def batch_write(self, *, puts: Sequence[Item] = (), deletes: Sequence[Key] = ()) -> None:
        """Write and delete many records in one transaction, without conditions."""
        self._write([*(Write(key=key) for key in deletes), *(Write(item=item) for item in puts)])

    def transact(self, writes: Sequence[Write]) -> bool:
        """Execute at most 100 writes in one transaction.

        Returns:
            Whether the writes were executed. If a condition is not met, no write is executed.

        Raises:
            ValueError: There are more than 100 writes, or two of the same record.
        """
        check_transaction(self.schema, writes)
        return self._write(writes)
