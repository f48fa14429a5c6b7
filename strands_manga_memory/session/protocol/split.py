"""Storage of values that are too large for one item of a table, as several parts."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Any

from strands_manga_memory.exceptions import CorruptRecordError, OvertakenError
from strands_manga_memory.stores.table import Condition, Item, Key, Table

MOST_BYTES = 350_000
"""Maximum size in bytes of a value in one item. The limit of DynamoDB is 400 KB, including attribute names and keys."""

MOST_PARTS = 10_000
"""Maximum number of parts of a value. A value that lists more parts is damaged."""

_TRIES = 10


def put_split(
    table: Table,
    key: Key,
    data: bytes,
    *,
    attributes: Mapping[str, Any],
    when: Condition,
    before: Item | None = None,
    scrub: bool = False,
) -> Item | None:
    """Store a value in one or more items of a table.

    The first item is written last, and makes the value visible. All items have the same time to live.

    Args:
        table: The table.
        key: Key of the first item.
        data: The value.
        attributes: Further attributes of the first item.
        when: Condition for the put of the first item. If the condition is not met, the visible value does not change.
        before: The item that is replaced. Its further parts are deleted afterwards.
        scrub: Whether the replaced value must become unreadable, as after a redaction. Parts of the value that interrupted
            writes have left are then deleted, too; see also ``Table.put``.

    Returns:
        The first item without the value; None if the condition was not met.
    """
    rows = table.query(key[0], first=f"{key[1]}~", last=f"{key[1]}~\U0010ffff", attributes=[]) if scrub else ()
    obsolete = {_key_of(table, row) for row in rows}
    chunks = [data[at : at + MOST_BYTES] for at in range(0, len(data), MOST_BYTES)]
    item: Item = {table.schema.partition: key[0], table.schema.sort: key[1], **attributes}
    if len(chunks) > 1:
        item |= {"parts": len(chunks), "tag": secrets.token_hex(8)}
    expiry = {name: value for name, value in attributes.items() if name == table.schema.ttl}
    for (partition, sort), chunk in zip(part_keys(table, item), chunks[1:], strict=True):
        table.put({table.schema.partition: partition, table.schema.sort: sort, "data": chunk, **expiry})
    is_put = table.put({**item, "data": chunks[0]}, when=when, scrub=scrub)
    if is_put:
        obsolete.update([] if before is None else part_keys(table, before))
    else:
        # The driver may have repeated a put that had already succeeded.
        is_there = "tag" in item and (table.get(*key) or {}).get("tag") == item["tag"]
        obsolete = set() if is_there else set(part_keys(table, item))
    if obsolete:
        table.batch_write(deletes=sorted(obsolete))
    return item if is_put else None


def whole_value(table: Table, item: Item) -> tuple[Item, bytes]:
    """Read a value that is stored in one or more items of a table.

    If another writer replaces the value during the read, the new value is read.

    Args:
        table: The table.
        item: The first item of the value.

    Returns:
        The first item, and the whole value.

    Raises:
        CorruptRecordError: A part is missing.
        OvertakenError: The value was deleted meanwhile, or is replaced again and again.
    """
    key = _key_of(table, item)
    name, before = "/".join(key), None
    for _ in range(_TRIES):
        keys = part_keys(table, item)
        found = table.batch_get(keys) if keys else {}
        chunks = [part.get("data") for part in (item, *(found.get(key, {}) for key in keys))]
        whole = [chunk for chunk in chunks if isinstance(chunk, bytes)]
        if len(whole) == len(chunks):
            return item, b"".join(whole)
        if before is not None and before.get("tag") == item.get("tag"):
            raise CorruptRecordError(f"record={name!r} is damaged: parts of it are missing", record=name)
        before, present = item, table.get(*key)
        if present is None:
            break
        item = present
    raise OvertakenError(f"record={name!r} changed while it was read")


def part_keys(table: Table, item: Item) -> list[Key]:
    """Return the keys of all table items of a split value, except the first item ``item``.

    Raises:
        CorruptRecordError: The first item has no valid number of parts.
    """
    (partition, sort), parts = _key_of(table, item), item.get("parts", 1)
    if type(parts) is not int or not 0 < parts <= MOST_PARTS:
        name = f"{partition}/{sort}"
        raise CorruptRecordError(f"record={name!r} is damaged: it has {parts!r} parts", record=name)
    return [(partition, f"{sort}~{part:03d}.{item.get('tag')}") for part in range(1, parts)]


def _key_of(table: Table, item: Item) -> Key:
    return item[table.schema.partition], item[table.schema.sort]


def is_part(sort: str) -> bool:
    """Return whether the table item with this sort value is part of a split value, but not its first part."""
    return "~" in sort.rpartition("#")[2]
