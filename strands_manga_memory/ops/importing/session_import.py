"""Imports sessions that other Strands session managers stored."""

from __future__ import annotations

import copy
import math
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal

from strands import Agent
from strands.agent.conversation_manager import ConversationManager
from strands.session import RepositorySessionManager, SessionManager, SessionRepository, SnapshotSessionManager
from strands.types.content import Message
from strands.types.exceptions import SessionException, SnapshotException
from strands.types.session import Session, SessionAgent, SessionMessage

from strands_manga_memory.assembly.facade import MangaMemory
from strands_manga_memory.exceptions import CorruptRecordError
from strands_manga_memory.messages import is_message
from strands_manga_memory.ops.stand_in import StandInModel
from strands_manga_memory.scope import ConversationScope
from strands_manga_memory.session.conversation_transfer import TransferredConversation

Outcome = Literal["imported", "exists", "ended", "missing", "failed"]

_UNREADABLE = (SessionException, SnapshotException, CorruptRecordError, AttributeError, LookupError, TypeError, ValueError)
"""Errors that Strands' session managers raise for damaged records and other formats."""


@dataclass(frozen=True, kw_only=True)
class ImportedSession:
    """Result of the import of one agent's session.

    Attributes:
        session_id: Session id in the source.
        agent_id: Agent id in the source.
        outcome: ``imported`` if the session was stored, ``exists`` if the target already has the session, ``ended`` if the
            session was deleted or has expired in the target, ``missing`` if the source has neither messages nor state of
            the agent, ``failed`` if the session could not be read.
        messages: Number of messages in the log of the conversation.
        window: Number of messages in the restored history of the agent.
        error: Reason of a failure, with session id and agent id; empty without a failure.
    """

    session_id: str
    agent_id: str
    outcome: Outcome
    messages: int = 0
    window: int = 0
    error: str = ""


@dataclass(frozen=True)
class SessionsReport:
    """Result of an import of sessions.

    Attributes:
        sessions: Results of the single sessions, one for each agent.
    """

    sessions: list[ImportedSession] = field(default_factory=list)

    @property
    def counts(self) -> dict[str, int]:
        """Number of sessions of the import, keyed by outcome. The key ``messages`` has the number of imported messages."""
        counts: Counter[str] = Counter(one.outcome for one in self.sessions)
        counts["messages"] = sum(one.messages for one in self.sessions if one.outcome == "imported")
        return dict(counts)

    @property
    def complete(self) -> bool:
        """Whether all sessions of the import were read without an error."""
        return not any(one.outcome == "failed" for one in self.sessions)


def import_sessions(
    manager: RepositorySessionManager | SnapshotSessionManager,
    ids: Iterable[tuple[str, str]],
    memory: MangaMemory,
    *,
    scope_of: Callable[[str], str | ConversationScope] = str,
    conversation_manager: Callable[[], ConversationManager] | None = None,
) -> SessionsReport:
    """Import sessions that another Strands session manager stored.

    After the import, an agent with the same ids continues the session, with the same messages, ``agent.state``, interrupts
    and state of the conversation manager. The source and existing sessions of the target are not changed, so the import can
    be repeated. If a session cannot be read, the report contains the error, and the import continues.

    Args:
        manager: Session manager of the source. A ``FileSessionManager``, an ``S3SessionManager`` or another
            ``RepositorySessionManager`` reads every session of its repository. A ``SnapshotSessionManager`` reads only the
            session it was created for.
        ids: Pairs of session id and agent id to import. Strands' session interface cannot list these ids.
        memory: Target of the import.
        scope_of: Function that returns the target session for a session id of the source: a ``ConversationScope``, whose
            ``agent_id`` is ignored, or an id for ``TieredSessionManager``. Default: the same id.
        conversation_manager: Function that creates the agents' conversation manager. Needed only for custom conversation
            managers that add messages on restore.

    Raises:
        ValueError: ``manager`` has another type, or ``ids`` names a session that a snapshot manager cannot read.
        StoreUnavailableError: A store of ``memory`` is unavailable. The import can be repeated.
    """
    if not isinstance(manager, RepositorySessionManager | SnapshotSessionManager):
        raise ValueError(
            f"manager must be a RepositorySessionManager or a SnapshotSessionManager, got {type(manager).__name__}"
        )
    report = SessionsReport()
    for session_id, agent_id in ids:
        if isinstance(manager, SnapshotSessionManager) and session_id != manager.session_id:
            raise ValueError(f"this SnapshotSessionManager reads session {manager.session_id!r:.80}, not {session_id!r:.80}")
        to = memory.session(scope_of(session_id))
        try:
            if isinstance(manager, SnapshotSessionManager):
                found = _read_snapshot(manager, agent_id)
            else:
                repository = _ReadOnlyRepository(manager.session_repository)
                found = _read_repository(repository, session_id, agent_id, conversation_manager)
            standing = None if found is None else to.transfer(found, agent_id)
        except _UNREADABLE as error:
            reason = f"session {session_id!r} of agent {agent_id!r} cannot be read: {type(error).__name__}: {error}"
            report.sessions.append(ImportedSession(session_id=session_id, agent_id=agent_id, outcome="failed", error=reason))
            continue
        report.sessions.append(
            ImportedSession(
                session_id=session_id,
                agent_id=agent_id,
                outcome="missing" if standing is None else "imported" if standing == "new" else standing,
                messages=0 if found is None else len(found.log),
                window=0 if found is None or found.window is None else len(found.window),
            )
        )
    return report


def _read_repository(
    repository: _ReadOnlyRepository,
    session_id: str,
    agent_id: str,
    conversation_manager: Callable[[], ConversationManager] | None,
) -> TransferredConversation | None:
    """Read an agent's conversation from a repository, with the history that Strands would restore. None if there is none."""
    if repository.read_session(session_id) is None:
        return None
    session_agent = repository.read_agent(session_id, agent_id)
    if session_agent is None:
        return None
    stored = sorted(repository.list_messages(session_id, agent_id), key=lambda one: one.message_id)
    managed = session_agent.conversation_manager_state
    if managed.get("removed_message_count") and not stored:
        what = f"{managed['removed_message_count']} messages were removed from its history, and none is stored"
        raise CorruptRecordError(what, record=agent_id)
    history = _RestoredHistory() if conversation_manager is None else conversation_manager()
    restored = _restored(agent_id, history, RepositorySessionManager(session_id, repository))
    log = [
        (checked_message(one.to_message(), record=f"{session_id}/{agent_id}/{one.message_id}"), _seconds(one.created_at))
        for one in stored
    ]
    states = restored.take_snapshot(preset="session", exclude=["messages"]).data
    states["conversation_manager_state"] = managed
    return _conversation(log, restored.messages, states, _seconds(session_agent.created_at))


def _read_snapshot(manager: SnapshotSessionManager, agent_id: str) -> TransferredConversation | None:
    """Return the conversation from an agent's latest snapshot. A snapshot has no times: messages get the current time."""
    history = _RestoredHistory()
    restored = _restored(agent_id, history, manager)
    now = time.time()
    written = None if history.summary is None else history.summary.get("tracking_id")
    log = []
    for message in restored.messages:
        checked_message(message, record=f"{manager.session_id}/{agent_id}")
        if message.get("tracking_id") is None or message["tracking_id"] != written:
            log.append((message, now))
    states = restored.take_snapshot(preset="session", exclude=["messages"]).data
    return _conversation(log, restored.messages, states, now)


def _restored(agent_id: str, history: ConversationManager, source: SessionManager) -> Agent:
    """Return an agent that Strands has restored from a stored session. The agent's model is never called."""
    return Agent(
        model=StandInModel(),
        agent_id=agent_id,
        callback_handler=None,
        conversation_manager=history,
        session_manager=source,
    )


def _conversation(
    log: list[tuple[Message, float]], window: list[Message], states: dict[str, Any], created: float
) -> TransferredConversation | None:
    """Return an imported conversation in the form to store. None if it has neither messages nor a state of the agent."""
    if not (log or window or states.get("state")):
        return None
    states = {name: state for name, state in states.items() if state}
    return TransferredConversation(log=distinct(log), window=window, states=states, created=created)


def _seconds(text: str) -> float:
    """Convert an ISO 8601 time to seconds since 1970. A time without a zone is in UTC."""
    moment = datetime.fromisoformat(text)
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def checked_message(value: object, *, record: str) -> Message:
    """Return ``value`` if it is a Strands message.

    Args:
        value: Value to check.
        record: Name of the record that contains the value, for the error.

    Raises:
        CorruptRecordError: The value is not a Strands message.
    """
    if not is_message(value) or value["role"] not in ("user", "assistant"):  # type: ignore[index]
        raise CorruptRecordError(f"record={record!r} is damaged: it is not a Strands message", record=record)
    return value  # type: ignore[return-value]


def distinct(log: Iterable[tuple[Message, float]]) -> list[tuple[Message, float]]:
    """Return messages with distinct pairs of tracking id and time.

    A message with the id and time of an earlier message gets a slightly later time.
    """
    seen: set[tuple[Any, float]] = set()
    result = []
    for message, at in log:
        while (message.get("tracking_id"), at) in seen:
            at = math.nextafter(at, math.inf)
        seen.add((message.get("tracking_id"), at))
        result.append((message, at))
    return result


class _ReadOnlyRepository(SessionRepository):
    """Repository that reads another repository and rejects writes.

    Early releases of Strands stored no tracking ids. A missing tracking id is derived from the ids of session, agent and
    message, so that two reads of a message return the same id.
    """

    def __init__(self, repository: SessionRepository) -> None:
        self._repository = repository

    def read_session(self, session_id: str, **kwargs: Any) -> Session | None:
        return self._repository.read_session(session_id, **kwargs)

    def read_agent(self, session_id: str, agent_id: str, **kwargs: Any) -> SessionAgent | None:
        return self._repository.read_agent(session_id, agent_id, **kwargs)

    def read_message(self, session_id: str, agent_id: str, message_id: int, **kwargs: Any) -> SessionMessage | None:
        return self._repository.read_message(session_id, agent_id, message_id, **kwargs)

    def list_messages(
        self, session_id: str, agent_id: str, limit: int | None = None, offset: int = 0, **kwargs: Any
    ) -> list[SessionMessage]:
        stored = self._repository.list_messages(session_id, agent_id, limit, offset, **kwargs)
        for one in stored:
            message = one.to_message()
            if isinstance(message, dict) and not message.get("tracking_id"):
                name = f"{session_id}/{agent_id}/{one.message_id}"
                message["tracking_id"] = str(uuid.uuid5(uuid.NAMESPACE_OID, name))
        return stored

    def _write(self, *args: Any, **kwargs: Any) -> Any:
        raise TypeError("an import writes nothing into its source")

    create_session = create_agent = update_agent = create_message = update_message = _write


class _RestoredHistory(ConversationManager):
    """Conversation manager that restores another Strands conversation manager's state, and removes no messages.

    The state is the number of removed messages, and the summary of these messages.
    """

    def __init__(self) -> None:
        super().__init__()
        self._state: dict[str, Any] = {}

    @property
    def summary(self) -> Message | None:
        """Summary of the messages that were removed from the history, or None if there is none."""
        return self._state.get("summary_message")

    def restore_from_session(self, state: dict[str, Any]) -> list[Message] | None:
        self._state = state
        self.removed_message_count = int(state.get("removed_message_count", 0))
        return None if self.summary is None else [copy.deepcopy(self.summary)]

    def get_state(self) -> dict[str, Any]:
        return self._state

    def apply_management(self, agent: Agent, **kwargs: Any) -> None:
        return None

    def reduce_context(self, agent: Agent, e: Exception | None = None, **kwargs: Any) -> None:
        return None
