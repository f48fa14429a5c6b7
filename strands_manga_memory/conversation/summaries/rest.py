"""Rest: a summarizer that failed several times in a row is left alone for a while."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from opentelemetry import metrics

from strands_manga_memory.telemetry.events import SUMMARY_RUNS

logger = logging.getLogger(__name__)

MOST_FAILURES = 3

_runs = metrics.get_meter("strands_manga_memory").create_counter(
    SUMMARY_RUNS.name, unit=SUMMARY_RUNS.unit, description=SUMMARY_RUNS.description
)


class Rest:
    """Counts failures in a row; the third begins a rest, after which one try decides whether the next rest begins at once."""

    def __init__(self, seconds: float = 300.0, clock: Callable[[], float] = time.monotonic) -> None:
        self._seconds = seconds
        self._clock = clock
        self._until: float | None = None
        self.failures = 0

    @property
    def is_resting(self) -> bool:
        """Whether the summarizer is to be left alone now."""
        return self._until is not None and self._clock() < self._until

    def succeeded(self) -> None:
        """Take note of a success."""
        self.failures, self._until = 0, None
        _runs.add(1, {"outcome": "written"})

    def failed(self) -> None:
        """Take note of a failure."""
        self.failures += 1
        _runs.add(1, {"outcome": "failed"})
        if self.failures >= MOST_FAILURES:
            self._until = self._clock() + self._seconds
            logger.warning(
                "failures=<%d>, seconds=<%.0f> | the summarizer is left alone, importance decides what stays",
                self.failures,
                self._seconds,
            )

    def rested(self) -> None:
        """Take note of a summary written without the summarizer."""
        _runs.add(1, {"outcome": "rested"})
