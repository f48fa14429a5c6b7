"""ttl_advice: how long conversations should stay hot, from how long users stay away. Pure."""

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
    """What a time to live would mean.

    Attributes:
        seconds: The time to live.
        resumed: Share of the returns that would find the conversation hot.
        live_sessions: Conversations in the hot tier at a time, on average.
        hot_gb: GB of them.
        hot_usd_month: Their share of a node's memory, in US dollars a month, replicas included.
        cold_returns_per_day: Returns that have to be read from the durable tier.
        reload_usd_month: What these reads cost a month.
        reload_seconds_per_day: What users wait for them, all together.
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
    """How long conversations should stay hot.

    Attributes:
        gaps: How many gaps it is from.
        enough: Whether they are enough to go by (100).
        curve: The resumption curve: seconds, and the share of the returns within that time.
        knee: The time to live beyond which more time brings less than on average: where the curve is farthest above the
            straight line from nothing to the longest gap.
        current: What the time to live of the workload means.
        at_knee: What the knee means.
        choices: What other times mean, the shortest first.
    """

    gaps: int
    enough: bool
    curve: tuple[tuple[float, float], ...]
    knee: float
    current: TtlChoice
    at_knee: TtlChoice
    choices: tuple[TtlChoice, ...]


def ttl_advice(gaps: LogHistogram, model: CostModel) -> TtlAdvice:
    """Return how long conversations should stay hot.

    Args:
        gaps: Seconds between two turns of a conversation.
        model: The workload and its prices; its ``ttl_seconds`` is the present time to live.

    Raises:
        ValueError: There are no gaps.
    """
    total = gaps.total
    if not total:
        raise ValueError("gaps must hold at least one gap; none was recorded yet")
    curve: list[tuple[float, float]] = []
    seen = 0
    for bound, count in gaps.steps():
        seen += count
        curve.append((bound, seen / total))
    longest = min(curve[-1][0], 86_400.0)
    within = [(seconds, share) for seconds, share in curve if seconds <= longest] or curve[:1]
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
    """Return the share of returns within ``seconds``, in proportion within a bucket."""
    before = (0.0, 0.0)
    for point in curve:
        if point[0] >= seconds:
            low = max(before[0], point[0] / 1.25)
            inside = max(0.0, min(1.0, math.log(max(seconds, low) / low) / math.log(point[0] / low))) if point[0] > low else 1.0
            return before[1] + (point[1] - before[1]) * inside
        before = point
    return before[1]


def synthetic_gaps(count: int = 100_000, *, seed: int = 1) -> LogHistogram:
    """Return gaps as a shop's chat might have them: 85 % in a talk (median 45 s), 10 % interrupted (15 min), 5 % hours later.

    Args:
        count: How many.
        seed: Of the random numbers.
    """
    chance = random.Random(seed)  # noqa: S311 - an example
    gaps = LogHistogram()
    for _ in range(count):
        kind = chance.random()
        median, spread = (45.0, 0.9) if kind < 0.85 else (900.0, 0.6) if kind < 0.95 else (18_000.0, 0.7)
        gaps.add(median * math.exp(chance.gauss(0.0, spread)))
    return gaps
