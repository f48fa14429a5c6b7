"""TierHealth: whether a tier is worth trying now; shared by all conversations of a process."""

from __future__ import annotations

import math
import random
import threading
import time
from collections.abc import Callable


class TierHealth:
    """Remembers that a tier failed, so that it costs one deadline once, and says when it is to be tried again.

    After a failure one try is let through at a time, at first after 0.1 s, then after twice as long each time, at most 5 s,
    each with jitter. The first success ends it.

    Args:
        clock: Monotonic seconds.
    """

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self.renew()

    def renew(self) -> None:
        """Forget everything; in the child of a fork, where the lock may belong to a thread that is not there."""
        self._lock = threading.Lock()
        self._random = random.Random()  # noqa: S311 - jitter; of its own, so that nobody's seeded numbers change
        self._failures = 0
        self._next_try = 0.0
        self._succeeded_at = -math.inf

    @property
    def is_up(self) -> bool:
        """Whether the last try succeeded."""
        return self._failures == 0

    @property
    def wait(self) -> float:
        """Seconds until the next try."""
        return max(0.0, self._next_try - self._clock())

    def may_try(self) -> bool:
        """Tell whether to try now; while the tier is down, only one caller hears yes each time."""
        with self._lock:
            if self._failures and self._clock() < self._next_try:
                return False
            if self._failures:
                self._postpone()
            return True

    def failed(self, *, since: float | None = None) -> None:
        """Take note of a failure, or of a deadline that passed.

        Args:
            since: When the tier was asked, if it has not answered yet; a success after that disproves the failure.
        """
        with self._lock:
            if since is not None and self._succeeded_at >= since:
                return
            self._failures += 1
            self._postpone()

    def succeeded(self) -> None:
        """Take note of a success."""
        with self._lock:
            self._failures, self._succeeded_at = 0, self._clock()

    def _postpone(self) -> None:
        delay = min(5.0, 0.1 * 2 ** min(self._failures - 1, 10))
        self._next_try = self._clock() + delay * self._random.uniform(0.5, 1.0)
