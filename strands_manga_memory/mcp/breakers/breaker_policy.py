"""Settings of a circuit breaker."""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, dataclass
from typing import Literal

from strands_manga_memory.arguments import function, positive
from strands_manga_memory.mcp.breakers.classify import Classify


@dataclass(frozen=True)
class BreakerPolicy:
    """Settings of a circuit breaker: thresholds, waiting times, and the longest duration of a call.

    An open breaker rejects calls. After a wait, it allows one trial call, the probe.

    Args:
        failures: Consecutive failures that open the breaker. Default 5.
        reset_after: Seconds an open breaker waits before it allows a probe. Default 30.
        timeout: Seconds a call may take. Default 2; give slow tools their own policy.
        grace: Seconds that a cancelled tool has to end before it is abandoned. Default 0.25.
        tool_errors: Effect of a result with ``isError``: ``"failure"`` counts the result as a failure, ``"ignore"`` does not.
            Use ``"ignore"`` for tools that report findings as errors.
        users: Number of different users who must get an error (not a timeout) before errors of the tool open the breaker. An
            error of an unknown user counts like errors of enough users. Default 2, so that wrong arguments of one user do not
            make the tool unavailable for others.
        classify: Function from a ``CallOutcome`` to a ``Verdict``, or to None for the built-in rules.
        read_only: Whether the tool has no side effects, so that an earlier result may replace a call. None: as the tool's
            ``readOnlyHint`` declares.

    Raises:
        ValueError: A number is out of range. The message names it.
    """

    failures: int = 5
    reset_after: float = 30.0
    timeout: float = 2.0
    _: KW_ONLY
    grace: float = 0.25
    tool_errors: Literal["failure", "ignore"] = "failure"
    users: int = 2
    classify: Classify | None = None
    read_only: bool | None = None

    def __post_init__(self) -> None:
        positive("failures", self.failures)
        positive("users", self.users)
        for name, least in (("reset_after", math.ulp(0)), ("timeout", math.ulp(0)), ("grace", 0.0)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value < math.inf:
                raise ValueError(
                    f"{name} must be a number of seconds {'over 0' if least else 'of at least 0'}, got {value!r:.80}"
                )
        if self.tool_errors not in ("failure", "ignore"):
            raise ValueError(f"tool_errors must be 'failure' or 'ignore', got {self.tool_errors!r:.80}")
        if self.classify is not None:
            function("classify", self.classify, "a function or None")

    @property
    def lease(self) -> float:
        """Seconds to wait for the end of a probe (trial call) before another probe is allowed. Longer than any call."""
        return self.timeout + self.grace + 1.0
