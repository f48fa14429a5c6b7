"""Message logs: what Strands' ``RepositorySessionManager`` keeps - an agent record, and a record for each message. Pure.

``FileSessionManager``, ``S3SessionManager`` and most packages for other stores are such managers: their records are the same,
whatever holds them. Which messages an agent restored from them would have is left to Strands itself.
"""

from __future__ import annotations

import copy
import math
import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from strands import Agent
from strands.agent.conversation_manager import (
    ConversationManager,
    NullConversationManager,
    SlidingWindowConversationManager,
    SummarizingConversationManager,
)
from strands.session import RepositorySessionManager, SessionRepository
from strands.types.content import Message
from strands.types.session import Session, SessionAgent, SessionMessage, SessionType

from strands_manga_memory.conversation import (
    ImportanceWeightedConversationManager,
    TieredCompactionConversationManager,
    VerifiedSummarizingConversationManager,
)
from strands_manga_memory.messages import is_message
from strands_manga_memory.ops.importing.source import Content, damaged, field_of, json_object
from strands_manga_memory.ops.stand_in import StandInModel
from strands_manga_memory.session.transfer import TransferredConversation

_EVERYTHING = 10**9

_MANAGERS: dict[str, Callable[[], ConversationManager]] = {
    "ImportanceWeightedConversationManager": lambda: ImportanceWeightedConversationManager(_EVERYTHING),
    "NullConversationManager": NullConversationManager,
    "SlidingWindowConversationManager": SlidingWindowConversationManager,
    "SummarizingConversationManager": SummarizingConversationManager,
    "TieredCompactionConversationManager": TieredCompactionConversationManager,
    "VerifiedSummarizingConversationManager": VerifiedSummarizingConversationManager,
}
"""Conversation managers that restore themselves, by the name they are stored under."""


@dataclass(frozen=True)
class Record:
    """A JSON record of a source: its name, what it holds, and the number of the message it is by its name."""

    name: str
    data: bytes | str
    number: str | None = None


def read_conversation(
    session_id: str, agent_id: str, agent: Record, messages: Sequence[Record], *, listed: Sequence[int] | None = None
) -> Content:
    """Return an agent's conversation from its records.

    Args:
        session_id: The session.
        agent_id: The agent; its record must say the same.
        agent: Its record.
        messages: The records of its messages, in any order.
        listed: Numbers of messages as this source lists them: how many were removed is counted in them. Default those that are
            there.

    Raises:
        CorruptRecordError: A record cannot be trusted; names it.
    """
    known = json_object(agent.data, record=agent.name)
    if field_of(known, "agent_id", str, record=agent.name) != agent_id:
        raise damaged(agent.name, f"it belongs to agent {known['agent_id']!r}")
    field_of(known, "state", dict, record=agent.name)
    field_of(known, "conversation_manager_state", dict, record=agent.name)
    session_agent = _session_agent(known, agent.name)
    stored = sorted((_session_message(record) for record in messages), key=lambda message: message.message_id)
    for one in stored:  # older releases wrote none; it must be the same at the next try
        for message in (one.message, one.redact_message):
            if message is not None and not message.get("tracking_id"):
                message["tracking_id"] = str(uuid.uuid5(uuid.NAMESPACE_OID, f"{session_id}/{agent_id}/{one.message_id}"))
    log = distinct((copy.deepcopy(one.to_message()), _seconds(one.created_at, agent.name)) for one in stored)
    numbers = [one.message_id for one in stored]
    restored = _restored(session_agent, stored, numbers if listed is None else listed, record=agent.name)
    states = restored.take_snapshot(preset="session", exclude=["messages"]).data
    states["conversation_manager_state"] = session_agent.conversation_manager_state
    removed = session_agent.conversation_manager_state.get("removed_message_count")
    if removed and not stored:
        raise damaged(agent.name, f"{removed} messages have left its history, and none is in the source")
    if not (log or states["state"] or restored.messages):
        return Content(None, ("there are no messages, and no state",))
    if not states["conversation_manager_state"]:
        del states["conversation_manager_state"]
    transferred = TransferredConversation(
        log=log, window=restored.messages, states=states, created=_seconds(session_agent.created_at, agent.name)
    )
    return Content(transferred, tuple(_notes(session_agent, numbers)))


def checked_message(value: object, *, record: str) -> Message:
    """Return ``value`` if it is a message of Strands; raise ``CorruptRecordError`` naming ``record`` if not."""
    if not isinstance(value, dict):
        raise damaged(record, f"its message is a {type(value).__name__}")
    if value.get("role") not in ("user", "assistant"):
        raise damaged(record, "its message has no role")
    content = value.get("content")
    if not isinstance(content, list) or not all(isinstance(block, dict) for block in content):
        raise damaged(record, "its message has no content")
    if not is_message(value):
        raise damaged(record, "a block of its message is not of its shape")
    return value  # type: ignore[return-value]


def distinct(log: Iterable[tuple[Message, float]]) -> list[tuple[Message, float]]:
    """Return messages with their times, a little later where two with one ``tracking_id`` have the same: else they were one."""
    seen: set[tuple[Any, float]] = set()
    result = []
    for message, at in log:
        while (message.get("tracking_id"), at) in seen:
            at = math.nextafter(at, math.inf)
        seen.add((message.get("tracking_id"), at))
        result.append((message, at))
    return result


def seconds_of(text: object) -> float:
    """Return an ISO 8601 time in seconds since 1970; one without a zone is UTC. Raises ``ValueError``."""
    if not isinstance(text, str):
        raise ValueError(f"a time must be text, got {type(text).__name__}")
    time = datetime.fromisoformat(text)
    return (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp()


def _seconds(text: object, record: str) -> float:
    try:
        return seconds_of(text)
    except ValueError as error:
        raise damaged(record, error) from error


def _session_agent(known: dict[str, Any], record: str) -> SessionAgent:
    try:
        return SessionAgent.from_dict(known)
    except (TypeError, ValueError) as error:
        raise damaged(record, error) from error


def _session_message(record: Record) -> SessionMessage:
    known = json_object(record.data, record=record.name)
    number = field_of(known, "message_id", int, record=record.name)
    if number < 0 or record.number not in (None, str(number)):
        raise damaged(record.name, f"its message_id is {number}")
    try:
        message = SessionMessage.from_dict(known)
        seconds_of(message.created_at)
    except (TypeError, ValueError) as error:
        raise damaged(record.name, error) from error
    checked_message(message.message, record=record.name)
    if message.redact_message is not None:
        checked_message(message.redact_message, record=record.name)
    return message


def _restored(agent: SessionAgent, messages: list[SessionMessage], listed: Sequence[int], *, record: str) -> Agent:
    """Return an agent as Strands restores it from these records."""
    state = agent.conversation_manager_state
    made = _MANAGERS.get(state.get("__name__", ""))
    try:
        return Agent(
            model=StandInModel(),
            agent_id=agent.agent_id,
            callback_handler=None,
            conversation_manager=_Unknown() if made is None else made(),
            session_manager=RepositorySessionManager("source", _Records(agent, messages, listed)),
        )
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise damaged(record, f"Strands cannot restore it: {type(error).__name__}: {error}") from error


def _notes(agent: SessionAgent, numbers: list[int]) -> list[str]:
    notes = []
    missing = len(set(range(numbers[-1] + 1)).difference(numbers)) if numbers else 0
    if missing:
        notes.append(f"{missing} message numbers below {numbers[-1]} are not in the source")
    name = agent.conversation_manager_state.get("__name__")
    if name is not None and name not in _MANAGERS:
        notes.append(f"conversation manager {name!r} is not known here: messages that it adds at a restore are not taken over")
    return notes


class _Unknown(ConversationManager):
    """A conversation manager of others, of which only the number of messages it removed is known."""

    def restore_from_session(self, state: dict[str, Any]) -> list[Message] | None:
        self.removed_message_count = int(state.get("removed_message_count", 0))
        return None

    def apply_management(self, agent: Agent, **kwargs: Any) -> None:
        return None

    def reduce_context(self, agent: Agent, e: Exception | None = None, **kwargs: Any) -> None:
        return None


class _Records(SessionRepository):
    """Records that are already read, as Strands asks for them; nothing is written."""

    def __init__(self, agent: SessionAgent, messages: list[SessionMessage], listed: Sequence[int]) -> None:
        self._agent = agent
        self._messages = messages
        self._listed = listed

    def read_session(self, session_id: str, **kwargs: Any) -> Session:
        return Session(session_id=session_id, session_type=SessionType.AGENT)

    def read_agent(self, session_id: str, agent_id: str, **kwargs: Any) -> SessionAgent:
        return copy.deepcopy(self._agent)

    def list_messages(
        self, session_id: str, agent_id: str, limit: int | None = None, offset: int = 0, **kwargs: Any
    ) -> list[SessionMessage]:
        wanted = set(self._listed[offset:])
        return [copy.deepcopy(message) for message in self._messages if message.message_id in wanted]

    def read_message(self, session_id: str, agent_id: str, message_id: int, **kwargs: Any) -> SessionMessage | None:
        return next((copy.deepcopy(one) for one in self._messages if one.message_id == message_id), None)

    def _write(self, *args: Any, **kwargs: Any) -> Any:
        raise TypeError("an import writes nothing into its source")

    create_session = create_agent = update_agent = create_message = update_message = _write
