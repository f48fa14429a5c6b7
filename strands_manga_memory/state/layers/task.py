"""TaskLayer: what is done for one user request, step by step, within a time budget. Pure; kept in memory only."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from pydantic import Field

from strands_manga_memory.exceptions import StateError
from strands_manga_memory.state.layers.layer import Part

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
