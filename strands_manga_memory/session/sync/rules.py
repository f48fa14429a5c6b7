"""Rules: how a conversation is kept, and how often what others overtake is tried."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass

from strands_manga_memory.session.core.identity import GRAVE_SECONDS
from strands_manga_memory.session.sync.watch import SILENT_SECONDS

MOST_TRIES = 8
"""How often a write that others overtake is tried again."""


def _pause(tried: int) -> None:
    """Wait a random time that grows from try to try."""
    time.sleep(random.uniform(0.0, min(0.05, 0.001 * 2**tried)))  # noqa: S311 - jitter


@dataclass(frozen=True, kw_only=True)
class Rules:
    """How a conversation is kept.

    Args:
        clock: Seconds since 1970.
        session: Seconds after which a session ends that nobody uses. A grave lives for an hour more, at least.
        turns_inline: With a durable tier alone: so many turns are carried in the head before they move to a segment.
        pause: Waits between two tries; it gets their number.
    """

    clock: Callable[[], float]
    session: float = 86_400.0
    turns_inline: int = 5
    pause: Callable[[int], None] = _pause

    @property
    def silent(self) -> float:
        """Seconds after which a process that has not seen its life in a store looks whether it goes on."""
        return min(SILENT_SECONDS, self.session)

    @property
    def keeps(self) -> float:
        """Seconds for which what no store has is kept, once nothing is known of its life: less than a grave lives."""
        return min(GRAVE_SECONDS - 3600.0, self.session)
