"""Availability of the storage tiers: the hot store and the durable store."""

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
    """Availability of a storage tier, for one conversation or for all conversations of a process.

    After a failure, callers may use the tier only one at a time, and only after a wait. The wait is 0.1 s at first. It doubles
    after each failed attempt, up to 5 s, and ends when an attempt succeeds. The first failure of an outage is logged with its
    cause, and with a remedy if the store refused a request. Later failures with the same cause are not logged.

    Args:
        tier: Name of the tier in logs. Without a name, no log is written.
        whole: Health of the tier for all conversations, if this object is for one conversation. Failures that do not concern a
            single record are counted in ``whole``.
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
        """Reset the recorded failures of a tier in a forked process.

        The lock is replaced too, because a thread of the parent process may hold it.
        """
        self._lock = threading.Lock()
        self._breaker = CircuitBreaker(1, 0.1, max_reset_after=_LONGEST_WAIT, clock=self._clock)
        self._overtaken = 0
        self._succeeded_at = -math.inf
        self._error = ""
        self._logged_reasons: set[str] = set()

    @property
    def is_up(self) -> bool:
        """Whether the last attempt to use the tier succeeded."""
        return self._breaker.failures == 0 and (self._whole is None or self._whole.is_up)

    @property
    def error(self) -> str:
        """Cause of a tier's outage, as one line of text; empty while the tier is up."""
        return self._error or ("" if self._whole is None else self._whole.error)

    @property
    def failures(self) -> int:
        """Number of calls that the tier refused or did not answer, since the start of the process."""
        return self._failures + (0 if self._whole is None else self._whole.failures)

    @property
    def wait(self) -> float:
        """Seconds until the next attempt to use the tier is allowed."""
        contention = min(_LONGEST_WAIT, 0.05 * 2 ** min(self._overtaken, 10)) if self._overtaken else 0.0
        whole = 0.0 if self._whole is None else self._whole.wait
        return max(self._breaker.retry_after, contention * self._random.uniform(0.5, 1.0), whole)

    def may_try(self) -> bool:
        """Return whether the caller may use the tier now. While the tier is down, only one caller at a time may use it."""
        if self._breaker.retry_after > 0 or (self._whole is not None and not self._whole.may_try()):
            return False
        return self._breaker.try_acquire() is not None

    def failed(self, error: Exception | None = None, *, since: float | None = None) -> None:
        """Count a failed call of the tier, or a call that has missed its deadline.

        Args:
            error: The raised error; None for a missed deadline. An error that concerns only one record is not counted as a
                failure for all conversations.
            since: Start time of a call that is still unanswered. If another call has succeeded since then, nothing is counted.
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
        """Record a successful call of the tier, which ends an outage."""
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
        """Call a function that uses the tier, and return its result. Return None if the tier is down or the call fails."""
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
        """Record that another writer changed the data first. Each such conflict lengthens the wait before the next attempt."""
        self._overtaken += 1


def cause_of(error: Exception) -> str:
    """Return the cause of a store's error on one line, for logs and statistics.

    For a ``StoreRefusedError``, the cause is its reason and remedy. For a ``StoreUnavailableError``, it is the error's text.
    For an ``OvertakenError`` and all other errors, it is only the names of the error types, because the texts may quote a
    record.
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
