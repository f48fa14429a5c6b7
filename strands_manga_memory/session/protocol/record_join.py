"""Merge of two records (states) of a conversation, so that no process's messages are lost.

The module does no I/O. The author of a record is the process that wrote it. A window is an agent's
history, as references to messages (slots).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from strands_manga_memory.session.protocol.record import (
    CONTINUES,
    Lengths,
    Record,
    Replacement,
    Slot,
    Turn,
    TurnKey,
    Window,
)


def join(one: Record, other: Record, logged: Lengths | None = None) -> Record:
    """Merge two records (states) of a conversation, given in any order, into one record.

    The newer record has the higher incarnation (number of the conversation's run), or the higher
    version in the same incarnation. Messages that only the older record has are added, unless the
    author (writer) of the newer record knew them, and so removed them on purpose. For each state
    and each redacted message, the newest value is kept.

    ``logged`` has old turns that were found in the log (list of all turns), with their numbers of
    messages. The newer record's author knew them, so they are not added to the history again.
    """
    newer, older = _newer_first(one, other)
    if older.incarnation < newer.incarnation:
        older = _carried_over(older, newer)
    logged = logged or {}
    fresh = _unseen_slots(newer, older, logged)
    seen = {key: max(newer.seen.get(key, 0), length) for key, length in older.seen.items()}
    uncounted = {
        key: length - newer.counted_length(key)
        for key, length in seen.items()
        if length > newer.seen.get(key, 0) and not _is_known_by_log(newer, older, key, logged)
    }
    new_turns = sum(
        not older.turns.get(key, Turn()).about.get(CONTINUES)
        for key in uncounted
        if not newer.counted_length(key)
    )
    seen = {**newer.seen, **seen}
    unlogged = {
        key
        for key in newer.unlogged | older.unlogged
        if seen.get(key, 0)
        > max(newer.logged_length(key), older.logged_length(key), logged.get(key, 0))
    }
    states = {**older.states, **newer.states}
    states |= {
        name: entry for name, entry in older.states.items() if entry.version > states[name].version
    }
    redactions = {
        key: latest_replacements(newer.redactions.get(key, {}), older.redactions.get(key, {}))
        for key in {**older.redactions, **newer.redactions}
    }
    return replace(
        newer.with_turns(older.turns),
        window=insert_slots(newer.window, fresh),
        seen=seen,
        states=states,
        redactions=redactions,
        unlogged=unlogged,
        last_used=max(newer.last_used, older.last_used),
        created=min(filter(None, (newer.created, older.created)), default=0.0),
        turn_count=max(older.turn_count, newer.turn_count + new_turns),
        message_count=max(older.message_count, newer.message_count + sum(uncounted.values())),
        ids=newer.ids or older.ids,
    ).normalize()


def keys_older_than_seen(one: Record, other: Record, own: Collection[TurnKey]) -> set[TurnKey]:
    """Return the keys of turns that must be looked up in the log before two records are merged.

    The newer record lists only recent turns as known (``seen``). Its author (writer) knew an older
    turn only if the log (list of all turns) has it. ``own`` has unsaved turns of this process.
    After a deletion, the result is empty.
    """
    newer, older = _newer_first(one, other)
    if newer.deletes(older):
        return set()
    return {key for key in {*older.unlogged, *own} if newer.is_older_than_seen(key)}


def is_newest(one: Record, other: Record) -> bool:
    """Return whether ``one`` is newer than or equal to ``other``, by incarnation and version."""
    return (one.incarnation, one.version) >= (other.incarnation, other.version)


def _newer_first(one: Record, other: Record) -> tuple[Record, Record]:
    return (one, other) if is_newest(one, other) else (other, one)


def insert_slots(window: Sequence[Slot], slots: Iterable[Slot]) -> Window:
    """Insert references to messages (slots) into an agent's history.

    A message is inserted after the last message of its turn. If the history has no message of the
    turn, the message is added at the end. Messages that the history has already are not added
    again.
    """
    result = list(window)
    present = {slot[:2] for slot in window if slot.key is not None}
    for slot in slots:
        if slot[:2] in present:
            continue
        at = len(result)
        while at and result[at - 1].key != slot.key:
            at -= 1
        result.insert(at or len(result), slot)
        present.add(slot[:2])
    return tuple(result)


def insert_in_order(window: Sequence[Slot], slots: Iterable[Slot], order: Sequence[Slot]) -> Window:
    """Insert slots (references to messages) into an agent's history, at their places in ``order``.

    ``order`` is another history, which contains all ``slots``. If its messages are A, B and C, then
    C is inserted after B. If ``window`` lacks B, C is inserted after A. If ``window`` lacks both, C
    is inserted at the beginning.
    """
    result = list(window)
    for slot in slots:
        present = [other[:2] for other in result]
        if slot[:2] not in present:
            before = reversed(order[: order.index(slot)])
            result.insert(
                next((present.index(other[:2]) + 1 for other in before if other[:2] in present), 0),
                slot,
            )
    return tuple(result)


def new_slots(
    window: Sequence[Slot], other: Sequence[Slot], known: Collection[tuple[TurnKey | None, int]]
) -> list[Slot]:
    """Return the slots (references to messages) of ``other`` to add to the history ``window``.

    These are the slots of messages that are not in ``known`` (turn keys and indexes). If ``window``
    has no message of their turn, all slots of the turn are returned.
    """
    new = {slot.key for slot in other if slot.key is not None and slot[:2] not in known}
    shown = {slot.key for slot in window}
    return [
        slot
        for slot in other
        if slot.key in new and (slot[:2] not in known or slot.key not in shown)
    ]


def rebase_window(
    window: Sequence[Slot], ancestor: Window, stored: Window, own: Collection[TurnKey]
) -> Window | None:
    """Add messages of other processes to a history that the agent has edited.

    Other processes' turns are added before this process's unsaved turns.

    Args:
        window: The edited history.
        ancestor: The stored history before the edits.
        stored: The stored history now.
        own: Keys of this process's turns that were unsaved before ``stored`` was read. No message
            of these turns is added: the agent may have removed it.

    Returns:
        The edited history with the added messages. None: the edits cannot be kept, because the
        other processes also removed or edited messages.
    """
    present = set(ancestor)
    # A message without a turn, such as a summary, has no place in an edited history.
    if tuple(slot for slot in stored if slot in present or slot.key is None) != ancestor:
        return None
    known = {slot[:2] for slot in ancestor if slot.key is not None}
    shown, unsaved = {slot.key for slot in window}, {*own} - {slot.key for slot in stored}
    new = [slot for slot in new_slots(window, stored, known) if slot.key not in own]
    grown = insert_slots(window, [slot for slot in new if slot.key in shown])
    at = next((at for at, slot in enumerate(grown) if slot.key in unsaved), len(grown))
    return (*grown[:at], *(slot for slot in new if slot.key not in shown), *grown[at:])


def _carried_over(older: Record, newer: Record) -> Record:
    """Return the part of a conversation's old record that stays after a deletion, expiry or rewind.

    After a deletion, nothing stays. After an expiry or rewind, the turns that the log (list of all
    turns) may lack stay, and the redactions of the remaining turns.
    """
    if not older.incarnation or newer.deletes(older):
        return Record()
    kept = set(older.unlogged)
    present = newer.unlogged | newer.shown_keys
    if older.incarnation < newer.last_rewind:
        # The rewinding process has read turns that are too old for ``seen``.
        kept = {key for key in kept if not newer.is_older_than_seen(key)}
        present |= {
            key for key in older.redactions if key in newer.seen or newer.is_older_than_seen(key)
        }
    present |= kept
    return Record(
        window=tuple(slot for slot in older.window if slot.key in kept),
        seen={key: older.seen[key] for key in kept if key in older.seen},
        redactions={key: found for key, found in older.redactions.items() if key in present},
        turns={key: turn for key, turn in older.turns.items() if key in kept},
        unlogged=kept,
        last_used=older.last_used,
        ids=older.ids,
    )


def _is_known_by_log(newer: Record, older: Record, key: TurnKey, logged: Lengths) -> bool:
    """Return whether a turn is too old for ``newer.seen``, but known to the author (writer).

    The author knew such a turn if the log has it: ``older`` does not list it as unlogged, or
    ``logged``, the turns found in the log, has it.
    """
    return newer.is_older_than_seen(key) and (key not in older.unlogged or key in logged)


def _unseen_slots(newer: Record, older: Record, logged: Lengths) -> list[Slot]:
    known = {
        slot[:2]
        for slot in older.window
        if slot.key is not None
        and (
            slot.number < newer.seen.get(slot.key, 0)
            or _is_known_by_log(newer, older, slot.key, logged)
        )
    }
    slots = new_slots(newer.window, older.window, known)
    # turns that the older author evicted, and that have grown since the newer one saw them
    for key in sorted(newer.shown_keys - older.shown_keys):
        slots += [Slot(key, at) for at in range(newer.seen.get(key, 0), older.seen.get(key, 0))]
    return slots


def latest_replacements(
    one: Mapping[int, Replacement], other: Mapping[int, Replacement]
) -> dict[int, Replacement]:
    """Merge two collections of redactions of a turn, keyed by the index of the redacted message.

    For each message, the newest content is kept.
    """
    return {at: max(one.get(at, new), other.get(at, new)) for at, new in {**one, **other}.items()}
