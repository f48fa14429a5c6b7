"""Watch: when a process last saw its life, or its graves, in a store. No I/O."""

from __future__ import annotations

from collections.abc import Callable

from strands_manga_memory.session.core.identity import GRAVE_SECONDS
from strands_manga_memory.session.core.merge import Copy

SILENT_SECONDS = 12 * 3600.0
"""Seconds after which a process looks whether its life goes on before it writes, or takes in what others wrote."""


class Watch:
    """What is known of how current a process's copy is.

    A session ends after ``session`` seconds in which nobody uses it; a grave lives for an hour more, at least.
    """

    __slots__ = ("_at", "_clock", "_lives", "_session")

    def __init__(self, clock: Callable[[], float], *, session: float) -> None:
        self._clock, self._session = clock, session
        self._at: float | None = None
        self._lives: frozenset[str] = frozenset()

    def saw(self, stored: Copy, mine: Copy) -> None:
        """Take note of what a store has; ``mine`` was merged with it."""
        if self._at is None or stored.lives & mine.lives or (stored.graves and stored.graves == mine.graves):
            self._at = self._clock()
            seen = stored.lives | self._lives
            self._lives = mine.lives if mine.lives <= seen else mine.lives & seen

    @property
    def is_silent(self) -> bool:
        """Whether no store was seen, or none with anything that this process knows, for so long that its grave may be gone."""
        return self._at is not None and self._clock() - self._at >= min(SILENT_SECONDS, self._session)

    @property
    def since(self) -> float:
        """When what no store has was said at the earliest, if nothing is known of its life; a grave lives for longer."""
        return self._clock() - min(GRAVE_SECONDS - 3600.0, self._session)

    def has_lost(self, mine: Copy, found: Copy) -> bool:
        """Tell whether a life that was in a store is in none any more, and no grave says why."""
        return bool(mine.lives & self._lives) and not mine.lives & found.lives and not found.graves > mine.graves
