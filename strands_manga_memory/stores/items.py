"""Validation of records, writes and queries for all tables.

The module also contains the base class of tables with transactions, and performs no I/O.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from strands_manga_memory.exceptions import CorruptRecordError
from strands_manga_memory.stores.encoding.codec import load_stored
from strands_manga_memory.stores.table import Condition, Index, Item, Key, TableSchema, Write

MAX_TRANSACT = 100
"""Most writes of one ``transact`` call, from DynamoDB."""


_MOST = 1e125
"""Approximate limit of numbers in DynamoDB."""


def key_of(schema: TableSchema, item: Item) -> Key:
    """Return the key of a record.

    Raises:
        ValueError: A part of the key is missing, empty or not a string, or an attribute of an index has another type
            than declared.
    """
    for name in (schema.partition, schema.sort):
        value = item.get(name)
        if not isinstance(value, str) or not value:
            raise ValueError(f"item must have a non-empty string as {name!r:.80}, got {value!r:.80}")
    for index in schema.indexes:
        place_in(index, item)
    return item[schema.partition], item[schema.sort]


def target_of(schema: TableSchema, write: Write) -> Key:
    """Return the key of the record that a write concerns.

    Raises ``ValueError`` if the write is no put, delete or check.
    """
    if (write.item is None) == (write.key is None):
        raise ValueError(f"a write must have either an item or a key, got {write!r:.200}")
    if write.is_check and (write.key is None or write.when is None):
        raise ValueError(f"a check must have a key and a condition, got {write!r:.200}")
    return key_of(schema, write.item) if write.item is not None else write.key  # type: ignore[return-value]


def place_in(index: Index, item: Mapping[str, Any] | None) -> tuple[str, str | float] | None:
    """Return a record's partition and sort value in an index.

    Returns None if the record is absent, or if the record lacks one of these values.

    Raises:
        ValueError: A value has another type than the index declares.
    """
    if item is None or index.partition not in item or index.sort not in item:
        return None
    value, position = item[index.partition], item[index.sort]
    is_number = isinstance(position, int | float) and not isinstance(position, bool) and abs(position) < _MOST
    if not isinstance(value, str) or not (is_number if index.sort_is_number else isinstance(position, str)):
        raise ValueError(
            f"item must have a string as {index.partition!r:.80} and a {'number' if index.sort_is_number else 'string'} as "
            f"{index.sort!r:.80} for index {index.name!r:.80}, got {value!r:.80} and {position!r:.80}"
        )
    return value, float(position) if index.sort_is_number else position


def check_batch(schema: TableSchema, puts: Sequence[Item], deletes: Sequence[Key]) -> None:
    """Raise ``ValueError`` if a key is in both ``puts`` and ``deletes``."""
    if puts and deletes:
        both = {key_of(schema, item) for item in puts} & set(deletes)
        if both:
            raise ValueError(f"a record must be put or deleted, not both, got {sorted(both)[0]!r:.80}")


def check_transaction(schema: TableSchema, writes: Sequence[Write]) -> None:
    """Raise ``ValueError`` if there are more than 100 writes, or two writes of the same record."""
    if len(writes) > MAX_TRANSACT:
        raise ValueError(f"writes must be at most {MAX_TRANSACT}, got {len(writes)}")
    if len({target_of(schema, write) for write in writes}) < len(writes):
        raise ValueError("writes must be of different records, got two of the same one")


def checked_index(schema: TableSchema, name: str) -> Index:
    """Return the index called ``name``.

    Raises ``ValueError`` if the index does not exist.
    """
    for index in schema.indexes:
        if index.name == name:
            return index
    raise ValueError(f"index must be one of {[index.name for index in schema.indexes]}, got {name!r:.80}")


def check_limit(limit: int | None) -> None:
    """Raise ``ValueError`` if ``limit`` is negative."""
    if limit is not None and limit < 0:
        raise ValueError(f"limit must be 0 or more, got {limit!r:.80}")


def normal(value: Any) -> Any:
    """Convert a value to the form in which DynamoDB returns the value.

    For example, 2.0 becomes 2, and a tuple becomes a list.
    """
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
    raise TypeError(f"a stored value must be str, int, float, bool, bytes, None, list or dict, got {type(value).__name__}")


def loaded(data: bytes, key: Key, schema: TableSchema) -> Item:
    """Return the record that was serialized as ``data``, after a check of the record's key.

    Raises:
        CorruptRecordError: The bytes are damaged, or belong to another key.
    """
    item = load_stored(data, name := repr(key))
    if not isinstance(item, dict) or (item.get(schema.partition), item.get(schema.sort)) != tuple(key):
        raise CorruptRecordError(f"record={name!r} is damaged: it belongs to another key", record=name)
    return item


class WritingTable:
    """Base class of tables with transactions.

    A transaction executes all of its writes, or none.
    """

    schema: TableSchema

    def _write(self, writes: Sequence[Write]) -> bool:
        """Execute all writes or none.

        Returns False if a condition is not met.
        """
        raise NotImplementedError

    def delete(self, partition: str, sort: str, *, when: Condition | None = None) -> bool:
        """Delete a record.

        Returns False without deleting if ``when`` is not met. An absent record is no error.
        """
        return self._write([Write(key=(partition, sort), when=when)])

    def batch_write(self, *, puts: Sequence[Item] = (), deletes: Sequence[Key] = ()) -> None:
        """Write and delete many records in one transaction, without conditions.

        Raises:
            ValueError: A key is both in ``puts`` and in ``deletes``.
        """
        check_batch(self.schema, puts, deletes)
        self._write([*(Write(item=item) for item in puts), *(Write(key=key) for key in deletes)])

    def transact(self, writes: Sequence[Write]) -> bool:
        """Execute at most 100 writes, or none of them.

        Returns False if a condition is not met.

        Raises:
            ValueError: There are more than 100 writes, two of the same record, or a write that is no put, delete or check.
        """
        check_transaction(self.schema, writes)
        return self._write(writes)
