"""Inspection of a conversation of the session protocol: its content, its tiers, and the outcome of each message."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from strands_manga_memory.conversation import ImportanceWeightedConversationManager
from strands_manga_memory.exceptions import StoreUnavailableError
from strands_manga_memory.language.entities import EntityTypes
from strands_manga_memory.language.entity_types import SHOP
from strands_manga_memory.mcp import CircuitBreaker
from strands_manga_memory.messages.injection import message_text
from strands_manga_memory.ops.inspection import Inspection, messages_in, tools_in
from strands_manga_memory.session.basis.place import Place
from strands_manga_memory.session.basis.tiers import Tiers
from strands_manga_memory.session.basis.ttl import TtlPolicy
from strands_manga_memory.session.live.agent_conversation import AgentConversation
from strands_manga_memory.session.protocol.durable_tier import DurableTier
from strands_manga_memory.session.protocol.hot_tier import HotTier
from strands_manga_memory.session.protocol.record import Record
from strands_manga_memory.stores.encoding.codec import Codec
from strands_manga_memory.stores.hot import ACTIVE, DELETED, HotStore
from strands_manga_memory.stores.table import Table


def inspect_conversation(
    place: Place,
    *,
    hot: HotStore | None,
    durable: Table | None,
    codec: Codec | None = None,
    ttl: TtlPolicy | None = None,
    breakers: Callable[[str], CircuitBreaker | None] = lambda tool: None,
    types: EntityTypes = SHOP,
    clock: Callable[[], float] = time.time,
) -> Inspection | None:
    """Return the stored content of a conversation, or None if there is nothing. No time to live is touched.

    Args:
        place: The conversation; ``places`` finds it.
        hot: The hot tier, if there is one.
        durable: The durable tier, if there is one.
        codec: The codec of the session managers.
        ttl: Their policy.
        breakers: Returns the breaker that this process has of a tool, or None.
        types: The entities to look for.
        clock: Seconds since 1970.

    Raises:
        StoreUnavailableError: A tier does not answer.
        CorruptRecordError: A record cannot be trusted.
    """
    tiers = Tiers.of(hot, durable, codec=codec, clock=clock, ttl=ttl)
    conversation = AgentConversation(place, tiers, ids={})
    window = conversation.open(inspect=True)
    hold = conversation.hold
    hot_state = None if hold.hot is None else _hot_state(hold.hot, tiers, place)
    head = hold.durable.record if hold.durable is not None else None
    if window is None and hot_state is None and head is None:
        return None
    logged = [(entry.seq, entry.turn, entry.message) for entry in conversation.history()] if window is not None else []
    scorer = ImportanceWeightedConversationManager()
    base = hold.local.base
    return Inspection(
        conversation=place.conversation,
        hot=hot_state,
        durable=None if head is None or hold.durable is None else _durable_state(head, base, hold.durable, tiers),
        turns=base.turn_count,
        created=base.created,
        last_activity=base.last_used,
        metadata=conversation.meta,
        messages=messages_in(logged, window or [], scorer),
        window_tokens=scorer.tokens(window or []),
        entities={entity.type: entity.value for _, _, message in logged for entity in types.find(message_text(message))},
        tools=tools_in([message for _, _, message in logged], breakers),
    )


def _hot_state(tier: HotTier, tiers: Tiers, place: Place) -> dict[str, Any] | None:
    assert tiers.hot is not None  # noqa: S101 - the tier has a store
    if not tier.is_known:
        raise StoreUnavailableError("the hot tier does not answer")
    found = tiers.hot.load(place.conversation, [], touch=False)
    if found is None or tier.record is None:
        return None
    state = DELETED if tier.record.is_empty else found.state
    return {"state": state, "version": found.version, "expires_in": found.expires_in, "ttl": found.ttl}


def _durable_state(head: Record, base: Record, tier: DurableTier, tiers: Tiers) -> dict[str, Any]:
    is_behind = base.version[:2] > head.version[:2] or not (head.is_closed or head.is_empty)
    return {
        "state": DELETED if head.is_empty else ACTIVE,
        "version": tier.head_version,
        "turns": head.turn_count,
        "ahead": tier.may_have_hot_copy and is_behind,
        "expired": head.last_used + tiers.ttl.session <= tiers.clock(),
    }
