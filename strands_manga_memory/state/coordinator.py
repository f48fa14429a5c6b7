"""Plugin that tracks the state of a conversation and shows the state to the model."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from typing import Annotated, Any, TypedDict

from pydantic import Field
from strands import Agent, tool
from strands.hooks import (
    AfterInvocationEvent,
    AfterModelCallEvent,
    AfterToolCallEvent,
    BeforeInvocationEvent,
    BeforeModelCallEvent,
    BeforeToolCallEvent,
    HookOrder,
    MessageAddedEvent,
)
from strands.middleware import InvokeModelContext, InvokeModelStage
from strands.plugins import Plugin
from strands.types.content import Message
from strands.types.tools import ToolResult

from strands_manga_memory.arguments import Clock, Positive, PositiveInt, PositiveSeconds, checked
from strands_manga_memory.exceptions import MangaMemoryError, StateError
from strands_manga_memory.language.dialogue_acts import DialogueAct, changes_subject, dialogue_act
from strands_manga_memory.language.entities import (
    SHOP,
    EntityTypes,
    find_spoken_entities,
    is_referent,
)
from strands_manga_memory.language.pii import redact_identifiers
from strands_manga_memory.language.text_features import encodable
from strands_manga_memory.lifecycle import attachments
from strands_manga_memory.messages import result_texts
from strands_manga_memory.messages.injection import (
    begins_turn,
    message_text,
    opening_id,
    render_section,
    strip_own_blocks,
    with_section,
)
from strands_manga_memory.messages.message_parts import (
    call_key,
    guard_details,
    id_of,
    leaves,
)
from strands_manga_memory.messages.texts import estimate_tokens, head_and_tail
from strands_manga_memory.scope import ConversationScope
from strands_manga_memory.state.active_entities import ActiveEntities
from strands_manga_memory.state.dialogue import Dialogue, DialogueSlot, Phase, checked_slot
from strands_manga_memory.state.environment import Environment, EnvironmentTracker
from strands_manga_memory.state.goals import Goals
from strands_manga_memory.state.session_state import HOT_DEADLINE, SessionState
from strands_manga_memory.state.state_item import StateLimits, item_of
from strands_manga_memory.state.task import TaskState
from strands_manga_memory.stores.codec import Codec, as_json
from strands_manga_memory.stores.hot import HotStore

_SECTION = "conversation_state"

TOOL_NAMES = ("update_slots", "manage_goal")
"""Names of the tools with which the model changes the state.
Their calls are not recorded as steps of the task.
"""

_USER_TYPES = {"email", "url", "phone", "reference"}
"""Entity types that are extracted from the user's messages only, and not from tool calls."""

_MAX_CHARACTERS = 4_000
"""Most characters of a text that are read: its beginning and its end."""

_Text = Annotated[str, Field(coerce_numbers_to_str=True)]
"""Text for which a model may also pass a number, such as a volume."""


class StateStats(TypedDict):
    """Statistics of an agent's state.

    Attributes:
        entities: Number of active entities.
        executions: Two numbers: the steps of the current task, such as tool calls, that are in
            memory, and all that were recorded.
        goals: Two numbers: the goals set so far, and the archived goals.
        tokens: Estimated tokens of the stored dialogue (key ``conversation``), entities and goals.
        caps: Limits in estimated tokens. ``session``: for all stored goals. ``archives``: for the
            archived goals. ``warning``: size of all goals above which a warning is logged.
        compression: Share of characters that the archive of goals saves, because it has statistics
            in place of tool calls. None if no archived goal had tool calls.
        unreadable: Reasons why stored parts of the state cannot be read, by their key in
            ``agent.state``.
    """

    entities: int
    executions: tuple[int, int]
    goals: tuple[int, int]
    tokens: dict[str, int]
    caps: dict[str, int]
    compression: float | None
    unreadable: dict[str, str]


class StateCoordinator(Plugin):
    """Plugin that tracks the state of a conversation and shows the state to the model.

    The state has five parts:

    - ``dialogue``: the user's intent, slots (values that the intent needs) and pending questions to
      the user.
    - ``entities``: orders, titles and other things that recent turns named.
    - ``goals``: the active goal with its subtasks, and ended goals.
    - ``task``: steps, time budget and findings of the current request, kept in memory only.
    - ``environment``: data from the shop's systems, such as the user's cart and locale.

    Dialogue, entities and goals are stored in ``agent.state``, which any session manager restores.
    With ``hot``, all agents of the session share these three parts. Hooks record tool calls, turns
    and entities. Methods change the parts, such as ``state.goals.set("Find a gift")``. With a
    ``TieredSessionManager``, intent, agent, locale and cart become metadata of the conversation.

    The model receives the state as one block of text, before the user's text in the message that
    opens the turn. All requests of a turn contain the same block, unless the environment changes or
    the time budget runs low. The block is part of requests only. The history, the stored session
    and the system prompt do not change.

    Each agent needs its own coordinator.

    Args:
        intents: Slots of each intent: ``{"reorder": [DialogueSlot(name="volume", question="Which
            volume?")]}``.
        types: Entity types to extract. Default ``SHOP``. Types that identify a thing (ASIN, ISBN,
            order id) are also extracted from tool calls and the assistant's text; others come from
            the user only.
        max_tokens: Maximum estimated tokens of the rendered state. Default 400.
        time_budget_ms: Milliseconds of a task after which the rendered state asks the model to
            answer. Default 3,000.
        offer_tools: Whether the model gets tools that change the state (``TOOL_NAMES``). Default
            True.
        limits: Limits of the goals and steps. Default ``StateLimits()``.
        environment: Tracker of the environment. Default: an empty environment.
        scope: Scope of the conversation; required with ``hot``.
        hot: Hot store for the state that the session's agents share. None: the agent shares no
            state.
        codec: Codec of the shared state.
        is_stored: Function that takes an agent's id and returns whether the session still has its
            conversation. If the result is False for all agents that wrote shared state, a new agent
            ignores it. None: no check.
        deadline: Seconds that a turn waits for the hot store. Default 0.05.
        clock: Function that returns monotonic seconds.
        wall_clock: Function that returns seconds since 1970.

    Attributes:
        task: Steps, time budget and findings of the current request.
        store: Dialogue, entities and goals, and their storage.
        max_tokens: Maximum estimated tokens of the rendered state.

    Raises:
        ValueError: An argument is invalid, or the coordinator belongs to another agent already.
    """

    name = "strands-manga-memory:state"

    @checked
    def __init__(
        self,
        *,
        intents: Mapping[str, Iterable[DialogueSlot]] | None = None,
        types: EntityTypes = SHOP,
        max_tokens: PositiveInt = 400,
        time_budget_ms: Positive = 3000.0,
        offer_tools: bool = True,
        limits: StateLimits | None = None,
        environment: EnvironmentTracker | None = None,
        scope: ConversationScope | None = None,
        hot: HotStore | None = None,
        codec: Codec | None = None,
        is_stored: Callable[[str], bool] | None = None,
        deadline: PositiveSeconds = HOT_DEADLINE,
        clock: Clock = time.monotonic,
        wall_clock: Clock = time.time,
    ) -> None:
        super().__init__()
        if hot is not None and scope is None:
            raise ValueError("scope must be a ConversationScope if hot is given, got None")
        known = {
            intent: tuple(checked_slot(f"intents[{intent!r:.80}]", slot, types) for slot in slots)
            for intent, slots in (intents or {}).items()
        }
        self.store = SessionState(
            (Dialogue, ActiveEntities, Goals),
            types,
            known,
            clock,
            wall_clock,
            limits or StateLimits(),
            hot,
            scope,
            codec or Codec(),
            is_stored,
            deadline,
        )
        self.task = TaskState(self.store, float(time_budget_ms))
        self.max_tokens = max_tokens
        self._tracker = environment
        self._rendered_from: tuple[object, ...] | None = None
        self._rendered = ""
        self._tools = [getattr(self, name) for name in TOOL_NAMES] if offer_tools else []
        if known and offer_tools:
            listed = (
                f"{name} ({', '.join(slot.name for slot in of)})" for name, of in known.items()
            )
            spec = self._tools[0].tool_spec  # of ``update_slots``
            description = f"{spec['description']} Intents, with their slots: {'; '.join(listed)}."
            self._tools[0].tool_spec = {**spec, "description": description}
        self._waits = False
        self._last_message: tuple[Message, str] | None = None
        self._counted, self._called_by = "", ""

    def __repr__(self) -> str:
        names = [tool.tool_name for tool in self._tools]
        return f"StateCoordinator(max_tokens={self.max_tokens}, tools={names})"

    @property
    def dialogue(self) -> Dialogue:
        """Dialogue with the user: phase, intent, slots and pending questions.

        Slots are the values that the intent needs, such as the volume to order.
        """
        return self.store.get(Dialogue)

    @property
    def entities(self) -> ActiveEntities:
        """Active entities, such as orders and titles, that recent turns named."""
        return self.store.get(ActiveEntities)

    @property
    def goals(self) -> Goals:
        """Goals of the agent: the active goal with its subtasks, and the archive of ended goals."""
        return self.store.get(Goals)

    @property
    def environment(self) -> Environment:
        """Data from the shop's systems, such as the user's cart, which the agent can only read."""
        return Environment() if self._tracker is None else self._tracker.environment

    # The agent

    def init_agent(self, agent: Agent) -> None:
        """Connect the plugin to an agent, and register its hooks and its middleware.

        A session manager restores the state before these hooks run, and saves the state after them.

        Raises:
            ValueError: The coordinator belongs to another agent already.
        """
        if self.store.agent_id:
            raise ValueError(
                "this StateCoordinator belongs to another agent already; give each agent its own"
            )
        self.store.attach(agent)
        attachments(agent).update(coordinator=self, metadata=self._metadata)
        first, last = HookOrder.SDK_FIRST, HookOrder.SDK_LAST
        agent.add_hook(self._turn_begins, BeforeInvocationEvent, order=last)
        agent.add_hook(self._message_added, MessageAddedEvent, order=first)
        agent.add_hook(self._take_edit, BeforeModelCallEvent, order=last)
        agent.add_hook(self._take_edit, AfterModelCallEvent, order=first)
        agent.add_hook(self._tool_begins, BeforeToolCallEvent, order=last)
        agent.add_hook(self._tool_ended, AfterToolCallEvent, order=last)
        agent.add_hook(self._turn_ended, AfterInvocationEvent, order=first)
        agent.add_middleware(InvokeModelStage.Input, self._with_state)

    def _metadata(self) -> dict[str, Any]:
        dialogue = self.dialogue
        return {
            "active_intent": dialogue.intent,
            "active_agent": dialogue.agent,
            **self.environment.metadata(),
        }

    # The text in requests

    async def _with_state(self, context: InvokeModelContext) -> InvokeModelContext:
        if self._tracker is not None:
            await self._tracker.refresh()
        source = opening_id(context.agent.messages), self.environment, self.task.urgency()
        if begins_turn(context.messages) or source != self._rendered_from:
            self._rendered_from, self._rendered = source, self.to_agent_context()
        return with_section(context, self._rendered)

    @property
    def shown_text(self) -> str:
        """Text that showed the state in the latest request to the model; empty without requests."""
        return self._rendered

    def retract(self, *message_ids: str) -> bool:
        """Remove the entities and slot values that came from messages of the conversation.

        The model no longer sees them in its next request. If the session's agents share state
        (``hot``), the values are removed from the shared state, too.

        Args:
            message_ids: Ids (``tracking_id``) of the messages.

        Returns:
            Whether anything was removed.
        """
        with self.store.lock:
            if not self.store.agent_id:
                self.store.pull()
            entities, dialogue = self.entities, self.dialogue
            before = entities.groups, dialogue.slots
            for id_ in message_ids:
                self._remove_source(id_)
            self.store.write()
            if has_changed := (entities.groups, dialogue.slots) != before:
                self._rendered_from = None
                self.store.publish()
            return has_changed

    def _remove_source(self, message_id: str) -> None:
        self.entities.remove_source(message_id)
        self.dialogue.remove_source(message_id)

    def to_agent_context(self) -> str:
        """Return the state as a block of text for the model, the most useful lines first.

        The text has at most ``max_tokens`` estimated tokens; lines that would exceed them are left
        out. It is empty if there is nothing to show. Tags in values are escaped, so that a value
        cannot end the block.
        """
        with self.store.lock:
            lines = [
                self.task.urgency(),
                *self.dialogue.lines(),
                *self.entities.lines(),
                *self.goals.lines(),
                *self.task.lines(),
                *self.environment.lines(self.store.wall()),
            ]
        remaining, kept = self.max_tokens - estimate_tokens(render_section(_SECTION, [])), []
        for line in filter(None, lines):
            tokens = estimate_tokens(line) + 1
            if tokens <= remaining:
                kept.append(line)
                remaining -= tokens
        return render_section(_SECTION, kept) if kept else ""

    # Hooks

    async def _turn_begins(self, event: BeforeInvocationEvent) -> None:
        self.store.begin_turn()
        await self.store.refresh()
        self.dialogue.turns = self.dialogue.turn_count  # a fork has a history and no stored count
        if self._waits:
            self.task.resume()
        else:
            self.task.begin()
        self._waits = False

    def _turn_ended(self, event: AfterInvocationEvent) -> None:
        self._waits = event.result is not None and event.result.stop_reason == "interrupt"
        self._last_message = None
        if self._waits:
            self.task.pause()
        else:
            self.task.end()
            dialogue = self.dialogue
            if dialogue.phase is not Phase.FAREWELL:
                is_filling = dialogue.next_question and dialogue.missing
                dialogue.advance(Phase.SLOT_FILLING if is_filling else Phase.FOLLOW_UP)
        with suppress(MangaMemoryError):
            self.goals.enforce_limits()
        self.store.end_turn()

    def _message_added(self, event: MessageAddedEvent[Agent]) -> None:
        message = event.message
        results = [block["toolResult"] for block in message["content"] if "toolResult" in block]
        with self.store.lock:  # tools change the state from other threads, and may replace it
            if message["role"] == "assistant":
                self._assistant_message(message)
            elif results:
                self.dialogue.advance(Phase.RESPONSE_GENERATION)
                texts = [_result_text(each) for each in results if each.get("status") != "error"]
                if not texts:  # the model may have called the tools with ids that do not exist
                    self.entities.remove_source(self._called_by)
                self._extract_ids("\n".join(texts), message)
            else:
                dialogue, identity = self.dialogue, id_of(message)
                dialogue.advance(dialogue.phase_after(_spoken_excerpt(message)))
                # Strands adds a continuation under the same id.
                dialogue.turns += not identity or identity != self._counted
                self._counted = identity
                self._user_message(message)
            self.store.write()

    def _user_message(self, message: Message) -> None:
        text, identity = _spoken_excerpt(message), id_of(message)
        self._last_message = message, message_text(message)
        dialogue, entities = self.dialogue, self.entities
        found = find_spoken_entities(text, self.store.types) if text else []
        is_correction = bool(found) and dialogue_act(text, "user") is DialogueAct.CORRECTION
        dialogue.fill_from_message(found, identity, is_correction=is_correction)
        entities.begin_turn(is_new_subject=changes_subject(text))
        # no prices and quantities
        entities.add_mentions(filter(is_referent, found), identity, by_user=True)

    def _assistant_message(self, message: Message) -> None:
        dialogue = self.dialogue
        if dialogue.intent is not None:  # the session's log stores the intent with the turn
            custom = message.setdefault("metadata", {}).setdefault("custom", {})
            custom["intent"] = dialogue.intent
        uses = [block["toolUse"] for block in message["content"] if "toolUse" in block]
        if uses or dialogue.phase is not Phase.GREETING:  # the answer to a greeting is a greeting
            dialogue.advance(Phase.TOOL_EXECUTION if uses else Phase.RESPONSE_GENERATION)
        self._called_by = id_of(message)
        given = leaves([use["input"] for use in uses if use["name"] not in TOOL_NAMES])
        self._extract_ids("\n".join(map(str, given)), message)
        self._extract_ids(_spoken_excerpt(message), message)

    def _extract_ids(self, text: str, message: Message) -> None:
        types = self.store.types
        found = types.find(_excerpt(text)) if text else []
        ids = (each for each in found if types[each.type].is_exact and each.type not in _USER_TYPES)
        self.entities.add_mentions(ids, id_of(message), by_user=False)

    def _take_edit(self, event: BeforeModelCallEvent | AfterModelCallEvent) -> None:
        # Strands calls no hook when a guardrail or another hook changes the user's message.
        message, text = self._last_message or (None, "")
        if message is None or message_text(message) == text:
            return
        with self.store.lock:
            self._remove_source(id_of(message))
            self._user_message(message)

    def _tool_begins(self, event: BeforeToolCallEvent[Agent]) -> None:
        use = event.tool_use
        if use["name"] not in TOOL_NAMES:
            self.task.begin_call(call_key(event.agent, use), use["name"], use["input"])

    def _tool_ended(self, event: AfterToolCallEvent[Agent]) -> None:
        use, result = event.tool_use, event.result
        if use["name"] in TOOL_NAMES:
            return
        self.store.reload()
        text = _result_text(result)
        self.task.end_call(
            call_key(event.agent, use),
            ok=result.get("status") != "error",
            timed_out=guard_details(result).get("code") == "timeout",
            text=text,
            ms=None if event.duration is None else 1000 * event.duration,
            retry=event.retry,
            size=len(text) + len(as_json(use["input"], ensure_ascii=False)),
        )

    # Tools of the model. An invalid value is an error result that names the rule.

    @tool
    def update_slots(
        self,
        intent: str = "",
        values: dict[str, _Text] | None = None,
        confirmed: bool = False,  # noqa: FBT001, FBT002 - the model passes names
    ) -> str:
        """Set the user's intent, and fill slots with values that the user gave.

        Args:
            intent: Intent of the user; leave it out to keep the current one.
            values: Slot names and values.
            confirmed: True only if the user gave or confirmed these values.
        """
        dialogue = self.dialogue
        if intent:
            if intents := self.store.intents:
                item_of(intents, "intent", intent)
            dialogue.set_intent(intent)
        problems = []
        for name, value in (values or {}).items():
            try:
                if redact_identifiers(str(value)) != str(value):
                    raise StateError(
                        f"slot {name!r:.80} is not filled: a card, account or document number or"
                        " a password is never stored"
                    )
                dialogue.fill_slot(name, value, confirmed=confirmed)
            except StateError as error:
                problems.append(str(error))
        if problems:
            if len(problems) < len(values or ()):
                problems.append("all other values are set")
            raise StateError("; ".join(problems))
        # The request shows the state at the beginning of the turn, so the result returns the
        # current one.
        return "\n".join(dialogue.lines()) or "There is no intent, and no slot has a value."

    @tool
    def manage_goal(
        self,
        action: str,
        text: str = "",
        id: str = "",  # noqa: A002 - the name that the model reads
        depends_on: list[str] | None = None,
    ) -> str:
        """Set, complete or fail the conversation's goal, note a finding, or work on its subtasks.

        Args:
            action: One of set, complete, fail, finding, add_subtask, complete_subtask,
                fail_subtask.
            text: The goal, its outcome, the finding, the subtask, or its result.
            id: Id of the subtask.
            depends_on: Ids of subtasks that must be completed before this one.
        """
        goals, text = self.goals, redact_identifiers(text)
        actions: dict[str, Callable[[], object]] = {
            "set": lambda: goals.set(text),
            "complete": lambda: goals.complete(text),
            "fail": lambda: goals.fail(text),
            "finding": lambda: self.task.add_finding(text),
            "add_subtask": lambda: goals.add_subtask(id, text, depends_on=depends_on or ()),
            "complete_subtask": lambda: goals.complete_subtask(id, text),
            "fail_subtask": lambda: goals.fail_subtask(id, text),
        }
        item_of(actions, "action", action)()
        ready = [each.id for each in goals.active.ready] if goals.active else []
        return f"Done. Subtasks that can be worked on: {', '.join(ready) or 'none'}."

    def stats(self) -> StateStats:
        """Return statistics of the agent's state, such as the numbers of entities and goals."""
        with self.store.lock:
            entities, goals, limits = self.entities, self.goals, self.store.limits
            stored = {"conversation": self.dialogue, "entities": entities, "goals": goals}
            raw = sum(each.raw_characters for each in goals.archive)
            kept = sum(len(each.model_dump_json(exclude_defaults=True)) for each in goals.archive)
            return StateStats(
                entities=len(entities.active()),
                executions=(len(self.task.steps), self.task.recorded),
                goals=(goals.total, len(goals.archive)),
                tokens={name: estimate_tokens(part.stored()) for name, part in stored.items()},
                caps={
                    "session": limits.goal_tokens,
                    "warning": limits.goal_warn_tokens,
                    "archives": limits.goal_archive_tokens,
                },
                compression=round(1 - kept / raw, 4) if raw else None,
                unreadable=self.store.unreadable,
            )


def _excerpt(text: str) -> str:
    return encodable(head_and_tail(text, _MAX_CHARACTERS))


def _spoken_excerpt(message: Message) -> str:
    return _excerpt(strip_own_blocks(message_text(message)))


def _result_text(result: ToolResult) -> str:
    return encodable("\n".join(result_texts(result, partial(as_json, ensure_ascii=False))))


def coordinator_of(agent: Agent) -> StateCoordinator | None:
    """Return the ``StateCoordinator`` that tracks the state of an agent; None if there is none."""
    return attachments(agent).get("coordinator")
