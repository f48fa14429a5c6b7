"""Connecting: the replicas of a conversation in the tiers where it is kept."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from strands_manga_memory.session.basis.place import Place, directory_key, grave_key
from strands_manga_memory.session.basis.tiers import Tiers
from strands_manga_memory.session.replicas.durable import DurableReplica
from strands_manga_memory.session.replicas.hot import HotReplica
from strands_manga_memory.stores.table import Item


def hot_replica(
    place: Place, tiers: Tiers, *, durable: DurableReplica | None = None, ttl: Callable[[], float] = lambda: 0.0
) -> HotReplica | None:
    """Return the hot replica of a conversation beside the durable one; None without such a tier. Who writes needs a ``ttl``."""
    if tiers.hot is None:
        return None
    return HotReplica(
        tiers.hot,
        place.conversation,
        codec=tiers.codec,
        durable=durable,
        ttl=lambda copy: ttl() if copy.has_begun else tiers.ttl.graves,
        refreshed_by_reads=tiers.ttl.refreshed_by_reads,
    )


def durable_replica(
    place: Place,
    tiers: Tiers,
    *,
    ids: Mapping[str, Any],
    entries: Callable[[], Sequence[Item]] | None = None,
    attributes: Callable[[], Mapping[str, Any]] = dict,
) -> DurableReplica | None:
    """Return the durable replica of a conversation; None if there is no such tier.

    ``ids`` are its original ones, by which the grave of its user is found. Who never begins a life needs no ``entries``.
    """
    if tiers.durable is None:
        return None
    directory, keeps = directory_key(place.session, ids), tiers.ttl.session + tiers.ttl.grace
    return DurableReplica(
        tiers.durable,
        place.session,
        place.member,
        codec=tiers.codec,
        expires_at=lambda copy: math.ceil(tiers.clock() + (keeps if copy.has_begun else tiers.ttl.graves)),
        clock=tiers.clock,
        watched=[grave_key(place.session), *([grave_key(directory[0])] if directory else [])],
        entries=entries,
        attributes=attributes,
        has_hot=tiers.hot is not None,
    )
