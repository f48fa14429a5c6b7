"""Recommends a TTL for the hot tier from the recorded gaps between turns."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass

from strands_manga_memory.telemetry.recording import LogHistogram

LEAST_GAPS = 100


@dataclass(frozen=True)
class TtlAdvice:
    """Recommended TTL and the data behind the recommendation.

    Attributes:
        gaps: Number of recorded gaps between turns.
        enough: Whether at least 100 gaps were recorded, which are enough for a recommendation.
        curve: Pairs of a time in seconds and the share of users who return within this time.
        knee: Recommended TTL in seconds, above which a longer TTL gains few further users. At this time, ``curve`` is farthest
            above the straight line from share 0 at 0 seconds to share 1 at the longest gap or one day, whichever is shorter.
    """

    gaps: int
    enough: bool
    curve: tuple[tuple[float, float], ...]
    knee: float

    def resumed(self, seconds: float) -> float:
        """Return the share of users who return within ``seconds`` after a turn, interpolated from the recorded gaps."""
        before = (0.0, 0.0)
        for point in self.curve:
            if point[0] >= seconds:
                low = max(before[0], point[0] / 1.25)
                inside = math.log(seconds / low) / math.log(point[0] / low) if seconds > low else 0.0
                return before[1] + (point[1] - before[1]) * inside
            before = point
        return before[1]


def ttl_advice(gaps: LogHistogram) -> TtlAdvice:
    """Recommend a TTL for the hot tier from a histogram of the seconds between two turns of a conversation.

    Raises:
        ValueError: The histogram is empty.
    """
    total = gaps.total
    if not total:
        raise ValueError("gaps must contain at least one gap; none was recorded yet")
    curve: list[tuple[float, float]] = []
    seen = 0
    for bound, count in gaps.steps():
        seen += count
        curve.append((bound, seen / total))
    longest = min(curve[-1][0], 86_400.0)
    within = [(seconds, share) for seconds, share in curve if seconds <= longest] or curve[:1]
    # The knee is the point where the curve is farthest above the straight line from zero to the longest gap.
    knee = max(within, key=lambda point: point[1] - point[0] / longest)[0]
    return TtlAdvice(total, total >= LEAST_GAPS, tuple(curve), knee)


def synthetic_gaps(count: int = 100_000, *, seed: int = 1) -> LogHistogram:
    """Return a histogram of ``count`` random gaps between turns, as in the chat of a shop.

    The median is 45 seconds for 85 % of the gaps, 15 minutes for 10 % and 5 hours for 5 %.
    """
    chance = random.Random(seed)  # noqa: S311 - an example
    gaps = LogHistogram()
    for _ in range(count):
        kind = chance.random()
        median, spread = (45.0, 0.9) if kind < 0.85 else (900.0, 0.6) if kind < 0.95 else (18_000.0, 0.7)
        gaps.add(median * math.exp(chance.gauss(0.0, spread)))
    return gaps
