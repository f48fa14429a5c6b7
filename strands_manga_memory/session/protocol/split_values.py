"""Values of any size in a table: a value that exceeds one item is split into several items."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Any

from strands_manga_memory.exceptions import CorruptRecordError, OvertakenError
from strands_manga_memory.stores.table import Condition, Item, Key, Table

MOST_BYTES = 350_000
"""Maximum bytes of a value in one item. DynamoDB's limit is 400 KB with names and keys."""

MOST_PARTS = 10_000
"""Maximum number of parts of a value. A value that lists more parts is damaged."""

_MOST_READS = 10  # of a value that other writers keep replacing


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
    """Store a value in one or more items of a table, with the same time to live.

    The first item is written last, and makes the value visible.

    Args:
        table: The table.
        key: Key of the first item.
        data: The value; empty if ``attributes`` contain it.
        attributes: Further attributes of the first item.
        when: Condition for the put of the first item.
        before: The replaced item, whose further parts are deleted afterwards.
        scrub: Whether the replaced value must become unreadable, as after a redaction. Parts that
            interrupted writes have left are then deleted, too.

    Returns:
        The first item without the value; None if the condition was not met.
    """
    obsolete: set[Key] = set()
    if scrub:
        rows = table.query(key[0], first=f"{key[1]}~", last=f"{key[1]}~\U0010ffff", attributes=[])
        obsolete = {_key_of(table, row) for row in rows}
    chunks = [data[at : at + MOST_BYTES] for at in range(0, len(data), MOST_BYTES)]
    item: Item = {table.schema.partition: key[0], table.schema.sort: key[1], **attributes}
    if len(chunks) > 1:
        item |= {"parts": len(chunks), "tag": secrets.token_hex(8)}
        expiry = {name: value for name, value in attributes.items() if name == table.schema.ttl}
        for part, chunk in zip(part_keys(table, item), chunks[1:], strict=True):
            names = dict(zip((table.schema.partition, table.schema.sort), part, strict=True))
            table.put({**names, "data": chunk, **expiry})
    is_put = table.put({**item, **({"data": chunks[0]} if chunks else {})}, when=when, scrub=scrub)
    if not is_put and "tag" in item:
        # The driver may have repeated a put that had already succeeded.
        is_put = (table.get(*key) or {}).get("tag") == item["tag"]
    if not is_put:
        obsolete = set(part_keys(table, item))
    elif before is not None and "parts" in before:
        obsolete.update(part_keys(table, before))
    if obsolete:
        table.batch_write(deletes=sorted(obsolete))
    return item if is_put else None


def whole_value(table: Table, item: Item) -> tuple[Item, bytes]:
    """Return the first item of a value, and the whole value.

    If another writer replaces the value during the read, the new value is returned.

    Raises:
        CorruptRecordError: A part is missing.
        OvertakenError: The value was deleted meanwhile, or is replaced too often.
    """
    key = _key_of(table, item)
    name = "/".join(key)
    for _ in range(_MOST_READS):
        keys = part_keys(table, item)
        found = table.batch_get(keys) if keys else {}
        chunks = [item.get("data"), *[found.get(key, {}).get("data") for key in keys]]
        whole = [chunk for chunk in chunks if isinstance(chunk, bytes)]
        if len(whole) == len(chunks):
            return item, b"".join(whole)
        present = table.get(*key)
        if present is None:
            break
        if present.get("tag") == item.get("tag"):
            raise CorruptRecordError(
                f"record={name!r} is damaged: parts of it are missing", record=name
            )
        item = present
    raise OvertakenError(f"record={name!r} changed while it was read")


def part_keys(table: Table, item: Item) -> list[Key]:
    """Return the keys of a value's items after the first one, which is ``item``.

    A first item without a valid number of parts raises ``CorruptRecordError``.
    """
    (partition, sort), parts = _key_of(table, item), item.get("parts", 1)
    if type(parts) is not int or not 0 < parts <= MOST_PARTS:
        name = f"{partition}/{sort}"
        raise CorruptRecordError(f"record={name!r} is damaged: it has {parts!r} parts", record=name)
    return [(partition, f"{sort}~{part:03d}.{item.get('tag')}") for part in range(1, parts)]


def _key_of(table: Table, item: Item) -> Key:
    return item[table.schema.partition], item[table.schema.sort]


def is_part(sort: str) -> bool:
    """Return whether a sort key is of a further item of a split value, not of the first item."""
    return "~" in sort.rpartition("#")[2]
