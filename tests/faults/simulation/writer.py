"""Background work of a simulated process: tasks instead of threads, with locks and futures that let other tasks go on."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from typing import Any

from greenlet import GreenletExit, getcurrent

from strands_manga_memory.stores.health import TierHealth
from tests.faults.simulation.schedule import Killed, Schedule, Task


class TaskLock:
    """A re-entrant lock between tasks."""

    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule
        self._owner: object = None
        self._depth = 0

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        here = getcurrent()
        while self._owner not in (None, here):
            self._schedule.pause(until=lambda: self._owner is None)
        self._owner, self._depth = here, self._depth + 1
        return True

    def release(self) -> None:
        self._depth -= 1
        if self._depth == 0:
            self._owner = None

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


class TaskFuture(Future[Any]):
    """A future whose result is waited for by letting other tasks go on."""

    def __init__(self, schedule: Schedule) -> None:
        super().__init__()
        self._schedule = schedule
        self.set_running_or_notify_cancel()

    def result(self, timeout: float | None = None) -> Any:
        self._schedule.pause(until=self.done) if not self.done() else None
        return super().result(0)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        self._schedule.pause(until=self.done) if not self.done() else None
        return super().exception(0)


class TaskWriter:
    """A process's ``Writer``: work of one key in order, work of different keys side by side.

    Args:
        schedule: Where its tasks go on.
        owner: The process.
        clock: The process's time.
    """

    def __init__(self, schedule: Schedule, owner: str, clock: Callable[[], float]) -> None:
        self._schedule, self._owner = schedule, owner
        self.hot_health, self.durable_health = TierHealth(clock=clock), TierHealth(clock=clock)
        for health in (self.hot_health, self.durable_health):
            health._random = random.Random(0)  # the same steps have the same outcome
        self._queues: dict[Hashable, deque[tuple[Callable[[], Any], TaskFuture]]] = {}
        self._timers: dict[Hashable, Task] = {}

    def submit(self, key: Hashable, work: Callable[[], Any], **_: Any) -> Future[Any]:
        future = TaskFuture(self._schedule)
        is_new = key not in self._queues
        self._queues.setdefault(key, deque()).append((work, future))
        if is_new:
            self._schedule.spawn(f"{self._owner} {_name(key)}", self._owner, lambda: self._serve(key))
        return future

    def later(self, key: Hashable, delay: float, work: Callable[[], Any], **_: Any) -> None:
        self.cancel_later(key)

        def ring() -> None:
            self._timers.pop(key, None)
            self.submit(key, work)

        self._timers[key] = self._schedule.spawn(f"{self._owner} timer {_name(key)}", self._owner, ring, delay=delay)

    def cancel_later(self, key: Hashable) -> None:
        timer = self._timers.pop(key, None)
        if timer is not None:
            self._schedule.drop([timer])

    def _serve(self, key: Hashable) -> None:
        queue = self._queues[key]
        while queue:
            work, future = queue[0]
            self._schedule.current.calls = 0
            try:
                result = work()
            except (Killed, GreenletExit):
                raise
            except BaseException as error:  # as a writer does: whoever asked gets it from the future
                future.set_exception(error)
            else:
                future.set_result(result)
            queue.popleft()
        del self._queues[key]


def _name(key: Hashable) -> str:
    """Return which kind of work a key stands for."""
    return str(key[-1]) if isinstance(key, tuple) and isinstance(key[-1], str) and len(key) == 2 else "main"
