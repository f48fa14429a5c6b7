"""Hooks that update an agent's state after messages, tool calls and turns."""

from __future__ import annotations

import re
from functools import partial
from typing import Any

from strands import Agent
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
from strands.types.content import Message
from strands.types.tools import ToolResult

from strands_manga_memory.language.dialogue_acts import DialogueAct, changes_subject, dialogue_act
from strands_manga_memory.language.entities import find_spoken_entities
from strands_manga_memory.language.text_features import encodable
from strands_manga_memory.messages import result_texts
from strands_manga_memory.messages.injection import message_text, strip_own_blocks
from strands_manga_memory.messages.message_parts import call_key, guard_details
from strands_manga_memory.messages.texts import head_and_tail
from strands_manga_memory.state.active_entities import ActiveEntities
from strands_manga_memory.state.dialogue import Dialogue, Phase
from strands_manga_memory.state.goals import Goals
from strands_manga_memory.state.session_state import SessionState
from strands_manga_memory.state.state_store import StateStore
from strands_manga_memory.state.task import TaskState
from strands_manga_memory.stores.codec import as_json

TOOL_NAMES = ("update_slots", "manage_goal")
"""Names of the tools with which the model changes the state.
Their calls are not recorded as steps of the task.
"""

_USER_TYPES = {"email", "url", "phone", "reference"}
"""Entity types that are extracted from the user's messages only, and not from tool calls."""

_MAX_CHARACTERS = 4_000
"""Most characters of a text that are read: its beginning and its end."""

_LONGEST_SET_PHRASE = 120
# Scoring counts thanks with a goodbye as thanks.
_GOODBYE = re.compile(r"\b(?:good ?bye|bye)\b", re.IGNORECASE)
_NO_SET_PHRASE = re.compile(r'\d|["「『]')


class Recorder:
    """Hooks that update an agent's state after each message, tool call and turn.

    Args:
        store: Store of the parts of the state, such as the dialogue and the goals.
        task: The task of the current request.
        session: Access to the state that the agents of the session share; None without shared
            state.
    """

    def __init__(self, store: StateStore, task: TaskState, session: SessionState | None) -> None:
        self._store, self._task, self._session = store, task, session
        # Types whose values identify one thing are also extracted from tool calls and the
        # assistant's text.
        self._types_of_tools = {each.name for each in store.types if each.is_exact} - _USER_TYPES
        self._waits = False
        self._last_message: tuple[Message, str] | None = None
        self._counted = ""
        self._dialogue = store.get(Dialogue)
        self._entities = store.get(ActiveEntities)
        self._goals = store.get(Goals)

    def listen(self, agent: Agent) -> None:
        """Register the hooks that update the state of an agent.

        A session manager restores the state before these hooks run, and saves the state after them.
        """
        first, last = HookOrder.SDK_FIRST, HookOrder.SDK_LAST
        agent.add_hook(self._turn_begins, BeforeInvocationEvent, order=last)
        agent.add_hook(self._message_added, MessageAddedEvent, order=first)
        agent.add_hook(self._take_edit, BeforeModelCallEvent, order=last)
        agent.add_hook(self._take_edit, AfterModelCallEvent, order=first)
        agent.add_hook(self._tool_begins, BeforeToolCallEvent, order=last)
        agent.add_hook(self._tool_ended, AfterToolCallEvent, order=last)
        agent.add_hook(self._turn_ended, AfterInvocationEvent, order=first)

    # A turn

    async def _turn_begins(self, event: BeforeInvocationEvent) -> None:
        self._store.begin_turn()
        if self._session is not None:
            self._store.publish = lambda: None
            await self._session.refresh()
        with self._store.lock:
            self._dialogue.turns = (
                self._dialogue.turn_count
            )  # a fork has a history and no stored count
        if self._waits:
            self._task.resume()
        else:
            self._task.begin()
        self._waits = False

    def _turn_ended(self, event: AfterInvocationEvent) -> None:
        self._waits = event.result is not None and event.result.stop_reason == "interrupt"
        if self._waits:
            self._task.pause()
        else:
            self._task.end()
            dialogue = self._dialogue
            with self._store.lock:
                self._store.refresh()
                if dialogue.phase is not Phase.FAREWELL:
                    is_filling = dialogue.next_question and dialogue.missing
                    dialogue.advance(Phase.SLOT_FILLING if is_filling else Phase.FOLLOW_UP)
        self._last_message = None
        self._store.write()
        self._goals.enforce_limits()
        self._store.end_turn()
        if self._session is not None:
            self._store.publish = self._session.publish
            self._session.publish()

    # Messages

    def _message_added(self, event: MessageAddedEvent[Agent]) -> None:
        message = event.message
        identity = message.get("tracking_id") or ""
        results = [block["toolResult"] for block in message["content"] if "toolResult" in block]
        with self._store.lock:  # tools change the state from other threads, and may replace it
            self._store.refresh()
            if message["role"] == "assistant":
                self._assistant_message(message, identity)
                return  # the next tool result or the end of the turn writes the change
            if results:
                self._dialogue.advance(Phase.RESPONSE_GENERATION)
                text = "\n".join(
                    _result_text(result) for result in results if result.get("status") != "error"
                )
                self._extract_ids(head_and_tail(text, _MAX_CHARACTERS), identity)
            else:
                self._last_message = message, message_text(message)
                # Strands adds a continuation under the same id.
                is_new_turn = not identity or identity != self._counted
                self._user_message(message, identity, is_new_turn=is_new_turn)
                self._counted = identity
            self._store.write()

    def _user_message(
        self, message: Message, identity: str, *, is_new_turn: bool, is_redacted: bool = False
    ) -> None:
        text = _text(message)
        found = find_spoken_entities(text, self._store.types) if text else []
        phase = self._dialogue.phase if is_redacted else _phase_of(text, self._dialogue)
        is_correction = bool(found) and dialogue_act(text, "user") is DialogueAct.CORRECTION
        self._dialogue.apply_message(
            phase, found, identity, is_new_turn=is_new_turn, is_correction=is_correction
        )
        self._entities.begin_turn(is_new_subject=changes_subject(text))
        self._entities.add_mentions(found, identity, by_user=True)

    def _assistant_message(self, message: Message, identity: str) -> None:
        dialogue = self._dialogue
        if dialogue.intent is not None:  # the session's log stores the intent with the turn
            custom = message.setdefault("metadata", {}).setdefault("custom", {})
            custom["intent"] = dialogue.intent
        uses = [block["toolUse"] for block in message["content"] if "toolUse" in block]
        if uses or dialogue.phase is not Phase.GREETING:  # the answer to a greeting is a greeting
            dialogue.advance(Phase.TOOL_EXECUTION if uses else Phase.RESPONSE_GENERATION)
        given = "\n".join(_leaves(use["input"]) for use in uses if use["name"] not in TOOL_NAMES)
        self._extract_ids(encodable(head_and_tail(given, _MAX_CHARACTERS)), identity)
        self._extract_ids(_text(message), identity)

    def _extract_ids(self, text: str, identity: str) -> None:
        found = self._store.types.find(text) if text else ()
        self._entities.add_mentions(
            [each for each in found if each.type in self._types_of_tools], identity, by_user=False
        )

    def _take_edit(self, event: BeforeModelCallEvent | AfterModelCallEvent) -> None:
        """Update the state after a guardrail or another hook changed the user's message.

        Entities and slot values of the original text are replaced by those of the new text. Strands
        calls no hook for such a change, so this hook compares the text of the message before and
        after each model call.
        """
        message, text = self._last_message or (None, "")
        if message is None or message_text(message) == text:
            return
        identity = message.get("tracking_id") or ""
        with self._store.lock:
            self._store.refresh()
            self._last_message = message, message_text(message)
            self._entities.remove_source(identity)
            self._dialogue.remove_source(identity)
            self._user_message(message, identity, is_new_turn=False, is_redacted=True)

    # Tools

    def _tool_begins(self, event: BeforeToolCallEvent[Agent]) -> None:
        use = event.tool_use
        if use["name"] not in TOOL_NAMES and not event.cancel_tool:
            self._task.begin_call(call_key(event.agent, use), use["name"], use["input"])

    def _tool_ended(self, event: AfterToolCallEvent[Agent]) -> None:
        use, result = event.tool_use, event.result
        if use["name"] in TOOL_NAMES:
            return
        self._store.refresh()
        key = call_key(event.agent, use)
        if event.cancel_message is not None:
            self._task.begin_call(key, use["name"], use["input"])
        text = _result_text(result)
        self._task.end_call(
            key,
            ok=result.get("status") != "error",
            timed_out=guard_details(result).get("code") == "timeout",
            text=text,
            ms=None if event.duration is None else 1000 * event.duration,
            retry=event.retry,
            size=len(text) + len(as_json(use["input"], ensure_ascii=False)),
        )


def _phase_of(text: str, dialogue: Dialogue) -> Phase:
    """Return the phase, such as a greeting, of a conversation after a message of the user.

    Only a short text without digits and quotation marks counts as a greeting or a goodbye.
    """
    act = None
    if text and len(text) <= _LONGEST_SET_PHRASE and not _NO_SET_PHRASE.search(text):
        act = dialogue_act(text, "user")
    says_goodbye = act is DialogueAct.ACKNOWLEDGEMENT and _GOODBYE.search(text)
    if act is DialogueAct.FAREWELL or says_goodbye:
        return Phase.FAREWELL
    has_left = dialogue.phase is Phase.FAREWELL
    if act is DialogueAct.GREETING and (has_left or dialogue.phase is Phase.GREETING):
        return Phase.GREETING
    return Phase.SLOT_FILLING if dialogue.missing and not has_left else Phase.INTENT_DETECTION


def _text(message: Message) -> str:
    return encodable(head_and_tail(strip_own_blocks(message_text(message)), _MAX_CHARACTERS))


def _result_text(result: ToolResult) -> str:
    return encodable("\n".join(result_texts(result, partial(as_json, ensure_ascii=False))))


def _leaves(value: Any) -> str:
    if isinstance(value, dict):
        return "\n".join(map(_leaves, value.values()))
    if isinstance(value, list | tuple):
        return "\n".join(map(_leaves, value))
    return "" if value is None else str(value)
