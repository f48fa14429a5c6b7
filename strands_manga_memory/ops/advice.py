"""Recommends a TTL for the hot tier from the recorded gaps between turns."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

from strands_manga_memory.ops.cost import CostModel
from strands_manga_memory.telemetry.histogram import LogHistogram

LEAST_GAPS = 100
_STEPS = (60, 120, 300, 600, 900, 1200, 1800, 2700, 3600, 5400, 7200, 10_800, 14_400, 28_800, 43_200, 86_400)
_COLD_READ_UNITS = 6.0
_COLD_SECONDS = 0.012


@dataclass(frozen=True)
class TtlChoice:
    """Expected load and cost of a deployment with a certain TTL.

    Attributes:
        seconds: TTL in seconds.
        resumed: Share of returning users whose conversation is still in the hot tier.
        live_sessions: Mean number of conversations in the hot tier.
        hot_gb: Size of the conversations in the hot tier, in GB.
        hot_usd_month: Cost of the hot tier's memory in US dollars per month, including replicas.
        cold_returns_per_day: Number of users per day who return after the TTL. Their conversations are read from the
            durable tier.
        reload_usd_month: Cost of the reads from the durable tier, in US dollars per month.
        reload_seconds_per_day: Total time that users wait for reads from the durable tier, in seconds per day.
    """

    seconds: float
    resumed: float
    live_sessions: float
    hot_gb: float
    hot_usd_month: float
    cold_returns_per_day: float
    reload_usd_month: float
    reload_seconds_per_day: float


@dataclass(frozen=True)
class TtlAdvice:
    """Recommended TTL and the data behind the recommendation.

    Attributes:
        gaps: Number of recorded gaps between turns.
        enough: Whether at least 100 gaps were recorded. Fewer gaps are not enough for a recommendation.
        curve: Pairs of a time in seconds and the share of users who return within this time.
        knee: Recommended TTL in seconds. Beyond this time, each additional second of TTL gains fewer returning users than
            the average second.
        current: Load and cost with the current TTL of the workload.
        at_knee: Load and cost with the recommended TTL.
        choices: Load and cost with other TTLs, in ascending order.
    """

    gaps: int
    enough: bool
    curve: tuple[tuple[float, float], ...]
    knee: float
    current: TtlChoice
    at_knee: TtlChoice
    choices: tuple[TtlChoice, ...]


def ttl_advice(gaps: LogHistogram, model: CostModel) -> TtlAdvice:
    """Recommend a TTL for the hot tier.

    Args:
        gaps: Histogram of the seconds between two turns of a conversation.
        model: Cost model of the deployment. Its workload has the current TTL as ``ttl_seconds``.

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
    return TtlAdvice(
        gaps=total,
        enough=total >= LEAST_GAPS,
        curve=tuple(curve),
        knee=knee,
        current=_choice(model.workload.ttl_seconds, curve, model),
        at_knee=_choice(knee, curve, model),
        choices=tuple(_choice(float(seconds), curve, model) for seconds in _STEPS),
    )


def _choice(seconds: float, curve: Sequence[tuple[float, float]], model: CostModel) -> TtlChoice:
    chosen = replace(model, workload=replace(model.workload, ttl_seconds=seconds))
    use, workload, ask = chosen.use(), chosen.workload, model.prices
    node = min(ask.nodes.values(), key=lambda each: each.usd_hour / each.memory_gib)
    usd_a_gb = node.usd_hour * 730.0 / (node.memory_gib * 2**30 / 1e9 * 0.75)
    resumed = _resumed(seconds, curve)
    returns = workload.messages_per_day - workload.sessions_per_day
    cold = returns * (1 - resumed)
    return TtlChoice(
        seconds=seconds,
        resumed=resumed,
        live_sessions=use.live_sessions,
        hot_gb=use.hot_gb,
        hot_usd_month=use.hot_gb * usd_a_gb * (1 + workload.replicas),
        cold_returns_per_day=cold,
        reload_usd_month=cold * 30 * _COLD_READ_UNITS * ask.read_units_per_million / 1e6,
        reload_seconds_per_day=cold * _COLD_SECONDS,
    )


def _resumed(seconds: float, curve: Sequence[tuple[float, float]]) -> float:
    """Return the share of users who return within ``seconds``.

    Between two points of the curve, the share is interpolated.
    """
    before = (0.0, 0.0)
    for point in curve:
        if point[0] >= seconds:
            low = max(before[0], point[0] / 1.25)
            inside = max(0.0, min(1.0, math.log(max(seconds, low) / low) / math.log(point[0] / low))) if point[0] > low else 1.0
            return before[1] + (point[1] - before[1]) * inside
        before = point
    return before[1]


def synthetic_gaps(count: int = 100_000, *, seed: int = 1) -> LogHistogram:
    """Return a histogram of random gaps between turns, as in the chat of a shop.

    85 % of the gaps have a median of 45 seconds. 10 % of the gaps are interruptions with a median of 15 minutes. 5 % of the
    gaps have a median of 5 hours.

    Args:
        count: Number of gaps.
        seed: Seed of the random numbers.
    """
    chance = random.Random(seed)  # noqa: S311 - an example
    gaps = LogHistogram()
    for _ in range(count):
        kind = chance.random()
        median, spread = (45.0, 0.9) if kind < 0.85 else (900.0, 0.6) if kind < 0.95 else (18_000.0, 0.7)
        gaps.add(median * math.exp(chance.gauss(0.0, spread)))
    return gaps
