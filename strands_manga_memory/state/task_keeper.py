"""TaskKeeper: what is done in one task, step by step, and what was tried for it; kept in memory only (mission A12)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

from strands_manga_memory.exceptions import StateError
from strands_manga_memory.language.tokens import shortened
from strands_manga_memory.state.execution import ExecutionKind, ExecutionLayer, ExecutionStep, error_pattern
from strands_manga_memory.state.goal_keeper import GoalKeeper
from strands_manga_memory.state.goals import Execution, GoalsLayer
from strands_manga_memory.state.task import StepStatus, TaskLayer, TaskStep

logger = logging.getLogger(__name__)

_NO_TASK, _NOTHING_TRIED = TaskLayer(), ExecutionLayer()

_READ = 1_000
"""Characters of a tool's result that are looked at for a note."""


class TaskKeeper(GoalKeeper):
    """Keeps the task and its execution memory; tool calls belong to the active goal, too."""

    time_budget_ms: float
    _task: TaskLayer
    _execution: ExecutionLayer = _NOTHING_TRIED
    _undo: dict[str, Callable[[], object]]
    _running: dict[str, str]
    _timed_out: set[str]

    @property
    def task(self) -> TaskLayer:
        """What is done for this request."""
        return self._task

    @property
    def execution(self) -> ExecutionLayer:
        """What was tried for it."""
        return self._execution

    def begin_task(self, name: str = "", *, budget_ms: float | None = None) -> None:
        """Begin a task; steps and execution memory of the one before are gone.

        Raises:
            ValueError: ``budget_ms`` is not above 0.
        """
        if budget_ms is not None and not budget_ms > 0:
            raise ValueError(f"budget_ms must be above 0, got {budget_ms!r}")
        with self.layers.lock:
            budget_ms = self.time_budget_ms if budget_ms is None else float(budget_ms)
            self._task = _NO_TASK.replaced(name=shortened(name, 300), started_at=self._clock(), budget_ms=budget_ms)
            self._execution = _NOTHING_TRIED
            self._undo.clear()
            self._running.clear()

    def pause_task(self) -> None:
        """Stop the clock of the task while a human is waited for."""
        with self.layers.lock:
            self._task = self._task.paused(self._clock())

    def resume_task(self) -> None:
        """Let the clock of the task run on."""
        with self.layers.lock:
            self._task = self._task.resumed(self._clock())

    def end_task(self) -> None:
        """End the task: what is still in progress did not end in time."""
        with self.layers.lock:
            now = self._clock()
            status = StepStatus.TIMED_OUT if self._task.is_over(now) else StepStatus.FAILED
            for step in list(self._task.steps.values()):
                if step.status is StepStatus.IN_PROGRESS:
                    self._task = self._task.with_step(step.ended(status, now, error="did not end with its turn"))
            self._running.clear()

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
        with self.layers.lock:
            self._begin_if_none()
            id_ = step_id or f"step-{len(self._task.steps) + self._task.dropped + 1}"
            if id_ in self._task.steps:
                raise StateError(f"there is a step {id_!r} already; give the next one another id")
            step = TaskStep(id=id_, name=name, parameters=dict(parameters or {}))
            self._task = self._task.with_step(step)
            if undo is not None:
                self._undo[id_] = undo
            return step

    def start_step(self, step_id: str) -> TaskStep:
        """Begin a step, or try one that failed again.

        Raises:
            StateError: There is no such step, or it cannot begin now. So with the other methods of steps.
        """
        with self.layers.lock:
            return self._stepped(self._task.step(step_id).started(self._clock()))

    def complete_step(self, step_id: str, result: object = None) -> TaskStep:
        """Complete a step that is in progress."""
        with self.layers.lock:
            short = None if result is None else shortened(str(result), 200)
            return self._stepped(self._task.step(step_id).ended(StepStatus.COMPLETED, self._clock(), result=short))

    def fail_step(self, step_id: str, error: object, *, timed_out: bool = False) -> TaskStep:
        """Say that a step failed, or took too long."""
        with self.layers.lock:
            status = StepStatus.TIMED_OUT if timed_out else StepStatus.FAILED
            return self._stepped(self._task.step(step_id).ended(status, self._clock(), error=str(error)))

    def roll_back(self, *, after: str | None = None) -> list[TaskStep]:
        """Undo the completed steps, the last one first; with ``after``, only those behind that step.

        One that cannot be undone keeps its error, and the others are undone all the same.

        Returns:
            The steps as they are now, in the order in which they were undone.
        """
        with self.layers.lock:
            wanted = self._task.completed()
            if after is not None:
                behind = list(self._task.steps)[list(self._task.steps).index(self._task.step(after).id) + 1 :]
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
                error = shortened(f"{type(failure).__name__}: {failure}", 200)
            with self.layers.lock:
                undone.append(self._stepped(step.changed(rolled_back=error is None, error=error)))
        return undone

    def remaining_ms(self) -> float:
        """Return what is left of the task's time budget, in milliseconds."""
        return self._task.remaining_ms(self._clock())

    def _begin_if_none(self) -> None:
        if self._task.started_at is None:
            self.begin_task()

    def _stepped(self, step: TaskStep) -> TaskStep:
        self._task = self._task.with_step(step)
        return step

    # Tool calls, told by hooks

    def tool_began(self, use_id: str, name: str, given: Mapping[str, Any]) -> None:
        """Record that a tool call began, or is tried again."""
        with self.layers.lock:
            id_ = self._running.get(use_id, use_id)
            known = self._task.steps.get(id_)
            if known is None or known.status is StepStatus.COMPLETED:
                if known is not None:  # the model used an id twice
                    id_ = f"{use_id}#{len(self._task.steps) + self._task.dropped + 1}"
                self._running[use_id] = id_
                parameters = {str(key): shortened(str(value)[:_READ], 100) for key, value in list(given.items())[:20]}
                self._begin_if_none()
                self._stepped(TaskStep(id=id_, name=name, parameters=parameters).started(self._clock()))
            elif known.status is not StepStatus.IN_PROGRESS:
                self.start_step(id_)

    def tool_ended(
        self, use_id: str, status: StepStatus, *, text: str, ms: float | None, retry: bool = False, size: int = 0
    ) -> None:
        """Record how a tool call ended: in the task, the execution memory and the active goal."""
        with self.layers.lock:
            id_ = self._running.get(use_id, use_id)
            step = self._task.steps.get(id_)
            text = text[:_READ]
            ok, note = status is StepStatus.COMPLETED, shortened(text, 120)
            if use_id in self._timed_out:
                self._timed_out.discard(use_id)
                status = StepStatus.TIMED_OUT
            if step is None or step.status is not StepStatus.IN_PROGRESS:
                return  # of a task that is over
            ended = self._stepped(
                step.ended(status, self._clock(), result=note if ok else None, error=None if ok else text, ms=ms)
            )
            if retry:
                self._stepped(
                    ended.changed(
                        status=StepStatus.IN_PROGRESS,
                        started_at=self._clock(),
                        retries=step.retries + 1,
                        error=None,
                        result=None,
                    )
                )
            self._execution = self._execution.with_step(
                ExecutionStep.made(kind=ExecutionKind.TOOL, text=f"{step.name}: {note or status}"[:300], ok=ok),
                pattern=step.name if ok else f"{step.name}: {error_pattern(text)}",
            )
            goals = self.goals
            if goals.active is not None:
                took = ended.duration_ms - step.duration_ms
                done = Execution.made(tool=step.name, ok=ok, ms=round(took, 1), note=shortened(note, 80))
                goal = goals.active.executed(done, at=round(self._wall(), 3), error=text, raw_characters=size)
                self.layers.put_if_readable(goals.with_goal(goal))

    # Execution memory

    def add_finding(self, text: str) -> None:
        """Add something found out, once, to the task and to the active goal if there is one."""
        with self.layers.changing(GoalsLayer):
            self._execution = self._execution.with_finding(text)
            if self.goals.active is not None:
                self._keep_goals(self.goals.with_goal(self.goals.active.with_finding(text)))

    def record_step(
        self, kind: ExecutionKind | str, text: str, *, confidence: float | None = None, ok: bool | None = None
    ) -> None:
        """Record what was done for the task: reasoning, tool, validation or replanning.

        Raises:
            ValueError: There is no such kind, or ``confidence`` is not from 0 to 1.
        """
        step = ExecutionStep(kind=ExecutionKind(kind), text=shortened(text, 300), confidence=confidence, ok=ok)
        with self.layers.lock:
            self._execution = self._execution.with_step(step, pattern="" if ok is None else error_pattern(text))
