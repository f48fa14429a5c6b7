"""BreakerPolicy: when a breaker opens and closes, and how long a call may take. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, fields
from typing import Literal

from strands_manga_memory.mcp.breakers.classify import Classify


@dataclass(frozen=True)
class BreakerPolicy:
    """When a breaker opens and closes, and how long a call may take.

    A setting that is not given has the default listed here, whatever else is given: ``BreakerPolicy(timeout=20.0)`` differs
    from the policy of a tool without one in its timeout alone. ``dataclasses.replace`` changes one setting of another policy.

    Args:
        failures: Failures in a row that open it. Default 5.
        reset_after: Seconds open before one probe is let through. Default 30.
        timeout: Seconds a call may take. Default 2; give slow tools a policy of their own.
        grace: Seconds a tool gets to react to its cancellation, after which it is left behind. Default 0.25.
        tool_errors: What a result with ``isError`` counts as; ``"ignore"`` is for tools that report findings as errors.
        users: Users who must have got an error that the tool answered or raised in time before such errors open it; one who
            is not known counts as all. Default 2, so that the wrong arguments of one user close a tool for nobody else.
        classify: A function from a ``CallOutcome`` to a ``Verdict``, or None for the rules; asked first.
        read_only: Whether an earlier answer may stand in for a call. None: as the tool's ``readOnlyHint`` says.

    Raises:
        ValueError: A number is out of its range. The message names it.
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
        for name in ("failures", "users"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ValueError(f"{name} must be a whole number of at least 1, got {value!r:.80}")
        for name in ("reset_after", "timeout"):
            self._check(name, lambda value: value > 0, "a number of seconds over 0")
        self._check("grace", lambda value: value >= 0, "a number of seconds of at least 0")
        if self.tool_errors not in ("failure", "ignore"):
            raise ValueError(f"tool_errors must be 'failure' or 'ignore', got {self.tool_errors!r:.80}")
        if self.classify is not None and not callable(self.classify):
            raise ValueError(f"classify must be a function or None, got {self.classify!r:.80}")

    def _check(self, name: str, allowed: Callable[[float], bool], what: str) -> None:
        value = getattr(self, name)
        number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
        if not number or not allowed(value):
            raise ValueError(f"{name} must be {what}, got {value!r:.80}")

    @property
    def lease(self) -> float:
        """Seconds after which a probe that was never heard of again no longer holds its place: more than a call can take."""
        return self.timeout + self.grace + 1.0

    def __repr__(self) -> str:
        changed = [
            f"{item.name}={getattr(self, item.name)!r}" for item in fields(self) if getattr(self, item.name) != item.default
        ]
        return f"BreakerPolicy({', '.join(changed)})"
