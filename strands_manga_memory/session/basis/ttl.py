"""TtlPolicy: how long a conversation stays hot, and how long a session lives."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field
from typing import Literal, get_args

from strands_manga_memory.session.core.identity import GRAVE_SECONDS

Tier = Literal["standard", "premium", "vip"]
Mode = Literal["fixed", "sliding", "activity", "hybrid"]

_HYBRID: dict[str, tuple[float, int, float]] = {
    "standard": (1800.0, 10, 2700.0),
    "premium": (2700.0, 8, 3600.0),
    "vip": (3600.0, 5, 7200.0),
}
"""Seconds at first, the number of turns from which a conversation is deep, seconds from then on."""

_SECONDS = 1800.0
_GROWING = 20
"""Turns after the first with each of which a conversation that lives by its activity lives longer; twice as long after all."""


@dataclass(frozen=True, slots=True)
class TtlPolicy:
    """Time to live of a conversation in the hot tier, and of a session in the durable one.

    Args:
        tier: The user's tier: ``standard``, ``premium`` or ``vip``; any other counts as ``standard``. Or a function that
            returns it, asked at each use, because a tier may change while a session lives.
        mode: ``hybrid`` (default): by tier and depth, refreshed by the agent's reads and writes. ``sliding``: ``seconds``,
            refreshed the same way. ``activity``: ``seconds``, a twentieth of it more for each turn after the first and twice as
            long at most (by default 1,800 to 3,600 from 21 turns on), refreshed by writes only. ``fixed``: ``seconds`` from the
            first write, never refreshed.
        seconds: Seconds to live in the modes other than ``hybrid``; given with ``hybrid`` it means ``sliding``. Default 1,800.
        session: Seconds after the last flush at which the session ends and the next use starts a new one. Default 86,400.
        grace: Seconds that stores keep data beyond its logical expiry. Default and least 3,600.

    Raises:
        ValueError: A mode is unknown, or a number of seconds is not positive.
    """

    tier: str | Callable[[], str] = "standard"
    mode: Mode = "hybrid"
    _: KW_ONLY
    seconds: float | None = None
    session: float = 86_400.0
    grace: float = field(default=3600.0)

    def __post_init__(self) -> None:
        if self.mode not in get_args(Mode):
            raise ValueError(f"mode must be one of {', '.join(get_args(Mode))}, got {self.mode!r:.80}")
        if not isinstance(self.tier, str) and not callable(self.tier):
            raise ValueError(f"tier must be a string or a function that returns one, got {self.tier!r:.80}")
        for name, value in (("seconds", 1.0 if self.seconds is None else self.seconds), ("session", self.session)):
            if not (isinstance(value, int | float) and value > 0):
                raise ValueError(f"{name} must be a positive number of seconds, got {value!r:.80}")
        if not self.grace >= 3600:
            raise ValueError(f"grace must be at least 3600 seconds, got {self.grace!r:.80}")

    def ttl(self, turn_count: int) -> float:
        """Return the seconds a conversation of ``turn_count`` turns lives in the hot tier after its last use."""
        if self.mode != "hybrid" or self.seconds is not None:
            seconds = _SECONDS if self.seconds is None else float(self.seconds)
            return seconds * (1 + min(max(turn_count - 1, 0), _GROWING) / _GROWING) if self.mode == "activity" else seconds
        tier = self.tier() if callable(self.tier) else self.tier
        first, depth, deep = _HYBRID.get(tier.lower(), _HYBRID["standard"])
        return deep if turn_count >= depth else first

    @property
    def graves(self) -> float:
        """Seconds for which stores keep a grave: 25 hours, and longer than a copy in any tier lives unused."""
        longest = (self.seconds or 0.0) * (2 if self.mode == "activity" else 1)
        return max(GRAVE_SECONDS, max(self.session, longest) + self.grace)

    @property
    def refreshed_by_reads(self) -> bool:
        """Whether the agent's own reads start the time to live anew."""
        return self.mode in ("hybrid", "sliding")
