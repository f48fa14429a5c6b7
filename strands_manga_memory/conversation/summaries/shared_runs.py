"""Summary runs of this process, by the messages they cover: a run outlives the agent that began it."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from strands_manga_memory.conversation.background import Run
from strands_manga_memory.conversation.history.summary import Summary
from strands_manga_memory.forks import at_fork

_MOST_RUNS = 256
"""Runs that are kept; of more, the one that was begun or looked up first goes."""


@dataclass(frozen=True)
class CoveredRange:
    """Messages that a run covers. A session keeps it with the state of the manager, so that every process knows of the run.

    Attributes:
        first: Tracking id of the first message before the recent turns.
        last: Tracking id of the last message before the recent turns.
        begun: When the run was begun, in seconds since the epoch.
    """

    first: str
    last: str
    begun: float

    def to_state(self) -> dict[str, Any]:
        """Return JSON values."""
        return {"first": self.first, "last": self.last, "begun": self.begun}

    @classmethod
    def from_state(cls, state: Any) -> CoveredRange | None:
        """Read what :meth:`to_state` returned; None if there is nothing, or nothing that can be read."""
        if not isinstance(state, Mapping):
            return None
        first, last, begun = (state.get(name) for name in ("first", "last", "begun"))
        if not (isinstance(first, str) and isinstance(last, str) and isinstance(begun, int | float)):
            return None
        return cls(first, last, float(begun))


@dataclass(frozen=True)
class SharedRun:
    """A run, and what it is for.

    Attributes:
        run: The run.
        key: What it is found by.
        marks: Ids and fingerprints of the messages that its summary takes the place of.
        asked: Whether a summarizer was asked.
    """

    run: Run[Summary]
    key: Hashable
    marks: Sequence[tuple[str | None, int]]
    asked: bool


class SharedRuns:
    """Holds the latest runs of all agents of a process, those that have ended, too."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._runs: OrderedDict[Hashable, SharedRun] = OrderedDict()

    def find(self, key: Hashable) -> SharedRun | None:
        """Return the run of a key; None if there is none, or its thread is in the process that this one was forked from."""
        with self._lock:
            found = self._runs.get(key)
            if found is not None and found.run.is_lost:
                del self._runs[key]
                return None
            if found is not None:
                self._runs.move_to_end(key)
            return found

    def add(self, shared: SharedRun) -> None:
        """Hold a run; it takes the place of one with the same key."""
        with self._lock:
            self._runs[shared.key] = shared
            self._runs.move_to_end(shared.key)
            while len(self._runs) > _MOST_RUNS:
                self._runs.popitem(last=False)

    def discard(self, shared: SharedRun) -> None:
        """Give up a run, if it is still held."""
        with self._lock:
            if self._runs.get(shared.key) is shared:
                del self._runs[shared.key]


runs = SharedRuns()
"""The runs of this process."""


def _renew_after_fork() -> None:
    runs.__init__()  # type: ignore[misc]  # a lock may have been held, and the threads are in the other process


at_fork(after_in_child=_renew_after_fork)
