"""Clocks that do not count for what a test waited because the machine had other work."""

from __future__ import annotations

import asyncio
import gc
import os
import time


def seconds() -> float:
    """Return seconds for differences, within one thread; see ``Seconds``."""
    with Seconds() as clock:
        return clock.now()


class Seconds:
    """Seconds without those for which this thread waited for a processor, for differences.

    The file in which the system tells that stays open: opened at every tick, it took a tenth of
    what the tests took.
    """

    def __enter__(self) -> Seconds:
        try:
            self._file: int | None = os.open("/proc/thread-self/schedstat", os.O_RDONLY)
        except OSError:
            self._file = None
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            os.close(self._file)

    def now(self) -> float:
        """Return seconds since some moment."""
        waited = 0 if self._file is None else int(os.pread(self._file, 100, 0).split()[1])
        return time.perf_counter() - waited / 1e9


class Loop:
    """Event loop ticks that measure the longest time in which others blocked the loop.

    What it did itself counts, and what it waited for another thread, which has the interpreter; not
    that the machine had no processor for either.
    """

    def __init__(self) -> None:
        self.longest = 0.0

    async def __aenter__(self) -> Loop:
        gc.freeze()  # what the tests before this one left is not looked at again and again
        self._task = asyncio.create_task(self._tick())
        await asyncio.sleep(0.01)
        self.longest = 0.0
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.sleep(0.05)
        self._task.cancel()
        gc.unfreeze()

    async def _tick(self) -> None:
        with Seconds() as clock:
            last = time.process_time(), clock.now()
            while True:
                await asyncio.sleep(0.001)
                now = time.process_time(), clock.now()
                # Of two threads that really run at once both count, so it may be more than has
                # passed.
                self.longest = max(self.longest, min(now[0] - last[0], now[1] - last[1]))
                last = now
