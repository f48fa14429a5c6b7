"""export_snapshots: sessions as Strands' own ``SnapshotSessionManager`` keeps them, for whoever leaves."""

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
from strands_manga_memory.session.basis.place import member_ids

_OF_STRANDS = ("NullConversationManager", "SlidingWindowConversationManager", "SummarizingConversationManager")


async def export_snapshots(
    memory: MangaMemory, storage: Storage, sessions: Iterable[ConversationScope | str]
) -> dict[str, int]:
    """Write the latest state of sessions where ``SnapshotSessionManager(session_id=..., storage=storage)`` reads it.

    An agent that is then built with the same ids has the same messages, ``agent.state``, and questions that wait. The state of
    one of our conversation managers is left out: that of another one could not be built from it. The log, which has more than
    the history, is what ``export_user`` is for. Nothing is changed here.

    Args:
        memory: Where they are. An agent of whom the durable tier knows nothing yet is not found.
        storage: Where they go: ``LocalFileStorage(path)``, ``S3Storage(...)``, or another one. Local files and their folders
            are readable by their owner alone, also those that existed before.
        sessions: Scopes of users' sessions, whose own session id counts there, or plain session ids.

    Returns:
        How many ``agents`` and ``orchestrators`` were written.

    Raises:
        StoreUnavailableError: What is stored cannot be read.
        CorruptRecordError: What is stored cannot be trusted.
        StorageError: The storage did not take it.
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
    """Write a value; files and their folders are for their owner alone."""
    if not isinstance(storage, LocalFileStorage):
        await storage.write(key, data)
        return
    file = Path(storage.base_dir, key)
    await asyncio.to_thread(_protect_folder, file.parent)  # before the file is there: the storage lets others read it
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
