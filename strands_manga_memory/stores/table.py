"""Protocol of durable tables with conditional writes, and base class of SQL tables."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Protocol

from strands_manga_memory.exceptions import CorruptRecordError
from strands_manga_memory.stores.codec import dump, load_stored

Item = dict[str, Any]
"""Record: values ``str``, ``int``, ``float``, ``bool``, ``bytes``, ``None``, or lists and dicts of
them, by attribute name.
"""

Key = tuple[str, str]
"""Partition and sort value of a record."""


@dataclass(frozen=True)
class Index:
    """Secondary index of a DynamoDB table, which groups and sorts records by other attributes.

    The index is for other applications: this package does not query it.
    """

    name: str
    partition: str
    sort: str
    sort_is_number: bool = False


@dataclass(frozen=True)
class TableSchema:
    """Names of a table, its keys, its TTL attribute and its indexes.

    An empty ``sort`` means that the table has no sort key. Only another application creates such a
    DynamoDB table. This package can read only single records from the table.
    """

    name: str
    partition: str
    sort: str
    ttl: str = "expires_at"
    indexes: tuple[Index, ...] = ()


SESSIONS = TableSchema(name="manga_sessions", partition="session_id", sort="sk")
"""Table of conversations: their heads (current state), log segments and directory records."""

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
    """Condition of a write, checked in the same atomic step as the write.

    For example, ``Condition(equals={"version": 3})`` allows a write only if version 3 is stored. If
    ``equals`` and ``below`` are empty, no existing record meets the condition.

    Attributes:
        absent: Whether a missing record meets the condition.
        equals: Values that an existing record must have, keyed by attribute name. The value None
            also stands for a missing attribute.
        below: Limits of numbers in an existing record, keyed by attribute name. Each number must be
            below its limit.
    """

    absent: bool = False
    equals: Mapping[str, Any] = field(default_factory=dict)
    below: Mapping[str, float] = field(default_factory=dict)

    def met_by(self, item: Mapping[str, Any] | None) -> bool:
        """Return whether a stored record (None if there is none) meets the condition."""
        if item is None:
            return self.absent
        if not self.equals and not self.below:
            return False
        for name, value in self.equals.items():
            if item.get(name) != value:
                return False
        for name, limit in self.below.items():
            number = item.get(name)
            if not (isinstance(number, int | float) and number < limit):
                return False
        return True


ABSENT = Condition(absent=True)
"""The record must not exist yet."""


@dataclass(frozen=True)
class Write:
    """One write of a transaction: a put, a delete or a check.

    A put stores a whole record, and a delete removes a record. A check changes nothing, but has a
    condition. The transaction is executed only if the conditions of all its writes are met.

    Attributes:
        item: New record of a put. None for a delete or a check.
        key: Key of a delete or a check. None for a put.
        when: Condition on the stored record. None for no condition.
        is_check: Whether the write is a check.
    """

    item: Item | None = None
    key: Key | None = None
    when: Condition | None = None
    is_check: bool = False


class Table(Protocol):
    """Durable table of sorted records.

    The methods are synchronous, thread-safe, independent of event loops, and usable after a fork.
    Every read is strongly consistent. Every method raises ``StoreUnavailableError`` if the store
    does not answer within its deadline. Other errors of the driver raise ``StoreError``. A damaged
    record raises no error: only its key is returned, so that other records stay readable.
    """

    schema: TableSchema

    def create_if_missing(self) -> None:
        """Create the table if it is missing, in DynamoDB with its indexes and its TTL."""

    def get(self, partition: str, sort: str) -> Item | None:
        """Return a record, or None if the record is absent."""

    def batch_get(self, keys: Sequence[Key]) -> dict[Key, Item]:
        """Return the existing records, keyed by their keys, in as few requests as possible."""

    def put(self, item: Item, *, when: Condition | None = None, scrub: bool = True) -> bool:
        """Write a whole record, or return False if the stored record does not meet ``when``.

        Args:
            item: The record.
            when: Condition on the stored record. None for no condition.
            scrub: Whether replaced data must be unreadable in all files of the store when the call
                returns. False is faster: replaced data may stay until the next delete or write with
                ``scrub``.
        """

    def delete(self, partition: str, sort: str, *, when: Condition | None = None) -> bool:
        """Delete a record, or return False if the stored record does not meet ``when``.

        A missing record is no error.
        """

    def batch_write(self, *, puts: Sequence[Item] = (), deletes: Sequence[Key] = ()) -> None:
        """Write and delete many records without conditions, in any order.

        If a key is in both ``puts`` and ``deletes``, the record is put. Retries may execute a write
        more than once.
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
        """Yield the records of a partition from ``first`` to ``last``, in the order of sort values.

        Args:
            partition: Partition value.
            first: Lowest sort value, included; None for no lower limit.
            last: Highest sort value, included; None for no upper limit.
            reverse: Whether to yield the highest sort value first.
            limit: Most records to yield; None for all.
            attributes: Attributes to read; None for all. The key is always included.
        """

    def transact(self, writes: Sequence[Write]) -> bool:
        """Execute at most 100 writes, of at most 4 MB in total, in one transaction.

        Return True. If a condition is not met, write nothing and return False.
        """

    def close(self) -> None:
        """Close the connections to the database. The table remains usable, and opens new ones."""


def delete_rows(table: Table, rows: Iterable[Item]) -> None:
    """Delete the given records by their keys, in batches."""
    table.batch_write(
        deletes=[(row[table.schema.partition], row[table.schema.sort]) for row in rows]
    )


MAX_TRANSACT = 100
"""Most writes of one ``transact`` call, a limit of DynamoDB."""


def key_of(schema: TableSchema, item: Item) -> Key:
    """Return the key of a record.

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


def target_of(schema: TableSchema, write: Write) -> Key:
    """Return the key of the record that a write concerns."""
    return key_of(schema, write.item) if write.item is not None else write.key  # type: ignore[return-value]


def check_transaction(schema: TableSchema, writes: Sequence[Write]) -> None:
    """Raise ``ValueError`` if a transaction is invalid.

    It has at most 100 writes, and no two writes of the same record.
    """
    if len(writes) > MAX_TRANSACT:
        raise ValueError(f"writes must be at most {MAX_TRANSACT}, got {len(writes)}")
    keys = [target_of(schema, write) for write in writes]
    if twice := [key for key in keys if keys.count(key) > 1]:
        raise ValueError(f"writes must be of different records, got two of {twice[0]!r:.80}")


def normal(value: Any) -> Any:
    """Convert a value to the form in which DynamoDB returns it: 2.0 to 2, a tuple to a list."""
    if isinstance(value, str | int | bytes) or value is None:
        return value
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError(f"a stored number must be finite, got {value!r:.80}")
        return int(value) if value.is_integer() else value
    if isinstance(value, Mapping):
        return {name: normal(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [normal(item) for item in value]
    if isinstance(value, bytearray):
        return bytes(value)
    raise TypeError(
        "a stored value must be str, int, float, bool, bytes, None, list or dict, got"
        f" {type(value).__name__}"
    )


def loaded(data: bytes, key: Key, schema: TableSchema) -> Item:
    """Return the record that ``data`` contains, or only its key if the data is damaged.

    Data that belongs to another key also counts as damaged.
    """
    with suppress(CorruptRecordError):
        item = load_stored(data, repr(key))
        if isinstance(item, dict) and (item.get(schema.partition), item.get(schema.sort)) == tuple(
            key
        ):
            return item
    return {schema.partition: key[0], schema.sort: key[1]}


_PAGE = 64
"""Most records that a query reads at once."""


class SQLTable:
    """Base class of tables in SQL databases.

    Each record is a row with its partition value, its sort value and the serialized record.
    Secondary indexes of the schema are not created, because only DynamoDB tables have them.
    """

    schema: TableSchema
    _mark = "?"
    """Placeholder of a value in a statement."""

    def _write(self, writes: Sequence[Write], *, scrub: bool = True) -> bool:
        """Execute all writes in one transaction, and return True.

        If a condition is not met, nothing is written, and the result is False. ``scrub``: whether
        replaced data must also be removed from all files of the store.
        """
        raise NotImplementedError

    def _fetch(self, statement: str, values: Sequence[Any]) -> list[tuple[Any, ...]]:
        """Execute a SELECT statement with the given values, and return the rows."""
        raise NotImplementedError

    def _column(self, value: str) -> Any:
        """Convert a partition or sort value for its SQL column, with the same sort order."""
        return value

    def _text(self, column: Any) -> str:
        """Convert a value from the SQL column of partition or sort values back to a string."""
        return str(column)

    def _name(self) -> str:
        """Return the name of the SQL table in quotes."""
        return '"' + self.schema.name.replace('"', '""') + '"'

    def batch_get(self, keys: Sequence[Key]) -> dict[Key, Item]:
        """Return the existing records, keyed by their keys."""
        raise NotImplementedError

    def get(self, partition: str, sort: str) -> Item | None:
        """Return a record, or None if the record is absent."""
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
        """Yield the records of a partition from ``first`` to ``last``, in order of sort values."""
        limits = {"partition =": partition, "sort >=": first, "sort <=": last}
        bounds = {column: value for column, value in limits.items() if value is not None}
        return self._rows(bounds, reverse=reverse, limit=limit, attributes=attributes)

    def _rows(
        self,
        bounds: dict[str, str],
        *,
        reverse: bool,
        limit: int | None,
        attributes: Sequence[str] | None,
    ) -> Iterator[Item]:
        """Yield the records within ``bounds``, read in pages of at most 64.

        ``bounds`` limits the partition and sort values: ``{"partition =": "p", "sort >=": "a"}``.
        """
        data = "NULL" if attributes is not None and not attributes else "item"
        while limit is None or limit > 0:
            count = _PAGE if limit is None else min(limit, _PAGE)
            where = " AND ".join(f"{bound} {self._mark}" for bound in bounds)
            order = f"sort{' DESC' if reverse else ''} LIMIT {self._mark}"
            statement = f"SELECT {data}, sort FROM {self._name()} WHERE {where} ORDER BY {order}"  # noqa: S608
            rows = self._fetch(statement, (*map(self._column, bounds.values()), count))
            for stored, sort in rows:
                key = bounds["partition ="], self._text(sort)
                item = {} if stored is None else loaded(stored, key, self.schema)
                if attributes is not None:
                    named = {name: item[name] for name in item if name in attributes}
                    item = {self.schema.partition: key[0], self.schema.sort: key[1], **named}
                yield item
            if len(rows) < count:
                return
            bounds["sort <" if reverse else "sort >"] = self._text(rows[-1][1])
            limit = None if limit is None else limit - count

    def _planned(self, writes: Sequence[Write]) -> list[tuple[Key, Write, bytes | None]]:
        """Validate the writes, serialize their records, and sort the writes by key.

        All processes lock records in this order, which prevents deadlocks. Of several writes with
        the same key, only the last one is returned.

        Returns:
            Key, write, and serialized record (None for a delete or a check).
        """
        planned = {}
        for write in writes:
            data = None if write.item is None else dump(normal(write.item))
            planned[target_of(self.schema, write)] = write, data
        return [(key, *planned[key]) for key in sorted(planned)]

    def _is_met(self, when: Condition | None, key: Key, data: bytes | None) -> bool:
        """Return whether a serialized record (None: no record) meets the condition."""
        return when is None or when.met_by(None if data is None else loaded(data, key, self.schema))

    def put(self, item: Item, *, when: Condition | None = None, scrub: bool = True) -> bool:
        """Write a whole record, or return False if the stored record does not meet ``when``."""
        return self._write([Write(item=item, when=when)], scrub=scrub)

    def delete(self, partition: str, sort: str, *, when: Condition | None = None) -> bool:
        """Delete a record, or return False if the stored record does not meet ``when``.

        A missing record is no error.
        """
        return self._write([Write(key=(partition, sort), when=when)])

    def batch_write(self, *, puts: Sequence[Item] = (), deletes: Sequence[Key] = ()) -> None:
        """Write and delete many records in one transaction, without conditions."""
        self._write([*(Write(key=key) for key in deletes), *(Write(item=item) for item in puts)])

    def transact(self, writes: Sequence[Write]) -> bool:
        """Execute at most 100 writes in one transaction.

        Return True. If a condition is not met, write nothing and return False.

        Raises:
            ValueError: There are more than 100 writes, or two of the same record.
        """
        check_transaction(self.schema, writes)
        return self._write(writes)
