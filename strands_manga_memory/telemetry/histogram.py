"""Histogram with logarithmic buckets, and statistics of operations."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any


class LogHistogram:
    """Histogram of positive values whose bucket bounds grow by a constant factor, which limits the error of quantiles.

    Args:
        growth: Factor between the bounds of consecutive buckets, over 1. Default 1.25.
        counts: Initial counts, keyed by bucket index.

    Attributes:
        counts: Number of values, keyed by bucket index. Bucket ``n`` contains the values over ``growth ** (n - 1)`` up to
            ``growth ** n``.
    """

    def __init__(self, growth: float = 1.25, counts: Mapping[int, int] | None = None) -> None:
        self.growth = growth
        self._log = math.log(growth)
        self.counts = Counter(counts)

    def add(self, value: float, count: int = 1) -> None:
        """Count a value in its bucket of the histogram, ``count`` times. Values below 1e-9 are counted as 1e-9."""
        bucket = math.ceil(math.log(max(value, 1e-9)) / self._log - 1e-9)
        self.counts[bucket] += count

    @property
    def total(self) -> int:
        """Number of values in all buckets of the histogram."""
        return self.counts.total()

    def steps(self) -> Iterator[tuple[float, int]]:
        """Yield the upper bound and the count of each non-empty bucket, in ascending order."""
        for bucket in sorted(self.counts):
            yield self.growth**bucket, self.counts[bucket]

    def quantile(self, share: float) -> float:
        """Return the upper bound of the bucket that contains the quantile ``share`` (0 to 1), or 0 without values."""
        left = share * self.total
        found = 0.0
        for bound, count in self.steps():
            found, left = bound, left - count
            if left <= 0:
                break
        return found


@dataclass(frozen=True, kw_only=True)
class OperationStats:
    """Statistics of one kind of operation in this process.

    Attributes:
        count: Number of operations.
        errors: Number of operations that failed.
        mean: Mean duration in seconds; 0 for operations without a duration.
        p50: Median in seconds, up to 12 % too high.
        p95: 95th percentile in seconds, up to 12 % too high.
        p99: 99th percentile in seconds, up to 12 % too high.
        longest: Longest duration in seconds.
        sums: Sums of the values that the operations recorded, keyed by name, such as ``tokens`` for evicted tokens.
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
    """Running totals of one kind of operation: counts, durations and recorded values."""

    def __init__(self) -> None:
        self.count = self.errors = 0
        self.seconds = self.longest = 0.0
        self.sums: Counter[str] = Counter()
        self.durations = LogHistogram(1.12)

    def add(self, seconds: float | None, attributes: Mapping[str, Any], counts: Mapping[str, float]) -> None:
        """Add one operation to the totals.

        Args:
            seconds: Duration of the operation; None for an operation without a duration.
            attributes: Attributes of the operation; ``error.type`` marks a failure.
            counts: Values that the operation recorded, keyed by name.
        """
        self.count += 1
        self.errors += "error.type" in attributes
        if seconds is not None:
            self.seconds += seconds
            self.longest = max(self.longest, seconds)
            self.durations.add(seconds)
        self.sums.update(counts)

    def stats(self) -> OperationStats:
        """Return the statistics of all operations that were added to these totals."""
        shares = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
        return OperationStats(
            count=self.count,
            errors=self.errors,
            mean=self.seconds / max(1, self.durations.total),
            longest=self.longest,
            sums=dict(self.sums),
            **{name: min(self.longest, self.durations.quantile(share)) for name, share in shares.items()},
        )
