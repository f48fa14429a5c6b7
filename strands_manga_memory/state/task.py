"""Task of an agent in one user request: steps, time budget, tool calls and findings.

A task is kept in memory only.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from enum import StrEnum
from typing import Any

from pydantic import BaseModel, Field

from strands_manga_memory.arguments import checked, with_repr
from strands_manga_memory.exceptions import StateError
from strands_manga_memory.language.pii import redact_identifiers
from strands_manga_memory.messages.injection import escape_line
from strands_manga_memory.messages.texts import shorten_line
from strands_manga_memory.state.goals import (
    MAX_KINDS,
    MAX_LINES,
    Execution,
    Goals,
    add_count,
    added_finding,
    error_pattern,
)
from strands_manga_memory.state.session_state import SessionState
from strands_manga_memory.state.state_item import check_move, item_of

logger = logging.getLogger(__name__)

MAX_FINDINGS = 50
_LOW = 0.25
"""Remaining share of the time budget below which the model gets a warning."""

_READ = 1_000
"""Number of leading characters of an argument or a result that are used to record a tool call."""


class StepKind(StrEnum):
    """Kind of a step of a task: a thought, a tool call, a validation or a change of the plan."""

    REASONING = "reasoning"
    TOOL = "tool"
    VALIDATION = "validation"
    REPLANNING = "replanning"


class StepStatus(StrEnum):
    """Status of a step of a task, such as queued, in progress, completed or failed."""

    QUEUED = "queued"
    IN_PROGRESS = "in_progress"
    COMPLETED = "completed"
    FAILED = "failed"
    TIMED_OUT = "timed_out"


_UNSUCCESSFUL = (StepStatus.FAILED, StepStatus.TIMED_OUT)
_NEXT = {
    StepStatus.QUEUED: {StepStatus.IN_PROGRESS, *_UNSUCCESSFUL},
    StepStatus.IN_PROGRESS: {StepStatus.QUEUED, StepStatus.COMPLETED, *_UNSUCCESSFUL},
    StepStatus.COMPLETED: set[StepStatus](),
    StepStatus.FAILED: {StepStatus.IN_PROGRESS},
    StepStatus.TIMED_OUT: {StepStatus.IN_PROGRESS},
}


class TaskStep(BaseModel):
    """Step of a task, such as a tool call or a thought. The methods of ``TaskState`` change it.

    Attributes:
        id: Id of the step; for a tool call, the ``toolUseId``.
        name: Name of the step; for a tool call, the name of the tool; for a thought, its text.
        kind: Kind of the step.
        confidence: Confidence in the step, from 0 to 1, or None.
        status: Status of the step.
        parameters: Arguments of the step.
        result: Shortened result of the step.
        error: Shortened error of the step.
        started_at: Time of the last start, in monotonic seconds; None before the first start.
        duration_ms: Milliseconds of all attempts together, without waits for a human.
        retries: Number of restarts.
        rolled_back: Whether the step was undone.
        undo: Function that reverses the step, or None.
    """

    id: str
    name: str = Field(min_length=1, max_length=300)
    kind: StepKind = StepKind.TOOL
    confidence: float | None = Field(default=None, ge=0, le=1)
    status: StepStatus = StepStatus.QUEUED
    parameters: dict[str, Any] = Field(default_factory=dict)
    result: str | None = None
    error: str | None = None
    started_at: float | None = None
    duration_ms: float = 0.0
    retries: int = 0
    rolled_back: bool = False
    undo: Callable[[], object] | None = Field(default=None, exclude=True, repr=False)

    def change_status(self, status: StepStatus) -> None:
        """Set the status of the step.

        Raises:
            StateError: A step with the current status cannot get the new status.
        """
        check_move(f"step {self.id!r:.80}", _NEXT, self.status, status)
        self.status = status


@with_repr("budget_ms")
class TaskState:
    """Current task of an agent: steps, time budget and findings of one user request.

    A task is kept in memory only.

    Attributes:
        budget_ms: Time budget in milliseconds.
        steps: At most 100 steps (by default), keyed by id, oldest first. When there are more, the
            oldest step without an undo function is removed.
        dropped: Number of steps that were removed from ``steps`` because of the limit.
        findings: Findings without repetitions.
        successes: Number of successes, keyed by tool name. For a step that is not a tool call, the
            key is its text without numbers and ids.
        errors: Number of errors, keyed by tool name and error text, without numbers and ids.
        plan_changes: The last 20 reasons for changes of the plan.
    """

    def __init__(self, store: SessionState, budget_ms: float) -> None:
        self._store, self._lock, self._goals = store, store.lock, store.get(Goals)
        self.budget_ms = budget_ms
        self._clear()

    def _clear(self) -> None:
        self._left_ms = self.budget_ms  # when the clock was started the last time
        self._running_since: float | None = None
        self._calls: dict[str, TaskStep] = {}
        self.steps: dict[str, TaskStep] = {}
        self.dropped = 0
        self.findings: tuple[str, ...] = ()
        self.successes: dict[str, int] = {}
        self.errors: dict[str, int] = {}
        self.plan_changes: tuple[str, ...] = ()

    def begin(self) -> None:
        """Delete the steps and findings of the previous request, and restart the time budget."""
        with self._lock:
            self._clear()
            self.resume()

    def pause(self) -> None:
        """Stop the clock of the time budget while the agent waits for a human.

        Steps in progress get the status ``QUEUED`` again.
        """
        with self._lock:
            self._left_ms, self._running_since = self.remaining_ms(), None
            self._end_running(StepStatus.QUEUED)

    def resume(self) -> None:
        """Restart the clock of the time budget after a wait for a human."""
        self._running_since = self._store.clock()

    def end(self) -> None:
        """Mark steps in progress as failed when the turn of the agent ends.

        If the time budget is used up, the steps are marked as timed out instead.
        """
        with self._lock:
            status = StepStatus.FAILED if self.remaining_ms() else StepStatus.TIMED_OUT
            self._end_running(status, "did not end with its turn")
            self._calls.clear()

    def _end_running(self, status: StepStatus, error: str | None = None) -> None:
        for step in self.steps.values():
            if step.status is StepStatus.IN_PROGRESS:
                self.end_step(step.id, status, error=error)

    def add_step(
        self,
        name: str,
        parameters: Mapping[str, Any] | None = None,
        *,
        step_id: str | None = None,
        kind: StepKind | str = StepKind.TOOL,
        confidence: float | None = None,
        undo: Callable[[], object] | None = None,
    ) -> TaskStep:
        """Add a planned step, such as a tool call, to the task, and return the step.

        Its status is ``QUEUED``. ``roll_back`` calls the function ``undo`` to reverse the step.

        Raises:
            StateError: The id exists already.
            ValueError: A value is not allowed.
        """
        with self._lock:
            if self._running_since is None:
                self.resume()
            id_ = step_id or f"step-{self.recorded + 1}"
            if id_ in self.steps:
                raise StateError(f"step {id_!r:.80} exists already; use another id")
            step = self.steps[id_] = TaskStep(
                id=id_,
                name=name,
                kind=StepKind(kind),
                confidence=confidence,
                parameters=dict(parameters or {}),
                undo=undo,
            )
            if len(self.steps) > self._store.limits.steps_kept:
                # the oldest step without an undo function, else the oldest step
                del self.steps[min(self.steps, key=lambda id_: self.steps[id_].undo is not None)]
                self.dropped += 1
            return step

    def start_step(self, step_id: str) -> TaskStep:
        """Mark a step of the task as in progress, at its start or at a restart after a failure.

        Raises:
            StateError: The step does not exist, or its status does not allow a start.
        """
        with self._lock:
            step = self.step(step_id)
            is_retry = step.status in _UNSUCCESSFUL
            step.change_status(StepStatus.IN_PROGRESS)
            step.started_at, step.error = self._store.clock(), None
            step.retries += is_retry
            return step

    def end_step(
        self,
        step_id: str,
        status: StepStatus = StepStatus.COMPLETED,
        *,
        result: str | None = None,
        error: str | None = None,
        ms: float | None = None,
    ) -> TaskStep:
        """Set the status of a step of the task after an attempt, with its result or error.

        Args:
            step_id: Id of the step.
            status: Completed, failed, timed out, or queued for another attempt.
            result: Result of the attempt, truncated to 200 characters.
            error: Error of the attempt, truncated to 200 characters.
            ms: Duration of the attempt in milliseconds. None: the time since the start of the step.

        Raises:
            StateError: The step does not exist, or its current status does not allow this change.
        """
        with self._lock:
            step = self.step(step_id)
            step.change_status(status)
            if ms is None and step.started_at is not None:
                ms = max(0.0, 1000 * (self._store.clock() - step.started_at))
            step.result = None if result is None else shorten_line(result, 200)
            step.error = shorten_line(error, 200) if error else None
            step.duration_ms = round(step.duration_ms + (ms or 0.0), 3)
            return step

    def roll_back(self) -> list[TaskStep]:
        """Undo the completed steps of the task by their ``undo`` functions, the last step first.

        A completed tool call without an ``undo`` function is marked as rolled back, but nothing is
        undone. Other steps without an ``undo`` function stay unchanged. If an ``undo`` function
        fails, its error is stored in the step, and the other steps are still undone.

        Returns:
            The updated steps, including those with an error, in the order in which they were
            undone.
        """
        with self._lock:
            steps = list(self.steps.values())
        undone = []
        for step in reversed(steps):
            is_call = step.kind is StepKind.TOOL or step.undo is not None
            if step.status is not StepStatus.COMPLETED or step.rolled_back or not is_call:
                continue
            step.error = None
            try:
                if step.undo is not None:
                    step.undo()
            except Exception as failure:  # noqa: BLE001 - the other steps must still be undone
                logger.warning(
                    "step=<%s>, error=<%s> | could not be undone", step.name, type(failure).__name__
                )
                step.error = shorten_line(f"{type(failure).__name__}: {failure}", 200)
            step.rolled_back = step.error is None
            undone.append(step)
        return undone

    @checked
    def record(
        self,
        kind: StepKind | str,
        text: str,
        *,
        confidence: float | None = None,
        ok: bool | None = None,
    ) -> TaskStep:
        """Add a step that has ended already, such as a thought or a new plan, to the task.

        Args:
            kind: Kind of the step.
            text: Description, truncated to 300 characters.
            confidence: Confidence in the step, from 0 to 1.
            ok: Whether the step succeeded; None if unknown.

        Raises:
            ValueError: The kind does not exist, ``text`` is empty or not a string, or
                ``confidence`` is not from 0 to 1.
        """
        with self._lock:
            step = self.add_step(shorten_line(text, 300), kind=kind, confidence=confidence)
            if ok is not None:
                self._count(error_pattern(text), ok=ok)
            if step.kind is StepKind.REPLANNING:
                self.plan_changes = (*self.plan_changes, step.name)[-MAX_KINDS:]
            step.status = StepStatus.FAILED if ok is False else StepStatus.COMPLETED
            return step

    def add_finding(self, text: str) -> None:
        """Add a finding, such as a fact from a tool result, to the task and to the active goal.

        A repeated finding is ignored.
        """
        with self._lock:
            if self._goals.active is not None:
                self._goals.add_finding(text)
            self.findings = added_finding(self.findings, text, MAX_FINDINGS)

    def begin_call(self, key: str, name: str, given: Any) -> None:
        """Record the start or restart of a tool call as a step of the task.

        Args:
            key: Unique key of the call, to be passed to ``end_call``, too.
            name: Name of the tool.
            given: Arguments of the call: a mapping, or another value that a model gave by mistake.
        """
        given = given if isinstance(given, Mapping) else {"input": given}
        with self._lock:
            step = self._calls.get(key) or self.steps.get(key)
            if step is None or step.status is StepStatus.COMPLETED:
                parameters = {
                    str(key): shorten_line(redact_identifiers(str(value)[:_READ]), 100)
                    for key, value in list(given.items())[:20]
                }
                # A model may use an id twice.
                id_ = f"{key}#{self.recorded + 1}" if key in self.steps else key
                step = self.add_step(name, parameters, step_id=id_)
            self._calls[key] = step
            if step.status is not StepStatus.IN_PROGRESS and step.id in self.steps:
                self.start_step(step.id)

    def end_call(
        self,
        key: str,
        *,
        ok: bool,
        text: str,
        ms: float | None = None,
        retry: bool = False,
        timed_out: bool = False,
        size: int = 0,
    ) -> None:
        """Record the end of a tool call in its step of the task, and in the active goal.

        Args:
            key: Key of the call, as given to ``begin_call``.
            ok: Whether the call succeeded.
            text: Result of the call, or its error.
            ms: Duration in milliseconds. None: the time since the start of the call.
            retry: Whether the tool will be called again. The next ``begin_call`` with this key then
                restarts the step of this call.
            timed_out: Whether the call failed because it took too long.
            size: Number of characters of the call's arguments and result.
        """
        with self._lock:
            step = self._calls.pop(key, None)
            if step is None or step.status is not StepStatus.IN_PROGRESS:
                return  # the step belongs to an earlier task
            failure = StepStatus.TIMED_OUT if timed_out else StepStatus.FAILED
            text = redact_identifiers(text[:_READ])
            note, error = shorten_line(text, 120), None if ok else text
            status = StepStatus.COMPLETED if ok and not retry else failure
            if step.id in self.steps:
                self.end_step(step.id, status, result=note if ok else None, error=error, ms=ms)
            self._count(step.name if ok else f"{step.name}: {error_pattern(text)}", ok=ok)
            self._goals.record(
                Execution(
                    tool=step.name, ok=ok, ms=round(ms or 0.0, 1), note=shorten_line(note, 80)
                ),
                error=text,
                size=size,
            )

    def _count(self, pattern: str, *, ok: bool) -> None:
        if ok:
            self.successes = add_count(self.successes, pattern)
        else:
            self.errors = add_count(self.errors, pattern)

    @property
    def recorded(self) -> int:
        """Number of steps of the task, including those that were removed from ``steps``."""
        return len(self.steps) + self.dropped

    def step(self, id_: str) -> TaskStep:
        """Return the step of the task with the given id.

        Raises:
            StateError: The step does not exist.
        """
        return item_of(self.steps, "step", id_)

    def failed(self) -> list[TaskStep]:
        """Return the tool calls of the task that failed or timed out."""
        with self._lock:
            return [
                step
                for step in self.steps.values()
                if step.status in _UNSUCCESSFUL and step.kind is StepKind.TOOL
            ]

    def remaining_ms(self) -> float:
        """Return the milliseconds that are left of the time budget of the task.

        The time during which the agent waited for a human does not count.
        """
        since = self._running_since
        running = 0.0 if since is None else 1000 * (self._store.clock() - since)
        return max(0.0, self._left_ms - running)

    def urgency(self) -> str:
        """Return a warning for the model if less than a quarter of the time budget is left.

        The text is empty if more time is left, or if the task has no steps.
        """
        remaining = self.remaining_ms()
        if not self.steps or remaining >= _LOW * self.budget_ms:
            return ""
        if remaining:
            return (
                f"Of the time budget of {self.budget_ms:.0f} ms, less than {_LOW:.0%} is left: call"
                " only what you must."
            )
        return (
            f"The time budget of {self.budget_ms:.0f} ms is used up: call no more tools, answer now"
            " with what you have."
        )

    def lines(self) -> Iterator[str]:
        """Yield the text lines about failed tool calls, findings and plan changes for the model."""
        if failed := self.failed():
            yield "Did not work in this request: " + "; ".join(
                f"{escape_line(step.name, 60)} ({escape_line(step.error or step.status, 80)})"
                for step in failed[-MAX_LINES:]
            )
        shown = self._goals.active.findings if self._goals.active else ()  # with the goal
        if findings := [each for each in self.findings if each not in shown]:
            yield "Found in this task: " + "; ".join(map(escape_line, findings[-MAX_LINES:]))
        if self.plan_changes:
            yield f"The plan was changed: {escape_line(self.plan_changes[-1])}"
