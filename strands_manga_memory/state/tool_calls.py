"""Tool calls of an agent: recorded as steps, stopped after a deadline, checked for loops."""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from strands.middleware import ExecuteToolContext, ToolResultEvent

from strands_manga_memory import telemetry
from strands_manga_memory.call_state import with_own_state
from strands_manga_memory.deadline import END, DeadlineError, Pump
from strands_manga_memory.language.pii import redact_identifiers
from strands_manga_memory.messages.tokens import shorten_line
from strands_manga_memory.messages.tool_results import call_key
from strands_manga_memory.state.active_entities import EntityState
from strands_manga_memory.state.dialogue import DialogueState
from strands_manga_memory.state.goals import Execution, GoalState, error_pattern
from strands_manga_memory.state.state_store import StateStore
from strands_manga_memory.state.task import (
    ExecutionKind,
    ExecutionState,
    ExecutionStep,
    StepStatus,
    TaskState,
    TaskStep,
)
from strands_manga_memory.stores.encoding.values import as_json
from strands_manga_memory.telemetry import TOOL_LOOP

MOST_ALIKE = 3
"""Number of calls in a task, with equal arguments and results, that count as a loop."""

_MOST_KEPT = 200
_MOMENT = re.compile(
    r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:\.\d{1,9})?)?(?:Z|[+-]\d\d:?\d\d)?"
    r"|\b\d{1,2}:\d\d:\d\d(?:\.\d{1,9})?\b|\b1[5-9]\d{8}(?:\d{3})?(?:\.\d{1,9})?\b"
    r"|\b[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}\b",
    re.IGNORECASE,
)
"""Times and UUIDs, which differ between otherwise equal results."""


class LoopDetector:
    """Loop detector: counts the calls of a task by tool, arguments and result, in any order."""

    def __init__(self, most: int = MOST_ALIKE) -> None:
        self._most = most
        self._counts: dict[str, int] = {}

    def clear(self) -> None:
        """Forget all calls, at the start of a task."""
        self._counts.clear()

    def is_loop(self, name: str, given: Mapping[str, Any], result: str) -> bool:
        """Count a call and return whether it completes a loop. Each loop is reported once."""
        text = as_json([name, dict(given), _MOMENT.sub("", result)], sort_keys=True)
        key = hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()
        self._counts[key] = count = self._counts.pop(key, 0) + 1
        if len(self._counts) > _MOST_KEPT:
            del self._counts[next(iter(self._counts))]
        return count == self._most


logger = logging.getLogger(__name__)

_READ = 1_000
"""Characters of a tool's result that are used for its note."""


class ToolCalls:
    """Recorder of an agent's tool calls in its task, execution memory and active goal.

    ``timed_out`` holds ids of stopped calls that have not ended yet; ``loops`` is the number of detected loops.
    """

    def __init__(self, store: StateStore, task: TaskState, execution: ExecutionState, goals: GoalState) -> None:
        self._store = store
        self._lock = store.lock
        self._task = task
        self._execution = execution
        self._goals = goals
        self.timed_out: set[str] = set()
        self._repeated = LoopDetector()
        self._given: dict[str, Mapping[str, Any]] = {}
        self.loops = 0

    def task_began(self) -> None:
        """Forget the calls of the previous task."""
        self._repeated.clear()
        self._given.clear()

    def began(self, use_id: str, name: str, given: Mapping[str, Any]) -> None:
        """Record the start or restart of a tool call."""
        with self._lock:
            self._given[use_id] = given
            id_ = self._task.running.get(use_id, use_id)
            known = self._task.layer.steps.get(id_)
            if known is None or known.status is StepStatus.COMPLETED:
                if known is not None:  # the model reused an id
                    id_ = f"{use_id}#{len(self._task.layer.steps) + self._task.layer.dropped + 1}"
                self._task.running[use_id] = id_
                parameters = {
                    str(key): shorten_line(redact_identifiers(str(value)[:_READ]), 100)
                    for key, value in list(given.items())[:20]
                }
                self._task.begin_if_none()
                self._task.stepped(TaskStep(id=id_, name=name, parameters=parameters).started(self._store.clock()))
            elif known.status is not StepStatus.IN_PROGRESS:
                self._task.start_step(id_)

    def ended(
        self, use_id: str, status: StepStatus, *, text: str, ms: float | None, retry: bool = False, size: int = 0
    ) -> None:
        """Record the end of a tool call in the task, the execution memory and the active goal."""
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
                return  # the step belongs to an earlier task
            ended = self._task.stepped(
                step.ended(status, self._store.clock(), result=note if ok else None, error=None if ok else text, ms=ms)
            )
            if retry:
                self._task.stepped(
                    ended.changed(
                        status=StepStatus.IN_PROGRESS,
                        started_at=self._store.clock(),
                        retries=step.retries + 1,
                        error=None,
                        result=None,
                    )
                )
            self._execution.tried(
                ExecutionStep(kind=ExecutionKind.TOOL, text=f"{step.name}: {note or status}"[:300], ok=ok),
                step.name if ok else f"{step.name}: {error_pattern(text)}",
            )
            if not retry and self._repeated.is_loop(step.name, given, text):
                self._noticed_loop(step.name)
            took = ended.duration_ms - step.duration_ms
            self._goals.record(
                Execution(tool=step.name, ok=ok, ms=round(took, 1), note=shorten_line(note, 80)), error=text, size=size
            )

    def _noticed_loop(self, name: str) -> None:
        self.loops += 1
        telemetry.note(TOOL_LOOP, attributes={"tool": name}, counts={"loops": 1})
        logger.warning("tool=<%s>, calls=<%d> | repeated identical tool calls with the same result", name, MOST_ALIKE)
        self._execution.noticed(f"{name} gave the same result {MOST_ALIKE} times for the same arguments: try something else")


_GRACE = 0.1
_AGENT = "agent"
"""Tool type of agents that are used as tools; they have their own time budget."""


class ToolDeadline:
    """Middleware that stops a slow tool call and returns an error result to the model."""

    def __init__(self, timeout_ms: float, timed_out: Callable[[str], None]) -> None:
        self._timeout_ms = timeout_ms
        self._timed_out = timed_out

    async def __call__(
        self, context: ExecuteToolContext, next_fn: Callable[[Any], AsyncGenerator[Any, None]]
    ) -> AsyncGenerator[Any, None]:
        """Run one tool call."""
        context = with_own_state(context)
        in_background = type(context) is not ExecuteToolContext  # background calls have no deadline
        if in_background or context.tool is None or context.tool.tool_type == _AGENT:
            async for event in next_fn(context):
                yield event
            return
        pump = Pump(next_fn(context), timeout=self._timeout_ms / 1000, grace=_GRACE)
        answered = False
        try:
            while (event := await pump.next()) is not END:
                answered = answered or isinstance(event, ToolResultEvent)
                yield event
        except DeadlineError:
            if answered:  # the tool has answered; later middleware was too slow
                return
            id_ = str(context.tool_use["toolUseId"])
            self._timed_out(call_key(context.agent, context.tool_use))
            text = (
                f"{context.tool_use['name']} was stopped after {self._timeout_ms:.0f} ms without an answer; it may still have "
                "had an effect. Answer with what you have."
            )
            yield ToolResultEvent({"toolUseId": id_, "status": "error", "content": [{"text": text}]})
        finally:
            await pump.close()


@dataclass(frozen=True)
class Parts:
    """Accessors of one agent's state, and their store."""

    store: StateStore
    dialogue: DialogueState
    entities: EntityState
    goals: GoalState
    task: TaskState
    execution: ExecutionState
    calls: ToolCalls
