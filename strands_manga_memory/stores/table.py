"""Protocol of durable, sorted tables, with conditions of writes."""

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
    """Secondary index: the records of a table, partitioned by ``partition`` and sorted by ``sort``."""

    name: str
    partition: str
    sort: str
    sort_is_number: bool = False


@dataclass(frozen=True)
class TableSchema:
    """Names of a table, its keys, its TTL attribute and its indexes.

    For a table of another application without a sort key, ``sort`` is empty; single records can then be read, in
    DynamoDB only.
    """

    name: str
    partition: str
    sort: str
    ttl: str = "expires_at"
    indexes: tuple[Index, ...] = ()


SESSIONS = TableSchema(name="manga_sessions", partition="session_id", sort="sk")
"""Conversations: heads, log segments and directory records."""

USER_MEMORY = TableSchema(
    name="manga_user_memory",
    partition="user_id",
    sort="memory_id",
    indexes=(
        Index("user_id-memory_type-index", "user_id", "memory_type"),
        Index("user_id-importance-index", "user_id", "importance_score", sort_is_number=True),
    ),
)
"""Long-term user memories, readable with plain boto3 by these names."""


@dataclass(frozen=True)
class Condition:
    """Condition of a write, checked against the stored record in the same atomic step.

    It is met if the record is absent and ``absent`` is true, or if the record exists, every attribute of ``equals`` has
    that value, and every attribute of ``below`` is a number below that value. Without ``equals`` and ``below``, no
    existing record meets it.
    """

    absent: bool = False
    equals: Mapping[str, Any] = field(default_factory=dict)
    below: Mapping[str, float] = field(default_factory=dict)

    def met_by(self, item: Mapping[str, Any] | None) -> bool:
        """Return whether a record (None: absent) meets the condition."""
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
    """Part of a ``transact`` call: a put (``item``), a delete (``key``), or a check (``key`` and ``is_check``).

    Puts and deletes may have a condition. A check needs one and does not change the record: the other writes are
    executed only if its condition is met.
    """

    item: Item | None = None
    key: Key | None = None
    when: Condition | None = None
    is_check: bool = False


class Table(Protocol):
    """Sorted, durable table of records; synchronous, thread-safe, independent of event loops, usable after a fork.

    Every read is strongly consistent, except through an index. Every method raises ``StoreUnavailableError`` if the
    store does not answer within its deadline, and ``StoreError`` for other errors of the driver.
    """

    schema: TableSchema

    def create_if_missing(self) -> None:
        """Create the table, its indexes and its TTL setting if they are missing."""

    def get(self, partition: str, sort: str) -> Item | None:
        """Return one record, or None."""

    def batch_get(self, keys: Sequence[Key]) -> dict[Key, Item]:
        """Return the existing records among ``keys``, in as few round trips as the store allows."""

    def put(self, item: Item, *, when: Condition | None = None, scrub: bool = True) -> bool:
        """Write a whole record; return False without writing if ``when`` is not met.

        Args:
            item: The record.
            when: Condition on the stored record.
            scrub: Whether replaced data must be unreadable in all files of the store when the call returns. False: it
                may stay until the next delete or write with ``scrub``, which is faster.
        """

    def delete(self, partition: str, sort: str, *, when: Condition | None = None) -> bool:
        """Delete a record; return False without deleting if ``when`` is not met. An absent record is no error."""

    def batch_write(self, *, puts: Sequence[Item] = (), deletes: Sequence[Key] = ()) -> None:
        """Write and delete many records without conditions, each at least once, in no order."""

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
        """Yield the records of a partition with a sort value from ``first`` to ``last`` (both included), in order.

        Args:
            partition: Partition value.
            first: Lowest sort value, or None.
            last: Highest sort value, or None.
            reverse: Whether to return the highest first.
            limit: Most records; pages are read until it is reached or there are no more.
            index: Name of a secondary index to read instead. Its reads may be slightly stale.
            attributes: Attributes to read; None for all. The key is always included.
        """

    def transact(self, writes: Sequence[Write]) -> bool:
        """Execute all writes (at most 100, 4 MB) or none; return False if a condition is not met."""

    def close(self) -> None:
        """Close the connections. The table remains usable and opens new ones."""


def delete_rows(table: Table, rows: Iterable[Item]) -> None:
    """Delete the records with the keys of ``rows``, in batches; raise ``StoreUnavailableError`` if the store is unavailable."""
    table.batch_write(deletes=[(row[table.schema.partition], row[table.schema.sort]) for row in rows])
