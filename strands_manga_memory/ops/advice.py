"""Recommendation of a time to live (TTL) for conversations in the hot store."""

from __future__ import annotations

from dataclasses import dataclass

from strands_manga_memory.arguments import checked
from strands_manga_memory.telemetry.recording import LogHistogram

LEAST_GAPS = 100


@dataclass(frozen=True)
class TtlAdvice:
    """Recommended time to live (TTL) of conversations, and the data behind the recommendation.

    Attributes:
        gaps: Number of recorded gaps. A gap is the time between two turns of a conversation.
        has_enough_gaps: Whether at least 100 gaps were recorded, enough for a recommendation.
        curve: Pairs of a length in seconds and the share of gaps up to this length.
        knee: Recommended TTL in seconds. A longer TTL covers few further gaps.
    """

    gaps: int
    has_enough_gaps: bool
    curve: tuple[tuple[float, float], ...]
    knee: float

    def share_within(self, seconds: float) -> float:
        """Return the share of gaps (times between two turns) of at most ``seconds``.

        The value is interpolated between the recorded points of the attribute ``curve``.
        """
        last, share = 0.0, 0.0
        for bound, until in self.curve:
            if bound >= seconds:
                low = max(last, bound / 1.25)
                return share + (until - share) * max(0.0, (seconds - low) / (bound - low))
            last, share = bound, until
        return share


@checked
def ttl_advice(gaps: LogHistogram) -> TtlAdvice:
    """Recommend a time to live (TTL) for conversations in the hot store.

    ``gaps`` is a histogram of the seconds between two turns of a conversation.

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
    for bound, count in gaps.buckets():
        seen += count
        curve.append((bound, seen / total))
    longest = min(curve[-1][0], 86_400.0)
    within = [(seconds, share) for seconds, share in curve if seconds <= longest] or curve[:1]
    # The knee is the point where the curve is farthest above the straight line from zero to the
    # longest gap.
    knee = max(within, key=lambda point: point[1] - point[0] / longest)[0]
    return TtlAdvice(total, total >= LEAST_GAPS, tuple(curve), knee)
