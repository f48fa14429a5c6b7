"""Background tasks: coroutines that run in daemon threads, each with its own event loop.

Strands runs every ``agent()`` call in a new event loop, and closes this loop before it returns the
answer. A task in that loop would be cancelled, or would delay the answer. A daemon thread is
neither cancelled nor waited for, not even at the exit of the process.
"""

from __future__ import annotations

import asyncio
import contextvars
import os
import threading
from collections.abc import Callable, Coroutine
from concurrent import futures
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, TypeVar

from strands_manga_memory.lifecycle import at_fork

_T = TypeVar("_T")

MOST_AT_A_TIME = 8
"""Largest number of coroutines at the same time in this process. Further coroutines wait."""

_slots = threading.BoundedSemaphore(MOST_AT_A_TIME)


class BackgroundTask(Future[_T]):
    """Future with the result of a coroutine that runs in a background thread.

    The constructor starts the thread. At most 8 coroutines run at the same time, further ones wait.

    Args:
        work: Function that returns the coroutine. It is called in the thread.
    """

    def __init__(self, work: Callable[[], Coroutine[Any, Any, _T]]) -> None:
        super().__init__()
        self._process = os.getpid()
        self.set_running_or_notify_cancel()
        context = contextvars.copy_context()  # traces of the run belong to the turn that started it
        threading.Thread(
            target=context.run,
            args=(self._run, work),
            name="strands-manga-memory-summary",
            daemon=True,
        ).start()

    @property
    def is_lost(self) -> bool:
        """Whether the task can never end, because a parent process started it before a fork."""
        return self._process != os.getpid()

    def join(self, seconds: float) -> bool:
        """Block until the coroutine has ended, but at most ``seconds`` seconds.

        Returns:
            Whether the coroutine has ended.
        """
        return bool(futures.wait([self], seconds).done)

    async def wait(self, seconds: float) -> bool:
        """Wait until the coroutine has ended, but at most ``seconds`` seconds.

        The event loop is not blocked.

        Returns:
            Whether the coroutine has ended.
        """
        with suppress(Exception):  # the error of the run is raised where its result is read
            await asyncio.wait_for(asyncio.wrap_future(self), seconds)
        return self.done()

    def _run(self, work: Callable[[], Coroutine[Any, Any, _T]]) -> None:
        with _slots:
            try:
                self.set_result(asyncio.run(work()))
            except Exception as error:  # noqa: BLE001 - it is raised where the result is read
                self.set_exception(error)
            except BaseException as error:  # noqa: BLE001 - it must not end the turn that reads the result
                stopped = RuntimeError(f"the run was stopped by {type(error).__name__}")
                stopped.__cause__ = error
                self.set_exception(stopped)


def _renew_after_fork() -> None:
    global _slots
    _slots = threading.BoundedSemaphore(MOST_AT_A_TIME)


at_fork(after_in_child=_renew_after_fork)
