"""Pump: runs a tool's stream in a task of its own and hands out its events until a deadline that holds."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

END = object()
"""What ``Pump.next`` returns after the last event."""


class DeadlineError(TimeoutError):
    """The deadline of a call passed before its stream ended."""


_left_behind: set[asyncio.Task[None]] = set()


def leave_threads(loop: asyncio.AbstractEventLoop) -> None:
    """Give a loop another default executor, because a thread of the present one may be stuck.

    The thread of a plain function cannot be stopped. Left in the executor it takes up one of few places, and ``asyncio.run``,
    and with it ``agent(...)``, would wait for it before it returns. What else runs there goes on and ends by itself.
    """
    loop.set_default_executor(ThreadPoolExecutor(thread_name_prefix="asyncio"))


class Pump:
    """The events of a stream, until a deadline.

    The stream runs in a task of its own, so that a tool which ignores its cancellation is left behind, not waited for; so is
    the thread of a plain function, see :func:`leave_threads`. What no task can bound: a tool that blocks the event loop itself.

    Args:
        stream: The events.
        timeout: Seconds the stream may take. Time in which nobody asks for events, because the consumer is busy with the
            last one, is not counted.
        grace: Seconds a cancelled stream gets to end.
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
        except BaseException as error:  # noqa: BLE001 - handed to whoever asks for the next event
            self._error = error
        self._events.append(END)
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def next(self) -> Any:
        """Return the next event, or ``END``.

        Raises:
            DeadlineError: The deadline passed. The stream has been told to stop; ``close`` waits for it, as long as the grace.
            BaseException: Whatever the stream raised.
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
        """Stop the stream if it still runs; leave it behind if it does not stop within the grace."""
        task = self._task
        if task.done():
            return
        task.cancel()
        _left_behind.add(task)  # asyncio keeps weak references only
        task.add_done_callback(_left_behind.discard)
        await asyncio.wait({task}, timeout=self._grace)
