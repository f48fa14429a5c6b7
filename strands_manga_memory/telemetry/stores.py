"""Wrappers of hot stores, tables and codecs that record every call."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, TypeVar, cast

from strands_manga_memory.stores.encoding.codec import Codec
from strands_manga_memory.stores.hot import HotStore
from strands_manga_memory.stores.table import Table
from strands_manga_memory.telemetry.events import SERIALIZATION, STORE_CALL
from strands_manga_memory.telemetry.recording import measured, recorder

_T = TypeVar("_T")
_SYSTEMS = {
    "RedisHotStore": "redis",
    "InMemoryHotStore": "memory",
    "DynamoDBTable": "aws.dynamodb",
    "SQLiteTable": "sqlite",
    "PostgresTable": "postgresql",
}
_ITERATED = ("expired", "query")


class ObservedStore:
    """Wrapper of a hot store or table that records a telemetry event for every call except ``close``.

    Args:
        store: The wrapped store.
        tier: Name of the tier: ``hot``, ``durable`` or ``memories``.
    """

    def __init__(self, store: HotStore | Table, tier: str) -> None:
        self.observes = store
        collection = "conversations" if tier == "hot" else cast("Table", store).schema.name
        system = _SYSTEMS.get(type(store).__name__, type(store).__name__.lower())
        self._about = {"db.system.name": system, "db.collection.name": collection, "manga_memory.tier": tier}

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the wrapped store. If it is a method, calls of the returned method are recorded."""
        if name.startswith("_"):
            raise AttributeError(name)
        attribute = getattr(self.observes, name)
        if not callable(attribute) or name == "close" or not recorder.enabled:
            return attribute
        return partial(self._iterate if name in _ITERATED else self._call, name, attribute)

    def _call(self, operation: str, call: Callable[..., _T], *args: Any, **kwargs: Any) -> _T:
        with measured(STORE_CALL, **self._about, **{"db.operation.name": operation}):
            return call(*args, **kwargs)

    def _iterate(self, operation: str, call: Callable[..., Iterator[_T]], *args: Any, **kwargs: Any) -> Iterator[_T]:
        about, seconds = {**self._about, "db.operation.name": operation}, 0.0
        found: Iterator[_T] | None = None
        try:
            while True:
                start = time.perf_counter()
                try:
                    found = iter(call(*args, **kwargs)) if found is None else found
                    value = next(found)
                except StopIteration:
                    return
                except Exception as error:
                    about["error.type"] = type(error).__name__
                    raise
                finally:
                    seconds += time.perf_counter() - start  # without the time that the consumer takes for each value
                yield value
        finally:
            recorder.note(STORE_CALL, seconds, about)


def observed_codec(codec: Codec) -> Codec:
    """Return a copy of a codec that records the durations of its conversions as telemetry."""
    observed = copy.copy(codec)
    for name, labels in (("seal", _SEAL), ("unseal", _UNSEAL)):
        setattr(observed, name, partial(_timed, labels, getattr(codec, name)))
    return observed


_SEAL, _UNSEAL = {"operation": "seal"}, {"operation": "unseal"}


def _timed(labels: dict[str, str], call: Callable[..., _T], *args: Any) -> _T:
    start = time.perf_counter()
    done = call(*args)
    recorder.note(SERIALIZATION, time.perf_counter() - start, labels)
    return done
