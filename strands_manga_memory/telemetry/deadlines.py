"""Counter of missed deadlines, per tier."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from strands_manga_memory.telemetry.events import DEADLINE
from strands_manga_memory.telemetry.recording import note


def missed(tier: str) -> None:
    """Count a wait for a tier that reached its deadline."""
    note(DEADLINE, attributes={"manga_memory.tier": tier}, counts={"missed": 1})


@contextmanager
def within(tier: str, deadline: float) -> Iterator[None]:
    """Count a missed deadline if the block takes longer than ``deadline`` seconds. The block is not interrupted."""
    start = time.perf_counter()
    try:
        yield
    finally:
        if time.perf_counter() - start > deadline:
            missed(tier)
