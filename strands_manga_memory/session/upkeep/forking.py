"""Forks and rewinds: a session that begins with the first turns of a stored conversation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from strands_manga_memory.exceptions import ConflictError, CorruptRecordError, OvertakenError, StoreUnavailableError
from strands_manga_memory.session.basis.place import Place
from strands_manga_memory.session.basis.tiers import Tiers
from strands_manga_memory.session.protocol.conversation import TRIES, Conversation
from strands_manga_memory.session.protocol.opening import connect, hot_seconds
from strands_manga_memory.session.protocol.record import CLOSED, CONTINUES, SEEN_TURNS, Record, Slot, Turn, TurnKey


def fork(place: Place, tiers: Tiers, *, at_turn: int, to: Place, ids: Mapping[str, Any]) -> None:
    """Begin a conversation with the first turns of another one, which stays as it is.

    Args:
        place: The conversation to begin with.
        tiers: The stores.
        at_turn: Number of the last turn of the fork, counted from 1.
        to: The new conversation.
        ids: Its original ids of ``session``, ``user``, ``tenant`` and ``member``.

    Raises:
        ValueError: There is no such turn.
        ConflictError: There is a conversation at ``to`` already.
        CorruptRecordError: A turn up to that one cannot be read.
        StoreUnavailableError: A tier does not answer.
    """
    content = content_at(_loaded(place, tiers), at_turn, now=tiers.clock())
    known = {name: str(value) for name, value in ids.items() if value is not None}
    target = connect(to, tiers, ids=known)
    if not _begin_with(target, replace(content, ids=known, created=tiers.clock()), tiers, replaces=False):
        raise ConflictError("there is a conversation already in the session that the fork was to begin")


def rewind(place: Place, tiers: Tiers, *, at_turn: int) -> None:
    """Let a conversation go back to the end of one of its turns; later turns are deleted.

    An agent that is alive goes on with the shortened history at its next turn; what it has not saved yet is dropped, as after
    a deletion.

    Args:
        place: The conversation.
        tiers: The stores.
        at_turn: Number of the last turn that stays, counted from 1.

    Raises:
        ValueError: There is no such turn.
        CorruptRecordError: A turn up to that one cannot be read.
        StoreUnavailableError: A tier does not answer; call it again.
    """
    hold = _loaded(place, tiers)
    _begin_with(hold, content_at(hold, at_turn, now=tiers.clock()), tiers, replaces=True)


def content_at(hold: Conversation, at_turn: int, *, now: float) -> Record:
    """Return a record of the first turns of a loaded conversation, without version and incarnation.

    At the last turn it has the window, the notes of the conversation manager and all state entries. At an earlier one the
    window is the newest turns of the log up to it, at most 100, and an entry that was set since is missing: its earlier value
    is not stored.

    Raises:
        ValueError: There is no such turn.
        CorruptRecordError: A turn up to that one cannot be read.
        StoreUnavailableError: A tier does not answer.
    """
    base = hold.local.base
    log = dict(hold.history())
    damaged = [] if hold.durable is None else hold.durable.unreadable_turns(base.incarnation)
    numbers = _turn_numbers({**dict.fromkeys(damaged, Turn()), **log})
    last = max(numbers.values(), default=0)
    if not 1 <= at_turn <= last:
        raise ValueError(f"at_turn must be from 1 to {last}, the number of turns of the conversation, got {at_turn!r:.80}")
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
    """Return the number of each turn; what continues a turn, as after an interrupt, has the same number."""
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
    for _ in range(TRIES):
        found = [hold.read_hot(touch=False)] if hold.hot is not None else []
        found += [hold.read_head()] if hold.durable is not None else []
        base = hold.local.base
        if not replaces and not base.is_empty:
            return False
        incarnation = hold.local.next_incarnation(base.incarnation, None)
        record = replace(
            content, version=hold.local.next_version(*found), incarnation=incarnation, carries_from=incarnation
        ).normalize()
        if not _put(hold, record, tiers):
            continue
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
    raise OvertakenError(f"the conversation was written {TRIES} times by others; try again")


def _put(hold: Conversation, record: Record, tiers: Tiers) -> bool:
    if hold.durable is not None:
        return hold.durable.put_head(record)
    assert hold.hot is not None  # noqa: S101 - a conversation has a tier
    return hold.hot.write(replace(record, unlogged={}), ttl=hot_seconds(record, tiers))
