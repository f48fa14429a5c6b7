"""Statistics of one kind of operation in this process. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from strands_manga_memory.telemetry.histogram import LogHistogram


@dataclass(frozen=True, kw_only=True)
class OperationStats:
    """Statistics of one kind of operation in this process.

    Attributes:
        count: Number of operations.
        errors: Number of operations that failed.
        mean: Mean duration in seconds; 0 for operations without a duration.
        p50: Median in seconds, up to 12 % too high.
        p95: 95th percentile in seconds.
        p99: 99th percentile in seconds.
        longest: Longest duration in seconds.
        sums: Sums of the operation's numbers, such as ``tokens`` of trims.
    """

    count: int
    errors: int
    mean: float
    p50: float
    p95: float
    p99: float
    longest: float
    sums: Mapping[str, float]


class OperationTotals:
    """Accumulator for the statistics of one kind of operation."""

    def __init__(self) -> None:
        self.count = self.errors = 0
        self.seconds = self.longest = 0.0
        self.sums: dict[str, float] = {}
        self.durations = LogHistogram(1.12)

    def add(self, seconds: float | None, attributes: Mapping[str, Any], counts: Mapping[str, float]) -> None:
        """Add an operation.

        Args:
            seconds: Its duration; None if the operation has none.
            attributes: Its attributes; ``error.type`` marks a failure.
            counts: Its numbers.
        """
        self.count += 1
        self.errors += "error.type" in attributes
        if seconds is not None:
            self.seconds += seconds
            self.longest = max(self.longest, seconds)
            self.durations.add(seconds)
        for name, value in counts.items():
            self.sums[name] = self.sums.get(name, 0.0) + value

    def stats(self) -> OperationStats:
        """Return the accumulated statistics."""
        p50, p95, p99 = (min(self.longest, self.durations.quantile(share)) for share in (0.5, 0.95, 0.99))
        mean = self.seconds / max(1, self.durations.total)
        return OperationStats(
            count=self.count,
            errors=self.errors,
            mean=mean,
            p50=p50,
            p95=p95,
            p99=p99,
            longest=self.longest,
            sums=dict(self.sums),
        )
