"""Exports sessions in the format of Strands' ``SnapshotSessionManager``."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

from strands import Snapshot
from strands.storage import LocalFileStorage, Storage
from strands.types.session import encode_bytes_values

from strands_manga_memory.assembly.facade import MangaMemory
from strands_manga_memory.scope import ConversationScope, encoded_id
from strands_manga_memory.session import TieredSessionManager
from strands_manga_memory.session.places import member_ids

_OF_STRANDS = ("NullConversationManager", "SlidingWindowConversationManager", "SummarizingConversationManager")


async def export_snapshots(
    memory: MangaMemory, storage: Storage, sessions: Iterable[ConversationScope | str]
) -> dict[str, int]:
    """Write the latest state of sessions to the storage of a ``SnapshotSessionManager``.

    An agent with the same ids then restores the same messages, ``agent.state`` and pending interrupts. The export does
    not contain the state of this package's conversation managers, because Strands' managers cannot restore that state. The
    export contains the agent's history, not the complete log. ``export_user`` exports the complete log. The source is not
    changed.

    Args:
        memory: Source of the export. Conversations that only the hot tier has are not exported.
        storage: Target of the export: ``LocalFileStorage(path)``, ``S3Storage(...)`` or another storage. In a local storage,
            only the owner can read the written files and their folders.
        sessions: Sessions to export. The ``ConversationScope`` of a user's session is stored under its ``session_id``. A
            session without a user is given by its id.

    Returns:
        Number of exported ``agents`` and ``orchestrators``.

    Raises:
        StoreUnavailableError: A store is unavailable.
        CorruptRecordError: A record is damaged.
        StorageError: The storage rejected a write.
    """
    counts: Counter[str] = Counter(agents=0, orchestrators=0)
    for session in sessions:
        manager = memory.session(session)
        name, stored = (session, encoded_id(session)) if isinstance(session, str) else _names(session)
        for kind, id_ in list(member_ids(memory.durable, stored)):
            scope = "agent" if kind == "A" else "multiAgent"
            snapshot = _agent(manager, id_) if kind == "A" else _orchestrator(manager, id_)
            if snapshot is not None:
                data = json.dumps(encode_bytes_values(snapshot.to_dict()), ensure_ascii=False).encode()
                await _write(storage, f"session/{name}/scopes/{scope}/{id_}/snapshots/snapshot_latest.json", data)
                counts["agents" if kind == "A" else "orchestrators"] += 1
    return dict(counts)


async def _write(storage: Storage, key: str, data: bytes) -> None:
    """Write a value to the storage.

    Only the owner can read local files and their folders.
    """
    if not isinstance(storage, LocalFileStorage):
        await storage.write(key, data)
        return
    file = Path(storage.base_dir, key)
    await asyncio.to_thread(_protect_folder, file.parent)  # first, because the storage creates files that others can read
    await storage.write(key, data)
    await asyncio.to_thread(file.chmod, 0o600)


def _protect_folder(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o700)


def _names(scope: ConversationScope) -> tuple[str, str]:
    return scope.session_id, scope.storage_session_id


def _agent(manager: TieredSessionManager, agent_id: str) -> Snapshot | None:
    found = manager.transferred(agent_id)
    if found is None:
        return None
    states = dict(found.states)
    if states.get("conversation_manager_state", {}).get("__name__") not in _OF_STRANDS:
        states.pop("conversation_manager_state", None)
    window = [message for message, _ in found.log] if found.window is None else list(found.window)
    at = "" if not found.log else datetime.fromtimestamp(found.log[-1][1], UTC).isoformat()
    return Snapshot(scope="agent", schema_version="1.0", created_at=at, data={"messages": window, **states}, app_data={})


def _orchestrator(manager: TieredSessionManager, id_: str) -> Snapshot | None:
    found = manager.transferred_orchestrator(id_)
    if found is None:
        return None
    data = {"orchestrator_id": id_, "state": dict(found.state)}
    return Snapshot(scope="multiAgent", schema_version="1.0", data=data, app_data={})
