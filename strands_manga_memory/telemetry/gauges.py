"""Gauges: the backlog and the tiers of this process, read when somebody exports them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from strands_manga_memory.stores.writer import writers
from strands_manga_memory.telemetry.events import BACKLOG, TIER_UP
from strands_manga_memory.telemetry.recording import Recorder


def observe(recorder: Recorder) -> None:
    """Have the gauges of this process read by a recorder."""
    recorder.observe(BACKLOG, backlog)
    recorder.observe(TIER_UP, tiers)


def backlog() -> Iterator[tuple[float, Mapping[str, str]]]:
    """Yield how many pieces of background work wait or run."""
    yield sum(writer.backlog for writer in writers()), {}


def tiers() -> Iterator[tuple[float, Mapping[str, str]]]:
    """Yield whether all stores of each tier answer; nothing for a tier that nobody has."""
    for number, tier in enumerate(("hot", "durable")):
        known = [
            (writer.hot_health, writer.durable_health)[number] for writer in writers() if writer.stores[number] is not None
        ]
        if known:
            yield int(all(health.is_up for health in known)), {"manga_memory.tier": tier}
