"""Gauges of this process: backlog of background work and health of the tiers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from strands_manga_memory.stores.writer import writers
from strands_manga_memory.telemetry.events import BACKLOG, TIER_UP
from strands_manga_memory.telemetry.recording import EventRecorder


def observe(recorder: EventRecorder) -> None:
    """Register the gauges with a recorder."""
    recorder.observe(BACKLOG, backlog)
    recorder.observe(TIER_UP, tiers)


def backlog() -> Iterator[tuple[float, Mapping[str, str]]]:
    """Yield the number of pending and running background tasks."""
    yield sum(writer.backlog for writer in writers()), {}


def tiers() -> Iterator[tuple[float, Mapping[str, str]]]:
    """Yield for each tier in use whether all its stores are available."""
    for number, tier in enumerate(("hot", "durable")):
        known = [
            (writer.hot_health, writer.durable_health)[number] for writer in writers() if writer.stores[number] is not None
        ]
        if known:
            yield int(all(health.is_up for health in known)), {"manga_memory.tier": tier}
