"""Recorder that queues telemetry events. A thread exports them to OpenTelemetry and adds them to the statistics."""

from __future__ import annotations

import atexit
import contextvars
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

from opentelemetry import context as otel_context
from opentelemetry import metrics, trace
from opentelemetry.context import Context

from strands_manga_memory.forks import renew_in_child
from strands_manga_memory.stores.writer import writers
from strands_manga_memory.telemetry.events import BACKLOG, DEADLINE, RECORDED, STORE_CALL, TIER_UP, Event
from strands_manga_memory.telemetry.histogram import OperationStats, OperationTotals

logger = logging.getLogger(__name__)

_T = TypeVar("_T")
_SCOPE = "strands_manga_memory"
_MOST_WAITING = 20_000
_EVERY_SECONDS = 1.0
_Sample = tuple[float, Mapping[str, str]]
_NONE: Mapping[str, Any] = MappingProxyType({})


class _QueuedEvent(NamedTuple):
    """Recorded telemetry event that waits for its export.

    Attributes:
        event: Kind of the event.
        end: End of the event in nanoseconds since 1970.
        seconds: Duration of the event; None without a duration.
        attributes: Attributes of the event.
        counts: Recorded values of the event, keyed by name, such as ``tokens``.
        context: Context whose span becomes the parent of the event's span; None without a parent.
    """

    event: Event
    end: int
    seconds: float | None
    attributes: Mapping[str, Any]
    counts: Mapping[str, float]
    context: Context | None


class EventRecorder:
    """Queue of telemetry events, which a thread exports. A process has one recorder, named ``recorder``.

    At most 20,000 events wait. The oldest ones are dropped.

    Attributes:
        enabled: Whether events are recorded.
    """

    def __init__(self) -> None:
        self.enabled = True
        self.renew_after_fork()
        renew_in_child(self)

    def renew_after_fork(self) -> None:
        """Discard the events and totals that a forked process has from its parent, which exports its own events."""
        self._entries: deque[_QueuedEvent] = deque(maxlen=_MOST_WAITING)
        self._draining = threading.Lock()
        self._has_thread = False
        self._totals: dict[str, OperationTotals] = {}

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
            attributes: Attributes of the event; ``error.type`` marks an error.
            counts: Recorded values of the event, such as ``tokens``, keyed by the names in ``event.counts``.
        """
        if not self.enabled:
            return
        context = _active() if event.has_span else None
        self._entries.append(_QueuedEvent(event, time.time_ns(), seconds, attributes, counts, context))
        if not self._has_thread:
            self._has_thread = True
            threading.Thread(target=self._serve, name="strands-manga-memory-telemetry", daemon=True).start()

    def flush(self) -> None:
        """Export all telemetry events that wait in the queue."""
        with self._draining:
            for _ in range(len(self._entries)):
                try:
                    self._export(self._entries.popleft())
                except Exception as error:  # noqa: BLE001 - an exporter's error must not reach an agent
                    logger.debug("error=<%s> | an event was not exported", type(error).__name__)

    def stats(self) -> dict[str, OperationStats]:
        """Return the statistics of this process, keyed by operation, such as ``hot.write``, ``turn`` or ``trim``."""
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
        self._totals.setdefault(name, OperationTotals()).add(entry.seconds, attributes, entry.counts)
        labels = {label: attributes[label] for label in event.labels if label in attributes}
        if event.duration is not None and entry.seconds is not None:
            _instruments[event.duration.name].record(entry.seconds, labels)
        for count, metric in event.counts.items():
            if (value := entry.counts.get(count)) is not None:
                instrument = _instruments[metric.name]
                (instrument.record if metric.buckets else instrument.add)(value, labels)
        if event.has_span and not isinstance(trace.get_tracer_provider(), trace.NoOpTracerProvider):
            _export_span(entry)


def _export_span(entry: _QueuedEvent) -> None:
    attributes = {**entry.attributes, **entry.counts}
    name, kind = f"manga_memory.{entry.event.name}", trace.SpanKind.INTERNAL
    if entry.event is STORE_CALL:
        name, kind = f"{attributes['db.operation.name']} {attributes['db.collection.name']}", trace.SpanKind.CLIENT
    span = trace.get_tracer(_SCOPE).start_span(
        name,
        context=entry.context or Context(),  # the exporting thread's own context must not become the parent
        kind=kind,
        attributes={key if "." in key else f"manga_memory.{key}": value for key, value in attributes.items()},
        start_time=entry.end - int((entry.seconds or 0.0) * 1e9),
    )
    if "error.type" in attributes:
        span.set_status(trace.StatusCode.ERROR)
    span.end(entry.end)


class Measurement(NamedTuple):
    """Attributes and values of a telemetry event whose duration ``measured`` measures.

    The code in the ``with`` block may add attributes and values.
    """

    attributes: dict[str, Any]
    counts: dict[str, float]


@contextmanager
def measured(event: Event, **attributes: Any) -> Iterator[Measurement]:
    """Record a telemetry event with the duration of a ``with`` block.

    The block gets a ``Measurement``, to which it may add attributes and values. If the block raises an exception, the event
    contains the exception's type, and the exception is raised again.
    """
    noted = Measurement(attributes, {})
    start = time.perf_counter()
    try:
        yield noted
    except BaseException as error:
        attributes["error.type"] = type(error).__name__
        raise
    finally:
        recorder.note(event, time.perf_counter() - start, *noted)


def missed(tier: str) -> None:
    """Count a call of a storage tier (``hot`` or ``durable``) that did not end within its deadline."""
    note(DEADLINE, attributes={"manga_memory.tier": tier}, counts={"missed": 1})


@contextmanager
def within(tier: str, deadline: float) -> Iterator[None]:
    """Count a missed deadline of a storage tier if the ``with`` block takes longer than ``deadline`` seconds.

    The block is not interrupted.
    """
    start = time.perf_counter()
    try:
        yield
    finally:
        if time.perf_counter() - start > deadline:
            missed(tier)


def backlog() -> Iterator[_Sample]:
    """Yield one sample for an OpenTelemetry gauge: the number of background tasks that wait or run, without labels."""
    yield sum(writer.backlog for writer in writers()), {}


def tiers() -> Iterator[_Sample]:
    """Yield one sample for each storage tier in use, for an OpenTelemetry gauge. The label names the tier.

    The value is 1 if all stores of the tier are available, and 0 otherwise.
    """
    for number, tier in enumerate(("hot", "durable")):
        known = [
            (writer.hot_health, writer.durable_health)[number] for writer in writers() if writer.stores[number] is not None
        ]
        if known:
            yield int(all(health.is_up for health in known)), {"manga_memory.tier": tier}


def carried(work: Callable[[], _T]) -> Callable[[], _T]:
    """Return a function that calls ``work`` in the current OpenTelemetry context, even if another thread calls it.

    Spans that ``work`` creates therefore belong to the current span.
    """
    return partial(contextvars.copy_context().run, work)


def _active() -> Context | None:
    context = otel_context.get_current()
    return context if context and trace.get_current_span(context).is_recording() else None


recorder = EventRecorder()
"""Recorder of this process."""


note, flush = recorder.note, recorder.flush


def _observed(read: Callable[[], Iterator[_Sample]], _: metrics.CallbackOptions) -> list[metrics.Observation]:
    return [metrics.Observation(value, labels) for value, labels in read()] if recorder.enabled else []


_meter = metrics.get_meter(_SCOPE)
_instruments: dict[str, Any] = {}
for metric in RECORDED:
    bounded = partial(_meter.create_histogram, explicit_bucket_boundaries_advisory=metric.buckets)
    create: Any = bounded if metric.buckets else _meter.create_counter
    _instruments[metric.name] = create(metric.name, unit=metric.unit, description=metric.description)
for gauge, read in ((BACKLOG, backlog), (TIER_UP, tiers)):
    _meter.create_observable_gauge(gauge.name, [partial(_observed, read)], unit=gauge.unit, description=gauge.description)


def switch(*, on: bool) -> None:
    """Enable or disable telemetry in this process. Default: enabled."""
    recorder.enabled = on


atexit.register(flush)
