"""The keys of a storage, as Strands' own storages have them, and the records they stand for (pure)."""

from __future__ import annotations

import hashlib
import re

from strands.types.exceptions import StorageError

from strands_manga_memory.stores.table import Item

_LONGEST_SORT = 900


def normal(key: str) -> str:
    """Return a key or a prefix with runs of ``/`` as one; raise ``StorageError`` for one that is not allowed."""
    if "\\" in key:
        raise StorageError(f"key {key!r} must not hold a backslash")
    if ".." in key.split("/"):
        raise StorageError(f"key {key!r} must not hold '..' between slashes")
    try:
        key.encode()
    except UnicodeEncodeError as error:
        raise StorageError(f"key {key!r} must be valid Unicode") from error
    return re.sub(r"/+", "/", key)


def checked(key: str) -> str:
    """Return a key without slashes around it; raise ``StorageError`` for one that is empty, or not allowed."""
    found = normal(key).strip("/")
    if not found:
        raise StorageError(f"key must not be empty, got {key!r}")
    return found


def digest(key: str) -> str:
    """Return what stands for a key in other records."""
    return hashlib.sha256(key.encode()).hexdigest()


def cut(key: str) -> str:
    """Return as much of a key as is in the sort value of its record."""
    return key.encode()[: _LONGEST_SORT - 70].decode(errors="ignore")


def sort_of(key: str) -> str:
    """Return the sort value of a key's record; that of a long key ends in its digest."""
    return f"k/{key}" if len(key.encode()) <= _LONGEST_SORT - 70 else f"k/{cut(key)}!{digest(key)}"


def part_of(item: Item, number: int) -> str:
    """Return the sort value of a part of a value."""
    return f"p/{digest(str(item['key']))}/{item['version']}/{number:06d}"
