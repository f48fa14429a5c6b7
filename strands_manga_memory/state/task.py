"""One user request: steps within a time budget, and what was tried and found out. In memory only."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any

from pydantic import Field

from strands_manga_memory.exceptions import StateError
from strands_manga_memory.messages.tokens import shorten_line
from strands_manga_memory.state.goals import MOST_PATTERNS, GoalKeeper, added_finding, counted, error_pattern
from strands_manga_memory.state.state_store import Part, StateStore

MOST_STEPS = 100
_ERROR_CHARACTERS = 200


class StepStatus(StrEnum):
    """How far a step is."""

    QUEUED = "queued"
    IN_PROGRESS = "in_progress"
    COMPLETED = "completed"
    FAILED = "failed"
    TIMED_OUT = "timed_out"


_NEXT: dict[StepStatus, frozenset[StepStatus]] = {
    StepStatus.QUEUED: frozenset({StepStatus.IN_PROGRESS, StepStatus.FAILED, StepStatus.TIMED_OUT}),
    StepStatus.IN_PROGRESS: frozenset({StepStatus.QUEUED, StepStatus.COMPLETED, StepStatus.FAILED, StepStatus.TIMED_OUT}),
    StepStatus.COMPLETED: frozenset(),
    StepStatus.FAILED: frozenset({StepStatus.IN_PROGRESS}),
    StepStatus.TIMED_OUT: frozenset({StepStatus.IN_PROGRESS}),
}


class TaskStep(Part):
    """A step.

    Attributes:
        id: Its id; of a tool call, the ``toolUseId``.
        name: What it does; of a tool call, the tool's name.
        status: How far it is.
        parameters: What it was given.
        result: What came of it, in short.
        error: Why it failed, in short.
        started_at: When it was last started, in seconds of the layer's clock.
        duration_ms: Milliseconds the step itself took, over all its tries; waiting for its turn or for a human is not counted.
        retries: How often it was started again.
        rolled_back: Whether it was undone.
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

    def moved(self, status: StepStatus, **fields: Any) -> TaskStep:
        """Return the step with another status.

        Raises:
            StateError: That cannot come next; the message names what can.
        """
        if status not in _NEXT[self.status]:
            allowed = ", ".join(sorted(_NEXT[self.status])) or "nothing, it is done"
            raise StateError(f"step {self.id!r:.80} cannot go from {self.status} to {status}; allowed: {allowed}")
        return self.replaced(status=status, **fields)

    def started(self, now: float) -> TaskStep:
        """Return the step as it begins, or begins again."""
        again = self.status in (StepStatus.FAILED, StepStatus.TIMED_OUT)
        return self.moved(StepStatus.IN_PROGRESS, started_at=now, error=None, retries=self.retries + again)

    def ended(
        self, status: StepStatus, now: float, *, result: str | None = None, error: str | None = None, ms: float | None = None
    ) -> TaskStep:
        """Return the step as it ended; ``ms`` is how long the last try took, by default since it was started."""
        if ms is None:
            ms = 0.0 if self.started_at is None else max(0.0, 1000 * (now - self.started_at))
        short = error[:_ERROR_CHARACTERS] if error else None
        return self.moved(status, result=result, error=short, duration_ms=round(self.duration_ms + ms, 3))

    def waiting(self, now: float) -> TaskStep:
        """Return the step as it waits again, for another try or for a human."""
        since = now if self.started_at is None else self.started_at
        return self.moved(StepStatus.QUEUED, duration_ms=round(self.duration_ms + max(0.0, 1000 * (now - since)), 3))


class TaskLayer(Part):
    """One task: usually one user request.

    Attributes:
        name: What it is for.
        budget_ms: Milliseconds the whole task may take. Default 3,000.
        started_at: When it began, in seconds of the clock; None before that.
        paused_at: Since when a human is waited for; None while nobody is.
        paused_ms: Milliseconds a human was waited for until then.
        steps: The last 100 steps, by id, the older first.
        dropped: Steps that were more than that.
    """

    name: str = Field(default="", max_length=300)
    budget_ms: float = Field(default=3000.0, gt=0)
    started_at: float | None = None
    paused_at: float | None = None
    paused_ms: float = 0.0
    steps: dict[str, TaskStep] = Field(default_factory=dict)
    dropped: int = 0

    def elapsed_ms(self, now: float) -> float:
        """Return how long the task has run, without the time in which a human was waited for."""
        if self.started_at is None:
            return 0.0
        until = now if self.paused_at is None else self.paused_at
        return max(0.0, 1000 * (until - self.started_at) - self.paused_ms)

    def remaining_ms(self, now: float) -> float:
        """Return what is left of the budget, 0 if nothing is."""
        return max(0.0, self.budget_ms - self.elapsed_ms(now))

    def is_over(self, now: float) -> bool:
        """Tell whether the budget is used up."""
        return self.started_at is not None and self.remaining_ms(now) == 0.0

    def paused(self, now: float) -> TaskLayer:
        """Return the task as it begins to wait for a human; steps in progress wait, too."""
        steps = {id_: step.waiting(now) if step.status is StepStatus.IN_PROGRESS else step for id_, step in self.steps.items()}
        return self.changed(paused_at=now, steps=steps)

    def resumed(self, now: float) -> TaskLayer:
        """Return the task as it goes on."""
        if self.paused_at is None:
            return self
        return self.changed(paused_at=None, paused_ms=self.paused_ms + 1000 * (now - self.paused_at))

    def step(self, id_: str) -> TaskStep:
        """Return a step.

        Raises:
            StateError: There is none of this id.
        """
        if id_ not in self.steps:
            raise StateError(
                f"there is no step {id_!r:.80}; there are: {', '.join(map(repr, list(self.steps)[-10:])) or 'none'}"
            )
        return self.steps[id_]

    def with_step(self, step: TaskStep) -> TaskLayer:
        """Return the task with a step more, or a step changed; of more than 100 the oldest one that ended goes."""
        steps = {**self.steps, step.id: step}
        dropped = self.dropped
        if len(steps) > MOST_STEPS:
            done = (id_ for id_, each in steps.items() if not _NEXT[each.status] or each.error is not None)
            del steps[next(done, next(iter(steps)))]
            dropped += 1
        return self.replaced(steps=steps, dropped=dropped)  # every step was validated when it was made

    def completed(self) -> list[TaskStep]:
        """Return the steps that are completed and not undone, the last one first."""
        return [step for step in reversed(self.steps.values()) if step.status is StepStatus.COMPLETED and not step.rolled_back]


MOST_FINDINGS = 50


class ExecutionKind(StrEnum):
    """Kind of a step."""

    REASONING = "reasoning"
    TOOL = "tool"
    VALIDATION = "validation"
    REPLANNING = "replanning"


class ExecutionStep(Part):
    """One thing that was done.

    Attributes:
        kind: What it was.
        text: In words, at most 300 characters.
        confidence: From 0 to 1; None if nobody said.
        ok: Whether it worked; None if that cannot be said.
    """

    kind: ExecutionKind
    text: str = Field(min_length=1, max_length=300)
    confidence: float | None = Field(default=None, ge=0, le=1)
    ok: bool | None = None


class ExecutionLayer(Part):
    """The last 100 steps of a task, first in, first out.

    Attributes:
        steps: The steps, the older first.
        total: Steps there were.
        findings: What was found out, each once.
        successes: How often what worked, by pattern.
        errors: How often what failed, by pattern.
        plan_changes: Why the plan was changed, the last 20.
    """

    steps: tuple[ExecutionStep, ...] = ()
    total: int = 0
    findings: tuple[str, ...] = ()
    successes: dict[str, int] = Field(default_factory=dict)
    errors: dict[str, int] = Field(default_factory=dict)
    plan_changes: tuple[str, ...] = ()

    def with_step(self, step: ExecutionStep, *, pattern: str = "") -> ExecutionLayer:
        """Return the layer with a step more; ``pattern`` is what a success or an error is counted as."""
        changes: dict[str, Any] = {"steps": (*self.steps, step)[-MOST_STEPS:], "total": self.total + 1}
        if step.ok is not None and pattern:
            name = "successes" if step.ok else "errors"
            changes[name] = counted(getattr(self, name), pattern)
        if step.kind is ExecutionKind.REPLANNING:
            changes["plan_changes"] = (*self.plan_changes, step.text)[-MOST_PATTERNS:]
        return self.replaced(**changes)  # the step was validated when it was made

    def with_finding(self, text: str) -> ExecutionLayer:
        """Return the layer with something found out; what is known already changes nothing."""
        found = added_finding(self.findings, text, MOST_FINDINGS)
        return self if found == self.findings else self.replaced(findings=found)


_NOTHING_TRIED = ExecutionLayer()


class ExecutionKeeper:
    """Keeps the execution memory of a task; what is found out belongs to the active goal, too."""

    def __init__(self, store: StateStore, goals: GoalKeeper) -> None:
        self._lock = store.lock
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


logger = logging.getLogger(__name__)

_NO_TASK = TaskLayer()


class TaskKeeper:
    """Keeps what is done for one request, step by step, within a time budget.

    Tool calls that are steps are known by their ids in ``running``.
    """

    def __init__(self, store: StateStore, budget_ms: float, execution: ExecutionKeeper) -> None:
        self._lock = store.lock
        self._clock = store.clock
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
