"""Values larger than one item of a Table: split into parts; read back whole."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from strands_manga_memory.exceptions import CorruptRecordError, OvertakenError
from strands_manga_memory.stores.table import Condition, Item, Key, Table, delete_rows

MOST_BYTES = 350_000
"""Bytes of a value in one item; DynamoDB takes 400 KB an item, attribute names and keys included."""

MOST_PARTS = 10_000
"""A value that says it has more is damaged."""

_TRIES = 10


def put_split(
    table: Table,
    key: Key,
    data: bytes,
    *,
    attributes: Mapping[str, Any],
    when: Condition,
    before: Item | None = None,
    cleans: bool = False,
    scrub: bool = True,
) -> Item | None:
    """Put ``data`` under ``key``, its further parts first; return its first part without ``data``, None if ``when`` is not met.

    Parts have a random tag in their keys, which belongs to this one attempt: a writer that replaces the value deletes no parts
    of other attempts. The parts have the time to live of the first part.

    Args:
        table: The table.
        key: Key of the first part, which makes the value count; ``attributes`` and ``when`` are of that part, too.
        data: The value.
        attributes: Further attributes.
        when: The condition; if it is not met nothing changes that is read.
        before: The item that is replaced; its further parts are deleted afterwards.
        cleans: Delete also the parts that earlier attempts of others left there, since their content was redacted. The first
            part of such an attempt belongs to an earlier item and is refused from now on.
        scrub: Whether the replaced value contains text that must not be found any more; see ``Table.put``.
    """
    left = list(_parts_at(table, key)) if cleans else []
    expiry = {name: value for name, value in attributes.items() if name == table.schema.ttl}
    chunks = [data[at : at + MOST_BYTES] for at in range(0, len(data), MOST_BYTES)]
    tag = secrets.token_hex(8)
    split: Item = {"parts": len(chunks), "tag": tag} if len(chunks) > 1 else {}
    item: Item = {table.schema.partition: key[0], table.schema.sort: key[1], **attributes, **split}
    for part, chunk in zip(_rows(table, _part_keys(key, len(chunks), tag)), chunks[1:], strict=True):
        table.put({**part, "data": chunk, **expiry})
    if not table.put({**item, "data": chunks[0]}, when=when, scrub=scrub):
        # The driver may have tried twice, and the first time with success.
        if split and (table.get(*key) or {}).get("tag") != tag:
            discard_parts(table, [item])
        return None
    if before is not None:
        discard_parts(table, [before])
    if left:
        delete_rows(table, left)
    return item


def _parts_at(table: Table, key: Key) -> Iterator[Item]:
    return table.query(key[0], first=f"{key[1]}~", last=f"{key[1]}~\U0010ffff", attributes=[])


def whole_value(table: Table, item: Item) -> tuple[Item, bytes]:
    """Return the value whose first part is ``item``, and that part; one more round trip if it is split.

    If the value was replaced since its first part was read, the new first part is read and returned.

    Raises:
        CorruptRecordError: A part is missing. Names the record.
        OvertakenError: The value has gone meanwhile, or is replaced again and again.
    """
    key = key_of(table, item)
    name, before = "/".join(key), None
    for _ in range(_TRIES):
        data = _data_of(table, item)
        if data is not None:
            return item, data
        if before is not None and before.get("tag") == item.get("tag"):
            raise CorruptRecordError(f"record={name!r} is damaged: parts of it are missing", record=name)
        before, present = item, table.get(*key)
        if present is None:
            break
        item = present
    raise OvertakenError(f"record={name!r} changed while it was read")


def discard_parts(table: Table, items: Iterable[Item]) -> None:
    """Delete the further parts of values whose first parts are ``items``."""
    rows = [row for item in items for row in _rows(table, part_keys(table, item))]
    if rows:
        delete_rows(table, rows)


def part_keys(table: Table, item: Item) -> list[Key]:
    """Return the keys of a value's further parts."""
    parts = item.get("parts", 1)
    if type(parts) is not int or not 0 < parts <= MOST_PARTS:
        name = "/".join(key_of(table, item))
        raise CorruptRecordError(f"record={name!r} is damaged: it has {parts!r} parts", record=name)
    return _part_keys(key_of(table, item), parts, str(item.get("tag")))


def key_of(table: Table, item: Item) -> Key:
    """Return the key stored in an item; raise ``CorruptRecordError`` if there is none."""
    key = item.get(table.schema.partition), item.get(table.schema.sort)
    if not isinstance(key[0], str) or not isinstance(key[1], str):
        name = f"{key[0]}/{key[1]}"
        raise CorruptRecordError(f"record={name!r} is damaged: it has lost its key", record=name)
    return key[0], key[1]


def _rows(table: Table, keys: Iterable[Key]) -> list[Item]:
    return [{table.schema.partition: partition, table.schema.sort: sort} for partition, sort in keys]


def _part_keys(key: Key, parts: int, tag: str) -> list[Key]:
    return [(key[0], f"{key[1]}~{part:03d}.{tag}") for part in range(1, parts)]


def _data_of(table: Table, item: Item) -> bytes | None:
    """Return the whole value whose first part is ``item``; None if parts are missing."""
    keys = part_keys(table, item)
    found = table.batch_get(keys) if keys else {}
    chunks = [part.get("data") for part in [item, *(found.get(key, {}) for key in keys)]]
    whole = [chunk for chunk in chunks if isinstance(chunk, bytes)]
    return b"".join(whole) if len(whole) == len(chunks) else None


def is_part(key: Key) -> bool:
    """Return whether a key of the log belongs to a further part of a value, not to the first part."""
    return "~" in key[1].rpartition("#")[2]
