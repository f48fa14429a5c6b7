"""Clocks that do not count for what a test waited because the machine had other work."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path


class Idle:
    """The seconds of a block in which this process and its children had nothing to do.

    They waited for an answer, a lock or the end of a pause; not for a processor, and none of their
    threads ran. So a load of the machine, by others or by these processes, adds nothing. It is read
    every 20 ms, because a thread that ends takes its numbers with it.
    """

    def __enter__(self) -> Idle:
        self.seconds = 0.0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._before = time.monotonic(), self._work()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        self._look()

    def _watch(self) -> None:
        while not self._ended.wait(0.02):
            self._look()

    def _look(self) -> None:
        then, worked = self._before
        self._before = now, works = time.monotonic(), self._work()
        busy = sum(seconds - worked.get(thread, 0.0) for thread, seconds in works.items())
        self.seconds += now - then - busy  # below 0 where a thread has waited since an earlier look

    def _work(self) -> dict[str, float]:
        """Return for each thread the seconds for which it had or wanted a processor."""
        found = {}
        for task in _tasks(os.getpid()):
            if task.name != str(self._thread.native_id):
                with suppress(OSError):
                    ran, waited, _ = (task / "schedstat").read_text().split()
                    found[task.name] = (int(ran) + int(waited)) / 1e9
        return found


def _tasks(process: int) -> Iterator[Path]:
    """Yield the folders of the threads of a process and its children."""
    with suppress(OSError):
        for task in Path(f"/proc/{process}/task").iterdir():
            yield task
            for child in (task / "children").read_text().split():
                yield from _tasks(int(child))


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
