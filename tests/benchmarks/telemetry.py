"""telemetry: cost of telemetry per turn, as a share of the layer's own time.

One agent holds a conversation with telemetry on in every other turn, while an OpenTelemetry SDK
receives all data. The layer's own time is the time of its hooks. To exclude the load of the
machine, the events of a turn are also counted and multiplied by the cost of one event. The
exporting thread delays no turn; its cost is shown as processor time.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import median

from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from strands import Agent

from strands_manga_memory import MangaMemory
from strands_manga_memory.telemetry import STORE_CALL, recorder, switch
from strands_manga_memory.testing import ScriptedModel
from tests.benchmarks import progress, text, turn_ms

BUDGETS = {"off_over_the_layers_time": "< 0.003", "on_over_the_layers_time": "< 0.03"}

_PAIRS = 600
_WARM_UP = 40
_NOTES = 10_000


_reader = InMemoryMetricReader()


class _Nowhere(SpanExporter):
    def export(self, spans: object) -> SpanExportResult:
        return SpanExportResult.SUCCESS


def _sdk() -> None:
    """Set up an SDK, once in a process."""
    if not isinstance(trace.get_tracer_provider(), TracerProvider):
        provider = TracerProvider()
        provider.add_span_processor(BatchSpanProcessor(_Nowhere(), max_queue_size=100_000))
        trace.set_tracer_provider(provider)
        metrics.set_meter_provider(MeterProvider(metric_readers=[_reader]))


@contextmanager
def _one_processor() -> Iterator[None]:
    """Keep this thread and those that it starts on one processor, if possible."""

    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(allowed)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, allowed)


async def _turns(memory: MangaMemory) -> tuple[list[float], list[float]]:
    kwargs = memory.agent_kwargs(user_id="u", session_id="s")
    agent = Agent(model=ScriptedModel(lambda _: text(500)), callback_handler=None, **kwargs)
    on: list[float] = []
    off: list[float] = []
    for number in progress(
        range(_WARM_UP + 2 * _PAIRS), f"{2 * _PAIRS} turns, telemetry on and off by turns"
    ):
        is_on = number % 4 in (0, 3)
        switch(on=is_on)
        taken = await turn_ms(agent, text(500))
        if number >= _WARM_UP:
            (on if is_on else off).append(taken)
    switch(on=True)
    return on, off


def _fastest_layer_ms() -> float:
    """Return the shortest time of the layer in a turn, which excludes other work on the machine."""
    data = _reader.get_metrics_data()
    assert data is not None
    every = [
        metric
        for resource in data.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
    ]
    [layer] = [metric for metric in every if metric.name == "manga_memory.layer.duration"]
    return 1000 * float(layer.data.data_points[0].min)  # type: ignore[union-attr]


def _note_ms() -> float:
    """Return the time to record one event while a span is active."""
    about = {
        "db.system.name": "redis",
        "db.operation.name": "write",
        "manga_memory.tier": "hot",
        "db.collection.name": "c",
    }
    best = float("inf")
    with trace.get_tracer("benchmark").start_as_current_span("turn"):
        for _ in range(5):
            start = time.perf_counter()
            for _ in range(_NOTES):
                recorder.note(STORE_CALL, 0.001, about)
            best = min(best, time.perf_counter() - start)
            recorder.flush()
    return 1000 * best / _NOTES


def run() -> dict[str, float]:
    """Time the turns in one run."""
    _sdk()
    recorder.flush()
    before = recorder.stats()
    with _one_processor(), tempfile.TemporaryDirectory() as folder:
        memory = MangaMemory.open(durable=f"sqlite:///{folder}/sessions.sqlite3")
        on, off = asyncio.run(_turns(memory))
        memory.close()
    after = recorder.stats()
    told = {
        name: stats.count - (before[name].count if name in before else 0)
        for name, stats in after.items()
    }
    turns = told["turn"]
    layer_ms, notes = _fastest_layer_ms(), sum(told.values()) / turns
    switch(on=False)
    off_ms = _note_ms()
    switch(on=True)
    on_ms = _note_ms()
    start = time.process_time()
    for _ in range(_NOTES):
        recorder.note(
            STORE_CALL,
            0.001,
            {"db.operation.name": "w", "manga_memory.tier": "hot", "db.collection.name": "c"},
        )
    recorder.flush()
    return {
        "least_layers_time_in_a_turn_ms": layer_ms,
        "events_in_a_turn": notes,
        "noting_an_event_us": 1000 * on_ms,
        "handing_on_an_event_later_us": 1e6 * (time.process_time() - start) / _NOTES,
        "off_over_the_layers_time": notes * off_ms / layer_ms,
        "on_over_the_layers_time": notes * on_ms / layer_ms,
        "on_minus_off_over_the_layers_time_as_timed": (
            median(a - b for a, b in zip(on, off, strict=True)) / layer_ms
        ),
    }
