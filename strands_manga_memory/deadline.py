"""Deadlines for event streams and for background work."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import time
from collections.abc import AsyncGenerator, Callable, Coroutine, Hashable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from typing import Any, ParamSpec, TypeVar

from strands_manga_memory import telemetry
from strands_manga_memory.lifecycle import renew_in_child
from strands_manga_memory.stores.hot import HotStore
from strands_manga_memory.stores.writer import TierHealth, shared_writer

P = ParamSpec("P")
R = TypeVar("R")

END = object()
"""Result of ``DeadlineReader.next`` after the last event."""


class DeadlineError(TimeoutError):
    """The deadline of an event stream passed before the stream had ended."""


def is_on_event_loop() -> bool:
    """Return whether an ``asyncio`` event loop runs in this thread."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def in_thread(call: Callable[P, R]) -> Callable[P, Coroutine[Any, Any, R]]:
    """Return an asynchronous function that runs a blocking function in a thread."""

    @functools.wraps(call)
    async def run(*args: P.args, **kwargs: P.kwargs) -> R:
        return await asyncio.to_thread(call, *args, **kwargs)

    return run


class DeadlineReader:
    """Reader of an asynchronous event stream, such as that of a tool call, with a deadline.

    The stream runs in its own ``asyncio`` task. A stream that ignores its cancellation is
    abandoned. A stream that blocks the event loop cannot be stopped.

    Args:
        stream: Stream of events.
        timeout: Seconds for reading all events. Time between two calls of ``next`` does not count.
        grace: Seconds that ``close`` waits for a cancelled stream to end.
    """

    def __init__(self, stream: AsyncGenerator[Any, None], *, timeout: float, grace: float) -> None:
        self._stream, self._grace = stream, grace
        self._loop = asyncio.get_running_loop()
        self._given_at = self._loop.time()
        self._deadline = self._given_at + timeout
        self._events: asyncio.Queue[Any] = asyncio.Queue()
        self._error: BaseException | None = None
        self._task = self._loop.create_task(self._run())

    async def _run(self) -> None:
        try:
            async for event in self._stream:
                self._events.put_nowait(event)
        except BaseException as error:  # noqa: BLE001 - raised by the next call of ``next``
            self._error = error
        self._events.put_nowait(END)

    async def next(self) -> Any:
        """Return the next event of the stream, or ``END`` after the last event.

        Raises:
            DeadlineError: The deadline has passed. Call ``close`` next.
            BaseException: The stream raised this error.
        """
        self._deadline += self._loop.time() - self._given_at
        try:
            async with asyncio.timeout_at(self._deadline):
                event = await self._events.get()
        except TimeoutError as error:
            _replace_thread_pool(self._loop)
            raise DeadlineError from error
        finally:
            self._given_at = self._loop.time()
        if event is END and self._error is not None:
            raise self._error
        return event

    async def close(self) -> None:
        """Cancel the stream if it still runs, and wait at most ``grace`` seconds for its end."""
        task = self._task
        if task.done():
            return
        task.cancel()
        _left_behind.add(task)  # asyncio keeps weak references only
        task.add_done_callback(_left_behind.discard)
        await asyncio.wait({task}, timeout=self._grace)


_left_behind: set[asyncio.Task[None]] = set()


def _replace_thread_pool(loop: asyncio.AbstractEventLoop) -> None:
    # A thread of the old pool may be stuck, and the loop would wait for it at its end.
    loop.set_default_executor(ThreadPoolExecutor(thread_name_prefix="asyncio"))


_SLICE_SECONDS = 0.01
"""Seconds between the checks of ``wait_until_done``. Any longer time counts as a pause."""


async def wait_until_done(
    future: Future[Any], remaining: Callable[[float], float], *, limit: float
) -> float:
    """Wait until background work ends or the time is over, without blocking the event loop.

    Pauses of the process, for example for garbage collection, may extend the wait.

    Args:
        future: Future of the work. An error of the work is not raised here.
        remaining: Function that gets the total seconds of pauses so far, and returns the seconds
            left to wait. With ``lambda paused: max(0.0, end + paused - time.monotonic())``, all
            pauses extend the wait.
        limit: Maximum seconds of the wait, including pauses.

    Returns:
        Total seconds of pauses of the process.
    """
    waiter, end, held_up = as_asyncio_future(future), time.monotonic() + limit, 0.0
    while (seconds := remaining(held_up)) and not waiter.done():
        asked, wait = time.monotonic(), min(_SLICE_SECONDS, max(0.001, seconds))
        if asked > end:
            break
        await asyncio.wait([waiter], timeout=wait)
        held_up += max(0.0, time.monotonic() - asked - wait)
    return held_up


def as_asyncio_future(future: Future[Any]) -> asyncio.Future[None]:
    """Return an ``asyncio`` future that ends when a future of another thread ends.

    The result is None, even if the other future fails.
    """
    loop = asyncio.get_running_loop()
    waiter: asyncio.Future[None] = loop.create_future()

    def ended(_: Future[Any]) -> None:
        with suppress(RuntimeError):  # the event loop was closed before the future ended
            loop.call_soon_threadsafe(waiter.set_result, None)

    future.add_done_callback(ended)
    return waiter


class BackgroundRead:
    """Read of a store or service in a thread, for which callers wait only until a deadline.

    A read is a call of the function ``read``. After the deadline, the read continues in the
    background. No new read starts before its end.

    Args:
        read: Function that reads the data and stores the result itself. It may block.
        name: Name of the read in telemetry.
        deadline: Seconds that a caller waits.
        key: Key of the read. Reads with the same key run one after another.
        hot: Hot store that ``read`` uses, or None. A store in the memory of this process is read in
            the caller's thread. During the backoff after a failure of the store (0.1 s to 5 s),
            callers do not wait for reads.

    Attributes:
        writer: Queue of background work, whose threads run the read.
        health: Availability of the hot store.
    """

    def __init__(
        self,
        read: Callable[[], None],
        *,
        name: str,
        deadline: float,
        key: Hashable,
        hot: HotStore | None = None,
    ) -> None:
        self._read, self._name, self._deadline, self._key = read, name, deadline, key
        self._hot = hot
        self.writer = shared_writer(hot, None)
        self.health = TierHealth(shared=self.writer.hot_health)
        self.renew_after_fork()
        renew_in_child(self)

    def renew_after_fork(self) -> None:
        """Allow new reads in a forked process, where the parent's read never ends."""
        self._running: Future[Any] | None = None

    async def run(self) -> None:
        """Call ``read`` in a thread, and wait at most ``deadline`` seconds for its end.

        The event loop is not blocked. If an earlier call of ``read`` still runs, no new call
        starts, and ``run`` returns at once.
        """
        since, limit = time.monotonic(), self._deadline
        if running := self._start():
            await wait_until_done(
                running,
                lambda held_up: max(0.0, since + limit + held_up - time.monotonic()),
                limit=20 * limit,
            )
            if not running.done():
                telemetry.count_missed_deadline(self._name)
                if self._hot is not None:
                    self.health.record_failure(since=since)

    def run_blocking(self) -> None:
        """Call ``read`` in a thread, and block for at most ``deadline`` seconds until its end.

        For callers without an event loop, such as constructors. If an earlier call of ``read``
        still runs, the method returns at once.
        """
        running = self._start()
        if running and not wait([running], self._deadline).done:
            telemetry.count_missed_deadline(self._name)

    def _start(self) -> Future[Any] | None:
        """Start a read unless one runs. Return its future if the caller should wait, or None."""
        if self._hot is not None and not self._hot.survives_process:
            self._read()
        elif self._running is None or self._running.done():
            may_wait = not self.health.wait
            read = functools.partial(contextvars.copy_context().run, self._read)
            self._running = self.writer.submit(self._key, read, is_needed=lambda: False)
            return self._running if may_wait else None
        return None
