"""ToolCalls: records an agent's tool calls as steps of its task, in the execution memory and under the active goal."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from strands_manga_memory import telemetry
from strands_manga_memory.language.pii import redact_identifiers
from strands_manga_memory.messages.tokens import shorten_line
from strands_manga_memory.state.keepers.execution_keeper import ExecutionKeeper
from strands_manga_memory.state.keepers.goal_keeper import GoalKeeper
from strands_manga_memory.state.keepers.keeper import Shared
from strands_manga_memory.state.keepers.loops import MOST_ALIKE, RepeatedCalls
from strands_manga_memory.state.keepers.task_keeper import TaskKeeper
from strands_manga_memory.state.layers.execution import ExecutionKind, ExecutionStep, error_pattern
from strands_manga_memory.state.layers.goal import Execution
from strands_manga_memory.state.layers.task import StepStatus, TaskStep
from strands_manga_memory.telemetry import TOOL_LOOP

logger = logging.getLogger(__name__)

_READ = 1_000
"""Characters of a tool's result that are looked at for a note."""


class ToolCalls:
    """The tool calls of an agent: steps of its task, something tried, and what belongs to its active goal.

    ``timed_out`` are the ids of calls that were stopped and have not ended yet; ``loops`` counts how often the same call was
    made again and again, with the same result.
    """

    def __init__(self, shared: Shared, task: TaskKeeper, execution: ExecutionKeeper, goals: GoalKeeper) -> None:
        self._shared = shared
        self._lock = shared.layers.lock
        self._task = task
        self._execution = execution
        self._goals = goals
        self.timed_out: set[str] = set()
        self._repeated = RepeatedCalls()
        self._given: dict[str, Mapping[str, Any]] = {}
        self.loops = 0

    def task_began(self) -> None:
        """Forget the calls of the task before."""
        self._repeated.clear()
        self._given.clear()

    def began(self, use_id: str, name: str, given: Mapping[str, Any]) -> None:
        """Record that a tool call began, or is tried again."""
        with self._lock:
            self._given[use_id] = given
            id_ = self._task.running.get(use_id, use_id)
            known = self._task.layer.steps.get(id_)
            if known is None or known.status is StepStatus.COMPLETED:
                if known is not None:  # the model used an id twice
                    id_ = f"{use_id}#{len(self._task.layer.steps) + self._task.layer.dropped + 1}"
                self._task.running[use_id] = id_
                parameters = {
                    str(key): shorten_line(redact_identifiers(str(value)[:_READ]), 100)
                    for key, value in list(given.items())[:20]
                }
                self._task.begin_if_none()
                self._task.stepped(TaskStep(id=id_, name=name, parameters=parameters).started(self._shared.clock()))
            elif known.status is not StepStatus.IN_PROGRESS:
                self._task.start_step(id_)

    def ended(
        self, use_id: str, status: StepStatus, *, text: str, ms: float | None, retry: bool = False, size: int = 0
    ) -> None:
        """Record how a tool call ended: in the task, the execution memory and the active goal."""
        with self._lock:
            id_ = self._task.running.get(use_id, use_id)
            step = self._task.layer.steps.get(id_)
            text = redact_identifiers(text[:_READ])
            ok, note = status is StepStatus.COMPLETED, shorten_line(text, 120)
            given = self._given.pop(use_id, {})
            if use_id in self.timed_out:
                self.timed_out.discard(use_id)
                status = StepStatus.TIMED_OUT
            if step is None or step.status is not StepStatus.IN_PROGRESS:
                return  # of a task that is over
            ended = self._task.stepped(
                step.ended(status, self._shared.clock(), result=note if ok else None, error=None if ok else text, ms=ms)
            )
            if retry:
                self._task.stepped(
                    ended.changed(
                        status=StepStatus.IN_PROGRESS,
                        started_at=self._shared.clock(),
                        retries=step.retries + 1,
                        error=None,
                        result=None,
                    )
                )
            self._execution.tried(
                ExecutionStep.made(kind=ExecutionKind.TOOL, text=f"{step.name}: {note or status}"[:300], ok=ok),
                step.name if ok else f"{step.name}: {error_pattern(text)}",
            )
            if not retry and self._repeated.is_loop(step.name, given, text):
                self._noticed_loop(step.name)
            took = ended.duration_ms - step.duration_ms
            self._goals.record(
                Execution.made(tool=step.name, ok=ok, ms=round(took, 1), note=shorten_line(note, 80)), error=text, size=size
            )

    def _noticed_loop(self, name: str) -> None:
        self.loops += 1
        telemetry.note(TOOL_LOOP, attributes={"tool": name}, counts={"loops": 1})
        logger.warning("tool=<%s>, calls=<%d> | the same call was made again and again, with the same result", name, MOST_ALIKE)
        self._execution.noticed(f"{name} gave the same result {MOST_ALIKE} times for the same arguments: try something else")
