"""Deletion of all data of a user."""

from __future__ import annotations

import logging
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from strands_manga_memory.arguments import Clock, checked
from strands_manga_memory.exceptions import StoreError
from strands_manga_memory.memory.hot_profile import cache_name
from strands_manga_memory.memory.preference_log import bucket_of
from strands_manga_memory.memory.records import ERASED, INTERNAL, Owner
from strands_manga_memory.scope import ConversationScope
from strands_manga_memory.session import TieredSessionManager, TtlPolicy
from strands_manga_memory.session.protocol.hot_tier import read_hot_head
from strands_manga_memory.session.tiers import (
    TOMBSTONE,
    ConversationKey,
    ExpiryIndex,
    hot_copy_warnings,
    list_sessions,
    put_group_tombstone,
    stored_heads,
    user_directory,
)
from strands_manga_memory.state import EnvironmentChanges
from strands_manga_memory.stores.codec import Codec
from strands_manga_memory.stores.hot import DELETED, HotStore
from strands_manga_memory.stores.table import Table, delete_rows
from strands_manga_memory.stores.tiered_storage import TieredStorage
from strands_manga_memory.stores.urls import MemoryTable, memory_table
from strands_manga_memory.stores.writer import shared_writer

logger = logging.getLogger(__name__)

_MOST_ROUNDS = 10
_SETTLED_WITHIN = 2.0


@dataclass(frozen=True)
class ErasureReport:
    """Result of the deletion of a user's data.

    Attributes:
        counts: Number of deleted items, keyed by kind, such as ``sessions``, ``conversations``,
            ``memories``, ``stored_values`` and ``pending_preferences``.
        tombstones: Number of written tombstones, records that keep late writes from restoring the
            data.
        left: Names of records that still contain data; empty if everything was deleted.
        not_looked_at: Stores that were not read but may contain data of the user, each with the
            reason.
    """

    counts: dict[str, int]
    tombstones: int
    left: list[str] = field(default_factory=list)
    not_looked_at: list[str] = field(default_factory=list)

    @property
    def complete(self) -> bool:
        """Whether every store was read, and no store still has data of the user."""
        return not self.left and not self.not_looked_at


@checked
def forget_user(
    user_id: str,
    *,
    tenant: str | None = None,
    hot: HotStore | None,
    durable: Table,
    memories: MemoryTable,
    ttl: TtlPolicy | None = None,
    codec: Codec | None = None,
    clock: Clock = time.time,
    progress: Callable[[str], object] = lambda name: None,
) -> ErasureReport:
    """Delete all data of a user, and check for remaining data.

    The data are sessions, logs, memories, preferences not yet sent to another service, stored
    values and caches. Damaged records are deleted, too. A repeated call deletes remaining data.

    An agent of the user in another process notices the deletion at its next save. That save is
    discarded, and the agent's next turn begins with an empty history. If a session ends during the
    deletion, its memories are discarded.

    Sessions that were never written to the durable store are not found.

    Args:
        user_id: Id of the user.
        tenant: Tenant of the user; None for a user without a tenant.
        hot: Hot store; None if there is none.
        durable: Durable store.
        memories: Memory table. False for no memory table. None for the default table of the durable
            store, if this table exists.
        ttl: TTL policy of the session managers.
        codec: Codec of the session managers.
        clock: Function that returns seconds since 1970.
        progress: Callback that gets the storage id of each session before its deletion.

    Raises:
        ValueError: An id is not allowed.
        StoreUnavailableError: A store is unavailable. Repeat the call.
    """
    owner, policy = Owner(user_id, tenant), ttl or TtlPolicy()
    tiers: dict[str, Any] = {
        "hot": hot,
        "durable": durable,
        "ttl": policy,
        "codec": codec,
        "clock": clock,
    }
    memories, not_looked_at = memory_table(memories, durable)
    counts: Counter[str] = Counter()
    tombstones = 0
    sessions: set[str] = set()
    if memories is not None:  # first, so that concurrent finalizers store nothing from now on
        # Until the record expires, running processes store no memories of the user.
        key = {"user_id": owner.partition, "memory_id": ERASED}
        expiry = {memories.schema.ttl: int(clock() + policy.tombstone_seconds)}
        memories.put({**key, "mark": uuid.uuid4().hex, "at": clock(), **expiry})
        tombstones += 1
    if hot is not None:  # live agents read the profile before each model call
        name = cache_name(owner)
        record = hot.load(name, [], touch=False)
        counts["cache"] += record is not None and record.state != DELETED
        hot.put_tombstone(name, ttl=policy.tombstone_seconds)
        tombstones += 1
    directory, until = user_directory(user_id, tenant), clock() + policy.tombstone_seconds
    put_group_tombstone(durable, directory, now=clock(), until=until)
    tombstones += 1
    for _ in range(_MOST_ROUNDS):
        listed, unreadable = list_sessions(durable, user_id, tenant)
        found = [one.scope for one in listed if one.scope.storage_session_id not in sessions]
        if not found:
            break
        for scope in found:
            progress(scope.storage_session_id)
            tombstones += _delete_session(scope, tiers, counts)
            sessions.add(scope.storage_session_id)
    counts["sessions"] += len(sessions)
    own = ConversationScope(user_id, "-", tenant=tenant).storage_session_id.removesuffix("-")
    keys = [name.removeprefix(f"{directory}/") for name in unreadable]
    # An unreadable entry lists nothing if its key is no session of the user, or has no records.
    kept = {key for key in keys if key.startswith(own) and any(durable.query(key, attributes=[]))}
    empty = [(directory, key) for key in keys if key not in kept]
    durable.batch_write(deletes=empty)
    counts["directory"] += len(empty)
    files = TieredStorage(durable=durable, hot=hot, user_id=user_id, tenant=tenant)
    counts["stored_values"] += files.erase()
    if memories is not None:
        # waits for queued updates of access counts
        shared_writer(None, memories).submit(owner, lambda: None).result()
        _delete_memories(memories, owner, counts)
    remaining = list(_find_remaining(owner, hot, durable, memories, sessions))
    if remaining:  # an agent of this process was saving: wait until it finds the tombstone
        lasting = hot if hot is not None and hot.survives_process else None
        shared_writer(lasting, durable).drain(_SETTLED_WITHIN)
        for scope in list(sessions_of(durable, owner)):
            _delete_session(scope, tiers, Counter())
        remaining = list(_find_remaining(owner, hot, durable, memories, sessions))
    not_looked_at += hot_copy_warnings(durable, list_sessions(durable, user_id, tenant)[0], hot)
    logger.info(
        "sessions=<%d>, remaining=<%d> | deleted the data of a user", len(sessions), len(remaining)
    )
    deleted = {name: count for name, count in sorted(counts.items()) if count}
    return ErasureReport(deleted, tombstones, remaining, not_looked_at)


def sessions_of(durable: Table, owner: Owner) -> Iterator[ConversationScope]:
    """Yield the scope (user and session) of each session of a user in the durable store."""
    listed, _ = list_sessions(durable, owner.user_id, owner.tenant)
    yield from (one.scope for one in listed if not one.has_hot_copies)


def _delete_session(scope: ConversationScope, tiers: dict[str, Any], counts: Counter[str]) -> int:
    """Delete a session, count deleted items in ``counts``, and return the number of tombstones."""
    hot, durable, session = tiers["hot"], tiers["durable"], scope.storage_session_id
    keys = [head.key for head in stored_heads(durable, session)]
    counts["conversations"] += len(keys)
    counts["durable_records"] += sum(1 for _ in durable.query(session, attributes=[]))
    index = ExpiryIndex(durable)
    for conversation_key in keys:
        if hot is not None and read_hot_head(hot, conversation_key.name) is not None:
            counts["hot_conversations"] += 1
        counts["expiry_index"] += index.remove(conversation_key)
    TieredSessionManager(scope, **tiers).delete_session()
    counts["directory"] += 1
    if hot is not None:
        counts["environment"] += EnvironmentChanges(hot, scope).erase()
    rows = durable.query(session, attributes=[])
    delete_rows(durable, [row for row in rows if not str(row["sk"]).endswith(("#HEAD", TOMBSTONE))])
    return len({*keys, ConversationKey.of(session, "A", scope.agent_id)}) * (
        1 if hot is None else 2
    )


def _delete_memories(memories: Table, owner: Owner, counts: Counter[str]) -> None:
    # First, because a list of words that is being made is stored only if this record is unchanged.
    _delete_preference_log(memories, owner, counts)
    for _ in range(_MOST_ROUNDS):
        found = memories.query(owner.partition, attributes=[])
        rows = [id_ for row in found if (id_ := str(row["memory_id"])) != ERASED]
        if not rows:
            break
        for id_ in rows:
            if id_.startswith(f"{INTERNAL}ledger"):
                counts["ledger"] += 1
            elif not id_.startswith(INTERNAL):
                counts["memories"] += 1
                counts[f"memories.{id_.partition('#')[0]}"] += 1
        memories.batch_write(deletes=[(owner.partition, id_) for id_ in rows])
    _delete_preference_log(memories, owner, counts)  # again: a finalizer may have ended meanwhile
    memories.delete(bucket_of(owner), owner.partition)


def _delete_preference_log(memories: Table, owner: Owner, counts: Counter[str]) -> None:
    rows = list(memories.query(owner.preference_log_partition, attributes=["waiting"]))
    counts["pending_preferences"] += sum(int(row.get("waiting") or 0) for row in rows)
    changes = [(owner.preference_log_partition, str(row["memory_id"])) for row in rows]
    counts["memory_changes"] += len(changes)
    memories.batch_write(deletes=changes)


def _find_remaining(
    owner: Owner, hot: HotStore | None, durable: Table, memories: Table | None, sessions: set[str]
) -> Iterator[str]:
    listed, unreadable = list_sessions(durable, owner.user_id, owner.tenant)
    yield from (
        f"directory {one.scope.storage_session_id}" for one in listed if not one.has_hot_copies
    )
    yield from unreadable
    for session in sorted(sessions):
        for row in durable.query(session, attributes=["state", "member"]):
            if row.get("state") != DELETED:
                yield f"{session}/{row['sk']}"
            elif hot is not None:
                name = f"{session}/{str(row['sk']).removesuffix('#HEAD')}"
                if read_hot_head(hot, name) is not None:
                    yield f"hot {name}"
    stored = TieredStorage(durable=durable, user_id=owner.user_id, tenant=owner.tenant).keys()
    yield from (f"stored value {key}" for key in stored)
    if memories is not None:
        yield from (
            f"{partition}/{row['memory_id']}"
            for partition in (owner.partition, owner.preference_log_partition)
            for row in memories.query(partition, attributes=[])
            if row["memory_id"] != ERASED
        )
        if memories.get(bucket_of(owner), owner.partition) is not None:
            yield bucket_of(owner)
    if hot is not None:
        with suppress(StoreError):
            record = hot.load(cache_name(owner), [], touch=False)
            if record is not None and record.state != DELETED:
                yield f"hot {cache_name(owner)}"
