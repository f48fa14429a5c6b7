"""Ranking: what a memory is worth now, by importance, recency, use and similarity. Pure; the weights are data."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

from strands_manga_memory.memory.records.memory_records import MemoryRecord


@dataclass(frozen=True, kw_only=True)
class RankingWeights:
    """How much each factor counts: the score is the product of the factors, each to the power of its weight; 0 leaves one out.

    Args:
        importance: Of the importance, 0 to 1. Default 0.5.
        recency: Of the recency, which halves every half-life of the type. Default 0.25.
        use: Of the use, 1 + ln(1 + times recalled). Default 0.25.
        similarity: Of the similarity to the query, 0 to 1. Default 1.
        floor: Similarity of what shares nothing with the query. Default 0.02.

    Raises:
        ValueError: A weight is negative or not finite.
    """

    importance: float = 0.5
    recency: float = 0.25
    use: float = 0.25
    similarity: float = 1.0
    floor: float = 0.02

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if not (isinstance(value, int | float) and math.isfinite(value) and value >= 0):
                raise ValueError(f"{field.name} must be a number of at least 0, got {value!r:.80}")


def score(
    record: MemoryRecord,
    *,
    now: float,
    half_life: float | None,
    weights: RankingWeights,
    uses: int = 0,
    used_at: float = 0.0,
    similarity: float | None = None,
) -> float:
    """Return what a memory is worth at ``now``, with the ``uses`` of it since its record was written.

    Its recency halves in ``half_life`` seconds, never if that is None. Without a query there is no similarity.
    """
    latest = max(record.updated_at, record.last_accessed, used_at)
    recency = 1.0 if half_life is None else 0.5 ** (max(0.0, now - latest) / half_life)
    use = 1.0 + math.log1p(record.access_count + uses)
    similar = 1.0 if similarity is None else max(weights.floor, similarity)
    factors = (
        (record.importance, weights.importance),
        (recency, weights.recency),
        (use, weights.use),
        (similar, weights.similarity),
    )
    return float(math.prod(factor**weight for factor, weight in factors))
