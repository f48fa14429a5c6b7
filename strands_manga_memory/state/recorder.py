"""Hooks that record an agent's messages, tool calls and turns in its state."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterable
from functools import partial
from typing import Any

from strands import Agent
from strands.hooks import (
    AfterInvocationEvent,
    AfterModelCallEvent,
    AfterToolCallEvent,
    AgentInitializedEvent,
    BeforeInvocationEvent,
    BeforeToolCallEvent,
    HookOrder,
    MessageAddedEvent,
)
from strands.types.content import Message
from strands.types.tools import ToolResult

from strands_manga_memory.language.dialogue_acts import DialogueAct, changes_subject, small_talk_act
from strands_manga_memory.language.entities import find_spoken_entities
from strands_manga_memory.language.text_features import encodable
from strands_manga_memory.messages import result_texts
from strands_manga_memory.messages.injection import message_text, strip_own_blocks
from strands_manga_memory.messages.text_excerpts import head_and_tail
from strands_manga_memory.messages.tool_results import call_key
from strands_manga_memory.state.active_entities import EntityLayer, Origin
from strands_manga_memory.state.dialogue import ConversationLayer, Mention, Phase
from strands_manga_memory.state.goals import GoalsLayer
from strands_manga_memory.state.state_store import SessionState
from strands_manga_memory.state.task import StepStatus
from strands_manga_memory.state.tool_calls import Parts
from strands_manga_memory.stores.encoding.values import as_json

_LONGEST_SET_PHRASE = 120
_GOODBYE = re.compile(r"\b(?:good ?bye|bye)\b", re.IGNORECASE)  # scoring counts thanks with a goodbye as thanks
_NO_SET_PHRASE = re.compile(r'\d|["「『]')


class Recorder:
    """Records an agent's messages, tool calls and turns in the layers of its state.

    Args:
        parts: The accessors of the layers.
        own_tools: Names of tools whose calls are not recorded as steps: those that change the state.
        types_of_tools: Names of the entity types that are also extracted from tool calls and the assistant's text.
        expires_after_turns: Turns after which an entity that was not named again is dropped.
        ready: Called when the agent is initialized, after a session manager restored it.
        session: State that the agents of the session share, or None.
    """

    def __init__(
        self,
        parts: Parts,
        own_tools: Iterable[str],
        *,
        types_of_tools: Collection[str],
        expires_after_turns: int,
        ready: Callable[[Agent], None],
        session: SessionState | None = None,
    ) -> None:
        # The agent's hooks hold the recorder, and ``ready``, a method of the coordinator, holds the coordinator.
        self._parts = parts
        self._store = parts.store
        self._types = parts.store.types
        self._own = frozenset(own_tools)
        self._types_of_tools = frozenset(types_of_tools)
        self._expires_after_turns = expires_after_turns
        self._ready = ready
        self._session = session
        self._waits = False
        self._last_message: tuple[Message, Any] | None = None
        self._counted = ""

    def listen(self, agent: Agent) -> None:
        """Register the hooks: before the session manager's where it saves, after them where it restores."""
        first, last = HookOrder.SDK_FIRST, HookOrder.SDK_LAST
        agent.add_hook(self._restored, AgentInitializedEvent, order=last)
        agent.add_hook(self._before_turn, BeforeInvocationEvent, order=-math.inf)
        agent.add_hook(self._turn_begins, BeforeInvocationEvent, order=last)
        agent.add_hook(self._message_added, MessageAddedEvent, order=first)
        agent.add_hook(self._model_answered, AfterModelCallEvent, order=first)
        agent.add_hook(self._tool_begins, BeforeToolCallEvent, order=last)
        agent.add_hook(self._tool_ended, AfterToolCallEvent, order=last)
        agent.add_hook(self._turn_ended, AfterInvocationEvent, order=first)

    def _restored(self, event: AgentInitializedEvent[Agent]) -> None:
        self._ready(event.agent)

    # A turn

    def _before_turn(self, event: BeforeInvocationEvent) -> None:
        """Read a state that the application replaced between turns. Later replacements come from a session manager."""
        self._store.get(ConversationLayer)

    async def _turn_begins(self, event: BeforeInvocationEvent) -> None:
        self._store.take_over()
        if self._session is not None:
            await self._session.refresh()
        if self._waits:
            self._parts.task.resume()
        else:
            self._parts.task.begin()
            self._parts.calls.task_began()
        self._waits = False

    def _turn_ended(self, event: AfterInvocationEvent) -> None:
        self._waits = event.result is not None and event.result.stop_reason == "interrupt"
        if self._waits:
            self._parts.task.pause()
        else:
            self._parts.task.end()
            with self._store.lock:
                layer = self._parts.dialogue.layer
                if layer.phase is not Phase.FAREWELL:
                    is_asking = layer.next_question and layer.missing
                    self._parts.dialogue.advance(Phase.SLOT_FILLING if is_asking else Phase.FOLLOW_UP)
        self._last_message = None
        self._store.write()
        self._parts.goals.keep_within_caps()
        self._store.turn_ended()
        if self._session is not None:
            self._session.publish()

    # Messages

    def _message_added(self, event: MessageAddedEvent[Agent]) -> None:
        message = event.message
        results = [block["toolResult"] for block in message["content"] if "toolResult" in block]
        with self._store.lock:  # tools change the state from other threads
            if message["role"] == "assistant":
                self._assistant_message(message)
                return  # the next tool result or the end of the turn writes the change
            slots = self._parts.dialogue.layer.slots
            if results:
                self._tool_results(results, message.get("tracking_id") or "")
            else:
                self._user_message(message)
            if self._parts.dialogue.layer.slots is not slots:
                self._store.write(ConversationLayer)
            self._store.write(EntityLayer, GoalsLayer)  # phase and turn count are written at the end of the turn

    def _user_message(self, message: Message, *, is_redacted: bool = False) -> None:
        identity = message.get("tracking_id") or ""
        text = _text(message)
        self._last_message = message, message["content"]
        # Strands adds a continuation under the same id.
        is_new_turn = not is_redacted and (not identity or identity != self._counted)
        self._counted = identity
        found = find_spoken_entities(text, self._types) if text else []
        dialogue, entities = self._parts.dialogue, self._parts.entities
        phase = dialogue.layer.phase if is_redacted else _phase_of(_act(text), dialogue.layer)
        mentions = [Mention(each.type, each.value[:200], identity) for each in found]
        dialogue.take_message(phase, mentions, is_new_turn=is_new_turn)
        entities.begin_turn(expires_after=self._expires_after_turns, is_new_subject=changes_subject(text))
        entities.take_mentions(found, Origin.USER, identity)

    def _assistant_message(self, message: Message) -> None:
        dialogue = self._parts.dialogue
        if dialogue.layer.intent is not None:  # the log stores it with the turn
            custom = message.setdefault("metadata", {}).setdefault("custom", {})
            custom["intent"] = dialogue.layer.intent
        identity = message.get("tracking_id") or ""
        uses = [block["toolUse"] for block in message["content"] if "toolUse" in block]
        if uses or dialogue.layer.phase is not Phase.GREETING:  # the answer to a greeting is a greeting
            dialogue.advance(Phase.TOOL_EXECUTION if uses else Phase.RESPONSE_GENERATION)
        given = "\n".join(_leaves(use["input"]) for use in uses if use["name"] not in self._own)
        self._extract_ids(encodable(head_and_tail(given)), Origin.TOOL, identity)
        self._extract_ids(_text(message), Origin.ASSISTANT, identity)

    def _tool_results(self, results: list[ToolResult], identity: str) -> None:
        self._parts.dialogue.advance(Phase.RESPONSE_GENERATION)
        text = "\n".join(_result_text(result) for result in results if result.get("status") != "error")
        self._extract_ids(head_and_tail(text), Origin.TOOL, identity)

    def _extract_ids(self, text: str, origin: Origin, identity: str) -> None:
        found = [each for each in (self._types.find(text) if text else ()) if each.type in self._types_of_tools]
        self._parts.entities.take_mentions(found, origin, identity)

    def _model_answered(self, event: AfterModelCallEvent) -> None:
        """Remove data of a message that a guardrail redacted. Strands edits the message in place without a hook."""
        if self._last_message is None:
            return
        message, content = self._last_message
        if message["content"] is content:
            return
        with self._store.lock:
            self._parts.entities.remove_source(message.get("tracking_id") or "")
            self._parts.dialogue.remove_source(message.get("tracking_id") or "")
            self._user_message(message, is_redacted=True)

    # Tools

    def _tool_begins(self, event: BeforeToolCallEvent[Agent]) -> None:
        use = event.tool_use
        if use["name"] in self._own or event.cancel_tool:
            return
        self._parts.calls.began(call_key(event.agent, use), use["name"], use["input"])

    def _tool_ended(self, event: AfterToolCallEvent[Agent]) -> None:
        use, result = event.tool_use, event.result
        if use["name"] in self._own:
            return
        if event.cancel_message is not None:
            self._parts.calls.began(call_key(event.agent, use), use["name"], use["input"])
        ok = result.get("status") != "error"
        text = _result_text(result)
        size = len(text) + len(as_json(use["input"], ensure_ascii=False))
        self._parts.calls.ended(
            call_key(event.agent, use),
            StepStatus.COMPLETED if ok else StepStatus.FAILED,
            text=text,
            ms=None if event.duration is None else 1000 * event.duration,
            retry=event.retry,
            size=size,
        )


def _act(text: str) -> DialogueAct | None:
    """Return the act of a user's message that may be a greeting or farewell: short, without numbers and titles."""
    if not text or len(text) > _LONGEST_SET_PHRASE or _NO_SET_PHRASE.search(text):
        return None
    act = small_talk_act(text, "user")
    return DialogueAct.FAREWELL if act is DialogueAct.ACKNOWLEDGEMENT and _GOODBYE.search(text) else act


def _phase_of(act: DialogueAct | None, layer: ConversationLayer) -> Phase:
    """Return the phase that a user's message begins."""
    if act is DialogueAct.FAREWELL:
        return Phase.FAREWELL
    if act is DialogueAct.GREETING and layer.phase in (Phase.GREETING, Phase.FAREWELL):
        return Phase.GREETING
    return Phase.SLOT_FILLING if layer.missing and layer.phase is not Phase.FAREWELL else Phase.INTENT_DETECTION


def _text(message: Message) -> str:
    return encodable(head_and_tail(strip_own_blocks(message_text(message))))


def _result_text(result: ToolResult) -> str:
    return encodable("\n".join(result_texts(result, partial(as_json, ensure_ascii=False))))


def _leaves(value: Any) -> str:
    """Return the texts and numbers in a tool's arguments, one per line."""
    if isinstance(value, dict):
        return "\n".join(map(_leaves, value.values()))
    if isinstance(value, list | tuple):
        return "\n".join(map(_leaves, value))
    return "" if value is None else str(value)
