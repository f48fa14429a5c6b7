"""Task of one user request: steps, time budget, attempts and findings. It is kept in memory only."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from enum import StrEnum
from typing import Any

from pydantic import Field

from strands_manga_memory.exceptions import StateError
from strands_manga_memory.messages.injection import escape_line
from strands_manga_memory.messages.tokens import shorten_line
from strands_manga_memory.state.goals import (
    MOST_LINES,
    MOST_PATTERNS,
    GoalState,
    added_finding,
    counted,
    error_pattern,
)
from strands_manga_memory.state.state_store import Part, StateStore

logger = logging.getLogger(__name__)

MOST_STEPS = 100
MOST_FINDINGS = 50
_LOW = 0.25
"""Remaining share of the time budget below which the model gets a warning."""


class StepStatus(StrEnum):
    """Status of a step of a task."""

    QUEUED = "queued"
    IN_PROGRESS = "in_progress"
    COMPLETED = "completed"
    FAILED = "failed"
    TIMED_OUT = "timed_out"


_UNSUCCESSFUL = (StepStatus.FAILED, StepStatus.TIMED_OUT)
_NEXT: dict[StepStatus, frozenset[StepStatus]] = {
    StepStatus.QUEUED: frozenset({StepStatus.IN_PROGRESS, *_UNSUCCESSFUL}),
    StepStatus.IN_PROGRESS: frozenset({StepStatus.QUEUED, StepStatus.COMPLETED, *_UNSUCCESSFUL}),
    StepStatus.COMPLETED: frozenset(),
    StepStatus.FAILED: frozenset({StepStatus.IN_PROGRESS}),
    StepStatus.TIMED_OUT: frozenset({StepStatus.IN_PROGRESS}),
}


class TaskStep(Part):
    """Step of a task, such as a tool call.

    Attributes:
        id: Id of the step; for a tool call, the ``toolUseId``.
        name: Name of the step; for a tool call, the name of the tool.
        status: Status of the step.
        parameters: Arguments of the step.
        result: Shortened result of the step.
        error: Shortened error of the step.
        started_at: Time of the last start, in monotonic seconds; None before the first start.
        duration_ms: Milliseconds of all attempts together, without waits for a human.
        retries: Number of restarts.
        rolled_back: Whether the step was undone.
    """

    id: str
    name: str = Field(min_length=1, max_length=200)
    status: StepStatus = StepStatus.QUEUED
    parameters: dict[str, Any] = Field(default_factory=dict)
    result: str | None = None
    error: str | None = None
    started_at: float | None = None
    duration_ms: float = 0.0
    retries: int = 0
    rolled_back: bool = False

    def started(self, now: float) -> TaskStep:
        """Return a copy of the step after its start or restart, with the status ``IN_PROGRESS``.

        Raises:
            StateError: The step cannot be started in its current status.
        """
        retries = self.retries + (self.status in _UNSUCCESSFUL)
        return self._moved(StepStatus.IN_PROGRESS, started_at=now, error=None, retries=retries)

    def ended(
        self, status: StepStatus, now: float, *, result: str | None = None, error: str | None = None, ms: float | None = None
    ) -> TaskStep:
        """Return a copy of the step after its end.

        Args:
            status: The new status.
            now: The time in monotonic seconds.
            result: Result of the step.
            error: Error of the step, truncated to 200 characters.
            ms: Duration of the last attempt in milliseconds. Default: the time since its start.

        Raises:
            StateError: The new status may not follow the current status.
        """
        took = self._since_start(now) if ms is None else ms
        error = error[:200] if error else None
        return self._moved(status, result=result, error=error, duration_ms=round(self.duration_ms + took, 3))

    def waiting(self, now: float) -> TaskStep:
        """Return a copy of the step with the status ``QUEUED``, because the task waits for a human."""
        return self._moved(StepStatus.QUEUED, duration_ms=round(self.duration_ms + self._since_start(now), 3))

    def _since_start(self, now: float) -> float:
        return 0.0 if self.started_at is None else max(0.0, 1000 * (now - self.started_at))

    def _moved(self, status: StepStatus, **fields: Any) -> TaskStep:
        if status not in _NEXT[self.status]:
            allowed = ", ".join(sorted(_NEXT[self.status])) or "none, it is completed"
            raise StateError(f"step {self.id!r:.80} cannot go from {self.status} to {status}; allowed: {allowed}")
        return self.replaced(status=status, **fields)


class TaskLayer(Part):
    """Current task of an agent, usually one user request.

    Attributes:
        name: Name of the task.
        budget_ms: Time budget in milliseconds. Default 3,000.
        started_at: Time of the start, in monotonic seconds; None before the start.
        paused_at: Time at which the current wait for a human began, in monotonic seconds; None if the task is not paused.
        paused_ms: Milliseconds of all earlier waits for a human.
        steps: The last 100 steps, keyed by id, oldest first.
        dropped: Number of older steps that were dropped.
    """

    name: str = Field(default="", max_length=300)
    budget_ms: float = Field(default=3000.0, gt=0)
    started_at: float | None = None
    paused_at: float | None = None
    paused_ms: float = 0.0
    steps: dict[str, TaskStep] = Field(default_factory=dict)
    dropped: int = 0

    def remaining_ms(self, now: float) -> float:
        """Return the remaining time budget in milliseconds, at least 0. Waits for a human are not counted."""
        if self.started_at is None:
            return self.budget_ms
        until = now if self.paused_at is None else self.paused_at
        return min(self.budget_ms, max(0.0, self.budget_ms + self.paused_ms - 1000 * (until - self.started_at)))

    def paused(self, now: float) -> TaskLayer:
        """Return a copy of the task that is paused to wait for a human. Steps in progress are queued again."""
        steps = {id_: step.waiting(now) if step.status is StepStatus.IN_PROGRESS else step for id_, step in self.steps.items()}
        return self.replaced(paused_at=now, steps=steps)

    def resumed(self, now: float) -> TaskLayer:
        """Return a copy of the task that is resumed after a wait for a human."""
        if self.paused_at is None:
            return self
        return self.replaced(paused_at=None, paused_ms=self.paused_ms + 1000 * (now - self.paused_at))

    def step(self, id_: str) -> TaskStep:
        """Return the step with the given id.

        Raises:
            StateError: The step does not exist.
        """
        if id_ not in self.steps:
            known = ", ".join(map(repr, list(self.steps)[-10:])) or "none"
            raise StateError(f"there is no step {id_!r:.80}; there are: {known}")
        return self.steps[id_]

    def with_step(self, step: TaskStep) -> TaskLayer:
        """Return a copy of the task with a step added or replaced. Beyond 100 steps, the oldest ended step is dropped."""
        steps = {**self.steps, step.id: step}
        dropped = len(steps) > MOST_STEPS
        if dropped:
            ended = (id_ for id_, each in steps.items() if not _NEXT[each.status] or each.error is not None)
            del steps[next(ended, next(iter(steps)))]
        return self.replaced(steps=steps, dropped=self.dropped + dropped)

    def urgency(self, now: float) -> str:
        """Return a warning for the model if the time budget runs low or is used up; otherwise an empty text."""
        left = self.remaining_ms(now)
        if not self.steps or left >= _LOW * self.budget_ms:
            return ""
        if left == 0:
            return f"The time budget of {self.budget_ms:.0f} ms is used up: call no more tools, answer now with what you have."
        return f"Of the time budget of {self.budget_ms:.0f} ms, less than {_LOW:.0%} is left: call only what you must."

    def failed(self) -> list[TaskStep]:
        """Return the steps that failed or timed out."""
        return [step for step in self.steps.values() if step.status in _UNSUCCESSFUL]

    def lines(self) -> Iterator[str]:
        """Yield a text line that shows the failed steps to the model."""
        if failed := self.failed():
            yield "Did not work in this request: " + "; ".join(
                f"{escape_line(step.name, 60)} ({escape_line(step.error or step.status, 80)})" for step in failed[-MOST_LINES:]
            )


class ExecutionKind(StrEnum):
    """Kind of a recorded step of a task."""

    REASONING = "reasoning"
    TOOL = "tool"
    VALIDATION = "validation"
    REPLANNING = "replanning"


class ExecutionStep(Part):
    """Recorded step of a task, such as a thought or a tool call.

    Attributes:
        kind: Kind of the step.
        text: Description, at most 300 characters.
        confidence: Confidence in the step, from 0 to 1, or None.
        ok: Whether the step succeeded; None if unknown.
    """

    kind: ExecutionKind
    text: str = Field(min_length=1, max_length=300)
    confidence: float | None = Field(default=None, ge=0, le=1)
    ok: bool | None = None


class ExecutionLayer(Part):
    """Execution memory of a task: its last 100 steps, such as reasoning and tool calls, and its findings.

    Attributes:
        steps: The last steps, oldest first.
        total: Number of steps so far, including steps no longer in memory.
        findings: Findings without repetitions.
        successes: Number of successes, keyed by a name of similar steps, such as the name of the tool.
        errors: Number of errors, keyed by the error text without numbers and ids.
        plan_changes: The last 20 reasons for changes of the plan.
    """

    steps: tuple[ExecutionStep, ...] = ()
    total: int = 0
    findings: tuple[str, ...] = ()
    successes: dict[str, int] = Field(default_factory=dict)
    errors: dict[str, int] = Field(default_factory=dict)
    plan_changes: tuple[str, ...] = ()

    def with_step(self, step: ExecutionStep, *, pattern: str = "") -> ExecutionLayer:
        """Return a copy with a step added. Its success or error is counted under the name ``pattern``, if one is given."""
        changes: dict[str, Any] = {"steps": (*self.steps, step)[-MOST_STEPS:], "total": self.total + 1}
        if step.ok is not None and pattern:
            name = "successes" if step.ok else "errors"
            changes[name] = counted(getattr(self, name), pattern)
        if step.kind is ExecutionKind.REPLANNING:
            changes["plan_changes"] = (*self.plan_changes, step.text)[-MOST_PATTERNS:]
        return self.replaced(**changes)

    def with_finding(self, text: str) -> ExecutionLayer:
        """Return a copy with a finding added, unless it is known already."""
        return self.replaced(findings=added_finding(self.findings, text, MOST_FINDINGS))

    def lines(self) -> Iterator[str]:
        """Yield the text lines that show findings and changes of the plan to the model."""
        if self.findings:
            yield "Found in this task: " + "; ".join(escape_line(each) for each in self.findings[-MOST_LINES:])
        if self.plan_changes:
            yield f"The plan was changed: {escape_line(self.plan_changes[-1])}"


class ExecutionState:
    """Execution memory of the current task: its reasoning, tool calls and findings.

    Attributes:
        layer: Current, immutable value of the execution memory.
    """

    def __init__(self, store: StateStore, goals: GoalState) -> None:
        self._lock = store.lock
        self._goals = goals
        self.layer = ExecutionLayer()

    def clear(self) -> None:
        """Clear the execution memory at the start of a task."""
        self.layer = ExecutionLayer()

    def add_finding(self, text: str, *, of_goal: bool = True) -> None:
        """Add a finding to the task and, with ``of_goal``, to the agent's active goal, if any. Known findings are skipped."""
        with self._lock:
            if of_goal:
                self._goals.add_finding(text)
            self.layer = self.layer.with_finding(text)

    def record(
        self,
        kind: ExecutionKind | str,
        text: str,
        *,
        confidence: float | None = None,
        ok: bool | None = None,
        pattern: str | None = None,
    ) -> None:
        """Record a step of the task: a thought, a validation, a change of the plan or a tool call.

        Args:
            kind: Kind of the step.
            text: Description, truncated to 300 characters.
            confidence: Confidence in the step, from 0 to 1.
            ok: Whether the step succeeded.
            pattern: Name under which the success or error is counted. Default: the text without numbers and ids.

        Raises:
            ValueError: The kind does not exist, or ``confidence`` is not from 0 to 1.
        """
        step = ExecutionStep(kind=ExecutionKind(kind), text=shorten_line(text, 300), confidence=confidence, ok=ok)
        with self._lock:
            self.layer = self.layer.with_step(step, pattern=error_pattern(text) if pattern is None else pattern)


class TaskState:
    """Task of one user request, with its steps and its time budget.

    Attributes:
        layer: Current, immutable value of the task.
        running: Step id of each tool call of the task, keyed by the result of ``call_key`` for the call. The step id differs
            from the key only if the model used the id of a completed call again.
    """

    def __init__(self, store: StateStore, budget_ms: float, execution: ExecutionState) -> None:
        self._lock = store.lock
        self._clock = store.clock
        self._budget_ms = budget_ms
        self.layer = TaskLayer(budget_ms=budget_ms)
        self._execution = execution
        self._undo: dict[str, Callable[[], object]] = {}
        self.running: dict[str, str] = {}

    def begin(self, name: str = "", *, budget_ms: float | None = None) -> None:
        """Begin a task, and delete the steps and the execution memory of the previous task.

        Raises:
            ValueError: ``budget_ms`` is not above 0.
        """
        if budget_ms is not None and not budget_ms > 0:
            raise ValueError(f"budget_ms must be above 0, got {budget_ms!r:.80}")
        with self._lock:
            budget_ms = budget_ms or self._budget_ms
            self.layer = TaskLayer(name=shorten_line(name, 300), started_at=self._clock(), budget_ms=budget_ms)
            self._execution.clear()
            self._undo.clear()
            self.running.clear()

    def pause(self) -> None:
        """Stop the clock of the task's time budget during a wait for a human."""
        with self._lock:
            self.layer = self.layer.paused(self._clock())

    def resume(self) -> None:
        """Restart the clock of the task's time budget after a wait for a human."""
        with self._lock:
            self.layer = self.layer.resumed(self._clock())

    def end(self) -> None:
        """End the task. Steps in progress are marked as failed or, if the time budget is used up, as timed out."""
        with self._lock:
            status = StepStatus.FAILED if self.remaining_ms() else StepStatus.TIMED_OUT
            for step in list(self.layer.steps.values()):
                if step.status is StepStatus.IN_PROGRESS:
                    self.put_step(step.ended(status, self._clock(), error="did not end with its turn"))
            self.running.clear()

    def add_step(
        self,
        name: str,
        parameters: Mapping[str, Any] | None = None,
        *,
        step_id: str | None = None,
        undo: Callable[[], object] | None = None,
    ) -> TaskStep:
        """Add a queued step to the task, and return the step. ``roll_back`` calls ``undo`` to undo the step.

        Raises:
            StateError: The id exists already.
        """
        with self._lock:
            if self.layer.started_at is None:
                self.begin()
            id_ = step_id or f"step-{len(self.layer.steps) + self.layer.dropped + 1}"
            if id_ in self.layer.steps:
                raise StateError(f"step {id_!r:.80} exists already; use another id")
            step = self.put_step(TaskStep(id=id_, name=name, parameters=dict(parameters or {})))
            if undo is not None:
                self._undo[id_] = undo
            return step

    def start_step(self, step_id: str) -> TaskStep:
        """Start a step, or restart a failed step.

        Raises:
            StateError: The step does not exist, or its status does not allow a start.
        """
        with self._lock:
            return self.put_step(self.layer.step(step_id).started(self._clock()))

    def complete_step(self, step_id: str, result: object = None) -> TaskStep:
        """Complete a step in progress.

        Raises:
            StateError: The step does not exist, or is not in progress.
        """
        with self._lock:
            short = None if result is None else shorten_line(str(result), 200)
            return self.put_step(self.layer.step(step_id).ended(StepStatus.COMPLETED, self._clock(), result=short))

    def fail_step(self, step_id: str, error: object, *, timed_out: bool = False) -> TaskStep:
        """Mark a step as failed or timed out.

        Raises:
            StateError: The step does not exist, or has ended.
        """
        with self._lock:
            status = StepStatus.TIMED_OUT if timed_out else StepStatus.FAILED
            return self.put_step(self.layer.step(step_id).ended(status, self._clock(), error=str(error)))

    def roll_back(self, *, after: str | None = None) -> list[TaskStep]:
        """Undo the completed steps of the task, the last step first; with a step id ``after``, only later steps.

        If the undo of a step fails, the step is not marked as rolled back and gets the error. The other steps are still undone.

        Returns:
            The updated steps, including those with an error, in the order of the attempts.
        """
        with self._lock:
            steps = list(self.layer.steps.values())
            if after is not None:
                steps = steps[steps.index(self.layer.step(after)) + 1 :]
        undone = []
        for step in reversed(steps):
            if step.status is not StepStatus.COMPLETED or step.rolled_back:
                continue
            error = None
            try:
                self._undo.pop(step.id, lambda: None)()
            except Exception as failure:  # noqa: BLE001 - the other steps must still be undone
                logger.warning("step=<%s>, error=<%s> | could not be undone", step.name, type(failure).__name__)
                error = shorten_line(f"{type(failure).__name__}: {failure}", 200)
            with self._lock:
                undone.append(self.put_step(step.replaced(rolled_back=error is None, error=error)))
        return undone

    def remaining_ms(self) -> float:
        """Return the remaining time budget of the task in milliseconds."""
        return self.layer.remaining_ms(self._clock())

    def put_step(self, step: TaskStep) -> TaskStep:
        """Add or replace a step of the task and return the step."""
        self.layer = self.layer.with_step(step)
        return step
