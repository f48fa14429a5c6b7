"""Protocol of durable tables with sorted records and conditional writes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

Item = dict[str, Any]
"""Record: values ``str``, ``int``, ``float``, ``bool``, ``bytes``, ``None``, or lists and dicts of them, by attribute name."""

Key = tuple[str, str]
"""Partition and sort value of a record."""


@dataclass(frozen=True)
class Index:
    """Secondary index of a DynamoDB table, which groups records by ``partition`` and sorts them by ``sort``.

    This package does not query it. It is for other applications.
    """

    name: str
    partition: str
    sort: str
    sort_is_number: bool = False


@dataclass(frozen=True)
class TableSchema:
    """Names of a table, its keys, its TTL attribute and its indexes.

    ``sort`` is empty if another application's DynamoDB table has no sort key. Such a table supports only reads of single
    records.
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

    If ``equals`` and ``below`` are empty, no existing record meets the condition.

    Attributes:
        absent: Whether a missing record meets the condition.
        equals: Values that an existing record must have, keyed by attribute name.
        below: Limits of numbers in an existing record, keyed by attribute name. Each number must be below its limit.
    """

    absent: bool = False
    equals: Mapping[str, Any] = field(default_factory=dict)
    below: Mapping[str, float] = field(default_factory=dict)

    def met_by(self, item: Mapping[str, Any] | None) -> bool:
        """Return whether a stored record meets the condition of a write. ``item`` is None if there is no record."""
        if item is None:
            return self.absent
        if not self.equals and not self.below:
            return False
        return all(item.get(name) == value for name, value in self.equals.items()) and all(
            isinstance(item.get(name), int | float) and item[name] < value for name, value in self.below.items()
        )


ABSENT = Condition(absent=True)
"""The record must not exist yet."""


@dataclass(frozen=True)
class Write:
    """One write of a transaction, which is executed only if the conditions of all its writes are met.

    A put replaces a record, and a delete removes a record. A check changes nothing, but has a condition.

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

    The methods are synchronous, thread-safe, independent of event loops, and usable after a fork. Every read is strongly
    consistent. Every method raises ``StoreUnavailableError`` if the store does not answer within its deadline. Other errors of
    the driver raise ``StoreError``.
    """

    schema: TableSchema

    def create_if_missing(self) -> None:
        """Create the table, its indexes and its TTL setting if they are missing."""

    def get(self, partition: str, sort: str) -> Item | None:
        """Return a record, or None if the record is absent."""

    def batch_get(self, keys: Sequence[Key]) -> dict[Key, Item]:
        """Return the existing records, keyed by their keys, in as few requests as the store allows."""

    def put(self, item: Item, *, when: Condition | None = None, scrub: bool = True) -> bool:
        """Write a whole record, or return False if the stored record does not meet the condition ``when``.

        Args:
            item: The record.
            when: Condition on the stored record. None for no condition.
            scrub: Whether replaced data must be unreadable in all files of the store when the call returns. False is faster:
                replaced data may stay until the next delete or write with ``scrub``.
        """

    def delete(self, partition: str, sort: str, *, when: Condition | None = None) -> bool:
        """Delete a record, or return False if the stored record does not meet the condition ``when``.

        A missing record is no error.
        """

    def batch_write(self, *, puts: Sequence[Item] = (), deletes: Sequence[Key] = ()) -> None:
        """Write and delete many records without conditions, in any order. Retries may execute a write more than once."""

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
        """Yield the records of a partition from ``first`` to ``last``, both included, in the order of their sort values.

        Args:
            partition: Partition value.
            first: Lowest sort value; None for no lower limit.
            last: Highest sort value; None for no upper limit.
            reverse: Whether to yield the highest sort value first.
            limit: Most records to yield; None for all.
            attributes: Attributes to read; None for all. The key is always included.
        """

    def transact(self, writes: Sequence[Write]) -> bool:
        """Execute at most 100 writes, of at most 4 MB in total, in one transaction, and return True.

        If a condition is not met, write nothing and return False.
        """

    def close(self) -> None:
        """Close the connections to the database of the table. The table remains usable and opens new ones."""


def delete_rows(table: Table, rows: Iterable[Item]) -> None:
    """Delete the given records by their keys, in batches. An unavailable store raises ``StoreUnavailableError``."""
    table.batch_write(deletes=[(row[table.schema.partition], row[table.schema.sort]) for row in rows])
