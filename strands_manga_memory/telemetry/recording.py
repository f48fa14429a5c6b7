"""Recorder of telemetry events, and wrappers that measure store calls and turns.

Events are queued. A thread exports them to OpenTelemetry and adds them to the statistics of the
process.
"""

from __future__ import annotations

import atexit
import contextvars
import copy
import inspect
import logging
import math
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar, cast

from opentelemetry import context as otel_context
from opentelemetry import metrics, trace
from opentelemetry.context import Context
from strands.hooks import AfterInvocationEvent, BeforeInvocationEvent, HookOrder, HookRegistry

from strands_manga_memory.arguments import with_repr
from strands_manga_memory.lifecycle import attachments, renew_in_child
from strands_manga_memory.stores.codec import Codec
from strands_manga_memory.stores.hot import HotStore
from strands_manga_memory.stores.table import Table
from strands_manga_memory.stores.writer import writers
from strands_manga_memory.telemetry.events import (
    BACKLOG,
    DEADLINE,
    RECORDED,
    SERIALIZATION,
    STORE_CALL,
    TIER_UP,
    TURN,
    Event,
)

logger = logging.getLogger(__name__)

_T = TypeVar("_T")
_SCOPE = "strands_manga_memory"
_MOST_WAITING = 20_000
_EVERY_SECONDS = 1.0
_Sample = tuple[float, Mapping[str, str]]
_NONE: Mapping[str, Any] = MappingProxyType({})
_WITHOUT_SDK = trace.NoOpTracerProvider, trace.ProxyTracerProvider


class _QueuedEvent(NamedTuple):
    """Recorded telemetry event that waits for its export.

    Attributes:
        end: End of the event in nanoseconds since 1970.
        context: Context whose span becomes the parent of the event's span; None without a parent.
    """

    event: Event
    end: int
    seconds: float | None
    attributes: Mapping[str, Any]
    counts: Mapping[str, float]
    context: Context | None


class EventRecorder:
    """Queue of telemetry events, which a background thread exports.

    A process has one recorder, named ``recorder``. The queue contains at most 20,000 events. In a
    full queue, a new event replaces the oldest one.
    """

    def __init__(self) -> None:
        self.enabled = True
        self.renew_after_fork()
        renew_in_child(self)

    def renew_after_fork(self) -> None:
        """Empty the queue and the totals in a forked process; the parent process exports them."""
        self._entries: deque[_QueuedEvent] = deque(maxlen=_MOST_WAITING)
        self._draining = threading.Lock()
        self._has_thread = False
        self._totals: dict[str, OperationTotals] = {}

    def record(
        self,
        event: Event,
        seconds: float | None = None,
        attributes: Mapping[str, Any] = _NONE,
        counts: Mapping[str, float] = _NONE,
    ) -> None:
        """Record a telemetry event that has just ended.

        ``seconds`` is its duration; None without a duration. The attribute ``error.type`` marks an
        error. ``counts`` has recorded values, such as ``tokens``, keyed by the names in
        ``event.counts``.
        """
        if not self.enabled:
            return
        context = otel_context.get_current() if event.has_span else None
        if not context or not trace.get_current_span(context).is_recording():
            context = None
        self._entries.append(
            _QueuedEvent(event, time.time_ns(), seconds, attributes, counts, context)
        )
        if not self._has_thread:
            self._has_thread = True
            threading.Thread(
                target=self._serve, name="strands-manga-memory-telemetry", daemon=True
            ).start()

    def flush(self) -> None:
        """Export all telemetry events that wait in the queue."""
        with self._draining:
            for _ in range(len(self._entries)):
                try:
                    self._export(self._entries.popleft())
                except Exception as error:  # noqa: BLE001 - an exporter's error must not reach an agent
                    logger.debug(
                        "error=<%s> | a telemetry event was not exported", type(error).__name__
                    )

    def stats(self) -> dict[str, OperationStats]:
        """Return the statistics of this process, keyed by operation, such as ``hot.write``."""
        self.flush()
        return {name: self._totals[name].stats() for name in sorted(self._totals)}

    def _serve(self) -> None:
        while True:
            time.sleep(_EVERY_SECONDS)
            self.flush()

    def _export(self, entry: _QueuedEvent) -> None:
        event, attributes = entry.event, entry.attributes
        name = event.name
        if event is STORE_CALL:
            name = f"{attributes['manga_memory.tier']}.{attributes['db.operation.name']}"
        totals = self._totals.setdefault(name, OperationTotals())
        totals.add(entry.seconds, attributes, entry.counts)
        labels = {label: attributes[label] for label in event.labels if label in attributes}
        if event.duration is not None and entry.seconds is not None:
            _instruments[event.duration.name].record(entry.seconds, labels)
        for count, metric in event.counts.items():
            if (value := entry.counts.get(count)) is not None:
                instrument = _instruments[metric.name]
                (instrument.record if metric.buckets else instrument.add)(value, labels)
        if event.has_span and not isinstance(trace.get_tracer_provider(), _WITHOUT_SDK):
            _export_span(entry)


def _export_span(entry: _QueuedEvent) -> None:
    attributes = {**entry.attributes, **entry.counts}
    name, kind = f"manga_memory.{entry.event.name}", trace.SpanKind.INTERNAL
    if entry.event is STORE_CALL:
        name = f"{attributes['db.operation.name']} {attributes['db.collection.name']}"
        kind = trace.SpanKind.CLIENT
    named = ((key if "." in key else f"manga_memory.{key}", attributes[key]) for key in attributes)
    span = trace.get_tracer(_SCOPE).start_span(
        name,
        # The exporting thread's own context must not become the parent.
        context=entry.context or Context(),
        kind=kind,
        attributes=dict(named),
        start_time=entry.end - int((entry.seconds or 0.0) * 1e9),
    )
    if "error.type" in attributes:
        span.set_status(trace.StatusCode.ERROR)
    span.end(entry.end)


class Measurement(NamedTuple):
    """Attributes and values of an event, to which the ``with`` block of ``measured`` may add."""

    attributes: dict[str, Any]
    counts: dict[str, float]


@contextmanager
def measured(event: Event, **attributes: Any) -> Iterator[Measurement]:
    """Record a telemetry event with the duration of a ``with`` block.

    The block gets a ``Measurement``, to which it may add attributes and values. If the block raises
    an exception, the exception's type becomes the attribute ``error.type``, and the exception is
    raised again.
    """
    noted = Measurement(attributes, {})
    start = time.perf_counter()
    try:
        yield noted
    except BaseException as error:
        attributes["error.type"] = type(error).__name__
        raise
    finally:
        recorder.record(event, time.perf_counter() - start, *noted)


def count_missed_deadline(tier: str) -> None:
    """Count a call of a store that exceeded its deadline. ``tier`` is ``hot`` or ``durable``."""
    record_event(DEADLINE, attributes={"manga_memory.tier": tier}, counts={"missed": 1})


@contextmanager
def watch_deadline(tier: str, deadline: float) -> Iterator[None]:
    """Count a missed deadline of a store if the ``with`` block runs for over ``deadline`` seconds.

    The block is not interrupted.
    """
    start = time.perf_counter()
    try:
        yield
    finally:
        if time.perf_counter() - start > deadline:
            count_missed_deadline(tier)


def observe_backlog() -> Iterator[_Sample]:
    """Yield the number of waiting and running background tasks, for an OpenTelemetry gauge."""
    yield sum(writer.backlog for writer in writers()), {}


def observe_tiers() -> Iterator[_Sample]:
    """Yield the availability of the hot and of the durable tier, for an OpenTelemetry gauge.

    The value is 1 if all stores of the tier are available, and 0 otherwise.
    """
    for number, tier in enumerate(("hot", "durable")):
        known = [writer for writer in writers() if writer.stores[number] is not None]
        if known:
            is_up = all(getattr(writer, f"{tier}_health").is_up for writer in known)
            yield int(is_up), {"manga_memory.tier": tier}


def in_current_context(work: Callable[[], _T]) -> Callable[[], _T]:
    """Wrap a function so that its spans, on any thread, become children of the current span."""
    return partial(contextvars.copy_context().run, work)


recorder = EventRecorder()
"""Recorder of this process."""


record_event, flush = recorder.record, recorder.flush


def _observed(
    read: Callable[[], Iterator[_Sample]], _: metrics.CallbackOptions
) -> list[metrics.Observation]:
    samples = read() if recorder.enabled else ()
    return [metrics.Observation(value, labels) for value, labels in samples]


_meter = metrics.get_meter(_SCOPE)
_instruments: dict[str, Any] = {}
for metric in RECORDED:
    bounded = partial(_meter.create_histogram, explicit_bucket_boundaries_advisory=metric.buckets)
    create: Any = bounded if metric.buckets else _meter.create_counter
    _instruments[metric.name] = create(
        metric.name, unit=metric.unit, description=metric.description
    )
for gauge, read in ((BACKLOG, observe_backlog), (TIER_UP, observe_tiers)):
    _meter.create_observable_gauge(
        gauge.name, [partial(_observed, read)], unit=gauge.unit, description=gauge.description
    )


def set_enabled(*, enabled: bool) -> None:
    """Enable or disable telemetry in this process. Default: enabled."""
    recorder.enabled = enabled


atexit.register(flush)


def with_turn_timing(registry: HookRegistry) -> HookRegistry:
    """Wrap a hook registry, to measure the callbacks that are registered through the wrapper.

    A telemetry event at the end of each turn has the duration of the turn, and the total duration
    of these callbacks. If telemetry is disabled, ``registry`` itself is returned.
    """
    if not recorder.enabled:
        return registry
    clock: _TurnClock | None = attachments(registry).get("turn_clock")
    if clock is None:
        clock = attachments(registry)["turn_clock"] = _TurnClock()
        registry.add_callback(BeforeInvocationEvent, clock.begin, order=HookOrder.SDK_FIRST - 2)
        registry.add_callback(AfterInvocationEvent, clock.end, order=HookOrder.SDK_LAST + 2)
    return cast("HookRegistry", _TimedRegistry(registry, clock))


class _TurnClock:
    """Stopwatch for the duration of a turn, and for this package's callbacks during the turn.

    Attributes:
        layer: Total seconds of this package's callbacks during the turn.
    """

    def __init__(self) -> None:
        self.layer = 0.0
        self._start: float | None = None

    @contextmanager
    def counting(self) -> Iterator[None]:
        start = time.perf_counter()
        try:
            yield
        finally:
            self.layer += time.perf_counter() - start

    def begin(self, event: BeforeInvocationEvent) -> None:
        self._start, self.layer = time.perf_counter(), 0.0

    def end(self, event: AfterInvocationEvent) -> None:
        if self._start is not None:
            recorder.record(TURN, time.perf_counter() - self._start, counts={"layer": self.layer})
            self._start = None


class _TimedRegistry:
    def __init__(self, registry: HookRegistry, clock: _TurnClock) -> None:
        self._registry = registry
        self._clock = clock

    def add_callback(self, event_type: Any, callback: Callable[[Any], Any], **options: Any) -> None:
        clock = self._clock  # the callbacks keep the clock alive, not the registry that holds them

        async def awaited(event: Any) -> None:
            with clock.counting():
                await callback(event)

        def called(event: Any) -> None:
            with clock.counting():
                callback(event)

        timed = awaited if inspect.iscoroutinefunction(callback) else called
        self._registry.add_callback(event_type, timed, **options)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._registry, name)


_SYSTEMS = {
    "RedisHotStore": "redis",
    "InMemoryHotStore": "memory",
    "DynamoDBTable": "aws.dynamodb",
    "SQLiteTable": "sqlite",
    "PostgresTable": "postgresql",
}
_ITERATED = ("expired", "query")


@with_repr("observes")
class ObservedStore:
    """Wrapper of a store that records each call in telemetry. Calls of ``close`` are not recorded.

    Args:
        store: The wrapped hot store or table.
        tier: Name of the store in telemetry: ``hot``, ``durable`` or ``memories``.
    """

    def __init__(self, store: HotStore | Table, tier: str) -> None:
        self.observes = store
        collection = "conversations" if tier == "hot" else cast("Table", store).schema.name
        system = _SYSTEMS.get(type(store).__name__, type(store).__name__.lower())
        self._about = {
            "db.system.name": system,
            "db.collection.name": collection,
            "manga_memory.tier": tier,
        }

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the wrapped store. Calls of a returned method are recorded."""
        if name.startswith("_"):
            raise AttributeError(name)
        attribute = getattr(self.observes, name)
        if not callable(attribute) or name == "close" or not recorder.enabled:
            return attribute
        return partial(self._iterate if name in _ITERATED else self._call, name, attribute)

    def _call(self, operation: str, call: Callable[..., _T], *args: Any, **kwargs: Any) -> _T:
        with measured(STORE_CALL, **self._about, **{"db.operation.name": operation}):
            return call(*args, **kwargs)

    def _iterate(
        self, operation: str, call: Callable[..., Iterator[_T]], *args: Any, **kwargs: Any
    ) -> Iterator[_T]:
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
                    # Without the time that the consumer takes for each value.
                    seconds += time.perf_counter() - start
                yield value
        finally:
            recorder.record(STORE_CALL, seconds, about)


def observed_codec(codec: Codec) -> Codec:
    """Return a copy of a codec that records how long ``seal`` (encode) and ``unseal`` take."""
    observed = copy.copy(codec)
    for name in ("seal", "unseal"):
        setattr(observed, name, partial(_timed, {"operation": name}, getattr(codec, name)))
    return observed


def _timed(labels: dict[str, str], call: Callable[..., _T], *args: Any) -> _T:
    start = time.perf_counter()
    done = call(*args)
    recorder.record(SERIALIZATION, time.perf_counter() - start, labels)
    return done


class LogHistogram:
    """Histogram of positive values, with bucket bounds that grow by a constant factor.

    Quantiles are at most ``growth`` times too high.

    Args:
        growth: Factor between the bounds of consecutive buckets, over 1. Default 1.25.
        counts: Initial counts, keyed by bucket index. Default: no values.

    Attributes:
        counts: Number of values, keyed by bucket index. Bucket ``n`` contains the values over
            ``growth ** (n - 1)`` up to ``growth ** n``.
    """

    def __init__(self, growth: float = 1.25, counts: Mapping[int, int] | None = None) -> None:
        self.growth = growth
        self._log = math.log(growth)
        self.counts = Counter(counts)

    def add(self, value: float, count: int = 1) -> None:
        """Add a value to the histogram ``count`` times.

        A value below 1e-9 is counted as 1e-9, because 0 has no logarithm.
        """
        bucket = math.ceil(math.log(max(value, 1e-9)) / self._log - 1e-9)
        self.counts[bucket] += count

    @property
    def total(self) -> int:
        """Number of values in all buckets of the histogram."""
        return self.counts.total()

    def buckets(self) -> Iterator[tuple[float, int]]:
        """Yield the upper bound and the count of each non-empty bucket, lowest bucket first."""
        for bucket in sorted(self.counts):
            yield self.growth**bucket, self.counts[bucket]

    def quantile(self, fraction: float) -> float:
        """Estimate a quantile of the values, such as the median for a ``fraction`` of 0.5.

        The estimate is the upper bound of the quantile's bucket, or 0 without values.
        """
        left = fraction * self.total
        found = 0.0
        for bound, count in self.buckets():
            found, left = bound, left - count
            if left <= 0:
                break
        return found


@dataclass(frozen=True, kw_only=True)
class OperationStats:
    """Statistics of one kind of operation in this process.

    Attributes:
        count: Number of operations.
        errors: Number of operations that failed.
        mean: Mean duration in seconds; 0 for operations without a duration.
        p50: Median in seconds, up to 12 % too high.
        p95: 95th percentile in seconds, up to 12 % too high.
        p99: 99th percentile in seconds, up to 12 % too high.
        longest: Longest duration in seconds.
        sums: Sum of each value that the operations recorded, keyed by its name. For example, the
            sum ``tokens`` of trims is the number of evicted tokens.
    """

    count: int
    errors: int
    mean: float
    p50: float
    p95: float
    p99: float
    longest: float
    sums: Mapping[str, float]


class OperationTotals:
    """Running totals for one kind of operation, such as writes of the hot store."""

    def __init__(self) -> None:
        self.count = self.errors = 0
        self.seconds = self.longest = 0.0
        self.sums: Counter[str] = Counter()
        self.durations = LogHistogram(1.12)

    def add(
        self, seconds: float | None, attributes: Mapping[str, Any], counts: Mapping[str, float]
    ) -> None:
        """Add one operation to the running totals of its kind.

        ``seconds`` is the duration; None for an operation without a duration. The attribute
        ``error.type`` marks a failure. ``counts`` has the values that the operation recorded, keyed
        by name.
        """
        self.count += 1
        self.errors += "error.type" in attributes
        if seconds is not None:
            self.seconds += seconds
            self.longest = max(self.longest, seconds)
            self.durations.add(seconds)
        self.sums.update(counts)

    def stats(self) -> OperationStats:
        """Return the running totals as statistics, with percentiles of the durations."""
        shares = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
        return OperationStats(
            count=self.count,
            errors=self.errors,
            mean=self.seconds / max(1, self.durations.total),
            longest=self.longest,
            sums=dict(self.sums),
            **{
                name: min(self.longest, self.durations.quantile(share))
                for name, share in shares.items()
            },
        )
