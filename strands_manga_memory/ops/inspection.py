"""Inspection of a stored conversation: its data in each tier, and the outcome of each message. Changes nothing."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from strands_manga_memory.conversation import ImportanceWeightedConversationManager
from strands_manga_memory.conversation.message_truncation import is_truncated
from strands_manga_memory.conversation.scoring import message_act
from strands_manga_memory.exceptions import StoreUnavailableError
from strands_manga_memory.language.entities import EntityTypes
from strands_manga_memory.language.entity_types import SHOP
from strands_manga_memory.mcp import CircuitBreaker
from strands_manga_memory.messages.injection import message_text
from strands_manga_memory.scope import ConversationScope, encoded_id
from strands_manga_memory.session import TtlPolicy
from strands_manga_memory.session.agent_conversation import AgentConversation
from strands_manga_memory.session.places import Place, members
from strands_manga_memory.session.protocol.durable_tier import DurableTier
from strands_manga_memory.session.protocol.hot_tier import HotTier
from strands_manga_memory.session.protocol.record import Record
from strands_manga_memory.session.tiers import Tiers
from strands_manga_memory.stores.encoding.codec import Codec
from strands_manga_memory.stores.hot import ACTIVE, DELETED, HotStore
from strands_manga_memory.stores.table import Table


@dataclass(frozen=True)
class InspectedMessage:
    """One message of the log or the window.

    Attributes:
        seq: Its number in the log; None if only the window has it, such as a summary.
        turn: The turn it belongs to; None likewise.
        role: ``user`` or ``assistant``.
        act: Its act, as ``message_act`` returns it.
        score: Its importance, 0 to 1.
        tokens: Its size.
        outcome: ``kept``, ``shortened``, ``written`` (by a summarizer) or ``left`` (the window, not the log).
        text: Its text; of tools, their names.
    """

    seq: int | None
    turn: int | None
    role: str
    act: str
    score: float
    tokens: int
    outcome: str
    text: str


@dataclass(frozen=True, kw_only=True)
class Inspection:
    """Stored data of one conversation.

    Attributes:
        conversation: Its name in the stores.
        hot: Of the hot copy: ``state``, ``version``, ``expires_in`` and ``ttl`` in seconds; None if there is none.
        durable: Of the durable copy: ``state``, ``version``, ``turns``, ``ahead`` (whether the hot tier may have
            more) and ``expired``; None if there is none.
        turns: User requests.
        created: When it began, in seconds since 1970.
        last_activity: When it was last saved.
        metadata: Values that ``set_metadata`` stored.
        messages: The log, and the messages that only the window has, in the order of the conversation.
        window_tokens: Tokens of the window.
        entities: The latest value of each type of entity that was named.
        tools: Of each tool how often it was called and how often it answered with an error, and the figures of its breaker
            in this process: ``failures`` in a row, ``state`` (closed, open or half_open) and ``retry_after``. None:
            ``breakers`` returned none.
    """

    conversation: str
    hot: dict[str, Any] | None
    durable: dict[str, Any] | None
    turns: int
    created: float
    last_activity: float
    metadata: dict[str, Any]
    messages: list[InspectedMessage]
    window_tokens: int
    entities: dict[str, str]
    tools: dict[str, dict[str, Any]]


def places(
    session: str, *, user: str | None = None, tenant: str | None = None, agent: str | None = None, durable: Table | None
) -> list[Place]:
    """Return the places of a session's conversations.

    Args:
        session: A session id; without ``user`` also the storage id of a ``ConversationScope``, or the id of a session that has
            no user.
        user: Its user.
        tenant: Its tenant.
        agent: Only this agent's.
        durable: The durable tier, which lists them; without one it is the agent's, by default ``default``.
    """
    if user is not None:
        storage = ConversationScope(user, session, tenant=tenant).storage_session_id
    else:
        storage = session if session.count(":") == 2 else encoded_id(session)
    if agent is not None:
        return [Place.of(storage, "A", agent)]
    found = [] if durable is None else [place for place in members(durable, storage) if place.member.startswith("A:")]
    return found or [Place.of(storage, "A", "default")]


def inspect(
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
        messages=_messages(logged, window or [], scorer),
        window_tokens=scorer.tokens(window or []),
        entities={entity.type: entity.value for _, _, message in logged for entity in types.find(message_text(message))},
        tools=_tools([message for _, _, message in logged], breakers),
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


def _messages(
    logged: list[tuple[int, int, Any]], window: list[Any], scorer: ImportanceWeightedConversationManager
) -> list[InspectedMessage]:
    """Return the messages of log and window with their outcome, in the order of speech."""
    present = {message.get("tracking_id"): message for message in window}
    known = {message.get("tracking_id") for _, _, message in logged}

    def shown(message: Any, seq: int | None, turn: int | None, outcome: str) -> InspectedMessage:
        return InspectedMessage(
            seq,
            turn,
            message["role"],
            message_act(message),
            scorer.score(message),
            scorer.tokens([message]),
            outcome,
            display_text(message),
        )

    made = [shown(message, None, None, "written") for message in window if message.get("tracking_id") not in known]
    found = []
    for seq, turn, message in logged:
        there = present.get(message.get("tracking_id"))
        outcome = "left" if there is None else "shortened" if is_truncated(there) else "kept"
        found.append(shown(there or message, seq, turn, outcome))
    return [*made, *found]


def display_text(message: Any) -> str:
    """Return the text of a message for people, with the names of its tool calls and other blocks in brackets."""
    parts = [message_text(message)]
    for block in message["content"]:
        if "toolUse" in block:
            parts.append(f"[calls {block['toolUse']['name']}]")
        elif "toolResult" in block:
            parts.append(f"[result: {block['toolResult'].get('status', 'success')}]")
        elif not {"text", "guardContent", "citationsContent"} & block.keys():
            parts.append(f"[{next(iter(block), 'nothing')}]")
    return " ".join(part for part in parts if part)


def _tools(messages: list[Any], breakers: Callable[[str], CircuitBreaker | None]) -> dict[str, dict[str, Any]]:
    """Return the number of calls and errors of each tool, and the state of its breaker."""
    names: dict[str, str] = {}
    counts: dict[str, dict[str, int]] = {}
    for block in (block for message in messages for block in message["content"]):
        if "toolUse" in block:
            names[block["toolUse"]["toolUseId"]] = block["toolUse"]["name"]
            counts.setdefault(block["toolUse"]["name"], {"calls": 0, "errors": 0})["calls"] += 1
        elif "toolResult" in block and block["toolResult"].get("status") == "error":
            name = names.get(block["toolResult"]["toolUseId"])
            if name is not None:
                counts[name]["errors"] += 1
    known = {name: breakers(name) for name in counts}
    return {name: {**count, **_breaker_state(known[name])} for name, count in counts.items()}


def _breaker_state(breaker: CircuitBreaker | None) -> dict[str, Any]:
    if breaker is None:
        return dict.fromkeys(("state", "failures", "retry_after"))
    return {"state": breaker.state.value, "failures": breaker.failures, "retry_after": breaker.retry_after}
