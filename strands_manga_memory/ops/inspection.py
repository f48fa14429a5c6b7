"""Display of a stored conversation, without changing it."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from strands_manga_memory.arguments import Clock
from strands_manga_memory.circuit_breaker import State
from strands_manga_memory.conversation import ImportanceWeightedConversationManager
from strands_manga_memory.conversation.importance import message_act
from strands_manga_memory.conversation.message_truncation import is_truncated
from strands_manga_memory.conversation.trimmer import Trimmer
from strands_manga_memory.exceptions import StoreUnavailableError
from strands_manga_memory.language.entities import SHOP
from strands_manga_memory.messages.injection import message_text
from strands_manga_memory.messages.message_parts import guard_details
from strands_manga_memory.scope import ConversationScope, encoded_id
from strands_manga_memory.session import TtlPolicy
from strands_manga_memory.session.agent_conversation import AgentConversation
from strands_manga_memory.session.protocol.durable_tier import DurableTier
from strands_manga_memory.session.protocol.hot_tier import HotTier
from strands_manga_memory.session.protocol.record import Record
from strands_manga_memory.session.session_log import LogEntry
from strands_manga_memory.session.tiers import HOT, ConversationKey, Tiers, stored_heads
from strands_manga_memory.stores.codec import Codec
from strands_manga_memory.stores.hot import ACTIVE, DELETED, HotStore
from strands_manga_memory.stores.table import Table

_BREAKER = ("state", "failures", "retry_after", "rejected_at")


@dataclass(frozen=True)
class InspectedMessage:
    """Message of a stored conversation, with its importance and its place in the agent's history.

    The log has all messages of a conversation. The history has the messages that the model sees. A
    message is in the log, in the history or in both.

    Attributes:
        seq: Position in the log; None for a message that only the history has, such as a summary.
        turn: Number of the message's turn; None for a message that only the history has.
        role: ``user`` or ``assistant``.
        act: Dialogue act, such as ``instruction``; ``tool_use`` or ``tool_result`` for messages of
            tools.
        score: Importance, from 0 to 1.
        tokens: Size in tokens.
        outcome: ``kept`` if the history has the message, ``shortened`` if the history has a shorter
            text, ``left`` if only the log has the message, ``written`` if only the history has the
            message.
        text: Text of the message, with the names of called tools in brackets.
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
        conversation: Name of the conversation in the stores.
        hot: Properties of the conversation in the hot tier; None if the hot tier does not have the
            conversation. The keys are ``state``, ``version``, and ``expires_in`` and ``ttl`` in
            seconds. The state is ``active``, ``deleted``, or ``closing`` while a sweeper (process
            that ends expired sessions) ends the session.
        durable: Properties of the conversation in the durable tier; None if the durable tier does
            not have the conversation. The keys are ``state`` (``active`` or ``deleted``),
            ``version``, ``turns`` (number of stored turns), ``ahead`` (whether the hot tier may
            have newer data) and ``expired`` (whether the session has expired).
        turns: Number of user requests, from the data of both tiers.
        created: Time at which the conversation began, in seconds since 1970.
        last_activity: Time of the last save, in seconds since 1970.
        metadata: Values that ``set_metadata`` stored.
        messages: Messages that only the agent's history has, such as summaries, followed by the
            messages of the log.
        window_tokens: Size of the agent's history in tokens.
        entities: Latest entity of each type in the messages, keyed by type.
        tools: Statistics of each called tool in the log, keyed by tool name. ``calls`` and
            ``errors`` are numbers. The other values describe the tool's circuit breaker after the
            last call: ``state``, ``failures`` (number in succession), ``retry_after`` (seconds from
            now) and ``rejected_at`` (time of the last rejected call, in seconds since 1970). A
            value that the log does not show is None.
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
    session: str,
    *,
    user: str | None = None,
    tenant: str | None = None,
    agent: str | None = None,
    durable: Table,
) -> list[ConversationKey]:
    """Return the storage key of each agent's conversation in a session.

    Args:
        session: Session id. If the session belongs to a user, pass ``user``, too. Alternatively,
            ``session`` is the ``storage_session_id`` of a ``ConversationScope``, which contains the
            user.
        user: User of the session.
        tenant: Tenant of the user.
        agent: Id of the only agent whose key is returned. Default: all agents of the session.
        durable: Durable table, which lists the agents of a session. If the table lists no agent,
            the key of the agent ``default`` is returned.
    """
    if user is not None:
        storage = ConversationScope(user, session, tenant=tenant).storage_session_id
    else:
        storage = session if session.count(":") == 2 else encoded_id(session)
    if agent is not None:
        return [ConversationKey.of(storage, "A", agent)]
    found = [head.key for head in stored_heads(durable, storage) if head.key.kind == "A"]
    return found or [ConversationKey.of(storage, "A", "default")]


def inspect(
    conversation_key: ConversationKey,
    *,
    hot: HotStore | None,
    durable: Table | None,
    codec: Codec | None = None,
    ttl: TtlPolicy | None = None,
    clock: Clock = time.time,
) -> Inspection | None:
    """Return the stored data of a conversation, or None if nothing is stored.

    The time to live of the conversation is not extended.

    Args:
        conversation_key: Storage key of the conversation, as returned by ``places``.
        hot: Hot store, if there is one.
        durable: Durable table, if there is one.
        codec: Codec of the session managers.
        ttl: Time-to-live policy of the session managers.
        clock: Function that returns seconds since 1970.

    Raises:
        StoreUnavailableError: A store does not answer.
        CorruptRecordError: A record is damaged.
    """
    tiers = Tiers.of(hot, durable, codec=codec, clock=clock, ttl=ttl)
    conversation = AgentConversation(conversation_key, tiers, ids={})
    window = conversation.open(inspect=True)
    storage = conversation.storage
    base, hot_state, durable_state = storage.local.base, None, None
    if hot is not None and storage.hot is not None:
        hot_state = _hot_state(storage.hot, hot, conversation_key.name)
    if storage.durable is not None:
        durable_state = _durable_state(base, storage.durable, tiers)
    if window is None and hot_state is None and durable_state is None:
        return None
    entries = () if window is None else conversation.history()
    scorer = ImportanceWeightedConversationManager().history
    return Inspection(
        conversation=conversation_key.name,
        hot=hot_state,
        durable=durable_state,
        turns=base.turn_count,
        created=base.created,
        last_activity=base.last_used,
        metadata=conversation.meta,
        messages=_inspected_messages(entries, window or [], scorer),
        window_tokens=scorer.tokens(window or []),
        entities={
            entity.type: entity.value
            for entry in entries
            for entity in SHOP.find(message_text(entry.message))
        },
        tools=_tool_statistics(entries, clock()),
    )


def _hot_state(tier: HotTier, store: HotStore, name: str) -> dict[str, Any] | None:
    if not tier.is_known:
        raise StoreUnavailableError("the hot tier does not answer")
    found = store.load(name, [], touch=False)
    if found is None or found.state == DELETED:
        return None
    state = DELETED if tier.record.is_empty else found.state
    times = {"expires_in": found.expires_in, "ttl": found.ttl}
    return {"state": state, "version": found.version, **times}


def _durable_state(base: Record, tier: DurableTier, tiers: Tiers) -> dict[str, Any] | None:
    head = tier.record
    if not head.incarnation:
        return None
    # A record that is not closed may lack changes that the hot store has.
    is_behind = base.version[:2] > head.version[:2] or not (head.is_closed or head.is_empty)
    return {
        "state": DELETED if head.is_empty else ACTIVE,
        "version": tier.head_item.get("v"),
        "turns": head.turn_count,
        "ahead": bool(tier.head_item.get(HOT)) and is_behind,
        "expired": head.last_used + tiers.ttl.session <= tiers.clock(),
    }


def _inspected_messages(
    logged: Sequence[LogEntry], window: list[Any], scorer: Trimmer
) -> list[InspectedMessage]:
    present = {message.get("tracking_id"): message for message in window}
    known = {entry.message.get("tracking_id") for entry in logged}

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

    written = (message for message in window if message.get("tracking_id") not in known)
    found = [shown(message, None, None, "written") for message in written]
    for entry in logged:
        there = present.get(entry.message.get("tracking_id"))
        outcome = "left" if there is None else "shortened" if is_truncated(there) else "kept"
        found.append(shown(there or entry.message, entry.seq, entry.turn, outcome))
    return found


def display_text(message: Any) -> str:
    """Return a message's text for display, with notes in brackets for tools and media."""
    parts = [message_text(message)]
    for block in message["content"]:
        if "toolUse" in block:
            parts.append(f"[calls {block['toolUse']['name']}]")
        elif "toolResult" in block:
            parts.append(f"[result: {block['toolResult'].get('status', 'success')}]")
        elif not {"text", "guardContent", "citationsContent"} & block.keys():
            parts.append(f"[{next(iter(block), 'nothing')}]")
    return " ".join(part for part in parts if part)


def _tool_statistics(entries: Iterable[LogEntry], now: float) -> dict[str, dict[str, Any]]:
    names: dict[str, str] = {}
    found: dict[str, dict[str, Any]] = {}
    for at, block in ((entry.at, block) for entry in entries for block in entry.message["content"]):
        if "toolUse" in block:
            name = names[block["toolUse"]["toolUseId"]] = block["toolUse"]["name"]
            tool = found.setdefault(name, {"calls": 0, "errors": 0, **dict.fromkeys(_BREAKER)})
            tool["calls"] += 1
        elif "toolResult" in block and block["toolResult"]["toolUseId"] in names:
            tool, result = found[names[block["toolResult"]["toolUseId"]]], block["toolResult"]
            tool["errors"] += result.get("status") == "error"
            tool.update(_breaker_state(result, at, now, is_guarded=tool["state"] is not None))
    return found


def _breaker_state(
    result: Mapping[str, Any], at: float, now: float, *, is_guarded: bool
) -> dict[str, Any]:
    details = guard_details(result)
    # Only the result of a failed call has details. After a success, the breaker is closed.
    if not details:
        is_closed = is_guarded and result.get("status") != "error"
        return {"state": State.CLOSED, "failures": 0, "retry_after": 0.0} if is_closed else {}
    left = details["retry_after"]
    if left is not None:
        left = max(0.0, at + left - now)
    is_due = details["state"] == State.OPEN and left == 0
    return {
        "state": State.HALF_OPEN if is_due else details["state"],
        "failures": details["failures"],
        "retry_after": left,
        **({"rejected_at": at} if details["code"] == "circuit_open" else {}),
    }
