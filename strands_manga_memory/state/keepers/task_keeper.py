"""TaskKeeper: begins and ends a task and its steps; kept in memory only."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

from strands_manga_memory.exceptions import StateError
from strands_manga_memory.messages.tokens import shorten_line
from strands_manga_memory.state.keepers.execution_keeper import ExecutionKeeper
from strands_manga_memory.state.keepers.keeper import Shared
from strands_manga_memory.state.layers.task import StepStatus, TaskLayer, TaskStep

logger = logging.getLogger(__name__)

_NO_TASK = TaskLayer()


class TaskKeeper:
    """Keeps what is done for one request, step by step, within a time budget.

    Tool calls that are steps are known by their ids in ``running``.
    """

    def __init__(self, shared: Shared, budget_ms: float, execution: ExecutionKeeper) -> None:
        self._lock = shared.layers.lock
        self._clock = shared.clock
        self._budget_ms = budget_ms
        self._layer = TaskLayer(budget_ms=budget_ms)
        self._execution = execution
        self._undo: dict[str, Callable[[], object]] = {}
        self.running: dict[str, str] = {}

    @property
    def layer(self) -> TaskLayer:
        """The task as it is now; it is a value, and what is done makes another one."""
        return self._layer

    def begin(self, name: str = "", *, budget_ms: float | None = None) -> None:
        """Begin a task; steps and execution memory of the one before are gone.

        Raises:
            ValueError: ``budget_ms`` is not above 0.
        """
        if budget_ms is not None and not budget_ms > 0:
            raise ValueError(f"budget_ms must be above 0, got {budget_ms!r:.80}")
        with self._lock:
            budget_ms = self._budget_ms if budget_ms is None else float(budget_ms)
            self._layer = _NO_TASK.replaced(name=shorten_line(name, 300), started_at=self._clock(), budget_ms=budget_ms)
            self._execution.clear()
            self._undo.clear()
            self.running.clear()

    def pause(self) -> None:
        """Stop the clock of the task while a human is waited for."""
        with self._lock:
            self._layer = self._layer.paused(self._clock())

    def resume(self) -> None:
        """Let the clock of the task run on."""
        with self._lock:
            self._layer = self._layer.resumed(self._clock())

    def end(self) -> None:
        """End the task: what is still in progress did not end in time."""
        with self._lock:
            now = self._clock()
            status = StepStatus.TIMED_OUT if self._layer.is_over(now) else StepStatus.FAILED
            for step in list(self._layer.steps.values()):
                if step.status is StepStatus.IN_PROGRESS:
                    self._layer = self._layer.with_step(step.ended(status, now, error="did not end with its turn"))
            self.running.clear()

    def add_step(
        self,
        name: str,
        parameters: Mapping[str, Any] | None = None,
        *,
        step_id: str | None = None,
        undo: Callable[[], object] | None = None,
    ) -> TaskStep:
        """Add a step, queued; ``undo`` takes back what it did, for ``roll_back``.

        Raises:
            StateError: There is a step of this id already.
        """
        with self._lock:
            self.begin_if_none()
            id_ = step_id or f"step-{len(self._layer.steps) + self._layer.dropped + 1}"
            if id_ in self._layer.steps:
                raise StateError(f"there is a step {id_!r:.80} already; give the next one another id")
            step = TaskStep(id=id_, name=name, parameters=dict(parameters or {}))
            self._layer = self._layer.with_step(step)
            if undo is not None:
                self._undo[id_] = undo
            return step

    def start_step(self, step_id: str) -> TaskStep:
        """Begin a step, or try one that failed again.

        Raises:
            StateError: There is no such step, or it cannot begin now. So with the other methods of steps.
        """
        with self._lock:
            return self.stepped(self._layer.step(step_id).started(self._clock()))

    def complete_step(self, step_id: str, result: object = None) -> TaskStep:
        """Complete a step that is in progress."""
        with self._lock:
            short = None if result is None else shorten_line(str(result), 200)
            return self.stepped(self._layer.step(step_id).ended(StepStatus.COMPLETED, self._clock(), result=short))

    def fail_step(self, step_id: str, error: object, *, timed_out: bool = False) -> TaskStep:
        """Say that a step failed, or took too long."""
        with self._lock:
            status = StepStatus.TIMED_OUT if timed_out else StepStatus.FAILED
            return self.stepped(self._layer.step(step_id).ended(status, self._clock(), error=str(error)))

    def roll_back(self, *, after: str | None = None) -> list[TaskStep]:
        """Undo the completed steps, the last one first; with ``after``, only those behind that step.

        One that cannot be undone keeps its error, and the others are undone all the same.

        Returns:
            The steps as they are now, in the order in which they were undone.
        """
        with self._lock:
            wanted = self._layer.completed()
            if after is not None:
                behind = list(self._layer.steps)[list(self._layer.steps).index(self._layer.step(after).id) + 1 :]
                wanted = [step for step in wanted if step.id in behind]
        undone = []
        for step in wanted:
            error = None
            undo = self._undo.pop(step.id, None)
            try:
                if undo is not None:
                    undo()
            except Exception as failure:  # noqa: BLE001 - one that fails must not keep the others from being tried
                logger.warning("step=<%s>, error=<%s> | could not be undone", step.name, type(failure).__name__)
                error = shorten_line(f"{type(failure).__name__}: {failure}", 200)
            with self._lock:
                undone.append(self.stepped(step.changed(rolled_back=error is None, error=error)))
        return undone

    def remaining_ms(self) -> float:
        """Return what is left of the task's time budget, in milliseconds."""
        return self._layer.remaining_ms(self._clock())

    def begin_if_none(self) -> None:
        """Begin a task if there is none."""
        if self._layer.started_at is None:
            self.begin()

    def stepped(self, step: TaskStep) -> TaskStep:
        """Put a step in the place of the one of its id, or behind the others, and return it."""
        self._layer = self._layer.with_step(step)
        return step
