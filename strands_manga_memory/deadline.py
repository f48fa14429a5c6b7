"""Deadline for the events of a stream, enforced by a task of its own; blocking calls off the event loop."""

from __future__ import annotations

import asyncio
import functools
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

END = object()
"""Result of ``Pump.next`` after the last event."""


class DeadlineError(TimeoutError):
    """The deadline of a call passed before the end of its stream."""


def in_thread(call: Callable[P, R]) -> Callable[P, Coroutine[Any, Any, R]]:
    """Return the asynchronous form of a blocking function: it runs in a thread, and the event loop continues."""

    @functools.wraps(call)
    async def run(*args: P.args, **kwargs: P.kwargs) -> R:
        return await asyncio.to_thread(call, *args, **kwargs)

    return run


_left_behind: set[asyncio.Task[None]] = set()


def leave_threads(loop: asyncio.AbstractEventLoop) -> None:
    """Replace the default executor of a loop, because one of its threads may be stuck.

    Python cannot stop the thread of a function. In the old executor the thread would occupy a worker, and ``asyncio.run``,
    and therefore ``agent(...)``, would wait for its end. Other work in the old executor continues.

    Args:
        loop: Event loop to change.
    """
    loop.set_default_executor(ThreadPoolExecutor(thread_name_prefix="asyncio"))


class Pump:
    """Reader of a stream's events that stops at a deadline.

    The stream runs in a task of its own. The reader does not wait for a tool that ignores its cancellation, or for the thread
    of a function, see :func:`leave_threads`. The deadline cannot stop a tool that blocks the event loop.

    Args:
        stream: Stream of events.
        timeout: Seconds the stream may take, without the time that the consumer spends on events.
        grace: Seconds a cancelled stream has to end.
    """

    __slots__ = ("_deadline", "_error", "_events", "_given_at", "_grace", "_loop", "_stream", "_task", "_timer", "_waiter")

    def __init__(self, stream: AsyncIterator[Any], *, timeout: float, grace: float) -> None:
        self._stream = stream
        self._grace = grace
        self._events: deque[Any] = deque()
        self._error: BaseException | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._loop = asyncio.get_running_loop()
        self._given_at = self._loop.time()
        self._deadline = self._given_at + timeout
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] = self._loop.create_task(self._run())

    async def _run(self) -> None:
        try:
            async for event in self._stream:
                self._events.append(event)
                self._wake()
        except BaseException as error:  # noqa: BLE001 - raised by the next call of ``next``
            self._error = error
        self._events.append(END)
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def next(self) -> Any:
        """Return the next event, or ``END``.

        Raises:
            DeadlineError: The deadline passed. The stream is cancelled; ``close`` waits up to ``grace`` for its end.
            BaseException: Error of the stream.
        """
        now = self._loop.time()
        self._deadline += now - self._given_at
        if not self._events:
            self._waiter = self._loop.create_future()
            self._timer = self._loop.call_at(self._deadline, self._wake)
            try:
                await self._waiter
            finally:
                self._timer.cancel()
                self._waiter = None
            if not self._events:
                leave_threads(self._loop)
                raise DeadlineError
        self._given_at = self._loop.time()
        event = self._events.popleft()
        if event is END and self._error is not None:
            raise self._error
        return event

    async def close(self) -> None:
        """Cancel the stream if it still runs, and wait up to ``grace`` seconds for its end."""
        task = self._task
        if task.done():
            return
        task.cancel()
        _left_behind.add(task)  # asyncio keeps weak references only
        task.add_done_callback(_left_behind.discard)
        await asyncio.wait({task}, timeout=self._grace)
