"""Stores and saving rules of a session manager, and the connection of conversations to the stores."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from strands_manga_memory.arguments import of_kind, positive, seconds, with_method
from strands_manga_memory.session.places import FIRST_LOOK, ExpiryIndex, Place, directory_entry, directory_key, tombstone_key
from strands_manga_memory.session.protocol.conversation import Conversation
from strands_manga_memory.session.protocol.durable_tier import DurableTier
from strands_manga_memory.session.protocol.hot_tier import HotTier
from strands_manga_memory.session.protocol.record import Record
from strands_manga_memory.session.ttl import TtlPolicy, gaps_of
from strands_manga_memory.stores.encoding.codec import Codec
from strands_manga_memory.stores.hot import HotStore
from strands_manga_memory.stores.table import Item, Table
from strands_manga_memory.stores.writer import Writer, shared_writer
from strands_manga_memory.telemetry import RETURN, note

Refresh = Literal["never", "turn"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Tiers:
    """Stores of a session manager, their health, and the rules for saving.

    Most fields are arguments of ``TieredSessionManager``.

    Raises:
        ValueError: A field is out of range, or there is neither a hot nor a durable tier.
    """

    hot: HotStore | None
    durable: Table | None
    writer: Writer
    codec: Codec
    clock: Callable[[], float]
    ttl: TtlPolicy
    flush_every: int = 5
    refresh: Refresh = "never"
    hot_deadline: float = 0.05
    durable_deadline: float = 2.0
    max_unsaved: int = 10_000

    def __post_init__(self) -> None:
        if self.refresh not in get_args(Refresh):
            raise ValueError(f"refresh must be one of {', '.join(map(repr, get_args(Refresh)))}, got {self.refresh!r:.80}")
        positive("flush_every", self.flush_every)
        positive("max_unsaved", self.max_unsaved)
        seconds("hot_deadline", self.hot_deadline)
        seconds("durable_deadline", self.durable_deadline)
        of_kind("codec", self.codec, Codec, "a Codec(...)")
        of_kind("ttl", self.ttl, TtlPolicy, "a TtlPolicy(...)")
        with_method("clock", self.clock, "__call__()", "a function that returns seconds since 1970")
        if self.hot is None and self.durable is None:
            raise ValueError(
                "hot and durable are both None: pass a store or a URL, such as durable='sqlite:///sessions.sqlite3'"
            )

    @classmethod
    def of(
        cls,
        hot: HotStore | None,
        durable: Table | None,
        *,
        codec: Codec | None = None,
        ttl: TtlPolicy | None = None,
        **rules: Any,
    ) -> Tiers:
        """Build the tiers from their stores.

        All users of these stores in this process share one background writer and one record of each tier's health. If there is
        a durable store, a hot store that ends with the process is not used.
        """
        if hot is not None and durable is not None and not hot.survives_process:
            hot = None
        writer = shared_writer(hot, durable)
        return cls(hot=hot, durable=durable, writer=writer, codec=codec or Codec(), ttl=ttl or TtlPolicy(), **rules)

    @property
    def store_names(self) -> str:
        """Class names of the stores, for a ``repr``."""
        stores = {"hot": self.hot, "durable": self.durable}
        names = {tier: type(getattr(store, "observes", store)).__name__ for tier, store in stores.items() if store is not None}
        return ", ".join(f"{tier}={names.get(tier)}" for tier in stores)

    def returned(self, away: float, now: float) -> None:
        """Count the return of a user to a conversation.

        Args:
            away: Seconds since the last use of the conversation.
            now: Time of the return, in seconds since 1970.
        """
        gaps_of(self.writer, self.durable).add(away, now)
        note(RETURN, away)


def connect(
    place: Place,
    tiers: Tiers,
    *,
    ids: Mapping[str, Any],
    check_merge: Callable[[Mapping[str, Any], Record], None] = lambda states, found: None,
) -> Conversation:
    """Return a ``Conversation`` that is connected to the stores, without reading it.

    Args:
        place: Storage key of the conversation.
        tiers: The stores, and the saving rules.
        ids: Known unencoded ids of ``session``, ``user``, ``tenant`` and ``member``. A new conversation needs all of them.
        check_merge: Called before another writer's changes are merged with unsaved changes of this process. It gets the values
            of this process's state entries, keyed by name, and the other writer's record. An error prevents the merge.
    """
    known = {name: str(value) for name, value in ids.items() if value is not None}
    hot = None
    if tiers.hot is not None:
        keeps_log, refreshed = tiers.durable is None, tiers.ttl.refreshed_by_reads
        hot = HotTier(tiers.hot, place.conversation, codec=tiers.codec, keeps_log=keeps_log, refreshed_by_reads=refreshed)
    return Conversation(
        hot=hot,
        durable=durable_tier(place, tiers, ids=known),
        clock=tiers.clock,
        ttl=lambda record: hot_seconds(record, tiers),
        session_seconds=tiers.ttl.session,
        flush_every=tiers.flush_every,
        ids=known,
        check_merge=check_merge,
    )


def durable_tier(place: Place, tiers: Tiers, *, ids: Mapping[str, Any]) -> DurableTier | None:
    """Return the access to a conversation in the durable store; None if there is no durable store."""
    if tiers.durable is None:
        return None
    directory = directory_key(place.session, ids)

    def expires_at(record: Record) -> int:
        keeps = tiers.ttl.tombstone_seconds if record.is_empty else tiers.ttl.session + tiers.ttl.grace
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
        watched=[tombstone_key(place.session), *([tombstone_key(directory[0])] if directory else [])],
        has_hot=tiers.hot is not None,
        clock=tiers.clock,
    )


def hot_seconds(record: Record, tiers: Tiers) -> float:
    """Return the time to live of a record in the hot tier, in seconds from now."""
    if record.is_empty:
        return tiers.ttl.tombstone_seconds
    seconds = tiers.ttl.ttl(record.turn_count)
    return max(1.0, record.created + seconds - tiers.clock()) if tiers.ttl.mode == "fixed" else seconds
