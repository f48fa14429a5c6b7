"""Objects: the port for values that are too large for a record, and the records that name them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from strands_manga_memory.exceptions import StoreError
from strands_manga_memory.stores.table import Item, Table

OBJECT = "object"
"""Attribute of a record that names an object.

The record that names it is put before the object, and deleted after it: whoever deletes records finds the objects that a crash
left behind."""


class Objects(Protocol):
    """Named values beside a table, each written once and never changed. Raises what a ``Table`` raises."""

    def put(self, key: str, data: bytes) -> None:
        """Store an object."""

    def get(self, key: str) -> bytes | None:
        """Return an object, or None."""

    def delete(self, key: str) -> None:
        """Delete an object, if it is there."""


def objects_of(table: Table) -> Objects | None:
    """Return where a table has its large values kept; None: in several records."""
    below: Any = getattr(table, "observes", table)
    found: Objects | None = getattr(below, "objects", None)
    return found


def object_of(table: Table, item: Item) -> bytes | None:
    """Return the object that a record names, None if it is gone.

    Raises:
        StoreError: The table was opened without its bucket.
        StoreUnavailableError: The bucket does not answer.
    """
    return _bucket(table).get(str(item[OBJECT]))


def put_object(table: Table, name: str, data: bytes, *, named_by: Item) -> None:
    """Store an object, behind a record that names it: ``named_by``, with that name."""
    bucket = _bucket(table)
    table.put({**named_by, OBJECT: name})
    bucket.put(name, data)


def delete_rows(table: Table, rows: Sequence[Item]) -> None:
    """Delete records, and the objects they name.

    Args:
        table: The table.
        rows: Their keys, with the attribute ``OBJECT`` of those that have it.

    Raises:
        StoreError: The table was opened without its bucket, and a record names an object.
        StoreUnavailableError: The store does not answer.
    """
    for name in dict.fromkeys(str(row[OBJECT]) for row in rows if OBJECT in row):
        _bucket(table).delete(name)
    table.batch_write(deletes=[(row[table.schema.partition], row[table.schema.sort]) for row in rows])


def _bucket(table: Table) -> Objects:
    found = objects_of(table)
    if found is None:
        raise StoreError(f"table=<{table!r}> | a value is in a bucket: name it, dynamodb://table?bucket=name")
    return found
