"""Background work for the stores, and the availability of the stores.

All conversations with the same two stores share one queue of background work. Daemon threads run
the work.
"""

from __future__ import annotations

import atexit
import contextvars
import logging
import math
import random
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Hashable
from concurrent.futures import Future, wait
from functools import partial
from itertools import chain
from typing import Any, NamedTuple, TypeVar

from strands_manga_memory.arguments import Clock, PositiveInt, checked
from strands_manga_memory.circuit_breaker import CircuitBreaker
from strands_manga_memory.exceptions import (
    OvertakenError,
    StoreError,
    StoreRefusedError,
    StoreUnavailableError,
    logged_errors,
)
from strands_manga_memory.lifecycle import at_fork

logger = logging.getLogger(__name__)

_T = TypeVar("_T")
_NO_ANSWER = "no answer"
_MOST_CHARACTERS = 300
_LONGEST_WAIT = 5.0
_SHORTEST_ANSWER = 0.05
"""Shortest wait, in seconds, that ``TierHealth.wait_limit`` allows in an outage."""


class TierHealth:
    """Availability of a store (the hot or the durable one), like a circuit breaker.

    Callers report whether their calls failed or succeeded. After a failure, ``may_call`` allows no
    call for 0.1 s, and then one call at a time. The wait doubles after each failed attempt, up to
    5 s. A success ends the outage. The first failure of an outage is logged with its cause and, if
    known, a remedy. Later failures with the same cause are not logged.

    With ``shared``, the object is for a single conversation. It counts only errors of the
    conversation's records, and reports all other errors to ``shared``, the object for all
    conversations of the process.

    Args:
        tier: Name of the store in logs: ``hot`` or ``durable``. Default: no log is written.
        shared: Availability of the store for all conversations. None (default): this object itself
            is for all conversations.
        clock: Function that returns monotonic seconds. Default: the clock of ``shared``.
    """

    _random = random.Random()  # noqa: S311 - jitter; separate from the application's random numbers

    def __init__(
        self,
        *,
        tier: str = "",
        shared: TierHealth | None = None,
        clock: Clock = time.monotonic,
    ) -> None:
        self._tier = tier
        self._shared = shared
        self.clock: Clock = clock if shared is None else shared.clock
        self.renew()

    def renew(self) -> None:
        """Discard all recorded failures and create a new lock.

        A forked process needs this, because a thread of its parent may have held the old lock.
        """
        self._lock = threading.Lock()
        self._breaker = CircuitBreaker(1, 0.1, max_reset_after=_LONGEST_WAIT, clock=self.clock)
        self._conflicts = 0
        self._succeeded_at = -math.inf
        self._silent_since = math.inf
        self._error = ""
        self._logged_reasons: set[str] = set()

    @property
    def is_up(self) -> bool:
        """Whether the latest call of the store succeeded. True before the first call."""
        return self._breaker.failures == 0 and (self._shared is None or self._shared.is_up)

    @property
    def error(self) -> str:
        """Cause of the store's outage, as one line of text; empty while the store works."""
        return self._error or ("" if self._shared is None else self._shared.error)

    @property
    def wait(self) -> float:
        """Seconds to wait before the next call of the store; 0 without failure or conflict."""
        contention = (
            min(_LONGEST_WAIT, 0.05 * 2 ** min(self._conflicts, 10)) if self._conflicts else 0.0
        )
        shared = 0.0 if self._shared is None else self._shared.wait
        return max(self._breaker.retry_after, contention * self._random.uniform(0.5, 1.0), shared)

    def may_call(self) -> bool:
        """Return whether the store may be called now.

        During an outage, one caller at a time may try the store again, when the wait since the last
        attempt is over.
        """
        if self._breaker.retry_after > 0 or (
            self._shared is not None and not self._shared.may_call()
        ):
            return False
        return self._breaker.try_acquire() is not None

    def record_failure(self, error: Exception | None = None, *, since: float | None = None) -> None:
        """Record that a call of the store failed, or missed its deadline (``error`` is None).

        ``since`` is the start time of the call. The failure is ignored if another call has
        succeeded after this time.
        """
        if self._shared is not None and not _is_about_record(error):
            self._shared.record_failure(error, since=since)
            return
        with self._lock:
            if since is not None and self._succeeded_at > since:
                return
            was_up = self._breaker.failures == 0
            if was_up:
                self._silent_since = self.clock() if since is None else since
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
            logger.warning(
                "tier=<%s>, reason=<%s> | the store fails: %s",
                self._tier,
                reason or "answer",
                self._error,
            )

    def record_success(self) -> None:
        """Record that a call of the store succeeded, which ends an outage."""
        if self._shared is not None:
            self._shared.record_success()
        with self._lock:
            self._breaker.record(succeeded=True)
            self._conflicts = 0
            self._succeeded_at, self._silent_since = self.clock(), math.inf
            was_down, self._error = bool(self._error), ""
            self._logged_reasons.clear()
        if was_down and self._tier:
            logger.info("tier=<%s> | the store is available again", self._tier)

    def call(self, work: Callable[[], _T]) -> _T | None:
        """Call a function that uses the store, and record whether the call succeeded.

        Return the result of the function. Return None if the store may not be called now, or if the
        function raises ``StoreError``.
        """
        if not self.may_call():
            return None
        started_at = self.clock()
        try:
            done = work()
        except StoreError as error:
            self.record_failure(error, since=started_at)
            return None
        self.record_success()
        return done

    def wait_limit(self, seconds: float) -> float:
        """Return the number of seconds that a call may wait for the store's response.

        While the store works, the result is ``seconds``. In an outage, it is the rest of
        ``seconds`` since the start of the first failed call, but at least 0.05 s. With
        ``seconds=2``, a call that begins 1.5 s after this start may wait 0.5 s.
        """
        if self._shared is not None:
            return self._shared.wait_limit(seconds)
        left = self._silent_since + seconds - self.clock()
        return min(seconds, max(_SHORTEST_ANSWER, left))

    def call_in_thread(self, work: Callable[[], _T], seconds: float) -> _T:
        """Run a function that reads from the store, in a new thread, and wait for its result.

        A success, a missed deadline and a ``StoreUnavailableError`` are recorded. A call that
        misses its deadline continues in its thread. If it succeeds later, the outage ends.

        ``seconds`` is the longest wait while the store works. For an outage, see ``wait_limit``.

        Raises:
            StoreUnavailableError: The store is unavailable, or did not respond in time. Any other
                error of ``work`` is raised, too.
        """
        answer, started_at = Future[_T](), self.clock()
        context = contextvars.copy_context()

        def run() -> None:
            try:
                found = context.run(work)
            except BaseException as error:  # noqa: BLE001 - raised again in the calling thread
                if isinstance(error, StoreUnavailableError):
                    self.record_failure(error, since=started_at)
                answer.set_exception(error)
                return
            self.record_success()
            answer.set_result(found)

        threading.Thread(target=run, name="strands-manga-memory-read", daemon=True).start()
        most = self.wait_limit(seconds)
        if not wait([answer], most).done:
            self.record_failure(since=started_at)
            raise StoreUnavailableError(f"the store did not answer within {most:.2g} s")
        return answer.result()

    def record_conflict(self) -> None:
        """Record a write conflict: another process changed the data first.

        Each further conflict before a success makes ``wait`` longer.
        """
        self._conflicts += 1


def cause_of(error: Exception) -> str:
    """Return the cause of a store's error on one line, for logs and statistics.

    For a ``StoreRefusedError``, the text is its reason and remedy. For a ``StoreUnavailableError``,
    the text is its message. For a write conflict (``OvertakenError``) and for other errors, the
    text is the type of the error, because the message may quote a record.
    """
    if isinstance(error, StoreRefusedError):
        return f"{error.reason}: {error.remedy}"
    if isinstance(error, StoreUnavailableError) and not isinstance(error, OvertakenError):
        return " ".join(str(error).split())[:_MOST_CHARACTERS]
    return ": ".join(type(one).__name__ for one in (error, error.__cause__) if one is not None)


def _is_about_record(error: Exception | None) -> bool:
    if isinstance(error, StoreRefusedError):
        return bool(error.record)
    return error is not None and not isinstance(error, StoreUnavailableError)


_FIRST_PAUSE, _LONGEST_PAUSE = 0.2, 60.0
_IDLE_SECONDS = 10.0
_EXIT_SECONDS = 5.0


class _Job(NamedTuple):
    work: Callable[[], Any]
    future: Future[Any]
    slow: bool
    is_needed: Callable[[], bool]


def _always() -> bool:
    return True


class Writer:
    """Queue of background work, such as writes to the stores, which runs in threads.

    Work is a function with a key, such as the id of a conversation. Work with the same key runs in
    order. Work with different keys runs in parallel. Threads start on demand, and end after 10 s
    without work.

    Work that may take long, such as a call of the durable store, is queued with ``slow=True``. It
    runs in at most ``threads - 2`` threads (but at least one), so that it does not delay other
    work.

    At interpreter exit, work runs for at most 5 s. The exit does not wait for work whose
    ``is_needed`` (see ``submit``) returns False. SIGKILL, an unhandled SIGTERM and ``os._exit``
    lose pending work. After a fork, the child process starts without threads and work.

    Args:
        threads: Largest number of threads, which are daemon threads. Default 8.
        clock: Function that returns monotonic seconds, for delayed work.

    Attributes:
        stores: Hot and durable store for which the queue works; None for a missing store.
        hot_health: Availability of the hot store.
        durable_health: Availability of the durable store.
        unflushed: Conversations that this process has saved in the hot store, but not yet written
            to the durable store. Each storage key is mapped to a function that opens the
            conversation.
        unsaved: Weak set of the ``ConversationSaver`` objects whose conversations have changes that
            no store has.
    """

    @checked
    def __init__(self, *, threads: PositiveInt = 8, clock: Clock = time.monotonic) -> None:
        self._max_threads = threads
        self._max_slow = max(1, threads - 2)
        self._clock = clock
        self.hot_health = TierHealth(tier="hot", clock=clock)
        self.durable_health = TierHealth(tier="durable", clock=clock)
        self.stores: tuple[object, object] = (None, None)
        self._reset()

    def _reset(self) -> None:
        self._changed = threading.Condition()
        self._queues: dict[Hashable, deque[_Job]] = {}
        self._active: dict[Hashable, _Job] = {}
        self._timers: dict[Hashable, tuple[float, _Job]] = {}
        self._repeated: dict[Hashable, deque[Callable[[], object]]] = {}
        self.unflushed: dict[Any, Callable[[], Any]] = {}
        self.unsaved: weakref.WeakSet[Any] = weakref.WeakSet()
        self._threads = 0
        self._idle = 0
        self._draining = 0

    def submit(
        self,
        key: Hashable,
        work: Callable[[], _T],
        *,
        slow: bool = False,
        is_needed: Callable[[], bool] = _always,
    ) -> Future[_T]:
        """Queue a function for a background thread, after earlier functions with the same key.

        ``slow`` means that the function may take long, such as a call of the durable store.
        ``drain`` does not wait for the function if ``is_needed`` returns False.

        Returns:
            Future of the function's result. The future cannot be cancelled.
        """
        future: Future[_T] = Future()
        # not cancellable, so a cancelled caller does not cancel the work
        future.set_running_or_notify_cancel()
        with self._changed:
            self._queues.setdefault(key, deque()).append(_Job(work, future, slow, is_needed))
            self._wake()
        return future

    def later(
        self,
        key: Hashable,
        delay: float,
        work: Callable[[], Any],
        *,
        is_needed: Callable[[], bool] = _always,
    ) -> None:
        """Queue a function after ``delay`` seconds. Each key has at most one delayed function.

        An earlier delayed function with the same key is cancelled. ``drain`` does not wait for the
        function if ``is_needed`` returns False.
        """
        job = _Job(work, Future(), slow=False, is_needed=is_needed)
        with self._changed:
            self._timers[key] = self._clock() + delay, job
            self._wake()

    def repeat(
        self, key: Hashable, work: Callable[[], object], *, is_needed: Callable[[], bool] = _always
    ) -> None:
        """Queue a function that writes to a store, and repeat it until the write succeeds.

        The function runs again, with growing pauses, after each ``StoreError``, and also after a
        ``KeyboardInterrupt``, so that the write is not lost. Any other error is logged, and ends
        the repetition. Later functions of ``repeat`` with the same key wait until then. ``drain``
        does not wait for the function if ``is_needed`` returns False.
        """
        with self._changed:
            waiting = self._repeated.setdefault(key, deque())
            waiting.append(work)
            is_first = len(waiting) == 1
        if is_first:
            self.submit(
                key, lambda: self._repeat(key, _FIRST_PAUSE, is_needed), is_needed=is_needed
            )

    def _repeat(self, key: Hashable, pause: float, is_needed: Callable[[], bool]) -> None:
        while waiting := self._repeated.get(key):
            with logged_errors(logger, "failed to store data in the background"):
                try:
                    waiting[0]()
                # a thread that drains the queue may be interrupted
                except (StoreError, KeyboardInterrupt) as error:
                    logger.warning(
                        "error=<%s> | failed to store data in the background, retrying",
                        type(error).__name__,
                    )
                    longer = partial(self._repeat, key, min(_LONGEST_PAUSE, 2 * pause), is_needed)
                    self.later(key, pause, longer, is_needed=is_needed)
                    return
            with self._changed:
                waiting.popleft()
                if not waiting:
                    del self._repeated[key]

    @property
    def has_repeated(self) -> bool:
        """Whether a function that ``repeat`` queued still waits or runs."""
        return bool(self._repeated)

    def cancel_later(self, key: Hashable) -> None:
        """Cancel the delayed background work with a key, if there is any."""
        with self._changed:
            self._timers.pop(key, None)

    def drain(self, timeout: float) -> bool:
        """Run the queued and delayed background work now, and wait for its end.

        The calling thread runs work, too. Work that fails during the call is repeated only after a
        new delay. The call does not wait for work whose function ``is_needed`` returns False.
        Return whether all needed work ended within ``timeout`` seconds.
        """
        end, due = self._clock() + timeout, math.inf
        while self._is_needed():
            with self._changed:
                # Work that was delayed again after a failure waits, so that a store that is down is
                # not called in a loop.
                self._queue_due_timers(due)
                due = self._clock()
                job = self._take_next_job()
                if job is None:
                    self._draining += 1
                    self._changed.wait(max(0.0, min(0.05, end - self._clock())))
                    self._draining -= 1
            if job is not None:
                self._run(*job)
            if self._clock() >= end:
                return False
        return True

    def _is_needed(self) -> bool:
        # The lock is released before ``is_needed`` is called: the owners take other locks.
        with self._changed:
            jobs = [*self._active.values(), *chain.from_iterable(self._queues.values())]
            jobs += [job for _, job in self._timers.values()]
        return any(job.is_needed() for job in jobs)

    @property
    def backlog(self) -> int:
        """Number of background tasks that wait or run."""
        with self._changed:
            waiting = sum(map(len, self._queues.values()))
            return waiting + len(self._active) + len(self._timers)

    def _wake(self) -> None:
        # A notified thread counts as idle until it runs, so work that arrives meanwhile needs
        # another thread.
        if self._idle < max(1, len(self._queues)) and self._threads < self._max_threads:
            self._threads += 1
            threading.Thread(
                target=self._serve, name="strands-manga-memory-writer", daemon=True
            ).start()
        else:
            self._changed.notify()

    def _queue_due_timers(self, due: float) -> None:
        for key in [key for key, (at, _) in self._timers.items() if at <= due]:
            self._queues.setdefault(key, deque()).append(self._timers.pop(key)[1])

    def _take_next_job(self) -> tuple[Hashable, _Job] | None:
        may_be_slow = sum(job.slow for job in self._active.values()) < self._max_slow
        for key, queue in self._queues.items():
            if key not in self._active and (may_be_slow or not queue[0].slow):
                job = self._active[key] = queue.popleft()
                del self._queues[key]
                if queue:  # behind the other keys
                    self._queues[key] = queue
                return key, job
        return None

    def _run(self, key: Hashable, job: _Job) -> None:
        work, future = job.work, job.future
        del job
        try:
            result = work()
        except BaseException as error:  # noqa: BLE001 - the caller gets it from the future
            if not isinstance(error, Exception):
                logger.warning("error=<%s> | background work was interrupted", type(error).__name__)
            future.set_exception(error)
        else:
            future.set_result(result)
        finally:
            del future, work  # avoids a reference cycle of error, traceback, frame and future
            with self._changed:
                self._active.pop(key, None)
                if self._queues or self._draining:
                    self._changed.notify_all()

    def _serve(self) -> None:
        while True:
            with self._changed:
                self._queue_due_timers(self._clock())
                idle_until = self._clock() + _IDLE_SECONDS
                while (job := self._take_next_job()) is None:
                    now = self._clock()
                    if now >= idle_until and not self._timers:
                        self._threads -= 1
                        return
                    until = min((at for at, _ in self._timers.values()), default=idle_until)
                    self._idle += 1
                    self._changed.wait(max(0.0, until - now))
                    self._idle -= 1
                    self._queue_due_timers(self._clock())
                # Another thread must run the other jobs, and the delayed ones that become due,
                # while this one is busy.
                if self._queues or (self._timers and not self._idle):
                    self._wake()
            self._run(*job)
            del job  # otherwise the objects of the job would stay in memory until the next job


_shared: weakref.WeakValueDictionary[tuple[int, int], Writer] = weakref.WeakValueDictionary()
_shared_lock = threading.Lock()


def shared_writer(hot: object, durable: object) -> Writer:
    """Return the queue of background work that all conversations with the same two stores share.

    Either store may be None. A telemetry wrapper counts as the store that it wraps. Queues with the
    same hot store also share ``hot_health``, the availability of this store.
    """
    global _shared_lock
    hot, durable = getattr(hot, "observes", hot), getattr(durable, "observes", durable)
    with _shared_lock:
        writer = _shared.get((id(hot), id(durable)))
        if writer is None:
            writer = Writer()
            writer.stores = (hot, durable)  # also keeps their ids from being used again
            for other in list(_shared.values()):
                if hot is not None and other.stores[0] is hot:
                    writer.hot_health = other.hot_health
            _shared[id(hot), id(durable)] = writer
        return writer


def writers() -> list[Writer]:
    """Return all queues of background work in this process, one for each pair of stores."""
    with _shared_lock:
        return list(_shared.values())


@atexit.register
def _drain_at_exit() -> None:
    for writer in writers():
        if not writer.drain(_EXIT_SECONDS):
            logger.warning(
                "backlog=<%d> | background work was not finished at exit", writer.backlog
            )


def _renew_after_fork() -> None:
    global _shared_lock
    _shared_lock = threading.Lock()
    for writer in writers():
        writer._reset()  # noqa: SLF001
        writer.hot_health.renew()
        writer.durable_health.renew()


at_fork(after_in_child=_renew_after_fork)
