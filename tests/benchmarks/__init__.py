"""Benchmarks: counts at the sockets and paired timings, compared with the budgets of the design.

A benchmark is a module with ``run() -> dict`` (row to value) and ``BUDGETS`` (row to ``"<= 6"``,
``"< 1.0"``, ``"== 1"``; a number alone is a maximum). A row whose name ends in ``_us``, ``_ms`` or
``_s`` is a timing. A budget in ``_us`` is for a machine of usual speed; see ``slowness``.
"""

import itertools
import sys
import threading
import time
from collections.abc import AsyncGenerator, AsyncIterable, Iterator, Sequence
from statistics import median
from typing import Any, TypeVar

from rich.console import Console
from rich.progress import track
from strands.models import Model
from strands.types.streaming import StreamEvent

from tests.benchmarks.sentences import prose

_T = TypeVar("_T")


def progress(items: Sequence[_T], label: str) -> Iterator[_T]:
    """Yield ``items``, and show the progress on standard error."""
    if not sys.stderr.isatty():
        print(f"{label} ...", file=sys.stderr)
        return iter(items)
    return iter(track(items, label, console=Console(stderr=True), transient=True))


_starts = itertools.count(1)


def text(length: int) -> str:
    """Return ``length`` bytes of ``prose``, other bytes at each call."""
    everything = prose()
    start = next(_starts) * 7919 % (len(everything) - length)
    return everything[start : start + length]


def reset_texts() -> None:
    """Make ``text`` return the same texts again, from the first one."""
    global _starts
    _starts = itertools.count(1)


_STEP_US = 0.4
"""Microseconds of a step on the machine of the budgets."""


def slowness() -> float:
    """Return this machine's time of a step relative to the budgets' machine; at least 1.

    Shared machines change their speed from one minute to the next, by up to a factor of two.
    """
    lock, seen = threading.Lock(), {"steps": 0}

    def step() -> int:
        with lock:
            seen["steps"] = seen.get("steps", 0) + 1
            return seen["steps"]

    found = []
    for _ in range(200):
        start = time.perf_counter()
        for _ in range(100):
            step()
        found.append((time.perf_counter() - start) / 100)
    return max(1.0, 1e6 * median(found) / _STEP_US)


class Answers(Model):
    """Model that answers each request with other sentences, in almost no time."""

    def __init__(self, characters: int) -> None:
        self._characters = characters

    def update_config(self, **model_config: Any) -> None:
        """Ignore the configuration."""

    def get_config(self) -> dict[str, Any]:
        """Return the configuration."""
        return {"model_id": "answers", "context_window_limit": 200_000}

    async def structured_output(
        self, *args: Any, **kwargs: Any
    ) -> AsyncGenerator[dict[str, Any], None]:
        """Refuse structured output."""
        raise NotImplementedError
        yield {}

    async def stream(self, *args: Any, **kwargs: Any) -> AsyncIterable[StreamEvent]:
        """Stream an answer."""
        yield {"messageStart": {"role": "assistant"}}
        yield {"contentBlockStart": {"start": {}}}
        yield {"contentBlockDelta": {"delta": {"text": text(self._characters)}}}
        yield {"contentBlockStop": {}}
        yield {"messageStop": {"stopReason": "end_turn"}}
