"""Owners of the code that the event loop runs, sampled by processor time."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import strands

import strands_manga_memory

_EVERY = 0.001
"""Processor seconds between samples. The kernel's clock may have a resolution of only 4 ms."""

_OURS, _STRANDS = (str(Path(package.__file__ or "").parent) + "/" for package in (strands_manga_memory, strands))

_FOLDERS = ("conversation", "session")


@contextmanager
def sampled() -> Iterator[Counter[str]]:
    """Count samples by owner: ``strands``, ``conversation``, ``session`` or ``the_rest``. Libraries count for their caller.

    Works only in the main thread of a process in which no other thread does most of the work.
    """
    found: Counter[str] = Counter()
    # It stays: a last signal may come when the clock has been stopped, and ends a process that has nothing to handle it.
    signal.signal(signal.SIGPROF, lambda _, frame: found.update([_owner(frame)]))
    signal.setitimer(signal.ITIMER_PROF, _EVERY, _EVERY)
    try:
        yield found
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def _owner(frame: FrameType | None) -> str:
    while frame is not None:
        file = frame.f_code.co_filename
        if file.startswith(_STRANDS):
            return "strands"
        if file.startswith(_OURS) and (folder := file.removeprefix(_OURS).split("/")[0]) in _FOLDERS:
            return folder
        frame = frame.f_back
    return "the_rest"
