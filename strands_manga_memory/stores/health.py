"""TierHealth: whether a tier is worth trying now; shared by all conversations of a process."""

from __future__ import annotations

import logging
import math
import random
import threading
import time
from collections.abc import Callable
from typing import TypeVar

from strands_manga_memory.exceptions import OvertakenError, StoreError, StoreRefusedError, StoreUnavailableError

logger = logging.getLogger(__name__)

_T = TypeVar("_T")
_NO_ANSWER = "no answer"
_MOST_CHARACTERS = 300


class TierHealth:
    """Remembers that a tier failed, so that it costs one deadline once, and says when it is to be tried again.

    After a failure one try is let through at a time, at first after 0.1 s, then after twice as long each time, at most 5 s,
    each with jitter. The first success ends it.

    A failure is logged once with its cause, a refusal also with what mends it, until the tier takes requests again.

    Args:
        tier: What it is called in logs; one without a name is not logged.
        whole: The health of the whole tier, if this is that of one conversation in it; the tier's failures are its own, too.
        clock: Monotonic seconds.
    """

    _random = random.Random()  # noqa: S311 - jitter; of its own, so that nobody's seeded numbers change

    def __init__(self, *, tier: str = "", whole: TierHealth | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._tier = tier
        self._whole = whole
        self._clock = clock
        self._failures = 0
        self.renew()

    def renew(self) -> None:
        """Forget everything; in the child of a fork, where the lock may belong to a thread that is not there."""
        self._lock = threading.Lock()
        self._in_a_row = self._overtaken = 0
        self._next_try = 0.0
        self._succeeded_at = -math.inf
        self._error = ""
        self._told: tuple[str, ...] = ()

    @property
    def is_up(self) -> bool:
        """Whether the last try succeeded."""
        return self._in_a_row == 0 and (self._whole is None or self._whole.is_up)

    @property
    def error(self) -> str:
        """Why it is down: the cause of a refusal and what mends it, else the text of the error; empty while it is up."""
        return self._error or ("" if self._whole is None else self._whole.error)

    @property
    def failures(self) -> int:
        """How often it did not answer, or refused, since the process began."""
        return self._failures + (0 if self._whole is None else self._whole.failures)

    @property
    def wait(self) -> float:
        """Seconds until the next try."""
        return max(0.0, self._next_try - self._clock(), 0.0 if self._whole is None else self._whole.wait)

    def may_try(self) -> bool:
        """Tell whether to try now; while the tier is down, only one caller hears yes each time."""
        with self._lock:
            if self._in_a_row and self._clock() < self._next_try:
                return False
            if self._whole is not None and not self._whole.may_try():
                return False
            if self._in_a_row:
                self._postpone()
            return True

    def failed(self, error: Exception | None = None, *, since: float | None = None) -> None:
        """Take note of a failure, or of a deadline that passed.

        Args:
            error: What was raised. What concerns one record, or one request, is no failure of the whole tier.
            since: When the tier was asked, if it has not answered yet; a success after that disproves the failure.
        """
        if self._whole is not None and not _is_of_one_record(error):
            self._whole.failed(error, since=since)
            return
        with self._lock:
            if since is not None and self._succeeded_at >= since:
                return
            was_up = self._in_a_row == 0
            self._failures += 1
            self._in_a_row += 1
            self._postpone()
            reason, before = getattr(error, "reason", ""), self._error
            if error is not None:
                self._error = cause_of(error)
            elif not self._error:  # a deadline that passes says less than an error
                self._error = _NO_ANSWER
            is_news = was_up or bool(reason) or (before == _NO_ANSWER != self._error)
            tells = bool(self._tier) and is_news and reason not in self._told
            self._told = (*self._told, reason) if reason and reason not in self._told else self._told
        if tells:
            logger.warning("tier=<%s>, reason=<%s> | the store fails: %s", self._tier, reason or "answer", self._error)

    def succeeded(self) -> None:
        """Take note of a success."""
        if self._whole is not None:
            self._whole.succeeded()
        with self._lock:
            self._in_a_row = self._overtaken = 0
            self._succeeded_at = self._clock()
            was_down, self._error, self._told = bool(self._error), "", ()
        if was_down and self._tier:
            logger.info("tier=<%s> | the store takes requests again", self._tier)

    def tried(self, work: Callable[[], _T]) -> _T | None:
        """Do work on the tier if it is worth trying, and return what comes of it; None if it is not, or the tier fails."""
        if not self.may_try():
            return None
        try:
            done = work()
        except StoreError as error:
            self.failed(error)
            logger.debug("error=<%s> | the tier does not answer, going on without it", type(error).__name__)
            return None
        self.succeeded()
        return done

    def overtaken(self) -> None:
        """Take note that others kept being first: the tier is up, but this conversation waits ever longer for its next try."""
        with self._lock:
            self._overtaken += 1
            self._postpone()

    def _postpone(self) -> None:
        delay = min(5.0, 0.1 * 2 ** min(self._in_a_row + self._overtaken - 1, 10))
        self._next_try = self._clock() + delay * self._random.uniform(0.5, 1.0)


def cause_of(error: Exception) -> str:
    """Return the cause of a store's error in one line, for logs and statistics.

    That is the remedy of a refusal, or the text of an outage. Other errors give their types alone: a text may quote a record.
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
