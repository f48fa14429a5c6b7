"""Connection of a conversation with the stores of a session manager: names, times to live, index items, tombstones."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from strands_manga_memory.session.basis.expiry import FIRST_LOOK, ExpiryIndex
from strands_manga_memory.session.basis.place import Place, directory_entry, directory_key, grave_key
from strands_manga_memory.session.basis.tiers import Tiers
from strands_manga_memory.session.protocol.conversation import Conversation
from strands_manga_memory.session.protocol.durable_tier import DurableTier
from strands_manga_memory.session.protocol.hot_tier import HotTier
from strands_manga_memory.session.protocol.record import Record
from strands_manga_memory.stores.table import Item


def connect(
    place: Place,
    tiers: Tiers,
    *,
    ids: Mapping[str, Any],
    check_merge: Callable[[Mapping[str, Any], Record], None] = lambda states, found: None,
) -> Conversation:
    """Return a process's hold of a conversation, without any I/O; nothing is known of it yet.

    Args:
        place: The conversation.
        tiers: The stores, and the rules of saving.
        ids: Original ids of ``session``, ``user``, ``tenant`` and ``member``, as far as they are known. A caller that may begin
            the conversation gives all of them: by them it is found again.
        check_merge: Called before the changes of another writer are joined with unsaved ones; raises if they must not be.
    """
    known = {name: str(value) for name, value in ids.items() if value is not None}
    return Conversation(
        hot=hot_tier(place, tiers),
        durable=durable_tier(place, tiers, ids=known),
        clock=tiers.clock,
        ttl=lambda record: hot_seconds(record, tiers),
        session_seconds=tiers.ttl.session,
        flush_every=tiers.flush_every,
        ids=known,
        check_merge=check_merge,
    )


def hot_tier(place: Place, tiers: Tiers) -> HotTier | None:
    """Return a conversation's hot tier; None if there is none."""
    if tiers.hot is None:
        return None
    return HotTier(
        tiers.hot,
        place.conversation,
        codec=tiers.codec,
        keeps_log=tiers.durable is None,
        refreshed_by_reads=tiers.ttl.refreshed_by_reads,
    )


def durable_tier(place: Place, tiers: Tiers, *, ids: Mapping[str, Any]) -> DurableTier | None:
    """Return a conversation's durable tier; None if there is none."""
    if tiers.durable is None:
        return None
    directory = directory_key(place.session, ids)

    def expires_at(record: Record) -> int:
        keeps = tiers.ttl.graves if record.is_empty else tiers.ttl.session + tiers.ttl.grace
        return math.ceil(tiers.clock() + keeps)

    def index_items(stored: Mapping[str, str]) -> list[Item]:
        listed = directory_entry(place.session, stored)
        return [*ExpiryIndex.items(place, stored, due=tiers.clock() + FIRST_LOOK), *([listed] if listed else [])]

    return DurableTier(
        tiers.durable,
        place.session,
        place.member,
        codec=tiers.codec,
        expires_at=expires_at,
        index_items=index_items,
        watched=[grave_key(place.session), *([grave_key(directory[0])] if directory else [])],
        has_hot=tiers.hot is not None,
        clock=tiers.clock,
    )


def hot_seconds(record: Record, tiers: Tiers) -> float:
    """Return the seconds from now that a record lives in the hot tier."""
    if record.is_empty:
        return tiers.ttl.graves
    seconds = tiers.ttl.ttl(record.turn_count)
    return max(1.0, record.created + seconds - tiers.clock()) if tiers.ttl.mode == "fixed" else seconds
