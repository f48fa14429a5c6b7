"""SnapshotSource: what Strands' ``SnapshotSessionManager`` keeps - a whole agent, or a whole Graph or Swarm, in one value."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from typing import Any, Literal

from strands import Snapshot
from strands.types.exceptions import SnapshotException
from strands.types.session import decode_bytes_values

from strands_manga_memory.ops.importing.from_files import Blobs
from strands_manga_memory.ops.importing.message_log import checked_message, distinct, seconds_of
from strands_manga_memory.ops.importing.source import Content, Found, damaged, json_object
from strands_manga_memory.session.transfer import TransferredConversation, TransferredOrchestrator

_LATEST = re.compile(
    r"\A(?:session/)?(?P<session>[^/]+)/scopes/(?P<scope>agent|multiAgent)/(?P<id>[^/]+)/snapshots/snapshot_latest\.json\Z",
    re.DOTALL,
)
_HISTORY = re.compile(r"\A(?P<agent>.*/snapshots)/immutable_history/snapshot_[^/]+\.json\Z", re.DOTALL)
_STATES = ("state", "conversation_manager_state", "interrupt_state", "model_state")


class SnapshotSource:
    """Sessions of ``SnapshotSessionManager``, of whatever ``Storage``: the latest snapshot of each agent.

    Args:
        blobs: Where the storage keeps its values, under their keys: a ``Folder`` for ``LocalFileStorage``, a ``Bucket`` for
            ``S3Storage``, a ``StorageTable`` for ``DynamoDBStorage``.
    """

    def __init__(self, blobs: Blobs) -> None:
        self._blobs = blobs

    def conversations(self) -> Iterator[Found]:
        """Yield what there is, sorted by key."""
        keys = sorted(self._blobs.names())
        older: dict[str, int] = {}
        for key in keys:
            if match := _HISTORY.match(key):
                older[match["agent"]] = older.get(match["agent"], 0) + 1
        for key in keys:
            if match := _LATEST.match(key):
                kind: Literal["agent", "orchestrator"] = "agent" if match["scope"] == "agent" else "orchestrator"
                count = older.get(key.rpartition("/")[0], 0)
                yield Found(match["session"], match["id"], kind, partial(self._read, key, match["id"], count))

    def _read(self, key: str, id_: str, older: int) -> Content:
        snapshot = _snapshot(self._blobs.read(key), key)
        if snapshot.scope == "multiAgent":
            if snapshot.data.get("orchestrator_id") != id_ or not isinstance(snapshot.data.get("state"), dict):
                raise damaged(key, f"it does not hold the state of {id_!r}")
            return Content(TransferredOrchestrator(snapshot.data["state"]))
        content = _conversation(snapshot, key)
        notes = (*content.notes, f"{older} immutable snapshots are left in the source") if older else content.notes
        return Content(content.transferred, notes)


def _snapshot(data: bytes, key: str) -> Snapshot:
    known = json_object(data, record=key)
    try:
        snapshot = Snapshot.from_dict(decode_bytes_values(known))
    except (KeyError, TypeError, AttributeError, ValueError, SnapshotException) as error:
        raise damaged(key, f"it is no snapshot: {type(error).__name__}: {error}") from error
    if not isinstance(snapshot.data, dict):
        raise damaged(key, "it is no snapshot: its data is no object")
    return snapshot


def _conversation(snapshot: Snapshot, key: str) -> Content:
    data = snapshot.data
    messages = data.get("messages", [])
    if not isinstance(messages, list):
        raise damaged(key, "messages is no list")
    window = [checked_message(message, record=key) for message in messages]
    states = {name: data[name] for name in _STATES if data.get(name)}
    for name, state in states.items():
        if not isinstance(state, dict):
            raise damaged(key, f"{name} is no object")
    if not (window or states.get("state")):
        return Content(None, ("there are no messages, and no state",))
    try:
        at = seconds_of(snapshot.created_at)
    except ValueError as error:
        raise damaged(key, error) from error
    managed = states.get("conversation_manager_state", {})
    summary = managed.get("summary_message")
    written = summary.get("tracking_id") if isinstance(summary, dict) else None
    log = distinct((message, at) for message in window if written is None or message.get("tracking_id") != written)
    notes = _notes(data, managed, snapshot.app_data)
    return Content(TransferredConversation(log=log, window=window, states=states, created=at), tuple(notes))


def _notes(data: dict[str, Any], managed: dict[str, Any], app_data: dict[str, Any]) -> Iterator[str]:
    yield "a snapshot does not say when each message was said: all have its own time"
    if removed := managed.get("removed_message_count"):
        yield f"{removed} messages that had left the history are not in a snapshot"
    if data.get("system_prompt"):
        yield "the system prompt stays that of the agent's constructor"
    if data.get("stash"):
        yield "what the context manager had put aside is left in the source"
    if app_data:
        yield "app_data is left in the source"
