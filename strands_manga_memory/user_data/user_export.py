"""Export of all data of a user as JSON."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

from strands_manga_memory.arguments import Clock, checked
from strands_manga_memory.exceptions import CorruptRecordError, KeyMissingError
from strands_manga_memory.memory.hot_profile import HotProfile
from strands_manga_memory.memory.records import (
    CHANGES,
    INTERNAL,
    Owner,
    opened_body,
    record_of,
    storage_key_of,
)
from strands_manga_memory.memory.statements import LOG
from strands_manga_memory.session import TieredSessionManager
from strands_manga_memory.session.agent_snapshot import UNREADABLE_TEXT
from strands_manga_memory.session.tiers import hot_copy_warnings, list_sessions, stored_heads
from strands_manga_memory.stores.codec import Codec, dump, json_value, parsing
from strands_manga_memory.stores.hot import HotStore
from strands_manga_memory.stores.table import Table
from strands_manga_memory.stores.tiered_storage import TieredStorage
from strands_manga_memory.stores.urls import MemoryTable, memory_table

_UNREADABLE = [{"text": UNREADABLE_TEXT}]
_KINDS = (
    "sessions",
    "orchestrators",
    "stored_values",
    "memories",
    "statements",
    "waiting_signals",
)
_MEMORY_FIELDS = (
    "memory_id",
    "type",
    "content",
    "importance",
    "metadata",
    "created_at",
    "updated_at",
    "expires_at",
)

logger = logging.getLogger(__name__)


@checked
def export_user(
    user_id: str,
    *,
    tenant: str | None = None,
    hot: HotStore | None,
    durable: Table,
    memories: MemoryTable,
    codec: Codec | None = None,
    memory_codec: Codec | None = None,
    clock: Clock = time.time,
) -> dict[str, Any]:
    """Export all data of a user as JSON values.

    The data are sessions, states of orchestrators (Strands graphs and swarms), stored values,
    memories and preferences.

    A preference may appear up to three times: in the log of stated preferences, in the preferences
    not yet sent to another service, and in the hot tier's recent preferences. The export does not
    extend any TTL. Bytes are encoded in Base64, in the format of Strands' session managers.

    Args:
        user_id: Id of the user.
        tenant: Tenant of the user; None for a user without a tenant.
        hot: Hot store; None if there is none.
        durable: Durable store.
        memories: Memory table. False for no memory table. None for the default table of the durable
            store, if this table exists.
        codec: Codec of the session managers.
        memory_codec: Codec of memories and preferences.
        clock: Function that returns seconds since 1970.

    Returns:
        Data of the user, keyed by kind, such as ``sessions``. ``deletions`` has digests and times
        of deleted memories and retracted messages, so that an import does not restore them.
        ``not_looked_at`` lists stores that were not read. ``unreadable`` lists records that are
        damaged or were written by a later version.

    Raises:
        ValueError: An id is not allowed.
        KeyMissingError: A record is encrypted, and its key is missing.
        StoreUnavailableError: A store is unavailable. Repeat the call.
    """
    owner = Owner(user_id, tenant)
    memories, not_looked_at = memory_table(memories, durable)
    listed, unreadable = list_sessions(durable, user_id, tenant)
    not_looked_at += hot_copy_warnings(durable, listed, hot)
    empty: dict[str, Any] = {kind: [] for kind in _KINDS}
    exported = {"user_id": user_id, "tenant": tenant, **empty, "deletions": {}}
    exported |= {"not_looked_at": not_looked_at, "unreadable": unreadable}
    for scope in (one.scope for one in listed):
        session = {"session_id": scope.session_id}
        manager = TieredSessionManager(scope, hot=hot, durable=durable, codec=codec, clock=clock)
        heads = stored_heads(durable, scope.storage_session_id)
        unreadable += [f"{head.key.name}#HEAD" for head in heads if head.is_damaged]
        for conversation_key, id_ in ((head.key, head.member) for head in heads if head.member):
            with _skip_damaged(unreadable):
                if conversation_key.kind == "A":
                    conversation = _export_conversation(manager, id_)
                    exported["sessions"].append({**session, "agent_id": id_, **conversation})
                    lost = [
                        str(record["seq"])
                        for record in conversation["records"]
                        if record["message"]["content"] == _UNREADABLE
                    ]
                    unreadable += (
                        [f"{conversation_key.name}, messages {', '.join(lost)}"] if lost else []
                    )
                elif (found := manager.orchestrator_state(id_)) is not None:
                    exported["orchestrators"].append(
                        {**session, "id": id_, "state": _json_ready(found)}
                    )
    files = TieredStorage(durable=durable, hot=hot, user_id=user_id, tenant=tenant, codec=codec)
    for key in files.keys():  # noqa: SIM118 - a storage is no mapping
        with _skip_damaged(unreadable):
            if (value := files.value(key)) is not None:
                exported["stored_values"].append({"key": key, "value": _json_ready(value)})
    if memories is not None:
        _export_memories(memories, owner, memory_codec, exported)
    if hot is not None:
        profile = HotProfile(hot, owner, codec=memory_codec)
        exported["overrides"] = profile.load().overrides
    return exported


def _export_memories(
    table: Table, owner: Owner, codec: Codec | None, exported: dict[str, Any]
) -> None:
    unreadable = exported["unreadable"]
    for item in table.query(owner.partition):
        id_ = str(item["memory_id"])
        with _skip_damaged(unreadable), parsing(storage_key_of(owner, id_)):
            if not id_.startswith(INTERNAL):
                record = record_of(item, owner, codec)
                exported["memories"].append(
                    {name: _json_ready(getattr(record, name)) for name in _MEMORY_FIELDS}
                )
    key = storage_key_of(owner, CHANGES)
    with _skip_damaged(unreadable), parsing(key):
        if (changes := table.get(owner.preference_log_partition, CHANGES)) is not None:
            body = opened_body(changes, codec, key)
            names = ("statements", "removals")
            logged = LOG.validate_python({name: body[name] for name in names})
            exported["statements"] += [_json_ready(asdict(each)) for each in logged.statements]
            exported["deletions"] = {
                "removals": [_json_ready(asdict(each)) for each in logged.removals],
                "forgotten": _json_ready(changes.get("forgotten", {})),
            }
            exported["waiting_signals"] += map(_json_ready, body.get("signals", ()))


@contextmanager
def _skip_damaged(unreadable: list[str]) -> Iterator[None]:
    try:
        yield
    except KeyMissingError:
        raise
    except CorruptRecordError as error:
        unreadable.append(error.record)
        kind = type(error).__name__
        logger.warning("error=<%s> | an unreadable record is missing in the export", kind)


def _export_conversation(manager: TieredSessionManager, agent_id: str) -> dict[str, Any]:
    records = list(manager.records(agent_id))
    window, states = manager.restorable(agent_id)
    places = {dump(record["message"]): place for place, record in enumerate(records)}
    return {
        "metadata": _json_ready(manager.metadata(agent_id)),
        "records": [_json_ready(record) for record in records],
        # A message of the log is given by its index in ``records``, and any other message in full.
        "window": [_json_ready(places.get(dump(message), message)) for message in window],
        "states": _json_ready(states),
    }


def _json_ready(value: Any) -> Any:
    return json_value(dump(value))
