"""Histogram with logarithmic buckets, in constant memory. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping


class LogHistogram:
    """Histogram of positive values. Bucket bounds grow by a constant factor, which bounds the error of quantiles.

    Args:
        growth: Factor between the bounds of consecutive buckets, over 1. Default 1.25.
        counts: Initial counts by bucket number.

    Attributes:
        counts: Number of values by bucket; bucket ``n`` holds values over ``growth ** (n - 1)`` up to ``growth ** n``.

    Raises:
        ValueError: ``growth`` is not over 1.
    """

    def __init__(self, growth: float = 1.25, counts: Mapping[int, int] | None = None) -> None:
        if not growth > 1:
            raise ValueError(f"growth must be over 1, got {growth!r:.80}")
        self.growth = growth
        self._log = math.log(growth)
        self.counts: dict[int, int] = dict(counts or {})

    def add(self, value: float, count: int = 1) -> None:
        """Count a value. Values below 1e-9 are counted as 1e-9."""
        bucket = math.ceil(math.log(max(value, 1e-9)) / self._log - 1e-9)
        self.counts[bucket] = self.counts.get(bucket, 0) + count

    def merge(self, counts: Mapping[int, int]) -> None:
        """Add the counts of another histogram with the same growth."""
        for bucket, count in counts.items():
            self.counts[bucket] = self.counts.get(bucket, 0) + count

    @property
    def total(self) -> int:
        """Number of counted values."""
        return sum(self.counts.values())

    def steps(self) -> Iterator[tuple[float, int]]:
        """Yield upper bound and count of each non-empty bucket, in ascending order."""
        for bucket in sorted(self.counts):
            yield self.growth**bucket, self.counts[bucket]

    def quantile(self, share: float) -> float:
        """Return the upper bound of the bucket that contains the quantile ``share`` (0 to 1); 0 without values."""
        left = share * self.total
        found = 0.0
        for bound, count in self.steps():
            found, left = bound, left - count
            if left <= 0:
                break
        return found
