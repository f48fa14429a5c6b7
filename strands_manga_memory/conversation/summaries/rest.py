"""Rest: a summarizer that failed several times in a row is left alone for a while."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from typing import Any

from opentelemetry import metrics

from strands_manga_memory.telemetry.events import SUMMARY_RUNS

logger = logging.getLogger(__name__)

MOST_FAILURES = 3

_runs = metrics.get_meter("strands_manga_memory").create_counter(
    SUMMARY_RUNS.name, unit=SUMMARY_RUNS.unit, description=SUMMARY_RUNS.description
)


class Rest:
    """Counts failures in a row; the third begins a rest, after which one try decides whether the next rest begins at once.

    A session keeps both with the state of the manager: an agent may be built for each request.
    """

    def __init__(self, seconds: float = 300.0, clock: Callable[[], float] = time.monotonic) -> None:
        self._seconds = seconds
        self._clock = clock
        self._until: float | None = None
        self._ends_at: float | None = None
        self.failures = 0

    @property
    def is_resting(self) -> bool:
        """Whether the summarizer is to be left alone now."""
        return self._until is not None and self._clock() < self._until

    def to_state(self) -> dict[str, Any]:
        """Return JSON values: the failures in a row, and the end of the rest in seconds since the epoch."""
        return {"failures": self.failures, "until": self._ends_at}

    def restore(self, state: Any) -> None:
        """Go on from what :meth:`to_state` returned; from nothing, if that cannot be read."""
        state = state if isinstance(state, Mapping) else {}
        failures, ends_at = state.get("failures"), state.get("until")
        self.failures = failures if isinstance(failures, int) else 0
        self._ends_at = ends_at if isinstance(ends_at, int | float) else None
        left = 0.0 if self._ends_at is None else min(self._seconds, self._ends_at - time.time())
        self._until = self._clock() + left if left > 0 else None

    def succeeded(self) -> None:
        """Take note of a success."""
        self.failures, self._until, self._ends_at = 0, None, None
        _runs.add(1, {"outcome": "written"})

    def failed(self) -> None:
        """Take note of a failure."""
        self.failures += 1
        _runs.add(1, {"outcome": "failed"})
        if self.failures >= MOST_FAILURES:
            self._until = self._clock() + self._seconds
            self._ends_at = round(time.time() + self._seconds, 3)
            logger.warning(
                "failures=<%d>, seconds=<%.0f> | the summarizer is left alone, importance decides what stays",
                self.failures,
                self._seconds,
            )

    def rested(self) -> None:
        """Take note of a summary written without the summarizer."""
        _runs.add(1, {"outcome": "rested"})
