"""StateCoordinator: the plugin that keeps where the task stands, and tells the model of it.

This module is longer than others because it is the one face of all layers; each method is a line or two, the rules are in the
layers.
"""

from __future__ import annotations

import logging
import time
import weakref
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from strands import Agent
from strands.middleware import ExecuteToolStage, InvokeModelContext, InvokeModelStage
from strands.plugins import Plugin

from strands_manga_memory.exceptions import StateError
from strands_manga_memory.language.entities import SHOP, EntityTypes
from strands_manga_memory.language.injection import with_system_text, with_trailing_text
from strands_manga_memory.language.tokens import estimated_tokens, shortened
from strands_manga_memory.scope import ConversationScope
from strands_manga_memory.state.changes import EnvironmentChanges
from strands_manga_memory.state.conversation import Clarification, ConversationLayer, Phase
from strands_manga_memory.state.deadline import ToolDeadline
from strands_manga_memory.state.entities import EXPIRES_AFTER_TURNS, ActiveEntity, Confidence, EntityLayer, Origin
from strands_manga_memory.state.environment import Environment, EnvironmentSource
from strands_manga_memory.state.execution import ExecutionKind, ExecutionLayer, ExecutionStep, error_pattern
from strands_manga_memory.state.goals import (
    SESSION_TOKENS,
    WARN_TOKENS,
    Execution,
    Goal,
    GoalArchive,
    GoalsLayer,
    GoalStatus,
)
from strands_manga_memory.state.instructions import StableTexts
from strands_manga_memory.state.kept import KeptLayers
from strands_manga_memory.state.recorder import Recorder
from strands_manga_memory.state.rendering import Rendering, View
from strands_manga_memory.state.slots import DialogueSlot
from strands_manga_memory.state.statistics import StateStats, Timings, stats_of
from strands_manga_memory.state.subtasks import Subtask, SubtaskStatus
from strands_manga_memory.state.surroundings import Surroundings
from strands_manga_memory.state.task import StepStatus, TaskLayer, TaskStep
from strands_manga_memory.state.tools import TOOL_NAMES, state_tools
from strands_manga_memory.stores.codec import Codec
from strands_manga_memory.stores.hot import HotStore

logger = logging.getLogger(__name__)

_NO_TASK, _NOTHING_TRIED = TaskLayer(), ExecutionLayer()

_READ = 1_000
"""Characters of a tool's result that are looked at for a note."""

_coordinators: weakref.WeakKeyDictionary[Agent, StateCoordinator] = weakref.WeakKeyDictionary()


class StateCoordinator(Plugin):
    """Keeps where the task of one agent stands, in six typed layers, and tells the model before each call (mission A11 to A13).

    Conversation, entities and goals are in ``agent.state``, a key each, and so come back under any session manager; task and
    execution are of one invocation; the environment comes from its source. Tool calls, turns and entities are recorded by
    hooks. What the model is told is one trailing block of the last user message, for one call: the history, what is stored and
    the prefix of the prompt stay as they are. Each agent needs a coordinator of its own.

    Args:
        intents: What each intent must know: ``{"reorder": [DialogueSlot(name="volume", question="Which volume?")]}``.
        types: Entity types to look for. Default ``SHOP``.
        entities_of_tools: Names of the types that are also taken from tools and from the assistant's words. Default: those that
            identify a thing (ASIN, ISBN, order id, ...), titles, series and volumes.
        expires_after_turns: Turns after which an entity that nobody named again is dropped. Default 20.
        max_tokens: Estimated tokens of what the model is told. Default 400.
        time_budget_ms: Milliseconds a task may take; over it, the model is told to answer with what it has. Default 3,000.
        tool_timeout_ms: Milliseconds after which a tool call is stopped with an error result; None: never. Agents used as tools
            are not stopped. Default 30,000. A plain ``def`` tool goes on in its thread.
        offer_tools: Which tools the model gets to read and change the state: True: all, False: none, or names of
            ``TOOL_NAMES``. Default True.
        source: Where the environment is read.
        scope: Whose conversation it is; needed with ``source`` and ``hot``.
        hot: Where changes of the environment are published; None: they are not followed.
        codec: Opens what is published there.
        environment: What the source said just now, so that it is not asked again at the start.
        stable: Texts of the system side, read once: instruction files and preferences.
        deadline: Seconds a model call waits for news of the environment. Default 1.
        clock: Monotonic seconds.
        wall_clock: Seconds since 1970.

    Raises:
        ValueError: An argument is not allowed. From the agent's constructor: the coordinator serves another agent already.
    """

    name = "strands-manga-memory:state"

    def __init__(
        self,
        *,
        intents: Mapping[str, Iterable[DialogueSlot]] | None = None,
        types: EntityTypes = SHOP,
        entities_of_tools: Collection[str] | None = None,
        expires_after_turns: int = EXPIRES_AFTER_TURNS,
        max_tokens: int = 400,
        time_budget_ms: float = 3000.0,
        tool_timeout_ms: float | None = 30_000.0,
        offer_tools: bool | Collection[str] = True,
        source: EnvironmentSource | None = None,
        scope: ConversationScope | None = None,
        hot: HotStore | None = None,
        codec: Codec | None = None,
        environment: Environment | None = None,
        stable: StableTexts | None = None,
        deadline: float = 1.0,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        super().__init__()
        for name, number in (("expires_after_turns", expires_after_turns), ("max_tokens", max_tokens)):
            if isinstance(number, bool) or not isinstance(number, int) or number < 1:
                raise ValueError(f"{name} must be a positive whole number, got {number!r}")
        for name, amount in (("time_budget_ms", time_budget_ms), ("tool_timeout_ms", tool_timeout_ms), ("deadline", deadline)):
            if amount is not None and not amount > 0:
                raise ValueError(f"{name} must be above 0, got {amount!r}")
        if (source is not None or hot is not None) and scope is None:
            raise ValueError("scope must be given with source and hot: it says whose environment it is")
        offered = TOOL_NAMES if offer_tools is True else () if offer_tools is False else tuple(offer_tools)
        unknown = sorted(set(offered) - set(TOOL_NAMES))
        if unknown:
            raise ValueError(f"offer_tools must name some of {', '.join(TOOL_NAMES)}; got {unknown}")
        self.intents = {intent: tuple(slots) for intent, slots in (intents or {}).items()}
        self.types = types
        self.types_of_tools = frozenset(_of_tools(types) if entities_of_tools is None else entities_of_tools)
        self.expires_after_turns = expires_after_turns
        self.max_tokens = max_tokens
        self.time_budget_ms = float(time_budget_ms)
        self._tool_timeout_ms = tool_timeout_ms
        self._clock = clock
        self._wall = wall_clock
        self.layers = KeptLayers()
        self._task = TaskLayer(budget_ms=self.time_budget_ms)
        self._execution = _NOTHING_TRIED
        self._undo: dict[str, Callable[[], object]] = {}
        self._running: dict[str, str] = {}
        self._timed_out: set[str] = set()
        changes = None if hot is None or scope is None else EnvironmentChanges(hot, scope, codec=codec)
        self._surroundings = Surroundings(source, scope, changes, deadline=deadline, environment=environment)
        self._stable = stable
        self._timings = Timings()
        self._rendering = Rendering(max_tokens)
        self._warned = False
        self._tools = state_tools(self, offered)
        self._recorder = Recorder(self, TOOL_NAMES)

    # The agent

    def init_agent(self, agent: Agent) -> None:
        """Register hooks and middleware."""
        if self.layers.agent is not None and self.layers.agent is not agent:
            raise ValueError("this StateCoordinator serves an agent already; give each agent its own")
        self.layers.attach(agent)
        _coordinators[agent] = self
        self._recorder.listen(agent)
        agent.add_middleware(InvokeModelStage.Input, self._told)
        if self._tool_timeout_ms is not None:
            agent.add_middleware(ExecuteToolStage, ToolDeadline(self._tool_timeout_ms, self._timed_out.add))

    def attach(self, agent: Agent) -> None:
        """Read what a session manager restored, the environment, and the stable texts; called when the agent is ready."""
        self._surroundings.load()
        if self._stable is not None:
            self._stable.load(agent)

    async def _told(self, context: InvokeModelContext) -> InvokeModelContext:
        await self._surroundings.refresh()
        if self._stable is not None:
            context = with_system_text(context, self._stable.text)
        return with_trailing_text(context, self.to_agent_context())

    def to_agent_context(self) -> str:
        """Return what the model is told: a few readable lines, the most useful first, escaped; empty if there is nothing."""
        with self._timings.measured("injection"):
            return self._rendering(self._view())

    def _view(self) -> View:
        with self.layers.lock:
            return View(
                conversation=self.conversation,
                task=self._task,
                entities=self.entities,
                goals=self.goals,
                execution=self._execution,
                environment=self.environment,
                now=self._clock(),
                wall=self._wall(),
            )

    # The layers

    @property
    def conversation(self) -> ConversationLayer:
        """Phase, intent, slots, questions."""
        return self.layers.get(ConversationLayer)

    @property
    def entities(self) -> EntityLayer:
        """What is spoken of."""
        return self.layers.get(EntityLayer)

    @property
    def goals(self) -> GoalsLayer:
        """The active goal and those before."""
        return self.layers.get(GoalsLayer)

    @property
    def task(self) -> TaskLayer:
        """What is done for this request."""
        return self._task

    @property
    def execution(self) -> ExecutionLayer:
        """What was tried for it."""
        return self._execution

    @property
    def environment(self) -> Environment:
        """What surrounds the conversation; read-only."""
        return self._surroundings.environment

    def _keep(self, layer: ConversationLayer | EntityLayer | GoalsLayer) -> None:
        with self._timings.measured("update"):
            self.layers.put(layer)
            self.layers.write()

    # Conversation

    def set_intent(self, intent: str | None, *, agent: str | None = None) -> None:
        """Say what the user wants, and who serves it. Another intent brings its own slots; a slot both know keeps its value.

        Raises:
            CorruptRecordError: The stored layer cannot be read, and is not overwritten. So with every method that changes one.
        """
        with self.layers.changing(ConversationLayer):
            layer = self.conversation.with_intent(intent, self.intents.get(intent or "", ()))
            self._keep(layer if agent is None else layer.changed(agent=agent))

    def set_phase(self, phase: Phase | str) -> None:
        """Move the conversation into a phase.

        Raises:
            StateError: It cannot be there next; the message names what can.
        """
        try:
            wanted = Phase(phase)
        except ValueError as error:
            raise StateError(f"phase must be one of {', '.join(Phase)}; got {phase!r}") from error
        with self.layers.changing(ConversationLayer):
            self._keep(self.conversation.moved(wanted))

    def add_slot(self, slot: DialogueSlot) -> None:
        """Add a thing to know; one of the same name is replaced, with what it holds."""
        with self.layers.changing(ConversationLayer):
            self._keep(self.conversation.with_slot(slot))

    def fill_slot(self, name: str, value: object, *, confirmed: bool = False) -> DialogueSlot:
        """Give a slot a value and return it; only a confirmed one counts as known.

        Raises:
            StateError: There is no such slot, or it does not take this value.
        """
        with self.layers.changing(ConversationLayer):
            slot = self.conversation.slot(name).filled(value, self.types, confirmed=confirmed)
            self._keep(self.conversation.with_slot(slot))
            return slot

    def confirm_slot(self, name: str) -> DialogueSlot:
        """Confirm the value a slot holds.

        Raises:
            StateError: There is no such slot, or it is empty.
        """
        with self.layers.changing(ConversationLayer):
            value = self.conversation.slot(name).value
            if value is None:
                raise StateError(f"slot {name!r} is empty; fill it first")
            return self.fill_slot(name, value, confirmed=True)

    def clear_slot(self, name: str) -> None:
        """Empty a slot.

        Raises:
            StateError: There is no such slot.
        """
        with self.layers.changing(ConversationLayer):
            self._keep(self.conversation.with_slot(self.conversation.slot(name).cleared()))

    def missing_slots(self) -> list[str]:
        """Return the names of the required slots that are not confirmed."""
        return [slot.name for slot in self.conversation.missing]

    def ask_clarification(self, question: str, *, slot: str | None = None) -> None:
        """Put a question at the end of the queue; with ``slot``, it is answered when that slot is confirmed.

        Raises:
            StateError: There is no such slot.
        """
        with self.layers.changing(ConversationLayer):
            if slot is not None:
                self.conversation.slot(slot)
            self._keep(self.conversation.asking(Clarification(question=shortened(question, 300), slot=slot)))

    def next_question(self) -> str | None:
        """Return what to ask the user next."""
        return self.conversation.next_question

    def answer_clarification(self) -> None:
        """Take the first question out of the queue."""
        with self.layers.changing(ConversationLayer):
            self._keep(self.conversation.answered())

    # Task

    def begin_task(self, name: str = "", *, budget_ms: float | None = None) -> None:
        """Begin a task; steps and execution memory of the one before are gone.

        Raises:
            ValueError: ``budget_ms`` is not above 0.
        """
        if budget_ms is not None and not budget_ms > 0:
            raise ValueError(f"budget_ms must be above 0, got {budget_ms!r}")
        with self.layers.lock:
            given = {"started_at": self._clock(), "budget_ms": self.time_budget_ms if budget_ms is None else float(budget_ms)}
            self._task = _NO_TASK.model_copy(update={"name": shortened(name, 300), **given})
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
            if self._task.started_at is None:
                self.begin_task()
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
                parameters = {str(key): shortened(str(value)[:_READ], 100) for key, value in list(given.items())[:20]}
                self.add_step(name, parameters, step_id=id_)
                self._running[use_id] = id_
            elif known.status is StepStatus.IN_PROGRESS:
                return
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
                ExecutionStep(kind=ExecutionKind.TOOL, text=f"{step.name}: {note or status}"[:300], ok=ok),
                pattern=step.name if ok else f"{step.name}: {error_pattern(text)}",
            )
            goals = self.goals
            if goals.active is not None:
                took = ended.duration_ms - step.duration_ms
                done = Execution.model_construct(tool=step.name, ok=ok, ms=round(took, 1), note=shortened(text, 80))
                goal = goals.active.executed(done, at=round(self._wall(), 3), error=text, raw_characters=size)
                self.layers.put_if_readable(goals.with_goal(goal))

    # Entities

    def set_entity(self, type_: str, value: str, *, confirmed: bool = True) -> ActiveEntity:
        """Make an entity the one that is spoken of, in place of the one of its type before.

        Raises:
            StateError: There is no such type, or the value is not valid for it.
        """
        if type_ not in self.types:
            raise StateError(f"there is no entity type {type_!r}; there are: {', '.join(each.name for each in self.types)}")
        canonical = self.types.value(type_, value)
        if canonical is None:
            raise StateError(f"{value!r:.80} is no valid {type_}")
        with self.layers.changing(EntityLayer):
            entity = ActiveEntity(
                type=type_,
                value=canonical,
                text=shortened(value, 200),
                confidence=Confidence.CONFIRMED if confirmed else Confidence.INFERRED,
                origin=Origin.CODE,
                turn=self.conversation.turn_count,
            )
            self._keep(self.entities.heard([entity]))
            return entity

    def confirm_entity(self, type_: str, value: str | None = None) -> None:
        """Confirm the active entity of a type; with ``value``, of several only this one stays."""
        with self.layers.changing(EntityLayer):
            self._keep(self.entities.confirmed(type_, value))

    def drop_entities(self, *types: str) -> None:
        """Drop the active entities of these types; without types, of all that belong to the subject."""
        with self.layers.changing(EntityLayer):
            self._keep(self.entities.dropped(types or None))

    def active_entities(self) -> list[ActiveEntity]:
        """Return what is spoken of, what was named last first."""
        return self.entities.all_active()

    # Goals

    def set_goal(self, text: str, *, context: str = "") -> Goal:
        """Set a goal; the one before is archived. Tool calls and subtasks from now on belong to it.

        Args:
            text: What is to be reached; of more than 300 characters the beginning is kept.
            context: What is known for it; of more than 2,000 characters the end is kept.

        Raises:
            ValueError: ``text`` is empty.
        """
        with self.layers.changing(GoalsLayer):
            self._keep_goals(self.goals.setting(shortened(text, 300), at=self._wall(), context=context))
            return self.goals.goal()

    def complete_goal(self, outcome: str = "") -> GoalArchive:
        """Archive the active goal as completed and return what is kept of it.

        Raises:
            StateError: There is no active goal. So with the other methods of goals.
        """
        return self._end_goal(GoalStatus.COMPLETED, outcome)

    def fail_goal(self, reason: str = "") -> GoalArchive:
        """Archive the active goal as failed and return what is kept of it."""
        return self._end_goal(GoalStatus.FAILED, reason)

    def _end_goal(self, status: GoalStatus, outcome: str) -> GoalArchive:
        with self.layers.changing(GoalsLayer), self._timings.measured("archive"):
            self._keep_goals(self.goals.ending(status, outcome))
            return self.goals.archive[-1]

    def add_goal_context(self, text: str) -> None:
        """Add what is known for the active goal; of more than 2,000 characters the end stays."""
        with self.layers.changing(GoalsLayer):
            self._keep_goals(self.goals.with_goal(self.goals.goal().with_context(text)))

    def add_finding(self, text: str) -> None:
        """Add something found out, once, to the task and to the active goal if there is one."""
        with self.layers.changing(GoalsLayer):
            self._execution = self._execution.with_finding(text)
            if self.goals.active is not None:
                self._keep_goals(self.goals.with_goal(self.goals.active.with_finding(text)))

    def add_subtask(self, subtask_id: str, text: str, *, theme: str = "general", depends_on: Iterable[str] = ()) -> Subtask:
        """Add a subtask to the active goal, or change one that is there.

        Raises:
            StateError: It would depend on itself, or on what is not there.
        """
        subtask = Subtask(id=subtask_id, text=shortened(text, 300), theme=theme, depends_on=tuple(depends_on))
        return self._with_subtask(subtask)

    def complete_subtask(self, subtask_id: str, result: str = "") -> Subtask:
        """Complete a subtask.

        Raises:
            StateError: What it depends on is not completed.
        """
        with self.layers.changing(GoalsLayer):
            goal = self.goals.goal()
            subtask = goal.subtask(subtask_id)
            if subtask.status is not SubtaskStatus.OPEN or subtask not in goal.ready:
                ready = ", ".join(repr(each.id) for each in goal.ready) or "none"
                raise StateError(f"subtask {subtask_id!r} is not ready; ready are: {ready}")
            return self._with_subtask(subtask.changed(status=SubtaskStatus.COMPLETED, result=shortened(result, 300)))

    def fail_subtask(self, subtask_id: str, reason: str) -> Subtask:
        """Say that a subtask failed."""
        with self.layers.changing(GoalsLayer):
            subtask = self.goals.goal().subtask(subtask_id)
            return self._with_subtask(subtask.changed(status=SubtaskStatus.FAILED, result=shortened(reason, 300)))

    def ready_subtasks(self) -> list[Subtask]:
        """Return the open subtasks of the active goal whose dependencies are completed."""
        goal = self.goals.active
        return [] if goal is None else goal.ready

    def _with_subtask(self, subtask: Subtask) -> Subtask:
        with self.layers.changing(GoalsLayer):
            self._keep_goals(self.goals.with_goal(self.goals.goal().with_subtask(subtask)))
            return subtask

    def _keep_goals(self, layer: GoalsLayer) -> None:
        self._keep(layer.within(SESSION_TOKENS))
        self._warn_of_size()

    def _warn_of_size(self) -> None:
        tokens = self.goals.tokens
        if tokens > WARN_TOKENS and not self._warned:
            logger.warning(
                "tokens=<%d>, cap=<%d> | the goals of the session are nearly as large as they may be", tokens, SESSION_TOKENS
            )
        self._warned = tokens > WARN_TOKENS

    def keep_within_caps(self) -> None:
        """Bring the goals, as they are stored, back under their cap after a turn with tool calls."""
        with self.layers.lock:
            if self.layers.size(GoalsLayer) <= SESSION_TOKENS // 2:  # a character has at most 2 tokens
                return
            try:
                self.layers.put_if_readable(self.goals.within(SESSION_TOKENS))
            except StateError:
                logger.debug("the active goal alone is over its cap")
            self._warn_of_size()

    # Execution memory

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

    # What is known of all this

    def stats(self) -> StateStats:
        """Return statistics of all layers (mission E4)."""
        with self.layers.lock:
            return stats_of(self._view(), self.layers, self._timings, self._surroundings.reloads, estimated_tokens)


def coordinator_of(agent: Agent) -> StateCoordinator | None:
    """Return the coordinator of an agent; None if it has none."""
    return _coordinators.get(agent)


def _of_tools(types: EntityTypes) -> set[str]:
    """Return the types that a tool's result is about: prices, dates and the like it holds by the dozen."""
    told = {"email", "url", "phone", "reference"}
    return {
        each.name for each in types if (each.is_exact and each.name not in told) or each.name in ("title", "series", "volume")
    }
