"""Clocks that do not count for what a test waited because the machine had other work."""

from __future__ import annotations

import asyncio
import gc
import time
from pathlib import Path


def seconds() -> float:
    """Return seconds for differences: of the time that passes, without that for which this thread waited for a processor."""
    return time.perf_counter() - _waited()


def _waited() -> float:
    """Return for how many seconds this thread has waited for a processor, as far as the system tells."""
    try:
        return int(Path("/proc/thread-self/schedstat").read_bytes().split()[1]) / 1e9
    except OSError:
        return 0.0


class Loop:
    """Ticks on an event loop, and remembers for how long others of the process kept it from doing so at most.

    What it did itself counts, and what it waited for another thread, which has the interpreter; not that the machine had no
    processor for either.
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
        last = time.process_time(), seconds()
        while True:
            await asyncio.sleep(0.001)
            now = time.process_time(), seconds()
            # Of two threads that really run at once both count, so it may be more than has passed.
            self.longest = max(self.longest, min(now[0] - last[0], now[1] - last[1]))
            last = now
