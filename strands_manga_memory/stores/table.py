"""Table: the port for durable, sorted records, and the conditions of its writes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

Item = dict[str, Any]
"""One record: attribute names to ``str``, ``int``, ``float``, ``bool``, ``bytes``, ``None``, or lists and dicts of them."""

Key = tuple[str, str]
"""Partition and sort value of a record."""


@dataclass(frozen=True)
class Index:
    """A secondary index: the records of the table, found by ``partition`` and sorted by ``sort``."""

    name: str
    partition: str
    sort: str
    sort_is_number: bool = False


@dataclass(frozen=True)
class TableSchema:
    """Names of a table, its keys, its TTL attribute and its indexes.

    A table of others that has a partition key only has an empty ``sort``; of it, single records can be read, from DynamoDB.
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
    """When a write may happen, judged on the stored record in the same atomic step.

    The write happens if the record is absent and ``absent`` is true, or if it is there, every attribute of ``equals`` has
    that value, and every attribute of ``below`` is a number lower than that value. A condition without ``equals`` and
    ``below`` is never met by a record that is there.
    """

    absent: bool = False
    equals: Mapping[str, Any] = field(default_factory=dict)
    below: Mapping[str, float] = field(default_factory=dict)

    def met_by(self, item: Mapping[str, Any] | None) -> bool:
        """Tell whether ``item`` (None: no record) lets the write happen."""
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
    """One part of a ``transact`` call: a put (``item``), a delete (``key``), or a check (``key`` and ``is_check``).

    A put and a delete may have a condition. A check has one, and leaves the record as it is: the other writes happen only if
    its condition holds when they do.
    """

    item: Item | None = None
    key: Key | None = None
    when: Condition | None = None
    is_check: bool = False


class Table(Protocol):
    """A sorted, durable record table; synchronous, thread-safe, bound to no event loop, usable after a fork.

    Every read is strongly consistent, except through an index. Every method raises ``StoreUnavailableError`` when the store
    does not answer within its deadline, and ``StoreError`` for any other fault of the driver.
    """

    schema: TableSchema

    def create_if_missing(self) -> None:
        """Create the table, its indexes and its TTL setting; on an existing table add the TTL setting if it lacks it."""

    def get(self, partition: str, sort: str) -> Item | None:
        """Return one record, or None."""

    def batch_get(self, keys: Sequence[Key]) -> dict[Key, Item]:
        """Return the records that exist among ``keys``, in as few round trips as the store allows."""

    def put(self, item: Item, *, when: Condition | None = None, scrub: bool = True) -> bool:
        """Write a record whole; return False, and write nothing, if ``when`` is not met.

        Args:
            item: The record.
            when: Condition on what is stored.
            scrub: What it replaces is not readable in any file of the store when it returns. False: it may be until the next
                write that scrubs, or deletes, which is faster.
        """

    def delete(self, partition: str, sort: str, *, when: Condition | None = None) -> bool:
        """Delete a record; return False, and delete nothing, if ``when`` is not met. An absent record is no error."""

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
        """Yield the records of a partition whose sort value is from ``first`` to ``last`` (both included), in order.

        Args:
            partition: Partition value.
            first: Lowest sort value; None for the first there is.
            last: Highest sort value; None for the last there is.
            reverse: Highest first.
            limit: Most records to yield; paging goes on until there are as many, or no more.
            index: Name of a secondary index to read instead; its reads may be stale by a moment.
            attributes: Attributes to read; None for all. The key is always there.
        """

    def transact(self, writes: Sequence[Write]) -> bool:
        """Do all writes (at most 100, 4 MB) or none; return False if a condition is not met."""

    def close(self) -> None:
        """Give back connections. The table can still be used: it opens new ones."""


def delete_rows(table: Table, rows: Iterable[Item]) -> None:
    """Delete the records whose keys ``rows`` have, in batches; raise ``StoreUnavailableError`` if the store does not answer."""
    table.batch_write(deletes=[(row[table.schema.partition], row[table.schema.sort]) for row in rows])
