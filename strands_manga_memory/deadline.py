"""Deadlines for streams of events. Separately, functions that run blocking calls in threads, without a deadline."""

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
    """A stream of events, such as those of a tool call, did not end before its deadline."""


def in_thread(call: Callable[P, R]) -> Callable[P, Coroutine[Any, Any, R]]:
    """Return an asynchronous version of a blocking function, which runs in a thread."""

    @functools.wraps(call)
    async def run(*args: P.args, **kwargs: P.kwargs) -> R:
        return await asyncio.to_thread(call, *args, **kwargs)

    return run


_left_behind: set[asyncio.Task[None]] = set()


def leave_threads(loop: asyncio.AbstractEventLoop) -> None:
    """Replace the default executor of an event loop, because a thread of the old executor may be stuck.

    Python cannot stop a thread. A stuck thread would occupy a worker, and ``asyncio.run`` (and so ``agent(...)``) would wait
    for its end. Other work in the old executor continues.
    """
    loop.set_default_executor(ThreadPoolExecutor(thread_name_prefix="asyncio"))


class Pump:
    """Reader of a stream's events until a deadline.

    The stream runs in its own task. ``close`` cancels the task, and waits at most ``grace`` seconds, because a tool may ignore
    the cancellation and a thread cannot be cancelled. A tool that blocks the event loop cannot be stopped.

    Args:
        stream: Stream of events.
        timeout: Seconds that the stream may take, without the time that the consumer spends on events.
        grace: Seconds that ``close`` waits for a cancelled stream to end.
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
        """Return the next event of the stream, or ``END`` after the last event.

        Raises:
            DeadlineError: The deadline passed. The caller then calls ``close``.
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
        """Cancel a running stream and wait up to ``grace`` seconds for its end."""
        task = self._task
        if task.done():
            return
        task.cancel()
        _left_behind.add(task)  # asyncio keeps weak references only
        task.add_done_callback(_left_behind.discard)
        await asyncio.wait({task}, timeout=self._grace)
