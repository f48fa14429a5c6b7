"""Circuit breaker, which rejects calls of a tool or store that keeps failing.

After a wait, the breaker admits single trial calls (probes). This module performs no I/O.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

logger = logging.getLogger(__name__)


class State(StrEnum):
    """State of a circuit breaker: closed (admits calls), open (rejects calls) or half-open."""

    CLOSED = "closed"
    """Calls are made."""
    OPEN = "open"
    """Calls are rejected."""
    HALF_OPEN = "half_open"
    """One call at a time is made as a probe. Other calls are rejected."""


class Health(StrEnum):
    """Health of a tool or store: healthy, degraded or unavailable, according to its breaker."""

    HEALTHY = "healthy"
    """The breaker is closed, with fewer than half of the failures that open it."""
    DEGRADED = "degraded"
    """The breaker is half-open, or is closed with at least half of the failures that open it (3 of
    5).
    """
    UNAVAILABLE = "unavailable"
    """The breaker is open."""


_CLOSED, _OPEN, _HALF_OPEN = State


@dataclass(frozen=True)
class BreakerEvent:
    """Change of a circuit breaker's state.

    Args:
        name: The breaker's name.
        before: State before the change.
        after: State after the change.
        reason: ``failures`` (too many in a row), ``probe`` (a trial call starts), ``probe_failed``,
            ``probe_succeeded`` or ``reset``.
        at: Time by the breaker's clock, in seconds.
    """

    name: str
    before: State
    after: State
    reason: str
    at: float


class Permit:
    """Permission for one call, issued by a circuit breaker.

    Report the outcome of the call by ``success``, ``failure`` or ``ignore``. Only the first report
    counts.
    """

    __slots__ = ("_breaker", "_generation", "is_probe")

    def __init__(self, breaker: CircuitBreaker, generation: int, *, is_probe: bool) -> None:
        self._breaker = breaker
        self._generation: int | None = generation
        self.is_probe = is_probe

    def __repr__(self) -> str:
        return f"Permit(is_probe={self.is_probe})"

    def success(self) -> None:
        """Report to the circuit breaker that the permitted call succeeded."""
        self._breaker._settle(self, True)  # noqa: FBT003, SLF001 - a permit is a part of its breaker

    def failure(self) -> None:
        """Report to the circuit breaker that the permitted call failed, or took too long."""
        self._breaker._settle(self, False)  # noqa: FBT003, SLF001

    def ignore(self) -> None:
        """Report to the circuit breaker that the permitted call neither succeeded nor failed.

        Examples are a cancelled call and a call with wrong arguments.
        """
        self._breaker._settle(self, None)  # noqa: SLF001


class CircuitBreaker:
    """Circuit breaker that rejects calls after several failures in a row. Thread-safe.

    Get a permit from ``try_acquire`` before each call, and report the outcome of the call to the
    permit. A closed breaker admits all calls, and an open breaker rejects all calls. After the
    waiting time, the breaker is half-open and admits one trial call (probe) at a time. A successful
    probe closes the breaker, and a failed probe opens the breaker again.

    An outcome is ignored if the state has changed, or another probe has begun, since the permit was
    issued. No lock is held during a call.

    Args:
        failures: Number of failures in a row after which the breaker opens.
        reset_after: Seconds between opening and the first probe.
        max_reset_after: Longest wait in seconds. Each failed probe doubles the wait. Default: all
            waits are ``reset_after``.
        lease: Seconds to wait for the outcome of a probe before the next probe is admitted.
            Default: the wait after a failed probe.
        name: Name in events and logs.
        clock: Function that returns monotonic seconds.
        on_event: Function that is called with a ``BreakerEvent`` after each change of state, by the
            thread that caused the change. No lock is held during the call.
    """

    def __init__(
        self,
        failures: int = 5,
        reset_after: float = 30.0,
        *,
        max_reset_after: float | None = None,
        lease: float | None = None,
        name: str = "",
        clock: Callable[[], float] = time.monotonic,
        on_event: Callable[[BreakerEvent], None] | None = None,
    ) -> None:
        self.name = name
        self._most_failures = failures
        self._reset_after = reset_after
        self._max_reset_after = max_reset_after or reset_after
        self._lease = lease
        self._clock = clock
        self._on_event = on_event
        self._lock = threading.Lock()
        self._state = _CLOSED
        self._generation = 0  # changes with the state and with each probe
        self._failures = 0
        self._next_wait = reset_after
        self._rejects_until = 0.0

    # Calls

    def try_acquire(self) -> Permit | None:
        """Return a permit for a call, or None if the circuit breaker rejects the call."""
        with self._lock:
            if self._state is _CLOSED:
                return Permit(self, self._generation, is_probe=False)
            now = self._clock()
            if self._rejects_until > now:
                return None
            event = self._change(_HALF_OPEN, "probe")
            self._rejects_until = now + (self._next_wait if self._lease is None else self._lease)
            permit = Permit(self, self._generation, is_probe=True)
        self._notify(event)
        return permit

    def _settle(self, permit: Permit, succeeded: bool | None) -> None:  # noqa: FBT001 - the three outcomes
        event = None
        with self._lock:
            is_current = permit._generation == self._generation  # noqa: SLF001
            permit._generation = None  # noqa: SLF001 - only the first report counts
            if is_current and succeeded is not None:
                event = self._count(succeeded=succeeded)
            elif is_current and permit.is_probe:
                self._rejects_until = 0.0  # for the next probe
        self._notify(event)

    def record(self, *, succeeded: bool) -> None:
        """Count the success or failure of a call that was made without a permit of the breaker.

        A success closes the breaker. A failure is ignored during the waiting time of an open
        breaker.
        """
        event = None
        with self._lock:
            if self._state is _OPEN and self._rejects_until <= self._clock():
                self._change(_HALF_OPEN, "probe")
            if succeeded or self._state is not _OPEN:
                event = self._count(succeeded=succeeded)
        self._notify(event)

    # Changes from outside

    def restore(self, failures: int, seconds: float) -> None:
        """Restore the state that the circuit breaker of an earlier process had.

        Args:
            failures: Number of failures in a row.
            seconds: Seconds for which the breaker stays open; 0 if it is closed.
        """
        with self._lock:
            if seconds > 0:
                self._change(_OPEN, "failures")
                self._rejects_until = self._clock() + seconds
            self._failures = failures

    def reset(self) -> None:
        """Close the circuit breaker, and reset its failures and its waiting time."""
        with self._lock:
            event = self._change(_CLOSED, "reset")
        self._notify(event)

    # Properties

    @property
    def state(self) -> State:
        """State of the circuit breaker: closed, open or half-open.

        An open breaker becomes half-open as soon as its waiting time is over.
        """
        with self._lock:
            is_due = self._state is _OPEN and self._rejects_until <= self._clock()
            return _HALF_OPEN if is_due else self._state

    @property
    def health(self) -> Health:
        """Health of the guarded tool or store: healthy, degraded or unavailable."""
        state, failures = self.state, self._failures
        if state is _OPEN:
            return Health.UNAVAILABLE
        is_degraded = state is _HALF_OPEN or 2 * failures >= self._most_failures
        return Health.DEGRADED if is_degraded else Health.HEALTHY

    @property
    def failures(self) -> int:
        """Number of failures in a row that the circuit breaker has counted."""
        return self._failures

    @property
    def retry_after(self) -> float:
        """Seconds until the circuit breaker may admit a call; 0 if it may admit one now."""
        return max(0.0, self._rejects_until - self._clock())

    # Under the lock

    def _count(self, *, succeeded: bool) -> BreakerEvent | None:
        if succeeded and self._state is _CLOSED:
            self._failures = 0
            return None
        if succeeded:
            return self._change(_CLOSED, "probe_succeeded")
        self._failures += 1
        is_probe = self._state is _HALF_OPEN
        if not is_probe and self._failures < self._most_failures:
            return None
        event = self._change(_OPEN, "probe_failed" if is_probe else "failures")
        self._rejects_until = self._clock() + self._next_wait
        self._next_wait = min(self._max_reset_after, 2 * self._next_wait)
        return event

    def _change(self, state: State, reason: str) -> BreakerEvent | None:
        before, self._state = self._state, state
        self._generation += 1
        self._rejects_until = 0.0
        if state is _CLOSED:
            self._failures, self._next_wait = 0, self._reset_after
        if before is state:
            return None
        return BreakerEvent(self.name, before, state, reason, self._clock())

    def _notify(self, event: BreakerEvent | None) -> None:
        if event is None:
            return
        logger.debug("event=<%s> | the breaker changed its state", event)
        if self._on_event is not None:
            try:
                self._on_event(event)
            except Exception as error:
                kind = type(error).__name__
                text = "breaker=<%s>, error=<%s> | a callback for breaker events raised an error"
                logger.warning(text, self.name, kind)
                logger.debug(text, self.name, kind, exc_info=True)

    def __repr__(self) -> str:
        return f"CircuitBreaker({self.name!r}, state='{self.state}', failures={self._failures})"
