"""import_user: what ``export_user`` handed out, stored again, in the same or in other stores."""

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
from strands_manga_memory.memory.records import MemoryRecord, Owner, record_of
from strands_manga_memory.ops.importing.session_import import checked_message, distinct
from strands_manga_memory.scope import ConversationScope
from strands_manga_memory.session.transfer import Standing, TransferredConversation, TransferredOrchestrator
from strands_manga_memory.stores.encoding.codec import dump, load_stored

_COUNTERS = ("turn_count", "created", "last_activity")


@dataclass(frozen=True)
class ImportReport:
    """What an import stored.

    Attributes:
        conversations: Conversations that were stored.
        messages: Their messages.
        memories: Memories that were stored.
        skipped: Conversations that are there already, and were left as they are.
        ended: Conversations that were deleted or have ended here not long ago, and were not stored.
        left_out: Memories that were not stored, because there is no memory table, or the user was forgotten here.
        media: Blocks of media that the export, one of an earlier release, had left out.
    """

    conversations: int
    messages: int
    memories: int
    skipped: list[str]
    ended: list[str]
    left_out: int
    media: int


def import_user(
    exported: Mapping[str, Any],
    memory: MangaMemory,
    *,
    clock: Callable[[], float] = time.time,
    progress: Callable[[str], object] = lambda name: None,
) -> ImportReport:
    """Store what ``export_user`` handed out of a user: conversations that go on where they were, and memories.

    What is there already is left as it is, and so is what was deleted or has ended here not long ago; memories that have
    expired are left out.

    Args:
        exported: What ``export_user`` returned.
        memory: The stores.
        clock: Seconds since 1970.
        progress: Called with the name of each conversation.

    Raises:
        ValueError: It is no export.
        CorruptRecordError: A message of it is none.
        StoreUnavailableError: A store does not answer; it can be called again.
    """
    try:
        load_stored(dump(exported), "export")  # what is nested too deep to be stored is refused before anything is
        user, tenant = exported["user_id"], exported["tenant"]
        conversations = [
            (ConversationScope(user, session["session_id"], session["agent_id"], tenant=tenant), _conversation(session))
            for session in exported["sessions"]
        ]
        orchestrators = [
            (
                ConversationScope(user, run["session_id"], tenant=tenant),
                str(run["id"]),
                TransferredOrchestrator(decode_bytes_values(run["state"])),
            )
            for run in exported.get("orchestrators", ())
        ]
        known = [_record(entry) for entry in exported["memories"]]
    except (CorruptRecordError, LookupError, TypeError, ValueError, AttributeError, RecursionError) as error:
        what = f"{type(error).__name__}: {error!s:.200}"
        raise ValueError(f"exported must be what export_user returns: user_id, tenant, sessions, memories; {what}") from error
    stored = messages = media = 0
    names: dict[Standing, list[str]] = {"exists": [], "ended": []}
    for scope, transferred in conversations:
        progress(scope.session_id)
        conversation, without = transferred
        if (standing := memory.session(scope).transfer(conversation, scope.agent_id)) != "new":
            names[standing].append(f"{scope.session_id}/{scope.agent_id}")
            continue
        stored, messages, media = stored + 1, messages + len(conversation.log), media + without
    for scope, id_, run in orchestrators:
        if (standing := memory.session(scope).transfer(run, id_)) != "new":
            names[standing].append(f"{scope.session_id}/{id_}")
    known = [record for record in known if not record.expired(clock())]
    partition = memory.user(user, tenant=tenant).partition if known and memory.memories is not None else None
    became = Counter("left out" if partition is None else _remembered(record, partition) for record in known)
    return ImportReport(stored, messages, became["stored"], names["exists"], names["ended"], became["left out"], media)


def _remembered(record: MemoryRecord, partition: UserPartition) -> Literal["stored", "exists", "left out"]:
    """Store a memory, unless it is there or its user was forgotten; return what became of it."""
    there: list[MemoryRecord | None] = []

    def unless_there(found: MemoryRecord | None) -> MemoryRecord:
        there[:] = [found]
        return found or record

    kept = partition.update(record.memory_id, unless_there, guard=None)
    return "left out" if kept is None else "stored" if there == [None] else "exists"


def _conversation(session: Mapping[str, Any]) -> tuple[TransferredConversation, int]:
    """Return an exported conversation, and how many blocks of media an earlier release had left out of it."""
    name = f"{session['session_id']}/{session['agent_id']}"
    log, left_out = [], 0
    for record in session["records"]:
        message, count = _without_media(checked_message(decode_bytes_values(record["message"]), record=name))
        log.append((message, float(record["at"])))
        left_out += count
    window = [
        log[entry][0] if isinstance(entry, int) else checked_message(decode_bytes_values(entry), record=name)
        for entry in session.get("window", range(len(log)))
    ]
    metadata = session["metadata"]
    return TransferredConversation(
        log=distinct(log),
        window=window,
        states=decode_bytes_values(session.get("states", {})),
        metadata={key: value for key, value in metadata.items() if key not in _COUNTERS},
        created=metadata.get("created"),
    ), left_out


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
