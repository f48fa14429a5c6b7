"""Unhurried: long work on a thread beside an event loop, with pauses in which the loop runs."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import TypeVar

_T = TypeVar("_T")

_WORK, _PAUSE = 0.001, 0.000_1


def unhurried(items: Iterable[_T]) -> Iterator[_T]:
    """Yield items, and let other threads run for a tenth of a millisecond after each millisecond of work.

    A busy thread gives the interpreter away only every 5 ms: so long the loop would stand still at each of its steps.
    """
    began = time.perf_counter()
    for item in items:
        yield item
        if time.perf_counter() - began >= _WORK:
            time.sleep(_PAUSE)
            began = time.perf_counter()
