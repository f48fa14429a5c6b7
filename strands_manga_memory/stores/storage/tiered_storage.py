"""TieredStorage: Strands' ``Storage`` of one user, in the durable tier, with large values read through the hot one."""

from __future__ import annotations

import asyncio
import builtins
import logging
import time
import uuid
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from strands.storage import Storage
from strands.types.exceptions import StorageError

from strands_manga_memory.arguments import seconds
from strands_manga_memory.exceptions import CorruptRecordError, MangaMemoryError, StoreError
from strands_manga_memory.scope import checked_id, encoded_id
from strands_manga_memory.stores.encoding.codec import Codec
from strands_manga_memory.stores.health import cause_of
from strands_manga_memory.stores.hot import HotStore
from strands_manga_memory.stores.opened import hot_store_of, table_of
from strands_manga_memory.stores.storage.storage_keys import checked, cut, digest, normal, part_of, sort_of
from strands_manga_memory.stores.table import Condition, Item, Table, delete_rows

if TYPE_CHECKING:
    from strands.storage.search import SearchStrategy, StorageSearchResult

logger = logging.getLogger(__name__)

_INLINE = 8_192
"""Stored bytes up to which a value is in the record of its key; a longer one is in parts, and in the hot tier."""

_PART = 350_000
"""Most bytes of a part; a record of DynamoDB holds 400,000."""

_LARGEST_HOT = 8 * 1024 * 1024
_LAST = "\U0010ffff"
_NO_HOT_FOR, _TRIES = 5.0, 8


class TieredStorage(Storage):
    """Keeps values of any size under keys, for ``SnapshotSessionManager``, ``Agent(storage=)``, the stash and offloaders.

    A value is in the durable tier when ``write`` returns. Which version of it holds is always asked there; a value over 8 KiB
    is then read from the hot tier if that has this version, so what is read is never out of date. One that no record of
    DynamoDB holds is in several.

    Keys are those of Strands' own storages: runs of ``/`` count as one, ``..`` and backslashes are refused. Each user has keys
    of his own.

    Args:
        durable: The durable tier, or its URL.
        hot: The hot tier, or its URL.
        user_id: Whose values they are.
        tenant: The user's tenant.
        codec: How values are compressed, encrypted and checksummed. Keys are in the clear.
        hot_ttl: Seconds that a value stays in the hot tier. Default 1,800.
        search_strategy: Is told of each value written, and answers ``search``. Default: words are looked for in all values.
        clock: Seconds since 1970.

    Raises:
        ValueError: An id is not allowed, or ``hot_ttl`` is not above 0. From the other methods, ``StorageError``: a tier does
            not answer, the key is not allowed, or what is stored cannot be trusted.
    """

    def __init__(
        self,
        *,
        durable: Table | str,
        hot: HotStore | str | None = None,
        user_id: str,
        tenant: str | None = None,
        codec: Codec | None = None,
        hot_ttl: float = 1_800.0,
        search_strategy: SearchStrategy[TieredStorage] | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._table = table_of(durable)
        self._hot = hot_store_of(hot)
        escaped_tenant = "" if tenant is None else encoded_id(checked_id("tenant", tenant))
        self._owner = f"{escaped_tenant}:{encoded_id(checked_id('user_id', user_id))}"
        self._partition = f"storage/{self._owner}"
        self._codec = codec or Codec()
        self._hot_ttl = seconds("hot_ttl", hot_ttl)
        self._search = search_strategy
        self._clock = clock
        self._prefix = ""
        self._no_hot_until = 0.0

    def __repr__(self) -> str:
        durable, hot = (type(getattr(store, "observes", store)).__name__ for store in (self._table, self._hot))
        return f"TieredStorage(durable={durable}, hot={hot}, hot_ttl={self._hot_ttl})"

    async def write(self, key: str, data: bytes) -> None:
        """Store a value, in place of the one there is."""
        stored = checked(key)
        await self._do(self._write, self._prefix + stored, bytes(data))
        if self._search is not None:
            try:
                await self._search.index(self, stored, data)
            except Exception as error:
                raise StorageError(f"key={key!r} is written, but the search strategy did not take it") from error

    async def read(self, key: str) -> bytes | None:
        """Return a value, or None."""
        found: bytes | None = await self._do(self._read, self._prefix + checked(key))
        return found

    async def delete(self, key: str) -> None:
        """Delete a value in both tiers, if there is one."""
        await self._do(self._delete, self._prefix + checked(key))

    async def list(self, query: str = "") -> builtins.list[str]:
        """Return the keys that begin with ``query``, sorted."""
        keys: builtins.list[str] = await self._do(self.keys, self._prefix + normal(query).lstrip("/"))
        return [key[len(self._prefix) :] for key in keys]

    async def search(self, query: str) -> builtins.list[StorageSearchResult]:
        """Return the keys whose values fit ``query``, best first."""
        if self._search is not None:
            return await self._search.search(self, query)
        return await super().search(query)

    def namespace(self, prefix: str) -> TieredStorage:
        """Return a view of the keys below ``prefix``, which it leaves out."""
        view = object.__new__(type(self))
        view.__dict__.update(self.__dict__)
        inner = normal(prefix).strip("/")
        view._prefix = f"{self._prefix}{inner}/" if inner else self._prefix
        return view

    async def _do(self, work: Callable[..., Any], key: str, *arguments: Any) -> Any:
        try:
            return await asyncio.to_thread(work, key, *arguments)
        except MangaMemoryError as error:
            raise StorageError(f"key={key!r}: {error}") from error

    # What follows waits for the stores

    def _write(self, key: str, data: bytes) -> None:
        stamp = int(self._clock() * 1_000_000)
        for _ in range(_TRIES):
            item = self._item(key, stamp)
            sealed = self._codec.seal(data, self._place(item))
            inline = len(sealed) <= _INLINE
            if inline:
                item["data"] = sealed
            else:
                self._put_parts(item, sealed)
            # Versions of a key only grow, so parts of an older one belong to nobody who could still finish.
            if self._table.put(item, when=Condition(absent=True, below={"stamp": stamp})):
                if not inline:
                    self._warm(item, sealed)
                self._clear_parts(key, before=str(item["version"]))
                return
            found = self._table.get(self._partition, sort_of(key))
            stamp = max(stamp, int(found["stamp"]) if found else 0) + 1
        raise StoreError(f"key={key!r} is written by others all the time; {_TRIES} tries failed")

    def _read(self, key: str) -> bytes | None:
        seen = ""
        while (item := self._table.get(self._partition, sort_of(key))) is not None:
            if (sealed := item.get("data")) is None:
                value = self._from_hot(item)
                if value is not None:
                    return value
                sealed = self._joined(item)
            if sealed is not None:
                value = self._codec.unseal(sealed, self._place(item))
                if "data" not in item:
                    self._warm(item, sealed)
                return value
            if item["version"] == seen:
                raise CorruptRecordError(f"record={self._place(item)!r} is damaged: parts of it are missing", record=key)
            seen = str(item["version"])  # else it was replaced while it was read
        return None

    def _delete(self, key: str) -> None:
        item = self._table.get(self._partition, sort_of(key))
        self._table.delete(self._partition, sort_of(key))
        self._clear_parts(key, before=_LAST)
        if item is not None and "data" not in item:
            self._hot_do(lambda hot: hot.put_value(self._place(item), b"", ttl=1.0))

    def keys(self, prefix: str = "") -> builtins.list[str]:
        """Return the user's keys that begin with ``prefix``, sorted, without their values; it waits for the durable tier.

        Raises:
            StoreUnavailableError: The tier does not answer.
        """
        return sorted(key for item in self._heads(prefix, ["key"]) if (key := str(item["key"])).startswith(prefix))

    def erase(self) -> int:
        """Delete every value of the user in both tiers; return how many there were.

        Raises:
            StoreUnavailableError: A tier does not answer.
        """
        found = list(self._heads("", ["key", "version", "parts"]))
        for item in found:
            if "parts" in item and self._hot is not None:
                self._hot.put_value(self._place(item), b"", ttl=1.0)
        delete_rows(self._table, list(self._table.query(self._partition, attributes=[])))
        return len(found)

    def values(self) -> Iterator[tuple[str, bytes]]:
        """Yield every key of the user with its value.

        Raises:
            StoreUnavailableError: A tier does not answer.
            CorruptRecordError: A value cannot be trusted.
        """
        for key in self.keys():
            if (value := self._read(key)) is not None:
                yield key, value

    # Records

    def _item(self, key: str, stamp: int) -> Item:
        version = f"{stamp:020d}{uuid.uuid4().hex[:12]}"
        return {**self._key(sort_of(key)), "key": key, "stamp": stamp, "version": version}

    def _key(self, sort: str) -> Item:
        return {self._table.schema.partition: self._partition, self._table.schema.sort: sort}

    def _place(self, item: Item) -> str:
        return f"{self._owner}/storage/{digest(str(item['key']))}/{item['version']}"

    def _heads(self, prefix: str, attributes: builtins.list[str]) -> Iterator[Item]:
        first = f"k/{cut(prefix)}"
        return self._table.query(self._partition, first=first, last=first + _LAST, attributes=attributes)

    def _put_parts(self, item: Item, sealed: bytes) -> None:
        parts = [sealed[start : start + _PART] for start in range(0, len(sealed), _PART)]
        item["parts"] = len(parts)
        self._table.batch_write(puts=[{**self._key(part_of(item, at)), "data": part} for at, part in enumerate(parts)])

    def _joined(self, item: Item) -> bytes | None:
        keys = [(self._partition, part_of(item, number)) for number in range(int(item["parts"]))]
        found = self._table.batch_get(keys)
        return b"".join(found[key]["data"] for key in keys) if len(found) == len(keys) else None

    def _clear_parts(self, key: str, *, before: str) -> None:
        first = f"p/{digest(key)}/"
        rows = list(self._table.query(self._partition, first=first, last=first + before, attributes=[]))
        if rows:
            delete_rows(self._table, rows)

    # The hot tier, which may be down

    def _from_hot(self, item: Item) -> bytes | None:
        place = self._place(item)
        sealed = self._hot_do(lambda hot: hot.get_value(place))
        try:
            return self._codec.unseal(sealed, place) if sealed else None
        except MangaMemoryError as error:
            logger.warning("error=<%s> | a value of the hot tier is not used", type(error).__name__)
        return None

    def _warm(self, item: Item, sealed: bytes) -> None:
        if len(sealed) <= _LARGEST_HOT:
            self._hot_do(lambda hot: hot.put_value(self._place(item), sealed, ttl=self._hot_ttl))

    def _hot_do(self, work: Callable[[HotStore], bytes | None]) -> bytes | None:
        if self._hot is None or time.monotonic() < self._no_hot_until:
            return None
        try:
            return work(self._hot)
        except StoreError as error:
            self._no_hot_until = time.monotonic() + _NO_HOT_FOR
            logger.warning("error=<%s> | the hot tier is left out for a while", cause_of(error))
            return None
