"""Schedule: tasks that go on one at a time, in an order that somebody else chooses, by a clock of their own."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

from greenlet import getcurrent, greenlet

from strands_manga_memory.testing import FakeClock

MOST_CALLS = 400
"""Calls of stores within one piece of work. More of them, and it goes round in circles."""

MOST_PAUSES = 20_000
"""Pauses of all tasks together until what somebody waits for is done. More of them, and it never will be."""


class Killed(BaseException):
    """The process of this task has died: nothing it does any more reaches a store."""


class EndlessError(AssertionError):
    """A piece of work does not end."""


@dataclass(eq=False)
class Task:
    """Something that a process does, from one call of a store to the next.

    Args:
        label: What it is, the same in every run of the same steps.
        owner: The process.
        wake_at: When it goes on at the earliest; if it is chosen before, the clock moves there.
        calls: Calls of stores since its piece of work began.
        is_timer: Whether it only waits for its time.
    """

    label: str
    owner: str
    wake_at: float
    calls: int = 0
    is_timer: bool = False
    is_ready: Callable[[], bool] = lambda: True
    body: greenlet = field(init=False)


class Schedule:
    """All tasks there are. Only the main greenlet chooses which goes on.

    Args:
        clock: The time.
    """

    def __init__(self, clock: FakeClock) -> None:
        self.clock = clock
        self.tasks: list[Task] = []
        self._main = getcurrent()
        self._dead: list[Task] = []  # kept, so that nobody unwinds them while others go on

    @property
    def ready(self) -> list[Task]:
        """The tasks that can go on, those that were due first in front.

        Raises:
            EndlessError: There are tasks, and each waits for another one.
        """
        ready = sorted((task for task in self.tasks if task.is_ready()), key=lambda task: task.wake_at)
        if self.tasks and not ready:
            raise EndlessError(f"tasks wait for one another: {[task.label for task in self.tasks]}")
        return ready

    @property
    def only_timers(self) -> bool:
        """Whether nobody is in the middle of something."""
        return all(task.is_timer for task in self.tasks)

    def spawn(self, label: str, owner: str, work: Callable[[], object], *, delay: float | None = None) -> Task:
        """Add a task that begins when it is chosen; a timer if it is delayed."""
        task = Task(label, owner, self.clock() + (delay or 0.0), is_timer=delay is not None)

        def body() -> None:
            with suppress(Killed):
                work()

        task.body = greenlet(body, self._main)
        self.tasks.append(task)
        return task

    def go_on(self, task: Task) -> None:
        """Let a task go on until its next pause."""
        self.clock.now = max(self.clock.now, task.wake_at)
        task.body.switch()
        if task.body.dead and task in self.tasks:
            self.tasks.remove(task)

    def labelled(self, label: str) -> Task | None:
        """Return the first task of this label that can go on."""
        return next((task for task in self.ready if task.label == label), None)

    def kill(self, owner: str) -> None:
        """Let no task of a process go on any more."""
        self.drop([task for task in self.tasks if task.owner == owner])

    def drop(self, tasks: list[Task]) -> None:
        """Let none of these tasks go on any more."""
        self._dead += tasks
        self.tasks = [task for task in self.tasks if task not in tasks]

    @property
    def current(self) -> Task:
        """The task that is going on; ``Killed`` for one that has no right to."""
        here = getcurrent()
        for task in self.tasks:
            if task.body is here:
                return task
        raise Killed

    def pause(self, *, until: Callable[[], bool] = lambda: True, seconds: float = 0.0) -> None:
        """Let others go on; ``until`` something holds, and for some ``seconds`` at least.

        Work that was begun by nobody's task, as when a test looks at the end, lets all others go on until it can.
        """
        if getcurrent() is self._main:
            for _ in range(MOST_PAUSES):
                if until():
                    return
                self.go_on(self.ready[0])
            raise EndlessError(f"it goes round in circles: {[task.label for task in self.tasks]}")
        task = self.current
        task.wake_at, task.is_ready = self.clock() + seconds, until
        self._main.switch()
        task.is_ready = lambda: True

    def count_call(self) -> None:
        """Take note that the task calls a store.

        Raises:
            EndlessError: It has done so too often.
        """
        if getcurrent() is self._main:
            return
        task = self.current
        task.calls += 1
        if task.calls > MOST_CALLS:
            raise EndlessError(f"it goes round in circles: {task.label}")
