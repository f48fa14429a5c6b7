"""Wrappers of hot stores, tables and codecs that record every call."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, TypeVar, cast

from strands_manga_memory.exceptions import CorruptRecordError
from strands_manga_memory.stores.encoding.codec import Cipher, Codec
from strands_manga_memory.stores.hot import HotStore
from strands_manga_memory.stores.table import Table
from strands_manga_memory.telemetry.events import SERIALIZATION, STORE_CALL
from strands_manga_memory.telemetry.recording import recorder

_T = TypeVar("_T")
_SYSTEMS = {
    "RedisHotStore": "redis",
    "InMemoryHotStore": "memory",
    "DynamoDBTable": "aws.dynamodb",
    "SQLiteTable": "sqlite",
    "PostgresTable": "postgresql",
}
_ITERATED = ("expired", "query")
_OF_NO_CONVERSATION = ("batch_get", "get_value", "put_value", "transact")
"""Operations whose first argument does not name a conversation or a partition."""


class ObservedStore:
    """Wrapper of a hot store or table that records every call except ``close``.

    Args:
        store: The wrapped store.
        tier: Name of the tier: ``hot``, ``durable`` or ``memories``.
        collection: Name of the table, or of the kind of records.
    """

    def __init__(self, store: HotStore | Table, *, tier: str, collection: str) -> None:
        self.observes = store
        system = _SYSTEMS.get(type(store).__name__, type(store).__name__.lower())
        self._about = {"db.system.name": system, "db.collection.name": collection, "manga_memory.tier": tier}

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the wrapped store. Calls of a returned method are recorded."""
        if name.startswith("_"):
            raise AttributeError(name)
        attribute = getattr(self.observes, name)
        if not callable(attribute) or name == "close" or not recorder.enabled:
            return attribute
        return partial(self._iterate if name in _ITERATED else self._call, name, attribute)

    def _call(self, operation: str, call: Callable[..., _T], *args: Any, **kwargs: Any) -> _T:
        start = time.perf_counter()
        try:
            answer = call(*args, **kwargs)
        except Exception as error:
            self._record(operation, args, time.perf_counter() - start, type(error).__name__)
            raise
        self._record(operation, args, time.perf_counter() - start, "")
        return answer

    def _iterate(self, operation: str, call: Callable[..., Iterator[_T]], *args: Any, **kwargs: Any) -> Iterator[_T]:
        # the duration excludes the time that the consumer takes for each value
        start = time.perf_counter()
        try:
            found = iter(call(*args, **kwargs))
        except Exception as error:
            self._record(operation, args, time.perf_counter() - start, type(error).__name__)
            raise
        return self._each(operation, args, found, time.perf_counter() - start)

    def _each(self, operation: str, args: tuple[Any, ...], found: Iterator[_T], seconds: float) -> Iterator[_T]:
        error = ""  # only the type: an error refers to this frame, which must not refer to the error
        try:
            while True:
                start = time.perf_counter()
                try:
                    value = next(found)
                except StopIteration:
                    return
                except Exception as raised:
                    error = type(raised).__name__
                    raise
                finally:
                    seconds += time.perf_counter() - start
                yield value
        finally:
            self._record(operation, args, seconds, error)

    def _record(self, operation: str, args: tuple[Any, ...], seconds: float, error: str) -> None:
        about = {**self._about, "db.operation.name": operation}
        named = args[0] if args and operation not in _OF_NO_CONVERSATION else None
        if isinstance(named, dict):  # a record
            named = named.get(cast("Table", self.observes).schema.partition)
        if isinstance(named, str):
            about["conversation"] = named
        if error:
            about["error.type"] = error
        recorder.note(STORE_CALL, seconds, about)


class ObservedCodec(Codec):
    """Wrapper of a codec that records the durations of its calls."""

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
        return _timed(_SEAL, self.codec.seal, dumped, place)

    def unseal(self, data: object, place: str) -> bytes:
        """See ``Codec.unseal``."""
        return _timed(_UNSEAL, self.codec.unseal, data, place)

    def seal_each(self, dumped: Iterable[tuple[bytes, str]]) -> list[bytes]:
        """See ``Codec.seal_each``."""
        return _timed(_SEAL, self.codec.seal_each, dumped)

    def unseal_each(self, sealed: Iterable[tuple[object, str]]) -> list[bytes | CorruptRecordError]:
        """See ``Codec.unseal_each``."""
        return _timed(_UNSEAL, self.codec.unseal_each, sealed)


_SEAL, _UNSEAL = {"operation": "seal"}, {"operation": "unseal"}


def _timed(labels: dict[str, str], call: Callable[..., _T], *args: Any) -> _T:
    start = time.perf_counter()
    done = call(*args)
    recorder.note(SERIALIZATION, time.perf_counter() - start, labels)
    return done


def observed_hot_store(store: HotStore) -> HotStore:
    """Wrap a hot store so that its calls are recorded. A store that is already wrapped is returned unchanged."""
    if isinstance(store, ObservedStore):
        return store
    return cast("HotStore", ObservedStore(store, tier="hot", collection="conversations"))


def observed_table(table: Table, *, tier: str = "durable") -> Table:
    """Wrap a table so that its calls are recorded. A table that is already wrapped is returned unchanged."""
    if isinstance(table, ObservedStore):
        return table
    return cast("Table", ObservedStore(table, tier=tier, collection=table.schema.name))
