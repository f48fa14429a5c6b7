"""Recorder that queues telemetry events. A thread exports them to OpenTelemetry and adds them to the statistics."""

from __future__ import annotations

import atexit
import hashlib
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from types import MappingProxyType, TracebackType
from typing import Any, TypeVar

from opentelemetry import context as otel_context
from opentelemetry import metrics, trace
from opentelemetry.context import Context

from strands_manga_memory.forks import renew_in_child
from strands_manga_memory.stores.writer import writers
from strands_manga_memory.telemetry.events import BACKLOG, CONVERSATION, DEADLINE, EVENTS, STORE_CALL, TIER_UP, Event
from strands_manga_memory.telemetry.histogram import OperationStats, OperationTotals

logger = logging.getLogger(__name__)

_T = TypeVar("_T")
_SCOPE = "strands_manga_memory"
_MOST_WAITING = 20_000
_EVERY_SECONDS = 1.0
_IDLE_ROUNDS = 60
_AT_ONCE = 32  # entries exported before the thread yields the interpreter lock
_TOGETHER_NS = 2_000_000  # longest time between two events that are aggregated
_Entry = tuple[Event, int, float | None, Mapping[str, Any], Mapping[str, float], Context | None]
"""Event, its end in nanoseconds since 1970, duration in seconds, attributes, values by name, and context of its span."""

_Reading = Callable[[], Iterator[tuple[float, Mapping[str, str]]]]
_NONE: Mapping[str, Any] = MappingProxyType({})


class EventRecorder:
    """Queue of telemetry events, which a thread exports. A process has one recorder, named ``recorder``.

    Attributes:
        enabled: Whether events are recorded.
        lost: Number of dropped events. Events are dropped while 20,000 events wait.
    """

    def __init__(self) -> None:
        self.enabled = True
        self._instruments: dict[str, Any] = {}
        self.renew_after_fork()
        renew_in_child(self)

    def renew_after_fork(self) -> None:
        """Reset events and totals in the child process of a fork. The parent process exports its own events."""
        self._entries: deque[_Entry] = deque()
        self._wanted = threading.Event()
        self._draining = threading.Lock()
        self._has_thread = False
        self._totals: dict[str, OperationTotals] = {}
        self.lost = 0

    def note(
        self,
        event: Event,
        seconds: float | None = None,
        attributes: Mapping[str, Any] = _NONE,
        counts: Mapping[str, float] = _NONE,
    ) -> None:
        """Record an event that has just ended.

        Args:
            event: Kind of the event.
            seconds: Duration of the event; None without a duration.
            attributes: Attributes of the event; ``error.type`` marks an error, ``conversation`` is hashed.
            counts: Values of the event, keyed by the names in ``event.counts``.
        """
        if not self.enabled:
            return
        if len(self._entries) >= _MOST_WAITING:
            self.lost += 1
            return
        self._entries.append((event, time.time_ns(), seconds, attributes, counts, _active() if event.has_span else None))
        if not self._has_thread:
            self._has_thread = True
            threading.Thread(target=self._serve, name="strands-manga-memory-telemetry", daemon=True).start()

    def flush(self) -> None:
        """Export all recorded events."""
        with self._draining:
            for number in range(len(self._entries)):
                try:
                    entry = self._pop()
                except IndexError:
                    return
                try:
                    self._hand_on(*entry)
                except Exception as error:  # noqa: BLE001 - an exporter's error must not reach an agent
                    logger.debug("error=<%s> | an event was not exported", type(error).__name__)
                if number % _AT_ONCE == _AT_ONCE - 1:
                    time.sleep(0)

    def stats(self) -> dict[str, OperationStats]:
        """Return the statistics of this process, keyed by operation, such as ``hot.write``, ``turn`` or ``trim``."""
        self.flush()
        return {name: self._totals[name].stats() for name in sorted(self._totals)}

    def _serve(self) -> None:
        idle = 0
        while True:
            self._wanted.wait(_EVERY_SECONDS)
            idle = 0 if self._entries else idle + 1
            self.flush()
            if idle >= _IDLE_ROUNDS:
                self._has_thread = False
                if not self._entries:
                    return  # the next event starts a new thread
                self._has_thread = True

    def _pop(self) -> _Entry:
        """Remove and return the oldest entry. If its event is ``in_a_row``, the next entries of the same event are added to it.

        Raises:
            IndexError: The queue is empty.
        """
        event, end, seconds, attributes, counts, context = self._entries.popleft()
        while event.in_a_row and self._entries:
            after, its_end, its_seconds, its_attributes, _, _ = self._entries[0]
            if after is not event or its_attributes is not attributes or its_end - end > _TOGETHER_NS:
                break
            self._entries.popleft()
            end, seconds = its_end, (seconds or 0.0) + (its_seconds or 0.0)
        return event, end, seconds, attributes, counts, context

    def _hand_on(
        self,
        event: Event,
        end: int,
        seconds: float | None,
        attributes: Mapping[str, Any],
        counts: Mapping[str, float],
        context: Context | None,
    ) -> None:
        name = event.name
        if event is STORE_CALL:
            name = f"{attributes['manga_memory.tier']}.{attributes['db.operation.name']}"
        self._totals.setdefault(name, OperationTotals()).add(seconds, attributes, counts)
        labels = {label: attributes[label] for label in event.labels if label in attributes}
        if event.duration is not None and seconds is not None:
            self._instrument(event.duration.name).record(seconds, labels)
        for count, metric in event.counts.items():
            if (value := counts.get(count)) is not None:
                instrument = self._instrument(metric.name)
                (instrument.record if metric.buckets else instrument.add)(value, labels)
        if event.has_span and not isinstance(trace.get_tracer_provider(), trace.NoOpTracerProvider):
            self._span(event, end, seconds or 0.0, {**attributes, **counts}, context)

    def _span(self, event: Event, end: int, seconds: float, attributes: dict[str, Any], context: Context | None) -> None:
        conversation = attributes.pop("conversation", None)
        if conversation is not None:
            attributes[CONVERSATION] = hash_id(conversation)
        is_store_call = event is STORE_CALL
        name = (
            f"{attributes['db.operation.name']} {attributes['db.collection.name']}"
            if is_store_call
            else f"manga_memory.{event.name}"
        )
        span = trace.get_tracer(_SCOPE).start_span(
            name,
            context=Context() if context is None else context,  # the exporting thread's own context must not become the parent
            kind=trace.SpanKind.CLIENT if is_store_call else trace.SpanKind.INTERNAL,
            attributes={key if "." in key else f"manga_memory.{key}": value for key, value in attributes.items()},
            start_time=end - int(seconds * 1e9),
        )
        if "error.type" in attributes:
            span.set_status(trace.StatusCode.ERROR)
        span.end(end)

    def _instrument(self, name: str) -> Any:
        if not self._instruments:
            meter = metrics.get_meter(_SCOPE)
            for event in EVENTS:
                for metric in (event.duration, *event.counts.values()):
                    if metric is None:
                        continue
                    about = {"unit": metric.unit, "description": metric.description}
                    self._instruments[metric.name] = (
                        meter.create_histogram(metric.name, explicit_bucket_boundaries_advisory=metric.buckets, **about)
                        if metric.buckets
                        else meter.create_counter(metric.name, **about)
                    )
            for gauge, read in ((BACKLOG, backlog), (TIER_UP, tiers)):
                meter.create_observable_gauge(
                    gauge.name, [partial(self._observed, read)], unit=gauge.unit, description=gauge.description
                )
        return self._instruments[name]

    def _observed(
        self, read: Callable[[], Iterator[tuple[float, Mapping[str, str]]]], _: metrics.CallbackOptions
    ) -> list[metrics.Observation]:
        return [metrics.Observation(value, labels) for value, labels in read()] if self.enabled else []


class measured:  # noqa: N801 - used as ``with measured(RECALL) as noted:``
    """Context manager that records an event with the duration of its block and the type of an exception.

    Args:
        event: Kind of the event.
        attributes: Attributes of the event.

    Attributes:
        attributes: Attributes of the event; the block may add attributes.
        counts: Values of the event, keyed by name. The block sets them.
    """

    __slots__ = ("_event", "_start", "attributes", "counts")

    def __init__(self, event: Event, **attributes: Any) -> None:
        self._event = event
        self.attributes: dict[str, Any] = attributes
        self.counts: dict[str, float] = {}

    def __enter__(self) -> measured:
        self._start = time.perf_counter()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if kind is not None:
            self.attributes["error.type"] = kind.__name__
        recorder.note(self._event, time.perf_counter() - self._start, self.attributes, self.counts)


def missed(tier: str) -> None:
    """Count a wait for a tier, ``hot`` or ``durable``, that reached its deadline."""
    note(DEADLINE, attributes={"manga_memory.tier": tier}, counts={"missed": 1})


@contextmanager
def within(tier: str, deadline: float) -> Iterator[None]:
    """Count a missed deadline of a tier if the block takes over ``deadline`` seconds. The block is not interrupted."""
    start = time.perf_counter()
    try:
        yield
    finally:
        if time.perf_counter() - start > deadline:
            missed(tier)


def backlog() -> Iterator[tuple[float, Mapping[str, str]]]:
    """Yield the number of background tasks that wait or run, with labels for a gauge."""
    yield sum(writer.backlog for writer in writers()), {}


def tiers() -> Iterator[tuple[float, Mapping[str, str]]]:
    """Yield 1 for each tier whose stores are all available, and 0 for each other tier in use, with labels for a gauge."""
    for number, tier in enumerate(("hot", "durable")):
        known = [
            (writer.hot_health, writer.durable_health)[number] for writer in writers() if writer.stores[number] is not None
        ]
        if known:
            yield int(all(health.is_up for health in known)), {"manga_memory.tier": tier}


def carried(work: Callable[[], _T]) -> Callable[[], _T]:
    """Bind a function to the current span, the parent of all spans that the function creates in another thread."""
    context = _active()
    if context is None:
        return work

    def run() -> _T:
        token = otel_context.attach(context)
        try:
            return work()
        finally:
            otel_context.detach(token)

    return run


def _active() -> Context | None:
    context = otel_context.get_current()
    return context if context and trace.get_current_span(context).is_recording() else None


def hash_id(name: str) -> str:
    """Return a hash of an id as 16 hexadecimal digits."""
    return hashlib.blake2b(name.encode(), digest_size=8).hexdigest()


recorder = EventRecorder()
"""Recorder of this process."""


def note(
    event: Event,
    seconds: float | None = None,
    attributes: Mapping[str, Any] = _NONE,
    counts: Mapping[str, float] = _NONE,
) -> None:
    """Record an event that has just ended. See ``EventRecorder.note``."""
    recorder.note(event, seconds, attributes, counts)


def flush() -> None:
    """Export all recorded events of this process."""
    recorder.flush()


def switch(*, on: bool) -> None:
    """Enable or disable telemetry in this process. Default: enabled."""
    recorder.enabled = on


atexit.register(flush)
