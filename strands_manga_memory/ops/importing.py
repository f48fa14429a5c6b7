"""Import of sessions from other Strands session managers, and of a user's exported data."""

from __future__ import annotations

import copy
import time
import uuid
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal

from strands import Agent
from strands.agent.conversation_manager import ConversationManager, NullConversationManager
from strands.session import (
    RepositorySessionManager,
    SessionManager,
    SessionRepository,
    SnapshotSessionManager,
)
from strands.types.content import Message
from strands.types.exceptions import SessionException, SnapshotException
from strands.types.session import SessionMessage

from strands_manga_memory.arguments import Clock, checked
from strands_manga_memory.assembly.facade import MangaMemory
from strands_manga_memory.exceptions import CorruptRecordError
from strands_manga_memory.language.preference_slots import Preference
from strands_manga_memory.memory.older_memories import delete_word_list
from strands_manga_memory.memory.partition import UserPartition, not_erased_since
from strands_manga_memory.memory.preference_log import slot_and_value
from strands_manga_memory.memory.records import (
    MemoryRecord,
    MemoryType,
    Owner,
    episode_id,
    question_id,
    record_of,
)
from strands_manga_memory.memory.statements import (
    LOG,
    LoggedChanges,
    PreferenceChange,
    Statement,
    message_digest,
    valid,
)
from strands_manga_memory.messages import is_message
from strands_manga_memory.ops.stand_in import StandInModel
from strands_manga_memory.scope import ConversationScope
from strands_manga_memory.session.agent_snapshot import entries_of
from strands_manga_memory.session.conversation_transfer import (
    TransferredConversation,
    TransferResult,
)
from strands_manga_memory.session.stored_session import COUNTERS
from strands_manga_memory.session.tiers import TOMBSTONE, user_directory
from strands_manga_memory.stores.codec import MALFORMED, json_bytes, load

Outcome = Literal["imported", "exists", "ended", "missing", "failed"]

_UNREADABLE = (SessionException, SnapshotException, *MALFORMED)
"""Errors that Strands' session managers raise for damaged records and other formats."""


@dataclass(frozen=True, kw_only=True)
class ImportedSession:
    """Result of the import of one agent's session.

    Attributes:
        session_id: Session id in the source.
        agent_id: Agent id in the source.
        outcome: ``imported`` if the session was stored, ``exists`` if the target already has the
            session, ``ended`` if the session was deleted or has expired in the target, ``missing``
            if the source has neither messages nor state of the agent, ``failed`` if the session
            could not be read.
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
    """Result of an import: ``sessions`` has one entry for each agent of each session."""

    sessions: list[ImportedSession] = field(default_factory=list)

    @property
    def counts(self) -> dict[str, int]:
        """Number of messages (key ``messages``) and numbers of sessions, keyed by outcome.

        Outcomes are the values of ``ImportedSession.outcome``, such as ``imported`` and ``failed``.
        """
        counts: Counter[str] = Counter(one.outcome for one in self.sessions)
        counts["messages"] = sum(one.messages for one in self.sessions if one.outcome == "imported")
        return dict(counts)

    @property
    def complete(self) -> bool:
        """Whether all sessions of the import were read without an error."""
        return not any(one.outcome == "failed" for one in self.sessions)


@checked
def import_sessions(
    manager: RepositorySessionManager | SnapshotSessionManager,
    ids: Iterable[tuple[str, str]],
    memory: MangaMemory,
    *,
    scope_of: Callable[[str], str | ConversationScope] = str,
    conversation_manager: Callable[[], ConversationManager] | None = None,
) -> SessionsReport:
    """Import sessions that another Strands session manager stored.

    After the import, an agent with the same ids continues the session, with the same messages,
    ``agent.state``, interrupts and state of the conversation manager. The source and existing
    sessions of the target are not changed, so the import can be repeated. If a session cannot be
    read, the report contains the error, and the import continues.

    Args:
        manager: Session manager of the source. A ``FileSessionManager``, an ``S3SessionManager`` or
            another ``RepositorySessionManager`` reads every session of its repository. A
            ``SnapshotSessionManager`` reads only the session it was created for.
        ids: Pairs of session id and agent id to import. The caller must name them, because Strands'
            session interface cannot list the sessions of the source.
        memory: Target of the import.
        scope_of: Function from a session id of the source to the session of the target. The result
            is a ``ConversationScope``, whose ``agent_id`` is ignored, or the id of a session
            without a user. Default: the same id.
        conversation_manager: Function that creates the agents' conversation manager. Needed only
            for managers that change the history on restore, such as
            ``ImportanceWeightedConversationManager``.

    Raises:
        ValueError: ``manager`` has another type, or ``ids`` names a session that a snapshot manager
            cannot read.
        StoreUnavailableError: A store of ``memory`` is unavailable. The import can be repeated.
    """
    report = SessionsReport()
    for session_id, agent_id in ids:
        if isinstance(manager, SnapshotSessionManager) and session_id != manager.session_id:
            raise ValueError(
                f"this SnapshotSessionManager reads session {manager.session_id!r:.80}, not"
                f" {session_id!r:.80}"
            )
        to = memory.session(scope_of(session_id))
        found, error = None, ""
        try:
            if isinstance(manager, SnapshotSessionManager):
                found = _read_snapshot(manager, agent_id)
            else:
                repository: Any = _ReadOnlyRepository(manager.session_repository)
                found = _read_repository(repository, session_id, agent_id, conversation_manager)
            outcome: Any = "missing" if found is None else to.transfer(found, agent_id)
        except _UNREADABLE as cause:
            reason = f"cannot be read: {type(cause).__name__}: {cause}"
            error = f"session {session_id!r} of agent {agent_id!r} {reason}"
            found, outcome = None, "failed"
        imported = ImportedSession(
            session_id=session_id,
            agent_id=agent_id,
            outcome="imported" if outcome == "new" else outcome,
            messages=0 if found is None else len(found.log),
            window=0 if found is None else len(found.window or ()),
            error=error,
        )
        report.sessions.append(imported)
    return report


def _read_repository(
    repository: SessionRepository,
    session_id: str,
    agent_id: str,
    conversation_manager: Callable[[], ConversationManager] | None,
) -> TransferredConversation | None:
    session_agent = (
        repository.read_agent(session_id, agent_id) if repository.read_session(session_id) else None
    )
    if session_agent is None:
        return None
    stored = sorted(repository.list_messages(session_id, agent_id), key=lambda one: one.message_id)
    managed = session_agent.conversation_manager_state
    if managed.get("removed_message_count") and not stored:
        what = (
            f"{managed['removed_message_count']} messages were removed from its history, and none"
            " is stored"
        )
        raise CorruptRecordError(what, record=agent_id)
    history = _RestoredHistory() if conversation_manager is None else conversation_manager()
    restored = _restore_agent(agent_id, history, RepositorySessionManager(session_id, repository))
    log = [
        (
            _require_message(one.to_message(), record=f"{session_id}/{agent_id}/{one.message_id}"),
            _parse_time(one.created_at),
        )
        for one in stored
    ]
    created = _parse_time(session_agent.created_at)
    return _to_conversation(log, restored, created, conversation_manager_state=managed)


def _read_snapshot(
    manager: SnapshotSessionManager, agent_id: str
) -> TransferredConversation | None:
    history = _RestoredHistory()
    restored = _restore_agent(agent_id, history, manager)
    # A snapshot has no times of messages.
    now = time.time()
    written = history.summary and history.summary.get("tracking_id")
    log = []
    for message in restored.messages:
        _require_message(message, record=f"{manager.session_id}/{agent_id}")
        if not written or message.get("tracking_id") != written:
            log.append((message, now))
    return _to_conversation(log, restored, now)


def _restore_agent(agent_id: str, history: ConversationManager, source: SessionManager) -> Agent:
    # Only to read the restored messages and states: the agent is never run.
    return Agent(
        model=StandInModel(),
        agent_id=agent_id,
        callback_handler=None,
        conversation_manager=history,
        session_manager=source,
    )


def _to_conversation(
    log: list[tuple[Message, float]], agent: Agent, created: float, **states: Any
) -> TransferredConversation | None:
    snapshot = agent.take_snapshot(preset="session", exclude=["messages"]).data
    states = {name: state for name, state in {**snapshot, **states}.items() if state}
    if not (log or agent.messages or "state" in states):
        return None
    return TransferredConversation(log=log, window=agent.messages, states=states, created=created)


def _parse_time(text: str) -> float:
    moment = datetime.fromisoformat(text)
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _require_message(value: object, *, record: str) -> Message:
    if not is_message(value) or value["role"] not in ("user", "assistant"):  # type: ignore[index]
        raise CorruptRecordError(
            f"record={record!r} is damaged: it is not a Strands message", record=record
        )
    return value  # type: ignore[return-value]


class _ReadOnlyRepository:
    def __init__(self, repository: SessionRepository) -> None:
        self._repository = repository

    def __getattr__(self, name: str) -> Any:
        if not name.startswith(("read_", "list_")):
            raise TypeError("an import writes nothing into its source")
        return getattr(self._repository, name)

    def list_messages(
        self, session_id: str, agent_id: str, *arguments: Any, **options: Any
    ) -> list[SessionMessage]:
        # Messages of early Strands releases have no tracking id. Each read must give the same one.
        stored = self._repository.list_messages(session_id, agent_id, *arguments, **options)
        for one in stored:
            message = one.to_message()
            if isinstance(message, dict) and not message.get("tracking_id"):
                name = f"{session_id}/{agent_id}/{one.message_id}"
                message["tracking_id"] = str(uuid.uuid5(uuid.NAMESPACE_OID, name))
        return stored


class _RestoredHistory(NullConversationManager):
    """Conversation manager for an import, which restores an agent's history and removes nothing."""

    summary: Message | None = None
    """Summary that the source's conversation manager made of removed messages, or None."""

    def __init__(self) -> None:
        super().__init__()
        self._state: dict[str, Any] = {}

    def restore_from_session(self, state: dict[str, Any]) -> list[Message] | None:
        self._state, self.summary = state, state.get("summary_message")
        self.removed_message_count = int(state.get("removed_message_count", 0))
        return None if self.summary is None else [copy.deepcopy(self.summary)]

    def get_state(self) -> dict[str, Any]:
        return self._state


@dataclass(frozen=True)
class ImportReport:
    """Result of an import of a user.

    Attributes:
        conversations: Number of stored conversations.
        messages: Number of messages in the stored conversations.
        memories: Number of stored memories.
        skipped: Names of conversations and stored values that were not changed, because they exist
            in the target.
        ended: Names of conversations and stored values that were not stored, because they were
            recently deleted or expired in the target.
        left_out: Number of memories that were not stored, because the target has no memory table,
            or the memory or its user was deleted.
        values: Number of values that were stored in ``memory.storage``.
    """

    conversations: int
    messages: int
    memories: int
    skipped: list[str]
    ended: list[str]
    left_out: int
    values: int = 0


def import_user(
    exported: Mapping[str, Any],
    memory: MangaMemory,
    *,
    clock: Clock = time.time,
    progress: Callable[[str], object] = lambda name: None,
) -> ImportReport:
    """Import conversations, orchestrator states (Graph, Swarm), memories and values of a user.

    Agents can continue the imported conversations. Existing conversations and memories are not
    changed, with one exception: an existing preference is replaced by a preference that the user
    stated later.

    Expired memories are not imported. Data that were recently deleted or expired in the target are
    not imported either. Deletions in the source also apply to the target: if the user has deleted a
    memory, an imported conversation does not create the memory again.

    Args:
        exported: Result of ``export_user``.
        memory: Target of the import.
        clock: Function that returns seconds since 1970.
        progress: Callback that gets the session id of each conversation and orchestrator.

    Raises:
        ValueError: ``exported`` is not an export, or contains an invalid message.
        StoreUnavailableError: A store is unavailable. The import can be repeated.
    """
    try:
        user, tenant = exported["user_id"], exported["tenant"]
        transfers: list[tuple[str, str, TransferredConversation | Mapping[str, Any]]] = [
            (one["session_id"], one["agent_id"], _parse_conversation(one))
            for one in exported["sessions"]
        ]
        transfers += [
            (run["session_id"], str(run["id"]), _decode(run["state"]))
            for run in exported["orchestrators"]
        ]
        scopes = [
            ConversationScope(user, session, id_, tenant=tenant) for session, id_, _ in transfers
        ]
        known = [_parse_memory(entry) for entry in exported["memories"]]
        logged = LOG.validate_python(
            {**exported.get("deletions", {}), "statements": exported["statements"]}
        )
        values = [
            (str(each["key"]), bytes(_decode(each["value"])))
            for each in exported.get("stored_values", ())
        ]
    except (CorruptRecordError, *MALFORMED) as error:
        what = f"{type(error).__name__}: {error!s:.200}"
        raise ValueError(
            "exported must be a result of export_user, with user_id, tenant, sessions and"
            f" memories; {what}"
        ) from error
    stored = messages = added = 0
    names: dict[TransferResult, list[str]] = {"exists": [], "ended": []}
    for scope, (session, id_, transferred) in zip(scopes, transfers, strict=True):
        progress(session)
        if (outcome := memory.session(scope).transfer(transferred, id_)) != "new":
            names[outcome].append(f"{session}/{id_}")
        elif isinstance(transferred, TransferredConversation):
            stored, messages = stored + 1, messages + len(transferred.log)
    storage = memory.storage(user_id=user, tenant=tenant)
    erased = memory.durable.get(user_directory(user, tenant), TOMBSTONE) or {}
    is_erased = float(erased.get(memory.durable.schema.ttl, 0)) > clock()
    for key, value in values:
        if is_erased or not storage.add(key, value):
            names["ended" if is_erased else "exists"].append(f"storage/{key}")
        else:
            added += 1
    known = [record for record in known if not record.expired(clock())]
    store = None
    if memory.memories is not None and (known or logged != LoggedChanges()):
        store = memory.user(user, tenant=tenant)
        log, partition = store.preference_log, store.partition
        log.apply(PreferenceChange(removals=logged.removals))
        erased_at = log.erased_at()
        if forgotten := {id_: at for id_, at in logged.forgotten.items() if at > erased_at}:
            log.add_deletions(forgotten)
        gone = _deleted_ids(known, log.read(), exported["sessions"])
        partition.guard = not_erased_since(partition.owner.partition, None)
        facts = [
            each.memory_id
            for each in sorted(known, key=lambda record: record.updated_at, reverse=True)
            if each.type in (MemoryType.FACT, MemoryType.FEEDBACK) and each.memory_id not in gone
        ]
        if facts:
            # Before the memories are stored, so that the list lacks none of them.
            partition.add_to_latest(*facts)
    became = Counter(
        "left out"
        if store is None or record.memory_id in gone
        else _store_memory(record, partition)
        for record in known
    )
    # In a repeated call, too; after the log, whose change stops a list that is being made.
    if store is not None:
        # Without its statements, the user's next statement would delete the preferences.
        log.apply(PreferenceChange(statements=logged.statements))
        log.notify_agents()
        delete_word_list(partition)
    return ImportReport(
        stored,
        messages,
        became["stored"],
        names["exists"],
        names["ended"],
        became["left out"],
        added,
    )


def _deleted_ids(
    known: list[MemoryRecord], logged: LoggedChanges, sessions: Iterable[Mapping[str, Any]]
) -> set[str]:
    """Return the ids of the exported memories that must not be imported, because of deletions.

    These memories were deleted in the target, come from retracted messages, or were made from such
    memories, as monthly summaries are.
    """
    retracted = {each.message: each.at for each in logged.removals if each.message}
    ended: defaultdict[str, float] = defaultdict(float)
    for session in sessions:
        for each in session["records"]:
            digest = message_digest(str(each["message"].get("tracking_id")))
            id_ = session["session_id"]
            ended[id_] = max(ended[id_], retracted.get(digest, 0.0))

    def is_deleted(record: MemoryRecord) -> bool:
        if record.type == MemoryType.PREFERENCE:
            sources = record.metadata.get("sources")
            said = sources.values() if isinstance(sources, Mapping) else ()
            preference, at = Preference(*slot_and_value(record)), record.updated_at
            stated = [Statement(preference, at, id_) for id_ in (None, *said)]
            return len(valid(stated, logged.removals)) < len(stated)
        at = ended[str(record.metadata.get("session_id"))]
        digest = message_digest(record.memory_id)
        return record.updated_at <= max(at, logged.forgotten.get(digest, 0.0))

    gone = {record.memory_id for record in known if is_deleted(record)}
    derived = {question_id(id_) for id_ in gone}
    parts = tuple(episode_id(id_, 0).rpartition("#")[0] for id_ in gone if "#" in id_)
    return gone | {
        record.memory_id
        for record in known
        if record.memory_id in derived
        or (record.type == MemoryType.EPISODE and record.memory_id.startswith(parts))
        or not gone.isdisjoint(record.covers)
    }


def _store_memory(
    record: MemoryRecord, partition: UserPartition
) -> Literal["stored", "exists", "left out"]:
    there: list[MemoryRecord | None] = []

    def unless_there(found: MemoryRecord | None) -> MemoryRecord:
        there[:] = [found]
        return found or record

    kept = partition.update(record.memory_id, unless_there)
    # None: the user was deleted.
    return "left out" if kept is None else "stored" if there == [None] else "exists"


def _parse_conversation(session: Mapping[str, Any]) -> TransferredConversation:
    name = f"{session['session_id']}/{session['agent_id']}"
    log = [
        (_require_message(_decode(record["message"]), record=name), float(record["at"]))
        for record in session["records"]
    ]
    window = [
        log[entry][0] if isinstance(entry, int) else _require_message(_decode(entry), record=name)
        for entry in session["window"]
    ]
    metadata, states = _decode(session["metadata"]), _decode(session["states"])
    entries_of(states)  # rejects states that are no mappings before anything is stored
    return TransferredConversation(
        log=log,
        window=window,
        states=states,
        metadata={key: value for key, value in metadata.items() if key not in COUNTERS},
        created=float(metadata.get("created") or 0.0),
    )


def _decode(exported: Any) -> Any:
    return load(json_bytes(exported))


def _parse_memory(entry: Mapping[str, Any]) -> MemoryRecord:
    names = ("memory_id", "content", "created_at", "updated_at", "expires_at")
    item = {name: entry[name] for name in names}
    item |= {"memory_type": entry["type"], "importance_score": entry["importance"]}
    return record_of({**item, "metadata": _decode(entry["metadata"])}, Owner("import"), None)
