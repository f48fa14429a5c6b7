"""Retention: the types of memories, how long each is kept, and how much it matters at first. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType

DAY = 86_400.0
"""Seconds of a day."""


class MemoryType(StrEnum):
    """What a memory is."""

    PREFERENCE = "preference"
    """What the user prefers; made by ``UserMemoryStore.prefer`` and by the session finalizer."""
    SUMMARY = "interaction_summary"
    """What a session came to; made by the session finalizer."""
    FEEDBACK = "feedback"
    """What the user thought of us; made by ``UserMemoryStore.record_feedback``."""
    PATTERN = "behavioural_pattern"
    """What the user does again and again; derived when a session is finalized."""
    FACT = "fact"
    """What an extractor or the ``add_memory`` tool of Strands' ``MemoryManager`` stored."""
    EPISODE = "episode"
    """What was said in a session, without tool results; made by the session finalizer, found by ``search``."""
    WEEK = "weekly_rollup"
    """A week's sessions; made by ``MemoryRollup``."""
    MONTH = "monthly_rollup"
    """A month's sessions; made by ``MemoryRollup``."""


DERIVED = frozenset({MemoryType.EPISODE, MemoryType.WEEK, MemoryType.MONTH})
"""Types that are made from sessions and their summaries; ``recall`` returns them only when asked for by type."""


@dataclass(frozen=True)
class Retention:
    """How a type of memory is kept.

    Args:
        seconds: Seconds a memory is kept after it was last learned; None for ever.
        importance: Importance of a new memory, from 0 to 1.
        half_life: Seconds in which its recency halves when memories are ranked; None: it never does.

    Raises:
        ValueError: A number is out of range.
    """

    seconds: float | None
    importance: float
    half_life: float | None = 30 * DAY

    def __post_init__(self) -> None:
        for name, value in (("seconds", self.seconds), ("half_life", self.half_life)):
            if value is not None and not value > 0:
                raise ValueError(f"{name} must be a positive number of seconds or None, got {value!r:.80}")
        if not 0 <= self.importance <= 1:
            raise ValueError(f"importance must be from 0 to 1, got {self.importance!r:.80}")

    def expires_at(self, learned_at: float) -> int | None:
        """Return when a memory ends, in seconds since 1970; None: never."""
        return None if self.seconds is None else int(learned_at + self.seconds)


RETENTION: Mapping[MemoryType, Retention] = MappingProxyType(
    {
        MemoryType.PREFERENCE: Retention(None, 0.9, None),
        MemoryType.SUMMARY: Retention(90 * DAY, 0.6),
        MemoryType.FEEDBACK: Retention(180 * DAY, 0.7, 60 * DAY),
        MemoryType.PATTERN: Retention(30 * DAY, 0.4, 15 * DAY),
        MemoryType.FACT: Retention(180 * DAY, 0.6, 60 * DAY),
        MemoryType.EPISODE: Retention(90 * DAY, 0.4, 60 * DAY),
        MemoryType.WEEK: Retention(90 * DAY, 0.6),
        MemoryType.MONTH: Retention(90 * DAY, 0.6),
    }
)
"""How long each type is kept, and how much it matters at first. Weeks and months are made from summaries."""
