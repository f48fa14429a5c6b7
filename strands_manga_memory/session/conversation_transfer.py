"""Conversations that begin with the content of another one: transfers between stores, forks and rewinds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from strands.types.content import Message

from strands_manga_memory.exceptions import ConflictError, CorruptRecordError, StoreUnavailableError
from strands_manga_memory.session.agent_conversation import AgentConversation
from strands_manga_memory.session.agent_states import ORCHESTRATOR
from strands_manga_memory.session.places import Place
from strands_manga_memory.session.protocol.conversation import OPEN_SECONDS, Conversation
from strands_manga_memory.session.protocol.durable_tier import next_attempt
from strands_manga_memory.session.protocol.record import CLOSED, CONTINUES, SEEN_TURNS, Record, Slot, Turn, TurnKey
from strands_manga_memory.session.tiers import Tiers, connect, hot_seconds
from strands_manga_memory.stores.encoding.codec import dump, load

Standing = Literal["new", "exists", "ended"]
"""State of a conversation in the tiers: new, in use, or expired or deleted."""


@dataclass(frozen=True, kw_only=True)
class TransferredConversation:
    """A conversation of an agent outside the tiers.

    Args:
        log: Every message with its time in seconds since 1970, in order. Each has a ``tracking_id``.
        window: The agent's history. A message with the ``tracking_id`` of a message of the log must be equal to it; other
            messages are the window's own. None: the log.
        states: The agent's other states, by the names of a Strands snapshot: ``state``, ``conversation_manager_state``,
            ``interrupt_state``, ``model_state``. A missing one stays as the agent was built.
        metadata: The values that ``set_metadata`` stored.
        created: Time at which the conversation began, in seconds since 1970; None: now.
    """

    log: Sequence[tuple[Message, float]]
    window: Sequence[Message] | None = None
    states: Mapping[str, Any] = field(default_factory=dict)
    metadata: Mapping[str, Any] = field(default_factory=dict)
    created: float | None = None


@dataclass(frozen=True)
class TransferredOrchestrator:
    """The state of a Graph or Swarm outside the tiers, as its ``serialize_state`` returned it."""

    state: Mapping[str, Any]


def standing_of(conversation: AgentConversation) -> Standing:
    """Return the state of a conversation in the tiers; raise the errors of ``AgentConversation.open``."""
    if conversation.open(inspect=True) is not None:
        return "exists"
    return "ended" if conversation.local.base.incarnation else "new"


def store(conversation: AgentConversation, transferred: TransferredConversation | TransferredOrchestrator) -> Standing:
    """Store a transferred conversation if there is none yet; return the previous state.

    It is one commit: a crash stores all of it or nothing. Raises ``StoreUnavailableError`` also if the answer was lost.
    """
    standing = standing_of(conversation)
    if standing != "new":
        return standing
    if isinstance(transferred, TransferredConversation):
        _add(conversation, transferred)
    else:
        conversation.set_entry(ORCHESTRATOR, transferred.state)
    conversation.saver.is_closing = True
    try:
        conversation.saver.request_flush().result()
    except ConflictError:
        return "exists"  # someone else was first, just now
    return "new"


def _add(conversation: AgentConversation, transferred: TransferredConversation) -> None:
    with conversation.lock:
        if transferred.created is not None:
            conversation.local.begin_at(transferred.created)
        for message, at in transferred.log:
            conversation.add(message, at=at)
        conversation.local.end_turn()
        window = [message for message, _ in transferred.log] if transferred.window is None else transferred.window
        conversation.capture(window, transferred.states)
        if transferred.metadata:
            conversation.set_meta(transferred.metadata)


def taken_out(conversation: AgentConversation) -> TransferredConversation:
    """Return the content of an opened conversation, to be stored elsewhere."""
    with conversation.lock:
        created, meta = conversation.local.base.created, conversation.meta
    return TransferredConversation(
        log=[(entry.message, entry.at) for entry in conversation.history()],
        window=conversation.shown(),
        states=conversation.snapshot,
        metadata=meta,
        created=created,
    )


def orchestrator_taken_out(conversation: AgentConversation) -> TransferredOrchestrator | None:
    """Return the state in an opened record of a Graph or Swarm; None if it never ran."""
    states = conversation.local.states
    return TransferredOrchestrator(load(dump(states[ORCHESTRATOR]))) if ORCHESTRATOR in states else None


def fork(place: Place, tiers: Tiers, *, at_turn: int, to: Place, ids: Mapping[str, Any]) -> None:
    """Begin a conversation with the first turns of another one, which is not changed.

    Args:
        place: The conversation to begin with.
        tiers: The stores.
        at_turn: Number of the last turn of the fork, counted from 1.
        to: The new conversation.
        ids: Its original ids of ``session``, ``user``, ``tenant`` and ``member``.

    Raises:
        ValueError: There is no such turn.
        ConflictError: There is a conversation at ``to`` already, or the turn is still open.
        CorruptRecordError: A turn up to that one cannot be read.
        StoreUnavailableError: A tier does not answer.
    """
    content = content_at(_loaded(place, tiers), at_turn, now=tiers.clock())
    known = {name: str(value) for name, value in ids.items() if value is not None}
    target = connect(to, tiers, ids=known)
    if not _begin_with(target, replace(content, ids=known, created=tiers.clock()), tiers, replaces=False):
        raise ConflictError(
            f"session_id {known.get('session')!r:.80} has a conversation of agent_id {known.get('member')!r:.80} already: "
            "choose another session_id, or delete that session first"
        )


def rewind(place: Place, tiers: Tiers, *, at_turn: int) -> None:
    """Return a conversation to the end of one of its turns; later turns are deleted.

    A live agent continues with the shortened history at its next turn; its unsaved changes are dropped, as after a deletion.

    Args:
        place: The conversation.
        tiers: The stores.
        at_turn: Number of the last turn that stays, counted from 1; 0: none, and no state, as after a deletion.

    Raises:
        ValueError: There is no such turn.
        ConflictError: The turn is still open.
        CorruptRecordError: A turn up to that one cannot be read.
        StoreUnavailableError: A tier does not answer; call it again.
    """
    hold = _loaded(place, tiers)
    if at_turn == 0 and not hold.local.base.is_empty:
        hold.delete()
        return
    _begin_with(hold, content_at(hold, at_turn, now=tiers.clock()), tiers, replaces=True)


def content_at(hold: Conversation, at_turn: int, *, now: float) -> Record:
    """Return a record of the first turns of a loaded conversation, without version and incarnation.

    At the last turn it has the window, the notes of the conversation manager and all state entries. At an earlier one the
    window is the newest turns of the log up to it, at most 100, and an entry that was set since is missing: its earlier value
    is not stored.

    Raises:
        ValueError: There is no such turn.
        ConflictError: The turn, or one before it, is still open.
        CorruptRecordError: A turn up to that one cannot be read.
        StoreUnavailableError: A tier does not answer.
    """
    base = hold.local.base
    log = dict(hold.history())
    damaged = [] if hold.durable is None else hold.durable.unreadable_turns(base.incarnation)
    numbers = _turn_numbers({**dict.fromkeys(damaged, Turn()), **log})
    last = max(numbers.values(), default=0)
    if not last:
        raise ValueError(f"at_turn {at_turn!r:.80} does not exist: the conversation has no turn; check the ids")
    if not 1 <= at_turn <= last:
        raise ValueError(f"at_turn must be from 1 to {last}, the number of turns of the conversation, got {at_turn!r:.80}")
    if any(turn.is_open and max(turn.times) > now - OPEN_SECONDS for key, turn in log.items() if numbers[key] <= at_turn):
        raise ConflictError(f"turn {at_turn} is still open: wait until it has ended, or choose an earlier one")
    if any(key not in log and number <= at_turn for key, number in numbers.items()):
        raise CorruptRecordError("a turn up to the wanted one cannot be read", record=str(damaged[0]))
    after = min((key for key, number in numbers.items() if number > at_turn), default=None)
    turns = {key: replace(turn, is_open=False) for key, turn in log.items() if numbers[key] <= at_turn}
    states = {name: entry for name, entry in base.states.items() if name != CLOSED}
    if after is not None:
        # The author of a turn had seen every earlier version, so its key has a later time than all of them.
        states = {name: entry for name, entry in states.items() if entry.version.time < after.time}
        shown = sorted(turns)[-SEEN_TURNS:]
        window = tuple(Slot(key, number) for key in shown for number in range(len(turns[key].messages)))
    else:
        window = base.window
    return Record(
        window=window,
        notes=base.notes if after is None else None,
        seen={key: len(turn.messages) for key, turn in turns.items()},
        states=states,
        redactions={key: found for key, found in base.redactions.items() if key in turns},
        turns=turns,
        unlogged=dict.fromkeys(turns, 0),
        last_used=now,
        created=base.created,
        turn_count=at_turn,
        message_count=sum(len(turn.messages) for turn in turns.values()),
        ids=base.ids,
    )


def _loaded(place: Place, tiers: Tiers) -> Conversation:
    hold = connect(place, tiers, ids={})
    hold.load(touch=False)
    return hold


def _turn_numbers(log: Mapping[TurnKey, Turn]) -> dict[TurnKey, int]:
    """Return the number of each turn; the continuation of a turn, as after an interrupt, has the same number."""
    numbers: dict[TurnKey, int] = {}
    number = 0
    for key, turn in sorted(log.items()):
        number += not number or not turn.about.get(CONTINUES)
        numbers[key] = number
    return numbers


def _begin_with(hold: Conversation, content: Record, tiers: Tiers, *, replaces: bool) -> bool:
    """Let the next incarnation of a conversation begin with a content, in one compare-and-set; False if there is one already.

    Args:
        hold: A hold that no agent uses.
        content: The content; its turns move to the log afterwards.
        tiers: The stores.
        replaces: Whether a present incarnation is ended, as by a deletion.
    """
    attempt = 0
    while True:
        found = [hold.read_hot(touch=False)] if hold.hot is not None else []
        found += [hold.read_head()] if hold.durable is not None else []
        base = hold.local.base
        if not replaces and not base.is_empty:
            return False
        incarnation = hold.local.next_incarnation(base.incarnation, None)
        version = hold.local.next_version(*found)
        record = replace(content, version=version, incarnation=incarnation, carries_from=incarnation).normalize()
        if _put(hold, record, tiers):
            break
        attempt = next_attempt(attempt, "hot" if hold.durable is None else "durable")
    with hold.local.lock:
        hold.local.begin_after(Record(version=record.version, incarnation=incarnation, carries_from=incarnation))
        hold.local.take_in(record, {})
    try:
        hold.close()
        hold.purge_ended()
    except StoreUnavailableError:
        if replaces:  # the hot tier may still show what was there before
            raise
    return True


def _put(hold: Conversation, record: Record, tiers: Tiers) -> bool:
    if hold.durable is not None:
        return hold.durable.put_head(record)
    assert hold.hot is not None  # noqa: S101 - a conversation has a tier
    return hold.hot.write(replace(record, unlogged={}), ttl=hot_seconds(record, tiers))
