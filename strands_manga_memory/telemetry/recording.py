"""Recorder: takes note of what happens without delay, and hands it to OpenTelemetry, and to the statistics, from a thread."""

from __future__ import annotations

import atexit
import hashlib
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from types import MappingProxyType, TracebackType
from typing import Any, TypeVar

from opentelemetry import context as otel_context
from opentelemetry import metrics, trace
from opentelemetry.context import Context

from strands_manga_memory.forks import at_fork
from strands_manga_memory.telemetry.entries import Entry, taken
from strands_manga_memory.telemetry.events import CONVERSATION, EVENTS, STORE_CALL, Event, Metric
from strands_manga_memory.telemetry.operation_stats import OperationStats, Tally

logger = logging.getLogger(__name__)

_T = TypeVar("_T")
_SCOPE = "strands_manga_memory"
_MOST_WAITING = 20_000
_EVERY_SECONDS = 1.0
_IDLE_ROUNDS = 60
_AT_ONCE = 32  # entries handed on before other threads get their turn
Reading = Callable[[], Iterable[tuple[float, Mapping[str, str]]]]
"""Reads a gauge: values, and the labels of each."""
_NONE: Mapping[str, Any] = MappingProxyType({})


class Recorder:
    """Takes note of events; there is one in a process, ``recorder``.

    When more than 20,000 events wait, the oldest are lost, and counted in ``lost``.

    Attributes:
        enabled: Whether anything is noted at all.
        lost: Events that were lost.
    """

    def __init__(self) -> None:
        self.enabled = True
        self._instruments: dict[str, Any] = {}
        self._gauges: dict[Metric, Reading] = {}
        self._reset()

    def _reset(self) -> None:
        self._entries: deque[Entry] = deque()
        self._wanted = threading.Event()
        self._draining = threading.Lock()
        self._has_thread = False
        self._tallies: dict[str, Tally] = {}
        self.lost = 0

    def note(
        self,
        event: Event,
        seconds: float | None = None,
        attributes: Mapping[str, Any] = _NONE,
        counts: Mapping[str, float] = _NONE,
    ) -> None:
        """Take note of an event that has just ended.

        Args:
            event: Its kind.
            seconds: How long it took.
            attributes: What is told of it; ``error.type`` makes it an error, ``conversation`` is hashed.
            counts: Its numbers, by the names in ``event.counts``.
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

    def observe(self, gauge: Metric, read: Reading) -> None:
        """Have a gauge read whenever somebody exports; before the first event of the process."""
        self._gauges[gauge] = read

    def flush(self) -> None:
        """Hand on everything that was noted so far."""
        with self._draining:
            for number in range(len(self._entries)):
                try:
                    entry = taken(self._entries)
                except IndexError:
                    return
                try:
                    self._hand_on(*entry)
                except Exception as error:  # noqa: BLE001 - whatever an exporter raises must not harm an agent
                    logger.debug("error=<%s> | an event was not handed on", type(error).__name__)
                if number % _AT_ONCE == _AT_ONCE - 1:
                    time.sleep(0)

    def stats(self) -> dict[str, OperationStats]:
        """Return what is known of each kind of operation: ``hot.write``, ``durable.put``, ``turn``, ``trim``, ``recall``."""
        self.flush()
        return {name: self._tallies[name].stats() for name in sorted(self._tallies)}

    def _serve(self) -> None:
        idle = 0
        while True:
            self._wanted.wait(_EVERY_SECONDS)
            idle = 0 if self._entries else idle + 1
            self.flush()
            if idle >= _IDLE_ROUNDS:
                self._has_thread = False
                if not self._entries:
                    return  # an event that comes now finds no thread, and starts one
                self._has_thread = True

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
        self._tallies.setdefault(name, Tally()).add(seconds, attributes, counts)
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
            attributes[CONVERSATION] = hashed(conversation)
        is_store_call = event is STORE_CALL
        name = (
            f"{attributes['db.operation.name']} {attributes['db.collection.name']}"
            if is_store_call
            else f"manga_memory.{event.name}"
        )
        span = trace.get_tracer(_SCOPE).start_span(
            name,
            context=Context() if context is None else context,  # not what is active where the event is handed on
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
            for gauge, read in self._gauges.items():
                meter.create_observable_gauge(
                    gauge.name, [partial(self._observed, read)], unit=gauge.unit, description=gauge.description
                )
        return self._instruments[name]

    def _observed(self, read: Reading, _: metrics.CallbackOptions) -> list[metrics.Observation]:
        return [metrics.Observation(value, labels) for value, labels in read()] if self.enabled else []


class measured:  # noqa: N801 - used as ``with measured(RECALL) as noted:``
    """Takes note of what a ``with`` block does: how long it takes, and the type of its error if it raises one.

    Args:
        event: What it is.
        attributes: What is told of it.

    Attributes:
        attributes: More of what is told of it.
        counts: Its numbers.
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


def carried(work: Callable[[], _T]) -> Callable[[], _T]:
    """Return ``work`` so that spans made while another thread does it belong to the span that is active now."""
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
    """Return the context, if a span that is recorded is active in it."""
    context = otel_context.get_current()
    return context if context and trace.get_current_span(context).is_recording() else None


def hashed(name: str) -> str:
    """Return a hash of an id, 16 hexadecimal digits."""
    return hashlib.blake2b(name.encode(), digest_size=8).hexdigest()


recorder = Recorder()
"""The recorder of this process."""


def note(
    event: Event,
    seconds: float | None = None,
    attributes: Mapping[str, Any] = _NONE,
    counts: Mapping[str, float] = _NONE,
) -> None:
    """Take note of an event that has just ended; see ``Recorder.note``."""
    recorder.note(event, seconds, attributes, counts)


def flush() -> None:
    """Hand on everything that was noted so far in this process."""
    recorder.flush()


def switch(*, on: bool) -> None:
    """Turn telemetry of this process on or off; it is on unless turned off."""
    recorder.enabled = on


atexit.register(flush)
at_fork(after_in_child=recorder._reset)  # noqa: SLF001
