"""Strands ``Storage`` of one user: values in a durable table, cached in a hot store.

All records of a user have the same partition. The record ``k/KEY`` contains the key and the version
of a value. It also contains the value if that has at most 8 KiB. A larger value is split into the
records ``p/DIGEST/VERSION/NUMBER``, where ``DIGEST`` is the SHA-256 of the key.
"""

from __future__ import annotations

import asyncio
import builtins
import copy
import hashlib
import logging
import re
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from strands.storage import Storage
from strands.types.exceptions import StorageError

from strands_manga_memory.arguments import Clock, check_method, checked
from strands_manga_memory.exceptions import (
    CorruptRecordError,
    MangaMemoryError,
    StoreError,
    logged_errors,
)
from strands_manga_memory.scope import ConversationScope
from strands_manga_memory.stores.codec import Codec, parsing
from strands_manga_memory.stores.hot import HotStore
from strands_manga_memory.stores.table import Condition, Item, Table, delete_rows
from strands_manga_memory.stores.urls import hot_store_of, table_of
from strands_manga_memory.stores.writer import TierHealth

if TYPE_CHECKING:
    from strands.storage.search import SearchStrategy, StorageSearchResult

logger = logging.getLogger(__name__)

_INLINE = 8_192
"""Largest value, in bytes, that is neither split into parts nor cached in the hot store."""

_PART = 350_000
"""Maximum bytes of a part, below the 400,000 of a DynamoDB record."""

_LARGEST_HOT = 8 * 1024 * 1024
"""Largest value, in bytes, that is cached in the hot store."""

_HOT_SECONDS = 1_800.0
"""Time that a large value stays in the hot tier."""

_LONGEST_KEY = 830
"""Largest key, in bytes, that is not shortened in the sort key of its record."""

_LAST = "\U0010ffff"
"""Character that sorts after all others."""

_LONGEST_WRITE = 3_600.0
"""Age in seconds at which parts without a main record can be deleted: no write takes longer."""

_TRIES = 8
"""Maximum number of attempts to write a value while other processes write the same key."""


class TieredStorage(Storage):
    """Strands ``Storage`` that keeps one user's values, of any size, in a durable table.

    Use this class wherever Strands takes a storage, such as ``SnapshotSessionManager`` or
    ``Agent(storage=)``. When ``write`` returns, the value is in the durable table. Each read asks
    the table for the current version of the value, so that it never returns outdated data. Values
    of over 8 KiB are then read from the hot store, if it has a copy of the current version.

    Each user has separate keys. The rules for keys are those of Strands' own storages: repeated
    ``/`` are collapsed, and ``..`` and backslashes are rejected.

    The asynchronous methods raise ``StorageError`` if a store is unavailable, a key is invalid, or
    a value is damaged.

    Args:
        durable: The durable table, or its URL.
        hot: The hot store, or its URL. Default None: values are not cached.
        user_id: Id of the user who owns the values.
        tenant: Tenant of the user. Default None: the user has no tenant.
        codec: Codec of the values. Default: no encryption. Keys are always stored in clear text.
        search_strategy: Strategy of Strands that indexes each written value, and executes
            ``search``. Default: a text search in all values.
        clock: Function that returns seconds since 1970.

    Raises:
        ValueError: An id is invalid.
    """

    @checked
    def __init__(
        self,
        *,
        durable: Table | str,
        hot: HotStore | str | None = None,
        user_id: str,
        tenant: str | None = None,
        codec: Codec | None = None,
        search_strategy: SearchStrategy[TieredStorage] | None = None,
        clock: Clock = time.time,
    ) -> None:
        self._table: Table = table_of(durable)
        self._hot: HotStore | None = hot_store_of(hot)
        self._owner = ConversationScope(user_id, "storage", tenant=tenant).storage_user_id
        self._partition = f"storage/{self._owner}"
        self._codec = codec or Codec()
        self._search = search_strategy and check_method(
            "search_strategy", search_strategy, "search(storage, query)"
        )
        self._clock = clock
        self._prefix = ""
        self._hot_health = TierHealth(tier="hot")

    def __repr__(self) -> str:
        durable, hot = (
            type(getattr(store, "observes", store)).__name__ for store in (self._table, self._hot)
        )
        return f"TieredStorage(durable={durable}, hot={hot})"

    async def write(self, key: str, data: bytes) -> None:
        """Store a value under a key, in place of an earlier value."""
        stored = _check_key(key)
        await self._run(self._write, self._prefix + stored, bytes(data))
        if self._search is not None:
            try:
                await self._search.index(self, stored, data)
            except Exception as error:
                raise StorageError(
                    f"key={key!r} is written, but the search strategy failed to index it"
                ) from error

    async def read(self, key: str) -> bytes | None:
        """Return the value of a key, or None if the key has no value."""
        found: bytes | None = await self._run(self._read, self._prefix + _check_key(key))
        return found

    async def delete(self, key: str) -> None:
        """Delete the value of a key in both stores, if there is one."""
        await self._run(self._delete, self._prefix + _check_key(key))

    async def list(self, query: str = "") -> builtins.list[str]:
        """Return the stored keys that begin with the text ``query``, sorted."""
        keys: builtins.list[str] = await self._run(self.keys, _normalize_key(query).lstrip("/"))
        return keys

    async def search(self, query: str) -> builtins.list[StorageSearchResult]:
        """Return the keys of values that match ``query``, best match first."""
        if self._search is not None:
            return await self._search.search(self, query)
        return await super().search(query)

    def namespace(self, prefix: str) -> TieredStorage:
        """Return a storage of only the keys that begin with ``prefix/``.

        The methods of the returned storage take and return keys without this prefix.
        """
        view = copy.copy(self)
        inner = _normalize_key(prefix).strip("/")
        view._prefix = f"{self._prefix}{inner}/" if inner else self._prefix  # noqa: SLF001
        return view

    async def _run(self, work: Callable[..., Any], key: str, *arguments: Any) -> Any:
        try:
            return await asyncio.to_thread(work, key, *arguments)
        except MangaMemoryError as error:
            raise StorageError(f"key={key!r}: {error}") from error

    # Blocking methods

    def _write(self, key: str, data: bytes) -> None:
        stamp = int(self._clock() * 1_000_000)
        for _ in range(_TRIES):
            version = f"{stamp:020d}{uuid.uuid4().hex[:12]}"
            item = {**self._key(_sort_of(key)), "key": key, "stamp": stamp, "version": version}
            sealed = self._codec.seal(data, self._storage_key(item))
            if len(sealed) <= _INLINE:
                item["data"] = sealed
            else:
                parts = [sealed[start : start + _PART] for start in range(0, len(sealed), _PART)]
                item["parts"] = len(parts)
                rows = [
                    {**self._key(_part_of(item, at)), "data": part} for at, part in enumerate(parts)
                ]
                self._table.batch_write(puts=rows)
            # Versions of a key only grow, so no writer of an older version can still finish.
            if self._table.put(item, when=Condition(absent=True, below={"stamp": stamp})):
                self._put_in_hot(item, sealed)
                self._delete_old_parts(key, before=version)
                return
            found = self._table.get(self._partition, _sort_of(key))
            with self._parsing(key):
                stamp = max(stamp, int(found["stamp"]) if found else 0) + 1
        raise StoreError(
            f"key={key!r} is written concurrently; {_TRIES} attempts failed, try again later"
        )

    def _read(self, key: str) -> bytes | None:
        seen = ""
        with self._parsing(key):
            while (item := self._table.get(self._partition, _sort_of(key))) is not None:
                sealed = item.get("data")
                if sealed is None and (value := self._get_from_hot(item)) is not None:
                    return value
                if sealed is None:
                    sealed = self._read_parts(item)
                if sealed is not None:
                    value = self._codec.unseal(sealed, self._storage_key(item))
                    self._put_in_hot(item, sealed)
                    return value
                if item["version"] == seen:
                    raise CorruptRecordError(
                        f"record={self._storage_key(item)!r} is damaged: parts of it are missing",
                        record=key,
                    )
                # another version means that the value was replaced during the read
                seen = str(item["version"])
            return None

    def _delete(self, key: str) -> None:
        item = self._table.get(self._partition, _sort_of(key))
        # A younger version stays whole: another process may have stored its parts, but not yet its
        # record.
        before = f"{int((self._clock() - _LONGEST_WRITE) * 1_000_000):020d}"
        if item is not None:
            version = item.get("version")  # missing in a damaged record
            self._table.delete(
                self._partition, _sort_of(key), when=Condition(equals={"version": version})
            )
            before = max(before, f"{version or ''}/~")
        self._delete_old_parts(key, before=before)
        if item is not None and "version" in item and "data" not in item:
            self._use_hot(lambda hot: hot.put_value(self._storage_key(item), b"", ttl=1.0))

    def keys(self, prefix: str = "") -> builtins.list[str]:
        """Return the sorted keys of the storage that begin with ``prefix``. The call blocks.

        Raises:
            StoreUnavailableError: The durable table is unavailable.
        """
        return sorted(
            self._key_in(item)[len(self._prefix) :]
            for item in self._main_records(self._prefix + prefix, ["key"])
        )

    def erase(self) -> int:
        """Delete all values of this storage in both stores, and return their number.

        A storage from ``namespace`` deletes only the values of the namespace.

        Raises:
            StoreUnavailableError: A store is unavailable.
        """
        found = list(self._main_records(self._prefix, ["key", "version", "parts"]))
        for item in found:
            if "parts" in item and self._hot is not None:
                self._hot.put_value(self._storage_key(item), b"", ttl=1.0)
            if self._prefix:
                self._delete(self._key_in(item))
        if not self._prefix:  # parts of interrupted writes, too
            delete_rows(self._table, list(self._table.query(self._partition, attributes=[])))
        return len(found)

    def value(self, key: str) -> bytes | None:
        """Return the value of a key that the method ``keys`` returned; None if it was deleted.

        The call blocks.

        Raises:
            StoreUnavailableError: The durable table is unavailable.
            CorruptRecordError: The value is damaged.
        """
        return self._read(self._prefix + key)

    def add(self, key: str, data: bytes) -> bool:
        """Store a value under a key that has no value, and return whether it was stored.

        The call blocks.

        Raises:
            StoreUnavailableError: The durable table is unavailable.
        """
        is_new = self._table.get(self._partition, _sort_of(self._prefix + key)) is None
        if is_new:
            self._write(self._prefix + key, data)
        return is_new

    # Records

    def _key(self, sort: str) -> Item:
        return {self._table.schema.partition: self._partition, self._table.schema.sort: sort}

    def _storage_key(self, item: Item) -> str:
        # The version keeps a cached copy of an earlier version from being found.
        return f"{self._owner}/storage/{_digest(str(item['key']))}/{item['version']}"

    def _main_records(self, prefix: str, attributes: builtins.list[str]) -> Iterator[Item]:
        first = f"k/{_shorten(prefix)}"
        found = self._table.query(
            self._partition, first=first, last=first + _LAST, attributes=attributes
        )
        return (item for item in found if self._key_in(item).startswith(prefix))

    def _key_in(self, item: Item) -> str:
        # A damaged record lacks ``key``. Its sort key may have a shortened form of the key.
        return str(item.get("key") or item[self._table.schema.sort].removeprefix("k/"))

    def _parsing(self, key: str) -> AbstractContextManager[None]:
        return parsing(f"{self._partition}/{_sort_of(key)}")

    def _read_parts(self, item: Item) -> bytes | None:
        keys = [(self._partition, _part_of(item, number)) for number in range(int(item["parts"]))]
        found = self._table.batch_get(keys)
        return b"".join(found[key]["data"] for key in keys) if len(found) == len(keys) else None

    def _delete_old_parts(self, key: str, *, before: str) -> None:
        # Versions sort by time.
        first = f"p/{_digest(key)}/"
        if rows := list(
            self._table.query(self._partition, first=first, last=first + before, attributes=[])
        ):
            delete_rows(self._table, rows)

    # The hot tier, which may be down

    def _get_from_hot(self, item: Item) -> bytes | None:
        storage_key = self._storage_key(item)
        sealed = self._use_hot(lambda hot: hot.get_value(storage_key))
        with logged_errors(logger, "ignored an invalid value of the hot tier"):
            return self._codec.unseal(sealed, storage_key) if sealed else None
        return None

    def _put_in_hot(self, item: Item, sealed: bytes) -> None:
        # Values of at most 8 KiB are in the item, and need no cache.
        if "data" not in item and len(sealed) <= _LARGEST_HOT:
            self._use_hot(
                lambda hot: hot.put_value(self._storage_key(item), sealed, ttl=_HOT_SECONDS)
            )

    def _use_hot(self, work: Callable[[HotStore], bytes | None]) -> bytes | None:
        hot = self._hot
        return None if hot is None else self._hot_health.call(lambda: work(hot))


def _normalize_key(key: str) -> str:
    if "\\" in key:
        raise StorageError(f"key {key!r} must not hold a backslash")
    if ".." in key.split("/"):
        raise StorageError(f"key {key!r} must not hold '..' between slashes")
    try:
        key.encode()
    except UnicodeEncodeError as error:
        raise StorageError(f"key {key!r} must be valid Unicode") from error
    return re.sub(r"/+", "/", key)


def _check_key(key: str) -> str:
    found = _normalize_key(key).strip("/")
    if not found:
        raise StorageError(f"key must not be empty, got {key!r}")
    return found


def _digest(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()


def _shorten(key: str) -> str:
    return key.encode()[:_LONGEST_KEY].decode(errors="ignore")


def _sort_of(key: str) -> str:
    return f"k/{key}" if len(key.encode()) <= _LONGEST_KEY else f"k/{_shorten(key)}!{_digest(key)}"


def _part_of(item: Item, number: int) -> str:
    return f"p/{_digest(str(item['key']))}/{item['version']}/{number:06d}"
