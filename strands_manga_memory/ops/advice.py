"""Recommends a TTL for the hot tier from the recorded gaps between turns."""

from __future__ import annotations

from dataclasses import dataclass

from strands_manga_memory.telemetry.recording import LogHistogram

LEAST_GAPS = 100


@dataclass(frozen=True)
class TtlAdvice:
    """Recommended TTL and the data behind the recommendation.

    Attributes:
        gaps: Number of recorded gaps between turns.
        enough: Whether at least 100 gaps were recorded, which are enough for a recommendation.
        curve: Pairs of a time in seconds and the share of recorded gaps up to this time.
        knee: Recommended TTL in seconds. A longer TTL covers few further gaps, because ``curve``
            rises only slowly beyond this point.
    """

    gaps: int
    enough: bool
    curve: tuple[tuple[float, float], ...]
    knee: float

    def resumed(self, seconds: float) -> float:
        """Return the share of gaps that are at most ``seconds`` long.

        The share is interpolated between the points of ``curve``.
        """
        before = (0.0, 0.0)
        for point in self.curve:
            if point[0] >= seconds:
                low = max(before[0], point[0] / 1.25)
                inside = max(0.0, (seconds - low) / (point[0] - low))
                return before[1] + (point[1] - before[1]) * inside
            before = point
        return before[1]


def ttl_advice(gaps: LogHistogram) -> TtlAdvice:
    """Recommend a TTL for the hot tier from a histogram of the seconds between turns.

    Raises:
        ValueError: The histogram is empty.
    """
    total = gaps.total
    if not total:
        raise ValueError(
            "gaps must contain at least one gap between two turns, got an empty histogram"
        )
    curve: list[tuple[float, float]] = []
    seen = 0
    for bound, count in gaps.steps():
        seen += count
        curve.append((bound, seen / total))
    longest = min(curve[-1][0], 86_400.0)
    within = [(seconds, share) for seconds, share in curve if seconds <= longest] or curve[:1]
    # The knee is the point where the curve is farthest above the straight line from zero to the
    # longest gap.
    knee = max(within, key=lambda point: point[1] - point[0] / longest)[0]
    return TtlAdvice(total, total >= LEAST_GAPS, tuple(curve), knee)
