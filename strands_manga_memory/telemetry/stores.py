"""Wrappers that record every call of a hot store, a table or a codec."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from strands_manga_memory.exceptions import CorruptRecordError
from strands_manga_memory.stores.encoding.codec import Cipher, Codec
from strands_manga_memory.stores.hot import HotRecord, HotStore, HotWrite, WriteStatus
from strands_manga_memory.stores.table import Condition, Item, Key, Table, TableSchema, Write
from strands_manga_memory.telemetry.events import SERIALIZATION, STORE_CALL
from strands_manga_memory.telemetry.recording import recorder

_T = TypeVar("_T")
_SYSTEMS = {"RedisHotStore": "redis", "InMemoryHotStore": "memory", "DynamoDBTable": "aws.dynamodb", "SQLiteTable": "sqlite"}


class _Calls:
    """Recorder of the calls of one store."""

    def __init__(self, store: object, *, tier: str, collection: str) -> None:
        system = _SYSTEMS.get(type(store).__name__, type(store).__name__.lower())
        self._about = {"db.system.name": system, "db.collection.name": collection, "manga_memory.tier": tier}
        self._of: dict[str, dict[str, str]] = {}

    def made(self, operation: str, conversation: str | None, call: Callable[..., _T], *args: Any, **kwargs: Any) -> _T:
        """Make a call and record it."""
        if not recorder.enabled:
            return call(*args, **kwargs)
        start = time.perf_counter()
        try:
            answer = call(*args, **kwargs)
        except Exception as error:
            self._record(operation, conversation, time.perf_counter() - start, error)
            raise
        self._record(operation, conversation, time.perf_counter() - start, None)
        return answer

    def iterated(
        self, operation: str, conversation: str | None, call: Callable[..., Iterator[_T]], *args: Any, **kwargs: Any
    ) -> Iterator[_T]:
        """Call an iterator function. The recorded duration excludes the time the consumer takes per value."""
        start = time.perf_counter()
        try:
            found = iter(call(*args, **kwargs))
        except Exception as error:
            self._record(operation, conversation, time.perf_counter() - start, error)
            raise
        return self._each(operation, conversation, found, time.perf_counter() - start)

    def _each(self, operation: str, conversation: str | None, found: Iterator[_T], seconds: float) -> Iterator[_T]:
        error = None
        try:
            while True:
                start = time.perf_counter()
                try:
                    value = next(found)
                except StopIteration:
                    return
                except Exception as raised:
                    error = raised
                    raise
                finally:
                    seconds += time.perf_counter() - start
                yield value
        finally:
            self._record(operation, conversation, seconds, error)

    def _record(self, operation: str, conversation: str | None, seconds: float, error: Exception | None) -> None:
        about = self._of.get(operation)
        if about is None:
            about = self._of[operation] = {**self._about, "db.operation.name": operation}
        if conversation is not None or error is not None:
            about = {**about, **({} if conversation is None else {"conversation": conversation})}
            if error is not None:
                about["error.type"] = type(error).__name__
        recorder.note(STORE_CALL, seconds, about)


class ObservedHotStore:
    """``HotStore`` that delegates to another one and records every call.

    Args:
        store: The wrapped store.
    """

    def __init__(self, store: HotStore) -> None:
        self.observes = store
        self.survives_process = store.survives_process
        self._calls = _Calls(store, tier="hot", collection="conversations")

    def load(self, conversation: str, fields: Sequence[str], *, touch: bool = True) -> HotRecord | None:
        """See ``HotStore.load``."""
        return self._calls.made("load", conversation, self.observes.load, conversation, fields, touch=touch)

    def read(self, conversation: str, fields: Sequence[str]) -> dict[str, bytes]:
        """See ``HotStore.read``."""
        return self._calls.made("read", conversation, self.observes.read, conversation, fields)

    def write(self, conversation: str, write: HotWrite) -> WriteStatus:
        """See ``HotStore.write``."""
        return self._calls.made("write", conversation, self.observes.write, conversation, write)

    def put_tombstone(self, conversation: str, *, epoch: int, ttl: float) -> int:
        """See ``HotStore.put_tombstone``."""
        return self._calls.made("put_tombstone", conversation, self.observes.put_tombstone, conversation, epoch=epoch, ttl=ttl)

    def expired(self, *, limit: int = 100) -> Iterator[str]:
        """See ``HotStore.expired``."""
        return self._calls.iterated("expired", None, self.observes.expired, limit=limit)

    def claim(self, conversation: str, *, lease: float = 60.0, expired_only: bool = True) -> HotRecord | None:
        """See ``HotStore.claim``."""
        return self._calls.made(
            "claim", conversation, self.observes.claim, conversation, lease=lease, expired_only=expired_only
        )

    def drop(self, conversation: str, *, expect: tuple[int, int]) -> bool:
        """See ``HotStore.drop``."""
        return self._calls.made("drop", conversation, self.observes.drop, conversation, expect=expect)

    def acquire_lease(self, conversation: str, *, owner: str, ttl: float) -> bool:
        """See ``HotStore.acquire_lease``."""
        return self._calls.made("acquire_lease", conversation, self.observes.acquire_lease, conversation, owner=owner, ttl=ttl)

    def release_lease(self, conversation: str, *, owner: str) -> bool:
        """See ``HotStore.release_lease``."""
        return self._calls.made("release_lease", conversation, self.observes.release_lease, conversation, owner=owner)

    def get_value(self, name: str) -> bytes | None:
        """See ``HotStore.get_value``."""
        return self._calls.made("get_value", None, self.observes.get_value, name)

    def put_value(self, name: str, value: bytes, *, ttl: float) -> None:
        """See ``HotStore.put_value``."""
        self._calls.made("put_value", None, self.observes.put_value, name, value, ttl=ttl)

    def close(self) -> None:
        """See ``HotStore.close``."""
        self.observes.close()


class ObservedTable:
    """``Table`` that delegates to another one and records every call.

    Args:
        table: The wrapped table.
        tier: Name of the tier: ``durable`` or ``memories``.
    """

    def __init__(self, table: Table, *, tier: str = "durable") -> None:
        self.observes = table
        self.schema: TableSchema = table.schema
        self._calls = _Calls(table, tier=tier, collection=table.schema.name)

    def create_if_missing(self) -> None:
        """See ``Table.create_if_missing``."""
        self._calls.made("create_if_missing", None, self.observes.create_if_missing)

    def get(self, partition: str, sort: str) -> Item | None:
        """See ``Table.get``."""
        return self._calls.made("get", partition, self.observes.get, partition, sort)

    def batch_get(self, keys: Sequence[Key]) -> dict[Key, Item]:
        """See ``Table.batch_get``."""
        return self._calls.made("batch_get", None, self.observes.batch_get, keys)

    def put(self, item: Item, *, when: Condition | None = None, scrub: bool = True) -> bool:
        """See ``Table.put``."""
        return self._calls.made("put", _partition(item, self.schema), self.observes.put, item, when=when, scrub=scrub)

    def delete(self, partition: str, sort: str, *, when: Condition | None = None) -> bool:
        """See ``Table.delete``."""
        return self._calls.made("delete", partition, self.observes.delete, partition, sort, when=when)

    def batch_write(self, *, puts: Sequence[Item] = (), deletes: Sequence[Key] = ()) -> None:
        """See ``Table.batch_write``."""
        self._calls.made("batch_write", None, self.observes.batch_write, puts=puts, deletes=deletes)

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
        """See ``Table.query``."""
        return self._calls.iterated(
            "query",
            partition,
            self.observes.query,
            partition,
            first=first,
            last=last,
            reverse=reverse,
            limit=limit,
            index=index,
            attributes=attributes,
        )

    def transact(self, writes: Sequence[Write]) -> bool:
        """See ``Table.transact``."""
        return self._calls.made("transact", None, self.observes.transact, writes)

    def close(self) -> None:
        """See ``Table.close``."""
        self.observes.close()


class ObservedCodec(Codec):
    """``Codec`` that delegates to another one and records durations.

    Args:
        codec: The wrapped codec.
    """

    def __init__(self, codec: Codec) -> None:
        super().__init__()
        self.codec = codec

    @property
    def allows_plain(self) -> bool:
        """See ``Codec.allows_plain``."""
        return self.codec.allows_plain

    @property
    def cipher(self) -> Cipher | None:
        """See ``Codec.cipher``."""
        return self.codec.cipher

    def seal(self, dumped: bytes, place: str) -> bytes:
        """See ``Codec.seal``."""
        start = time.perf_counter()
        sealed = self.codec.seal(dumped, place)
        recorder.note(SERIALIZATION, time.perf_counter() - start, _SEAL)
        return sealed

    def unseal(self, data: object, place: str) -> bytes:
        """See ``Codec.unseal``."""
        start = time.perf_counter()
        payload = self.codec.unseal(data, place)
        recorder.note(SERIALIZATION, time.perf_counter() - start, _UNSEAL)
        return payload

    def seal_each(self, dumped: Iterable[tuple[bytes, str]]) -> list[bytes]:
        """See ``Codec.seal_each``."""
        start = time.perf_counter()
        sealed = self.codec.seal_each(dumped)
        recorder.note(SERIALIZATION, time.perf_counter() - start, _SEAL)
        return sealed

    def unseal_each(self, sealed: Iterable[tuple[object, str]]) -> list[bytes | CorruptRecordError]:
        """See ``Codec.unseal_each``."""
        start = time.perf_counter()
        payloads = self.codec.unseal_each(sealed)
        recorder.note(SERIALIZATION, time.perf_counter() - start, _UNSEAL)
        return payloads


_SEAL: Mapping[str, str] = {"operation": "seal"}
_UNSEAL: Mapping[str, str] = {"operation": "unseal"}


def observed_hot_store(store: HotStore) -> HotStore:
    """Wrap a hot store in an ``ObservedHotStore``, unless it is one."""
    return store if isinstance(store, ObservedHotStore) else ObservedHotStore(store)


def observed_table(table: Table, *, tier: str = "durable") -> Table:
    """Wrap a table in an ``ObservedTable``, unless it is one."""
    return table if isinstance(table, ObservedTable) else ObservedTable(table, tier=tier)


def _partition(item: Item, schema: TableSchema) -> str | None:
    value: Any = item.get(schema.partition)
    return value if isinstance(value, str) else None
