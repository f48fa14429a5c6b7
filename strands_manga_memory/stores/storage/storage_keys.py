"""Keys of a storage, compatible with Strands' storages, and the records that store them. Pure."""

from __future__ import annotations

import hashlib
import re

from strands.types.exceptions import StorageError

from strands_manga_memory.stores.table import Item

_LONGEST_SORT = 900


def normal(key: str) -> str:
    """Return a key or prefix with runs of ``/`` collapsed; raise ``StorageError`` if it is invalid."""
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
    """Return a key without surrounding slashes; raise ``StorageError`` if it is empty or invalid."""
    found = normal(key).strip("/")
    if not found:
        raise StorageError(f"key must not be empty, got {key!r}")
    return found


def digest(key: str) -> str:
    """Return the digest of a key, used in other records."""
    return hashlib.sha256(key.encode()).hexdigest()


def cut(key: str) -> str:
    """Return the part of a key that the sort value of its record contains."""
    return key.encode()[: _LONGEST_SORT - 70].decode(errors="ignore")


def sort_of(key: str) -> str:
    """Return the sort value of a key's record; for a long key it ends in the digest."""
    return f"k/{key}" if len(key.encode()) <= _LONGEST_SORT - 70 else f"k/{cut(key)}!{digest(key)}"


def part_of(item: Item, number: int) -> str:
    """Return the sort value of a part of a value."""
    return f"p/{digest(str(item['key']))}/{item['version']}/{number:06d}"
