"""LogHistogram: how often values of about the same size were seen, in constant room. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping


class LogHistogram:
    """Counts values over 0 in buckets whose bounds grow by a constant factor, so a quantile is off by at most that factor.

    Args:
        growth: Factor from one bucket's bound to the next, over 1. Default 1.25.
        counts: Counts to begin with, by bucket, as ``counts`` has them.

    Attributes:
        counts: How many values each bucket has: bucket ``n`` holds those over ``growth ** (n - 1)`` up to ``growth ** n``.

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
        """Count a value; what is not over 0 counts as the smallest there is (1e-9)."""
        bucket = math.ceil(math.log(max(value, 1e-9)) / self._log - 1e-9)
        self.counts[bucket] = self.counts.get(bucket, 0) + count

    def merge(self, counts: Mapping[int, int]) -> None:
        """Add the counts of another histogram of the same growth."""
        for bucket, count in counts.items():
            self.counts[bucket] = self.counts.get(bucket, 0) + count

    @property
    def total(self) -> int:
        """How many values were counted."""
        return sum(self.counts.values())

    def steps(self) -> Iterator[tuple[float, int]]:
        """Yield the upper bound and the count of each bucket that has any, the smallest first."""
        for bucket in sorted(self.counts):
            yield self.growth**bucket, self.counts[bucket]

    def quantile(self, share: float) -> float:
        """Return the upper bound of the bucket that holds the value at ``share`` (0 to 1); 0 if there is none."""
        left = share * self.total
        found = 0.0
        for bound, count in self.steps():
            found, left = bound, left - count
            if left <= 0:
                break
        return found
