"""ExecutionKeeper: records what was tried and found out for one task; kept in memory only."""

from __future__ import annotations

from strands_manga_memory.messages.tokens import shorten_line
from strands_manga_memory.state.keepers.goal_keeper import GoalKeeper
from strands_manga_memory.state.keepers.keeper import Shared
from strands_manga_memory.state.layers.execution import ExecutionKind, ExecutionLayer, ExecutionStep, error_pattern

_NOTHING_TRIED = ExecutionLayer()


class ExecutionKeeper:
    """Keeps the execution memory of a task; what is found out belongs to the active goal, too."""

    def __init__(self, shared: Shared, goals: GoalKeeper) -> None:
        self._lock = shared.layers.lock
        self._goals = goals
        self._layer = _NOTHING_TRIED

    @property
    def layer(self) -> ExecutionLayer:
        """The execution memory as it is now; it is a value, and what is done makes another one."""
        return self._layer

    def clear(self) -> None:
        """Forget everything; another task begins."""
        self._layer = _NOTHING_TRIED

    def tried(self, step: ExecutionStep, pattern: str) -> None:
        """Add a step, counted under a pattern; an empty one is not counted."""
        self._layer = self._layer.with_step(step, pattern=pattern)

    def add_finding(self, text: str) -> None:
        """Add something found out, once, to the task and to the active goal if there is one."""
        with self._lock:
            self._goals.add_finding(text)
            self._layer = self._layer.with_finding(text)

    def noticed(self, text: str) -> None:
        """Add what is so in this task alone."""
        self._layer = self._layer.with_finding(text)

    def record(self, kind: ExecutionKind | str, text: str, *, confidence: float | None = None, ok: bool | None = None) -> None:
        """Record what was done for the task: reasoning, tool, validation or replanning.

        Raises:
            ValueError: There is no such kind, or ``confidence`` is not from 0 to 1.
        """
        step = ExecutionStep(kind=ExecutionKind(kind), text=shorten_line(text, 300), confidence=confidence, ok=ok)
        with self._lock:
            self.tried(step, "" if ok is None else error_pattern(text))
