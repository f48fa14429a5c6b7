"""import_user: what ``export_user`` handed out, stored again, in the same or in other stores."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from strands import Agent

from strands_manga_memory.exceptions import CorruptRecordError
from strands_manga_memory.facade import MangaMemory
from strands_manga_memory.memory.records import MemoryRecord, Owner, record_of
from strands_manga_memory.scope import ConversationScope
from strands_manga_memory.session.checking import checked_message
from strands_manga_memory.session.manager import TieredSessionManager
from strands_manga_memory.stores.codec import dump, load_stored
from strands_manga_memory.testing import ScriptedModel

_COUNTERS = ("turn_count", "created", "last_activity")


@dataclass(frozen=True)
class ImportReport:
    """What an import stored.

    Attributes:
        conversations: Conversations that were stored.
        messages: Their messages.
        memories: Memories that were stored.
        skipped: Conversations that are there already, and were left as they are.
        media: Blocks of media that the export had left out.
    """

    conversations: int
    messages: int
    memories: int
    skipped: list[str]
    media: int


def import_user(
    exported: Mapping[str, Any],
    memory: MangaMemory,
    *,
    clock: Callable[[], float] = time.time,
    progress: Callable[[str], object] = lambda name: None,
) -> ImportReport:
    """Store what ``export_user`` handed out of a user: logs as conversations that can be gone on with, metadata, memories.

    Bytes of media are not in an export; such a block becomes a text that says so. When a message was said is not kept. What is
    there already is left as it is; memories that have expired are left out.

    Args:
        exported: What ``export_user`` returned.
        memory: The stores.
        clock: Seconds since 1970.
        progress: Called with the name of each conversation.

    Raises:
        ValueError: It is no export.
        StoreUnavailableError: A store does not answer; it can be called again.
    """
    try:
        user, tenant = exported["user_id"], exported["tenant"]
        sessions = [_Session.of(session, user, tenant) for session in exported["sessions"]]
        known = [_record(entry) for entry in exported["memories"]]
    except (CorruptRecordError, LookupError, TypeError, ValueError, AttributeError, RecursionError) as error:
        what = f"{type(error).__name__}: {error!s:.200}"
        raise ValueError(f"exported must be what export_user returns: user_id, tenant, sessions, memories; {what}") from error
    stored = messages = media = memories = 0
    skipped = []
    for session in sessions:
        scope, log = session.scope, session.log
        progress(scope.session_id)
        arguments = memory.agent_kwargs(
            user_id=user, session_id=scope.session_id, agent_id=scope.agent_id, tenant=tenant, max_tokens=10**9
        )
        manager: TieredSessionManager = arguments["session_manager"]
        if manager.exists(scope.agent_id):
            skipped.append(f"{scope.session_id}/{scope.agent_id}")
            continue
        Agent(model=ScriptedModel([]), messages=[message for message, _ in log], callback_handler=None, **_bare(arguments))
        if session.metadata:
            manager.set_metadata(scope.agent_id, **session.metadata)
        manager.close()
        stored, messages, media = stored + 1, messages + len(log), media + sum(count for _, count in log)
    if known and memory.memories is not None:
        partition = memory.user(user, tenant=tenant).partition
        for record in known:
            if not record.expired(clock()):
                partition.update(record.memory_id, lambda there, record=record: there or record)  # type: ignore[misc]
                memories += 1
    return ImportReport(stored, messages, memories, skipped, media)


def _bare(arguments: dict[str, Any]) -> dict[str, Any]:
    """Return what an agent needs to store its messages: nothing that reads or learns."""
    return {name: arguments[name] for name in ("agent_id", "session_manager", "conversation_manager")}


@dataclass(frozen=True)
class _Session:
    """A conversation of an export: its messages, each with the number of its blocks of media, and its metadata."""

    scope: ConversationScope
    log: list[tuple[Any, int]]
    metadata: dict[str, Any]

    @classmethod
    def of(cls, session: Mapping[str, Any], user: str, tenant: str | None) -> _Session:
        scope = ConversationScope(user, session["session_id"], session["agent_id"], tenant=tenant)
        name = f"{scope.session_id}/{scope.agent_id}"
        log = [_without_media(record["message"]) for record in session["records"]]
        for message, _ in log:
            checked_message(dump({"message": message}), name)
        kept = {name: value for name, value in session["metadata"].items() if name not in _COUNTERS}
        load_stored(dump(kept), name)
        return cls(scope, log, kept)


def _record(entry: Mapping[str, Any]) -> MemoryRecord:
    load_stored(dump(dict(entry)), "memories")  # no deeper than what can be stored
    item = {name: entry[name] for name in ("memory_id", "content", "metadata", "created_at", "updated_at", "expires_at")}
    return record_of({**item, "memory_type": entry["type"], "importance_score": entry["importance"]}, Owner("import"), None)


def _without_media(message: Mapping[str, Any]) -> tuple[Any, int]:
    """Return a message with a text in the place of each block of media, and how many there were."""
    count = 0

    def kept(block: Any) -> Any:
        nonlocal count
        if not isinstance(block, dict):
            return block
        if "toolResult" in block:
            result = block["toolResult"]
            return {"toolResult": {**result, "content": [kept(part) for part in result.get("content", ())]}}
        if _has_media(block):
            count += 1
            return {"text": f"[{next(iter(block))} left out by the export]"}
        return block

    content = [kept(block) for block in message["content"]]
    return {**message, "content": content}, count


def _has_media(value: Any) -> bool:
    if isinstance(value, dict):
        return (value.keys() == {"bytes"} and isinstance(value["bytes"], int)) or any(map(_has_media, value.values()))
    return isinstance(value, list) and any(map(_has_media, value))
