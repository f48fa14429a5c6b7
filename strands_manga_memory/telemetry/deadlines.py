"""Deadlines that were missed: who waits for a tier says so, whether it goes on without an answer or has waited too long."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from strands_manga_memory.telemetry.events import DEADLINE
from strands_manga_memory.telemetry.recording import note


def missed(tier: str) -> None:
    """Take note that somebody waited for a tier as long as it may take, or longer."""
    note(DEADLINE, attributes={"manga_memory.tier": tier}, counts={"missed": 1})


@contextmanager
def within(tier: str, deadline: float) -> Iterator[None]:
    """Take note if this takes longer than so many seconds; it goes on all the same."""
    start = time.perf_counter()
    try:
        yield
    finally:
        if time.perf_counter() - start > deadline:
            missed(tier)
