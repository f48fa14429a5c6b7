"""Rules: how a conversation is kept, and how often what others overtake is tried."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass

from strands_manga_memory.session.sync.watch import SILENT_SECONDS

MOST_TRIES = 8
"""How often a write that others overtake is tried again."""


def _pause(tried: int) -> None:
    """Wait a random time that grows from try to try."""
    time.sleep(random.uniform(0.0, min(0.05, 0.001 * 2**tried)))  # noqa: S311 - jitter


def _half_an_hour() -> float:
    """Return the seconds that the hot replica lives by default."""
    return 1800.0


@dataclass(frozen=True, kw_only=True)
class Rules:
    """How a conversation is kept.

    Args:
        clock: Seconds since 1970.
        ttl: Returns the seconds that the hot replica is to live from now on.
        silent: Seconds after which a process that has not seen its life in a store looks whether it goes on.
        turns_inline: With a durable tier alone: so many turns are carried in the head before they move to a segment.
        pause: Waits between two tries; it gets their number.
    """

    clock: Callable[[], float] = time.time
    ttl: Callable[[], float] = _half_an_hour
    silent: float = SILENT_SECONDS
    turns_inline: int = 5
    pause: Callable[[int], None] = _pause
