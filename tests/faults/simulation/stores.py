"""SteppedStore: a store each call of which is a point where others go on, before it is done and before its answer is there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from strands_manga_memory.exceptions import StoreUnavailableError
from tests.faults.simulation.schedule import Schedule

_CHANGING = {"write", "bury", "claim", "drop", "put", "delete", "batch_write", "transact"}


class SteppedStore:
    """A hot store or a table that fails on request.

    Attributes:
        is_down: Whether it answers nothing.
        latency: Seconds that an answer takes.
        failures: What becomes of the next calls, the last one first: ``refused``, or ``lost``, which is done and not answered.
        partial: Whether the next batch is written by half.
        changes: How many calls that may have changed it there have been.
    """

    def __init__(self, store: Any, schedule: Schedule) -> None:
        self._store = store
        self._schedule = schedule
        self.changes = 0
        self.be_well()

    def be_well(self) -> None:
        """Answer everything at once from now on."""
        self.is_down, self.latency, self.partial = False, 0.0, False
        self.failures: list[str] = []

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self._store, name)
        if not callable(attribute) or name == "close":
            return attribute

        def call(*given: Any, **named: Any) -> Any:
            self._schedule.count_call()
            self._schedule.pause()
            if self.is_down:
                raise StoreUnavailableError("it is down")
            failure = self.failures.pop() if self.failures else ""
            if failure == "refused":
                raise StoreUnavailableError("the call was refused")
            self.changes += name in _CHANGING
            if name == "batch_write" and self.partial:
                self.partial = False
                attribute(*given, **{kind: list(items)[: len(items) // 2] for kind, items in named.items()})
                raise StoreUnavailableError("half of the batch was throttled")
            answer = attribute(*given, **named)
            if isinstance(answer, Iterator):
                answer = iter(list(answer))
            self._schedule.pause(seconds=self.latency)
            if failure == "lost":
                raise StoreUnavailableError("the answer was lost")
            return answer

        return call
