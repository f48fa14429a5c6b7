"""Health of tiers, shared by all conversations of a process."""

from __future__ import annotations

import logging
import math
import random
import threading
import time
from collections.abc import Callable
from typing import TypeVar

from strands_manga_memory.circuit_breaker import CircuitBreaker
from strands_manga_memory.exceptions import OvertakenError, StoreError, StoreRefusedError, StoreUnavailableError

logger = logging.getLogger(__name__)

_T = TypeVar("_T")
_NO_ANSWER = "no answer"
_MOST_CHARACTERS = 300
_LONGEST_WAIT = 5.0


class TierHealth:
    """Circuit breaker of a tier, with the cause of its last failure; shared by all conversations of a process.

    After a failure one attempt at a time is allowed: the first after 0.1 s, each further one after twice the wait, at most
    5 s, until one succeeds. A failure is logged once with its cause, a refusal also with its remedy, until the next success.

    Args:
        tier: Name of the tier in logs; without a name, no log is written.
        whole: Health of the whole tier, if this is the health of one conversation. Failures of the tier count there.
        clock: Monotonic seconds.
    """

    _random = random.Random()  # noqa: S311 - jitter; separate from the application's random numbers

    def __init__(self, *, tier: str = "", whole: TierHealth | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._tier = tier
        self._whole = whole
        self._clock = clock
        self._failures = 0
        self.renew()

    def renew(self) -> None:
        """Reset the state, with a new lock: in the child of a fork a thread of the parent may hold the old one."""
        self._lock = threading.Lock()
        self._breaker = CircuitBreaker(1, 0.1, max_reset_after=_LONGEST_WAIT, clock=self._clock)
        self._overtaken = 0
        self._succeeded_at = -math.inf
        self._error = ""
        self._logged_reasons: set[str] = set()

    @property
    def is_up(self) -> bool:
        """Whether the last attempt succeeded."""
        return self._breaker.failures == 0 and (self._whole is None or self._whole.is_up)

    @property
    def error(self) -> str:
        """Cause of the outage: reason and remedy of a refusal, or the text of the error; empty while the tier is up."""
        return self._error or ("" if self._whole is None else self._whole.error)

    @property
    def failures(self) -> int:
        """Number of missing answers and refusals since the start of the process."""
        return self._failures + (0 if self._whole is None else self._whole.failures)

    @property
    def wait(self) -> float:
        """Seconds until the next attempt."""
        contention = min(_LONGEST_WAIT, 0.05 * 2 ** min(self._overtaken, 10)) if self._overtaken else 0.0
        whole = 0.0 if self._whole is None else self._whole.wait
        return max(self._breaker.retry_after, contention * self._random.uniform(0.5, 1.0), whole)

    def may_try(self) -> bool:
        """Return whether the caller may use the tier now. While it is down, one caller at a time may."""
        if self._breaker.retry_after > 0 or (self._whole is not None and not self._whole.may_try()):
            return False
        return self._breaker.try_acquire() is not None

    def failed(self, error: Exception | None = None, *, since: float | None = None) -> None:
        """Count a failure or a missed deadline.

        Args:
            error: The raised error. An error of one record or request is no failure of the whole tier.
            since: Time of a request that is not answered yet. A success after that time overrides the failure.
        """
        if self._whole is not None and not _is_of_one_record(error):
            self._whole.failed(error, since=since)
            return
        with self._lock:
            if since is not None and self._succeeded_at >= since:
                return
            was_up = self._breaker.failures == 0
            self._failures += 1
            self._breaker.record(succeeded=False)
            reason, before = getattr(error, "reason", ""), self._error
            if error is not None:
                self._error = cause_of(error)
            elif not self._error:  # an error is more informative than a missed deadline
                self._error = _NO_ANSWER
            is_news = was_up or bool(reason) or (before == _NO_ANSWER != self._error)
            logs = bool(self._tier) and is_news and reason not in self._logged_reasons
            if reason:
                self._logged_reasons.add(reason)
        if logs:
            logger.warning("tier=<%s>, reason=<%s> | the store fails: %s", self._tier, reason or "answer", self._error)

    def succeeded(self) -> None:
        """Count a success."""
        if self._whole is not None:
            self._whole.succeeded()
        with self._lock:
            self._breaker.record(succeeded=True)
            self._overtaken = 0
            self._succeeded_at = self._clock()
            was_down, self._error = bool(self._error), ""
            self._logged_reasons.clear()
        if was_down and self._tier:
            logger.info("tier=<%s> | the store is available again", self._tier)

    def tried(self, work: Callable[[], _T]) -> _T | None:
        """Run work on the tier and return its result; None if the tier is down or the work fails."""
        if not self.may_try():
            return None
        try:
            done = work()
        except StoreError as error:
            self.failed(error)
            logger.debug("error=<%s> | the tier is unavailable, continuing without it", type(error).__name__)
            return None
        self.succeeded()
        return done

    def overtaken(self) -> None:
        """Count a write conflict: the tier is up, but the next attempt waits longer each time."""
        self._overtaken += 1


def cause_of(error: Exception) -> str:
    """Return the cause of a store's error on one line, for logs and statistics.

    It is the remedy of a refusal, or the text of an outage. Other errors give only their types, because their texts may
    quote a record.
    """
    if isinstance(error, StoreRefusedError):
        return f"{error.reason}: {error.remedy}"
    if isinstance(error, StoreUnavailableError) and not isinstance(error, OvertakenError):
        return " ".join(str(error).split())[:_MOST_CHARACTERS]
    return ": ".join(type(one).__name__ for one in (error, error.__cause__) if one is not None)


def _is_of_one_record(error: Exception | None) -> bool:
    if isinstance(error, StoreRefusedError):
        return bool(error.record)
    return error is not None and not isinstance(error, StoreUnavailableError)
