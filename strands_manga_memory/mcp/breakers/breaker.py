"""CircuitBreaker: whether a call may be made now, judged by what became of the calls before it. Pure: no I/O, no await."""

from __future__ import annotations

import logging
import math
import random
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from strands_manga_memory.mcp.breakers.breaker_policy import BreakerPolicy
from strands_manga_memory.mcp.breakers.breaker_states import Health, State

logger = logging.getLogger(__name__)


_CLOSED, _OPEN, _HALF_OPEN = State  # reading a member of an enum takes a tenth of a rejection's time


@dataclass(frozen=True)
class BreakerEvent:
    """A breaker went from one state to another.

    Args:
        name: The breaker's name.
        before: The state it left.
        after: The state it is in.
        reason: ``failures``, ``failure_rate``, ``slow_rate``, ``probe_failed``, ``probe``, ``probe_succeeded``
            or ``manual``.
        at: When, by the breaker's clock.
    """

    name: str
    before: State
    after: State
    reason: str
    at: float


class Permit:
    """Leave to make one call. Say what became of it once, by ``success``, ``failure`` or ``ignore``; more is ignored."""

    __slots__ = ("_breaker", "_generation", "_open", "_started", "is_probe")

    def __init__(self, breaker: CircuitBreaker, generation: int, started: float, *, is_probe: bool) -> None:
        self._breaker = breaker
        self._generation = generation
        self._started = started
        self._open = True
        self.is_probe = is_probe

    def success(self) -> None:
        """The call did what it should."""
        self._breaker._settle(self, True)  # noqa: FBT003, SLF001 - a permit is a part of its breaker

    def failure(self) -> None:
        """The call failed, or took too long."""
        self._breaker._settle(self, False)  # noqa: FBT003, SLF001

    def ignore(self) -> None:
        """The call says nothing about what is guarded: it was cancelled, or its arguments were wrong."""
        self._breaker._settle(self, None)  # noqa: SLF001


class CircuitBreaker:
    """Stops calls to what keeps failing, and finds out with one call at a time when it works again.

    Thread-safe; a lock is held for a few instructions, never during a call. A result that comes after the state has changed is
    dropped. An ignored outcome is neutral: it neither resets the count nor closes a half-open breaker. The place of a
    probe is free again when the probe is settled, or when its lease (``policy.lease``) is over.

    Args:
        policy: When it opens and closes.
        name: For events and logs.
        clock: Monotonic seconds. A clock that is set back makes no wait longer than it was.
        on_event: Called with a ``BreakerEvent`` after each change, by the thread that caused it, outside the lock.
    """

    def __init__(
        self,
        policy: BreakerPolicy | None = None,
        *,
        name: str = "",
        clock: Callable[[], float] = time.monotonic,
        on_event: Callable[[BreakerEvent], None] | None = None,
    ) -> None:
        self.policy = policy or BreakerPolicy()
        self.name = name
        self._clock = clock
        self._on_event = on_event
        self._lock = threading.Lock()
        self._random = random.Random()  # noqa: S311 - jitter
        self._lease = self.policy.lease
        self._slow_after = self.policy.slow_after
        self._windowed = self.policy.failure_rate is not None or self.policy.slow_rate is not None
        self._state = _CLOSED
        self._generation = 0
        self._failures = 0
        self._recent: deque[tuple[bool, bool]] = deque(maxlen=self.policy.window)
        self._next_open = self.policy.reset_after
        self._changed_at = clock()
        self._open_for = 0.0
        self._opened_by = ""
        self._probe: Permit | None = None
        self._probe_since = 0.0

    # --- calls ---------------------------------------------------------------------------------------------------------

    def try_acquire(self) -> Permit | None:
        """Return leave to make a call, or None: rejected."""
        event = None
        with self._lock:
            if self._state is _CLOSED:
                started = self._clock() if self._slow_after is not None else 0.0
                return Permit(self, self._generation, started, is_probe=False)
            now = self._clock()
            if self._state is _OPEN:
                if self._remaining(now) > 0:
                    return None
                event = self._change(_HALF_OPEN, "probe", now)
            elif self._probe_holds(now):
                return None
            else:
                self._generation += 1  # what a probe whose lease ran out still says is dropped
            permit = Permit(self, self._generation, now, is_probe=True)
            self._probe, self._probe_since = permit, now
        self._tell(event)
        return permit

    def _settle(self, permit: Permit, succeeded: bool | None) -> None:  # noqa: FBT001 - the three outcomes
        event = None
        with self._lock:
            if not permit._open:  # noqa: SLF001
                return
            permit._open = False  # noqa: SLF001
            if self._probe is permit:
                self._probe = None
            if permit._generation != self._generation or succeeded is None:  # noqa: SLF001
                return
            if self._state is _HALF_OPEN:
                self._failures += 1
                event = self._change(_CLOSED, "probe_succeeded") if succeeded else self._trip("probe_failed")
            elif succeeded and not self._windowed:  # nothing that could open it, on the way of nearly every call
                self._failures = 0
                return
            else:
                self._failures = 0 if succeeded else self._failures + 1
                reason = self._why_open(permit, succeeded=succeeded)
                event = self._trip(reason) if reason else None
        self._tell(event)

    def _why_open(self, permit: Permit, *, succeeded: bool) -> str | None:
        policy = self.policy
        if self._failures >= policy.failures:
            return "failures"
        if not self._windowed:
            return None
        slow = self._slow_after is not None and self._clock() - permit._started > self._slow_after  # noqa: SLF001
        self._recent.append((not succeeded, slow))
        calls = len(self._recent)
        if calls < policy.minimum_calls:
            return None
        if policy.failure_rate is not None and sum(failed for failed, _ in self._recent) >= policy.failure_rate * calls:
            return "failure_rate"
        if policy.slow_rate is not None and sum(slow for _, slow in self._recent) >= policy.slow_rate * calls:
            return "slow_rate"
        return None

    # --- by hand -------------------------------------------------------------------------------------------------------

    def open(self, seconds: float = math.inf, *, reason: str = "manual") -> None:
        """Open it for ``seconds``, by default until ``close`` or ``reset``.

        Raises:
            ValueError: ``seconds`` is not over 0.
        """
        if not seconds > 0:
            raise ValueError(f"seconds must be over 0, got {seconds!r:.80}")
        with self._lock:
            event = self._change(_OPEN, reason)
            self._open_for = seconds
        self._tell(event)

    def close(self, *, reason: str = "manual") -> None:
        """Close it and forget its failures."""
        with self._lock:
            event = self._change(_CLOSED, reason)
        self._tell(event)

    def reset(self) -> None:
        """Close it and forget everything, also how often it opened."""
        with self._lock:
            event = self._change(_CLOSED, "manual")
            self._next_open = self.policy.reset_after
        self._tell(event)

    # --- what it is like -----------------------------------------------------------------------------------------------

    @property
    def state(self) -> State:
        """The state; half-open from when a probe would be let through."""
        with self._lock:
            if self._state is _OPEN and self._remaining(self._clock()) <= 0:
                return _HALF_OPEN
            return self._state

    @property
    def health(self) -> Health:
        """What the state says about what is guarded."""
        state, failures = self.state, self._failures
        if state is _OPEN:
            return Health.UNAVAILABLE
        return Health.DEGRADED if state is _HALF_OPEN or 2 * failures >= self.policy.failures else Health.HEALTHY

    @property
    def failures(self) -> int:
        """Failures in a row; while open or half-open, those that opened it."""
        return self._failures

    @property
    def reason(self) -> str:
        """Why it opened last, as in ``BreakerEvent``; empty while it is closed."""
        return self._opened_by

    @property
    def retry_after(self) -> float:
        """Seconds until a call may be let through; 0 if it would be now, infinite if opened by hand."""
        with self._lock:
            now = self._clock()
            if self._state is _OPEN:
                return max(0.0, self._remaining(now))
            if self._state is _HALF_OPEN and self._probe_holds(now):
                return max(0.0, self._lease - (now - self._probe_since))
            return 0.0

    # --- under the lock ------------------------------------------------------------------------------------------------

    def _remaining(self, now: float) -> float:
        if now < self._changed_at:  # a clock set back: wait no longer than a whole open time
            self._changed_at = now
        return self._open_for - (now - self._changed_at)

    def _probe_holds(self, now: float) -> bool:
        if self._probe is None:
            return False
        self._probe_since = min(self._probe_since, now)
        return now - self._probe_since < self._lease

    def _trip(self, reason: str) -> BreakerEvent | None:
        now, policy = self._clock(), self.policy
        if self._state is _CLOSED and now - self._changed_at >= self._open_for:
            self._next_open = policy.reset_after  # it worked for longer than it had been open: this is a new trouble
        event = self._change(_OPEN, reason, now)
        self._open_for = self._next_open * (1 + policy.jitter * self._random.random())
        self._next_open = min(policy.max_reset_after, self._next_open * policy.backoff)
        return event

    def _change(self, state: State, reason: str, now: float | None = None) -> BreakerEvent | None:
        at = self._clock() if now is None else now
        before, self._state = self._state, state
        self._generation += 1
        self._changed_at, self._probe = at, None
        if state is _CLOSED:
            self._failures = 0
            self._opened_by = ""
            self._recent.clear()
        elif state is _OPEN:
            self._opened_by = reason
        return BreakerEvent(self.name, before, state, reason, at) if before is not state else None

    def _tell(self, event: BreakerEvent | None) -> None:
        if event is None:
            return
        logger.debug(
            "breaker=<%s>, before=<%s>, after=<%s> | breaker changed: %s", event.name, event.before, event.after, event.reason
        )
        if self._on_event is not None:
            try:
                self._on_event(event)
            except Exception as error:
                logger.warning("breaker=<%s>, error=<%s> | a listener of the breaker raised", self.name, type(error).__name__)
                logger.debug("breaker=<%s> | a listener of the breaker raised", self.name, exc_info=True)

    def __repr__(self) -> str:
        details: dict[str, Any] = {"state": str(self.state), "failures": self._failures}
        return f"CircuitBreaker({self.name!r}, {', '.join(f'{name}={value!r}' for name, value in details.items())})"
