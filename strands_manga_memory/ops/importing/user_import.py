"""Imports the data of a user that ``export_user`` returned."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from strands.types.session import decode_bytes_values

from strands_manga_memory.assembly.facade import MangaMemory
from strands_manga_memory.exceptions import CorruptRecordError
from strands_manga_memory.memory.partition import UserPartition
from strands_manga_memory.memory.preferences.statements import PreferenceChange, Statement
from strands_manga_memory.memory.records import MemoryRecord, MemoryType, Owner, record_of
from strands_manga_memory.memory.word_list import OlderMemories
from strands_manga_memory.ops.importing.session_import import checked_message, distinct
from strands_manga_memory.scope import ConversationScope
from strands_manga_memory.session.agent_snapshot import entries_of
from strands_manga_memory.session.conversation_transfer import Standing, TransferredConversation, TransferredOrchestrator

_COUNTERS = ("turn_count", "created", "last_activity")


@dataclass(frozen=True)
class ImportReport:
    """Result of an import of a user.

    Attributes:
        conversations: Number of stored conversations.
        messages: Number of messages in the stored conversations.
        memories: Number of stored memories.
        skipped: Names of conversations that were not changed, because they exist in the target.
        ended: Names of conversations that were not stored, because they were recently deleted or expired in the target.
        left_out: Number of memories that were not stored, because the target has no memory table or the user was deleted.
    """

    conversations: int
    messages: int
    memories: int
    skipped: list[str]
    ended: list[str]
    left_out: int


def import_user(
    exported: Mapping[str, Any],
    memory: MangaMemory,
    *,
    clock: Callable[[], float] = time.time,
    progress: Callable[[str], object] = lambda name: None,
) -> ImportReport:
    """Import the conversations, the states of orchestrators (Graph or Swarm) and the memories of an exported user.

    Agents can continue the imported conversations. Existing conversations and memories are not changed. Only a preference is
    replaced if the user stated the exported value later. Not imported are expired memories, and conversations that were
    recently deleted or expired in the target.

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
        transfers: list[tuple[str, str, TransferredConversation | TransferredOrchestrator]] = [
            *((one["session_id"], one["agent_id"], _conversation(one)) for one in exported["sessions"]),
            *((run["session_id"], str(run["id"]), _orchestrator(run)) for run in exported["orchestrators"]),
        ]
        scopes = [ConversationScope(user, session, id_, tenant=tenant) for session, id_, _ in transfers]
        known = [_record(entry) for entry in exported["memories"]]
        stated = [_statement(entry) for entry in exported["statements"]]
    except (CorruptRecordError, LookupError, TypeError, ValueError, AttributeError, RecursionError) as error:
        what = f"{type(error).__name__}: {error!s:.200}"
        raise ValueError(f"exported must be what export_user returns: user_id, tenant, sessions, memories; {what}") from error
    stored = messages = 0
    names: dict[Standing, list[str]] = {"exists": [], "ended": []}
    for scope, (session, id_, transferred) in zip(scopes, transfers, strict=True):
        progress(session)
        if (standing := memory.session(scope).transfer(transferred, id_)) != "new":
            names[standing].append(f"{session}/{id_}")
        elif isinstance(transferred, TransferredConversation):
            stored, messages = stored + 1, messages + len(transferred.log)
    known = [record for record in known if not record.expired(clock())]
    has_memories = bool(known or stated) and memory.memories is not None
    partition = memory.user(user, tenant=tenant).partition if has_memories else None
    if partition is not None:
        latest_first = sorted(known, key=lambda record: record.updated_at, reverse=True)
        facts = [each.memory_id for each in latest_first if each.type in (MemoryType.FACT, MemoryType.FEEDBACK)]
        if facts:
            partition.note_latest(*facts)  # before the memories are stored, so that no stored memory is missing in the list
    became = Counter("left out" if partition is None else _remembered(record, partition) for record in known)
    if partition is not None:  # in a repeated call, too; after the log, whose change stops a list that is being made
        log = memory.user(user, tenant=tenant).preference_log
        # Without its statements, the user's next statement would delete the preferences.
        log.apply(PreferenceChange(statements=stated))
        log.renew()
        OlderMemories(partition).delete_list()
    return ImportReport(stored, messages, became["stored"], names["exists"], names["ended"], became["left out"])


def _remembered(record: MemoryRecord, partition: UserPartition) -> Literal["stored", "exists", "left out"]:
    """Store an imported memory, and return ``stored``.

    Return ``exists``, and change nothing, if the target has a memory with the same id. Return ``left out`` if the user was
    deleted in the target.
    """
    there: list[MemoryRecord | None] = []

    def unless_there(found: MemoryRecord | None) -> MemoryRecord:
        there[:] = [found]
        return found or record

    kept = partition.update(record.memory_id, unless_there, guard=None)
    return "left out" if kept is None else "stored" if there == [None] else "exists"


def _conversation(session: Mapping[str, Any]) -> TransferredConversation:
    """Convert a conversation of an export to the form that ``TieredSessionManager.transfer`` stores.

    Invalid data raise errors such as ``KeyError`` or ``CorruptRecordError``, which the caller handles.
    """
    name = f"{session['session_id']}/{session['agent_id']}"
    log = [
        (checked_message(decode_bytes_values(record["message"]), record=name), float(record["at"]))
        for record in session["records"]
    ]
    window = [
        log[entry][0] if isinstance(entry, int) else checked_message(decode_bytes_values(entry), record=name)
        for entry in session["window"]
    ]
    metadata, states = session["metadata"], decode_bytes_values(session["states"])
    entries_of(states)  # rejects states that are no mappings before anything is stored
    return TransferredConversation(
        log=distinct(log),
        window=window,
        states=states,
        metadata={key: value for key, value in metadata.items() if key not in _COUNTERS},
        created=metadata.get("created"),
    )


def _orchestrator(run: Mapping[str, Any]) -> TransferredOrchestrator:
    return TransferredOrchestrator(decode_bytes_values(run["state"]))


def _statement(entry: Mapping[str, Any]) -> Statement:
    preference = [entry["preference"][name] for name in ("slot", "value", "liked", "adds")]
    return Statement.of([*preference, *(entry[name] for name in ("message_id", "at", "session_id", "is_set"))])


def _record(entry: Mapping[str, Any]) -> MemoryRecord:
    item = {name: entry[name] for name in ("memory_id", "content", "metadata", "created_at", "updated_at", "expires_at")}
    return record_of({**item, "memory_type": entry["type"], "importance_score": entry["importance"]}, Owner("import"), None)
