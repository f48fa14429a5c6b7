"""State of a conversation as one process or tier knows it (a record), and functions that merge two
records. No I/O.

The author of a record is the process that wrote the record. A process replaces a stored record only
if the record has not changed since the process read it.

The log holds all turns, in the durable tier if there is one. An incarnation is one run of the
conversation. It lasts until a deletion, an expiry or a rewind; the next incarnation then begins.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from operator import attrgetter
from typing import Any, NamedTuple

SEEN_TURNS = 100
"""Number of newest turns that every record lists as seen by its author (the process that wrote the
record).
"""


class TurnKey(NamedTuple):
    """Unique key of a turn: a Lamport time, and a random tag of the process's copy of the
    conversation.

    The key is greater than all keys that were known to the process that began the turn.
    """

    time: int
    tag: str

    def __str__(self) -> str:
        """Return the turn key as text. The texts of turn keys sort in the order of the keys."""
        return f"{self.time:012d}.{self.tag}"

    @classmethod
    def parse(cls, text: str) -> TurnKey:
        """Parse a turn key from its text.

        Raises:
            ValueError: The text is not a turn key.
        """
        time, dot, tag = text.partition(".")
        if not dot or not tag:
            raise ValueError(f"a turn key must be a time, a dot and a tag, got {text!r:.80}")
        return cls(int(time), tag)


class Version(NamedTuple):
    """Version of a record (state of a conversation as one process or tier knows it).

    Attributes:
        time: Lamport time.
        tag: Random text.
        marks: Number of writes since the write with this time and tag. They changed only the list
            of turns missing in the log.
    """

    time: int = 0
    tag: str = ""
    marks: int = 0

    def marked(self) -> Version:
        """Return the version for a write that changes only the list of turns missing in the log:
        ``marks`` is raised by one.
        """
        return self._replace(marks=self.marks + 1)


NO_VERSION = Version()
"""Version of a record that was never stored."""


class Slot(NamedTuple):
    """Reference to a message in an agent's history.

    Attributes:
        key: Key of the message's turn; None if the conversation manager wrote the message.
        number: Index of the message in its turn, from 0.
        body: Serialized message, if the message was edited or has no key.
    """

    key: TurnKey | None
    number: int = 0
    body: Any = None


Window = tuple[Slot, ...]
"""Type of an agent's history: references to its messages, in order."""

Lengths = Mapping[TurnKey, int]
"""Type of numbers of messages, keyed by turn."""


class Entry(NamedTuple):
    """Value of one named state of a conversation, with the version of the record that set the
    value.
    """

    version: Version
    value: Any


class Replacement(NamedTuple):
    """New content of a redacted message.
    Of two replacements of a message, the one with the higher revision is valid.
    """

    revision: int
    message: Any


CLOSED = "closed"
"""Name of the state entry that marks the durable copy of a conversation as complete."""

CONTINUES = "continues"
"""Name in ``Turn.about`` that marks a turn as a continuation of the previous turn, such as after an
interrupt.
"""


@dataclass(frozen=True, slots=True)
class Turn:
    """Messages of one request, in order.

    Only one process adds messages to a turn. The shorter of two copies is therefore the beginning
    of the longer copy.

    Args:
        messages: The messages, serialized.
        times: Times when the messages were added, in seconds since 1970.
        redacted: Revision number of each redacted message's present content, keyed by the index of
            the message.
        is_open: Whether more messages may be added.
        about: Further values of the turn, such as the intent.
    """

    messages: tuple[Any, ...] = ()
    times: tuple[float, ...] = ()
    redacted: Mapping[int, int] = field(default_factory=dict)
    is_open: bool = False
    about: Mapping[str, Any] = field(default_factory=dict)

    @property
    def form(self) -> str:
        """Short text by which two copies of a turn are compared, such as ``3+:1.2``.

        It has the number of messages, ``+`` if the turn is open, and index and revision of each
        redacted message.
        """
        redacted = ",".join(f"{at}.{times}" for at, times in sorted(self.redacted.items()))
        return f"{len(self.messages)}{'+' if self.is_open else ''}:{redacted}"

    def redact(self, replacements: Mapping[int, Replacement]) -> Turn:
        """Return the turn with replaced messages.

        A replacement older than the present content has no effect.

        Args:
            replacements: New contents, keyed by the index of the message.
        """
        if not replacements:
            return self
        messages, redacted = list(self.messages), dict(self.redacted)
        for at, new in replacements.items():
            if at < len(messages) and new > (redacted.get(at, 0), messages[at]):
                redacted[at], messages[at] = new.revision, new.message
        return replace(self, messages=tuple(messages), redacted=redacted)

    def merge(self, other: Turn) -> Turn:
        """Merge this copy of a turn with another copy.
        The result has the messages and redactions of both.
        """
        if self == other:
            return self
        longer, shorter = (
            (self, other) if len(self.messages) >= len(other.messages) else (other, self)
        )
        merged = longer.redact(
            {at: Replacement(times, shorter.messages[at]) for at, times in shorter.redacted.items()}
        )
        return replace(merged, is_open=self.is_open and other.is_open)


@dataclass(frozen=True)
class Record:
    """State of a conversation, as one process or one tier knows it.

    The author of the record is the process that wrote it. An incarnation is one run of the
    conversation. A deletion, an expiry or a rewind begins the next one.

    Args:
        version: Version of the record. It is higher than every version that the author had seen.
        incarnation: Number of the incarnation; 0 if none is known.
        carries_from: First incarnation after the last deletion. Turns of this incarnation and of
            later ones are copied to the present incarnation if the log lacks the turns.
        last_rewind: The incarnation that the last rewind began; 0 if there was none.
        window: History of the agent, as references to messages.
        notes: State of the conversation manager.
        seen: Turns that the author had seen, with their numbers of messages. Turns before the
            newest 100 may be missing.
        removed: Turns in ``seen`` that a rewind removed, with their numbers of messages at that
            time. A turn that has more messages now was continued after the rewind, and does not
            count as removed.
        states: Named state values, with their versions.
        redactions: New contents of redacted messages, keyed by turn and message index.
        turns: Messages of the turns in the history, and of turns that the log lacks.
        unlogged: Turns that may be incomplete in the log, with the number of messages that the log
            has.
        last_used: Time when a turn or state was last stored, in seconds since 1970.
        created: Time when the incarnation began, in seconds since 1970; 0 if unknown.
        turn_count: Number of turns so far.
        message_count: Number of messages so far.
        ids: Known unescaped ids of session, user, tenant and member (agent or orchestrator).
    """

    version: Version = NO_VERSION
    incarnation: int = 0
    carries_from: int = 0
    last_rewind: int = 0
    window: Window = ()
    notes: Any = None
    seen: Lengths = field(default_factory=dict)
    removed: Lengths = field(default_factory=dict)
    states: Mapping[str, Entry] = field(default_factory=dict)
    redactions: Mapping[TurnKey, Mapping[int, Replacement]] = field(default_factory=dict)
    turns: Mapping[TurnKey, Turn] = field(default_factory=dict)
    unlogged: Lengths = field(default_factory=dict)
    last_used: float = 0.0
    created: float = 0.0
    turn_count: int = 0
    message_count: int = 0
    ids: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_empty(self) -> bool:
        """Whether the record has no content: nothing was stored yet, or the conversation was
        deleted or has expired.
        """
        return not (self.window or self.states or self.unlogged or self.turn_count)

    @property
    def is_closed(self) -> bool:
        """Whether the conversation is marked as complete in the durable tier, so that the hot tier
        has nothing newer.
        """
        return CLOSED in self.states and bool(self.states[CLOSED].value)

    @property
    def shown_keys(self) -> set[TurnKey]:
        """Keys of the turns in the agent's history."""
        return {slot.key for slot in self.window if slot.key is not None}

    @property
    def lacking(self) -> set[TurnKey]:
        """Keys of turns that must be read from the log, because messages of the agent's history are
        not in this record.
        """
        lacking = set()
        for slot in self.window:
            if slot.key is not None and (
                slot.key not in self.turns or slot.number >= len(self.turns[slot.key].messages)
            ):
                lacking.add(slot.key)
        return lacking

    def has_forgotten(self, key: TurnKey) -> bool:
        """Return whether a turn is too old for ``seen``, the list of turns that the author of this
        record knew.

        The list then does not show whether the author knew the turn.
        """
        return key not in self.seen and self._horizon is not None and key < self._horizon

    @cached_property
    def _horizon(self) -> TurnKey | None:
        """Key of the 100th newest turn in the list ``seen``, which may lack older turns.
        None if ``seen`` has fewer turns.
        """
        return sorted(self.seen)[-SEEN_TURNS] if len(self.seen) >= SEEN_TURNS else None

    def counted_length(self, key: TurnKey) -> int:
        """Return how many messages of a turn ``message_count`` includes: all known ones, or 0 if a
        rewind removed the turn.
        """
        length = self.seen.get(key, 0)
        return length if length > self.removed.get(key, 0) else 0

    def logged_length(self, key: TurnKey) -> int:
        """Return how many messages of a turn the log has, as far as this record shows.

        The number is in ``unlogged`` for turns that are incomplete in the log. Any other turn is in
        the log with all known messages.
        """
        return self.unlogged[key] if key in self.unlogged else self.seen.get(key, 0)

    def lacks(self, key: TurnKey, turn: Turn) -> bool:
        """Return whether a process's copy of a turn is newer than the record's copy.

        A newer copy has more messages, or has ended while the record's copy is open.
        """
        known = self.turns.get(key)
        if self.seen.get(key, 0) < len(turn.messages):
            return True
        return known is not None and known.is_open and not turn.is_open

    @property
    def logs_from(self) -> int:
        """First incarnation (run of the conversation) whose log is still needed.
        The last deletion or rewind began it.
        """
        return max(self.carries_from, self.last_rewind)

    def deletes(self, older: Record) -> bool:
        """Return whether this record is of a run after a deletion, and ``older`` is of a run before
        that deletion.
        """
        return older.incarnation < self.carries_from

    def expire(self, version: Version, incarnation: int) -> Record:
        """Return the tombstone of an expired conversation: an empty record that begins a new run
        (an incarnation).

        A later merge with an older record adds the turns that the log lacks.
        """
        return Record(version, incarnation, self.carries_from, self.last_rewind, seen=self.seen)

    def has_content_of(self, other: Record) -> bool:
        """Return whether another record has the same content and is of the same incarnation (run of
        the conversation).
        """
        return bool(_content(self) == _content(other))

    def without_redacted_bodies(self, window: Sequence[Slot]) -> Window:
        """Return an agent's history in which redacted messages replace earlier edited versions of
        the same messages.
        """
        if not self.redactions:
            return tuple(window)
        return tuple(
            (
                Slot(slot.key, slot.number)
                if slot.key is not None
                and slot.body is not None
                and slot.number in self.redactions.get(slot.key, ())
                else slot
            )
            for slot in window
        )

    def normalize(self) -> Record:
        """Return the record with redacted messages replaced, and without turns that are not needed.

        The record keeps the messages of turns that are in the agent's history or missing in the
        log. Its list of known turns, ``seen``, keeps these turns and the newest 100.
        """
        window = self.without_redacted_bodies(self.window)
        needed = self.unlogged.keys() | self.shown_keys
        turns = {
            key: turn.redact(self.redactions.get(key, {}))
            for key, turn in self.turns.items()
            if key in needed
        }
        seen = self.seen
        if len(seen.keys() - needed) > SEEN_TURNS:
            listed = needed | set(sorted(seen)[-SEEN_TURNS:])
            seen = {key: length for key, length in seen.items() if key in listed}
        removed = {key: length for key, length in self.removed.items() if key in seen}
        return replace(self, window=window, turns=turns, seen=seen, removed=removed)


_content = attrgetter(
    "incarnation", "carries_from", "window", "notes", "seen", "states", "redactions"
)


def join(one: Record, other: Record, logged: Lengths | None = None) -> Record:
    """Merge two records (states of a conversation as one process or tier knows it).

    The record with the higher incarnation and version is the newer one. The result is the newer
    record, with added messages: those of the older record that the author of the newer record had
    not seen. Of two values of a state, the one with the higher version is kept. Of two redactions
    of a message, the one with the higher revision is kept.

    Args:
        one: A record.
        other: Another record of the conversation. The order of the two records has no effect.
        logged: Number of messages in the log, keyed by turn, of turns that are too old for the
            newer record's list ``seen``. Their messages are not added to the history again.

    Returns:
        The merged record. It has the version of the newer record until it is stored.
    """
    newer, older = _in_order(one, other)
    if older.incarnation < newer.incarnation:
        older = _carried_over(older, newer)
    logged = logged or {}
    fresh = _unseen_slots(newer, older, logged)
    seen = {key: max(newer.seen.get(key, 0), length) for key, length in older.seen.items()}
    uncounted = {
        key: length - newer.counted_length(key)
        for key, length in seen.items()
        if length > newer.seen.get(key, 0) and not _is_known(newer, older, key, logged)
    }
    new_turns = sum(
        not older.turns.get(key, Turn()).about.get(CONTINUES)
        for key in uncounted
        if not newer.counted_length(key)
    )
    seen = {**newer.seen, **seen}
    unlogged = {
        key: max(newer.logged_length(key), older.logged_length(key), logged.get(key, 0))
        for key in {**older.unlogged, **newer.unlogged}
    }
    states = {**older.states, **newer.states}
    states |= {
        name: entry for name, entry in older.states.items() if entry.version > states[name].version
    }
    return replace(
        newer,
        window=insert_slots(newer.window, fresh),
        seen=seen,
        states=states,
        redactions={
            key: latest_replacements(newer.redactions.get(key, {}), older.redactions.get(key, {}))
            for key in {**older.redactions, **newer.redactions}
        },
        turns={
            key: turn.merge(newer.turns.get(key, turn))
            for key, turn in {**newer.turns, **older.turns}.items()
        },
        unlogged={key: length for key, length in unlogged.items() if length < seen.get(key, 0)},
        last_used=max(newer.last_used, older.last_used),
        created=min(filter(None, (newer.created, older.created)), default=0.0),
        turn_count=max(older.turn_count, newer.turn_count + new_turns),
        message_count=max(older.message_count, newer.message_count + sum(uncounted.values())),
        ids=newer.ids or older.ids,
    ).normalize()


def forgotten_keys(one: Record, other: Record, own: Collection[TurnKey]) -> set[TurnKey]:
    """Return the keys of turns that are too old for the newer of two records to show whether its
    author knew them.

    A record lists only the newest turns that its author knew. For older turns, only the log shows
    whether they were stored.

    Args:
        one: A record.
        other: Another record of the conversation. The order of the two records has no effect.
        own: Keys of turns to check, which this process has not saved. The turns that the older
            record lists as missing in the log are also checked.
    """
    newer, older = _in_order(one, other)
    return (
        set()
        if newer.deletes(older)
        else {key for key in {*older.unlogged, *own} if newer.has_forgotten(key)}
    )


def _in_order(one: Record, other: Record) -> tuple[Record, Record]:
    """Return the newer and the older one of two records, by incarnation and version."""
    return (
        (one, other)
        if (one.incarnation, one.version) >= (other.incarnation, other.version)
        else (other, one)
    )


def insert_slots(window: Sequence[Slot], slots: Iterable[Slot]) -> Window:
    """Add messages to an agent's history, and return the result.

    A message that the history already has is not added.

    History and messages are given as references. A message is added after the last message of its
    turn or, without such a message, at the end.
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


def place_slots(window: Sequence[Slot], slots: Iterable[Slot], order: Sequence[Slot]) -> Window:
    """Add references to messages to an agent's history, in the order of another history.

    Return the result.

    Args:
        window: The agent's history.
        slots: The messages to add.
        order: The other history. A message is added after its nearest predecessor in ``order`` that
            the agent's history has, or at the beginning if there is none.
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


def grown_slots(
    window: Sequence[Slot], other: Sequence[Slot], known: Collection[tuple[TurnKey | None, int]]
) -> list[Slot]:
    """Return references to the messages of another history that are not in ``known``.

    If the agent's history lacks the whole turn of such a message, all messages of the turn in the
    other history are returned.

    Args:
        window: The agent's history.
        other: The other history.
        known: Turn key and index of each known message.
    """
    new = {slot.key for slot in other if slot.key is not None and slot[:2] not in known}
    shown = {slot.key for slot in window}
    return [
        slot
        for slot in other
        if slot.key in new and (slot[:2] not in known or slot.key not in shown)
    ]


def is_nothing(record: Record | None) -> bool:
    """Return whether a record (a tier's state of a conversation) is missing or has no content."""
    return record is None or record.is_empty


def begins_log(record: Record, head: Record | None) -> bool:
    """Return whether the durable tier has no log yet of the run (incarnation) to which a record
    belongs.

    Args:
        record: The record.
        head: The record in the durable tier; None if there is none.
    """
    return head is None or head.incarnation < record.incarnation


def missing_turns(record: Record, head: Record | None) -> dict[TurnKey, int]:
    """Return the keys of the turns that are missing or incomplete in the log.

    Args:
        record: The record.
        head: The record in the durable tier; None if there is none.

    Returns:
        Number of messages that the log already has, keyed by turn key.
    """
    if head is None or begins_log(record, head):
        return dict.fromkeys(record.turns, 0)
    logged = {
        key: head.logged_length(key)
        for key in record.turns
        if key in record.unlogged or not head.has_forgotten(key)
    }
    return {
        key: length for key, length in logged.items() if length < len(record.turns[key].messages)
    }


def head_record(record: Record, unlogged: Lengths, before: Record | None) -> Record:
    """Return a conversation's state in the form that the durable tier stores.

    The stored form has only the messages of the turns in ``unlogged``. Its field ``seen`` has the
    number of messages of each turn. A message is counted only if it is in ``record.turns``, or if
    ``before`` counted it. Other messages may be missing in a table that was restored from a backup.

    Args:
        record: The state of the conversation.
        unlogged: Turns that are incomplete in the log, with the number of messages that the log has
            of each.
        before: The previously stored state; None if there is none.
    """
    had = before.seen if before is not None and before.incarnation == record.incarnation else {}
    seen = {}
    for key, length in record.seen.items():
        held = len(record.turns[key].messages) if key in record.turns else 0
        known = min(length, max(held, had.get(key, 0)))
        if known:
            seen[key] = known
    return replace(
        record,
        turns={key: record.turns[key] for key in unlogged if key in record.turns},
        unlogged=dict(unlogged),
        seen=seen,
    )


def ended_turns(record: Record, keys: Iterable[TurnKey], silent_since: float) -> set[TurnKey]:
    """Return those of ``keys`` whose turns have ended, or got no message after ``silent_since``
    (seconds since 1970).
    """
    turns = record.turns
    return {
        key
        for key in keys
        if key in turns
        and (not turns[key].is_open or max(turns[key].times, default=0.0) <= silent_since)
    }


def _carried_over(older: Record, newer: Record) -> Record:
    """Return the part of an older record that a newer run of the conversation (incarnation) takes
    over.

    The part consists of the older run's turns that the log lacks, and of redactions. A redaction is
    taken over if the newer run has its turn. If the conversation was deleted between the two runs,
    the part is empty.
    """
    if not older.incarnation or newer.deletes(older):
        return Record()
    kept = set(older.unlogged)
    present = newer.unlogged.keys() | newer.shown_keys
    if (
        older.incarnation < newer.last_rewind
    ):  # the rewinding process has read turns that are too old for ``seen``
        kept = {key for key in kept if not newer.has_forgotten(key)}
        present |= {
            key for key in older.redactions if key in newer.seen or newer.has_forgotten(key)
        }
    present |= kept
    return Record(
        window=tuple(slot for slot in older.window if slot.key in kept),
        seen={key: older.seen[key] for key in kept if key in older.seen},
        redactions={key: found for key, found in older.redactions.items() if key in present},
        turns={key: turn for key, turn in older.turns.items() if key in kept},
        unlogged=dict.fromkeys(kept, 0),
        last_used=older.last_used,
        ids=older.ids,
    )


def _is_known(newer: Record, older: Record, key: TurnKey, logged: Lengths) -> bool:
    """Return whether a turn is too old for the list ``newer.seen``, but is in the log.

    The author of ``newer`` must have known such a turn. A turn is in the log if ``logged`` has the
    turn, or if ``older`` does not list the turn as missing.
    """
    return newer.has_forgotten(key) and (key not in older.unlogged or key in logged)


def _unseen_slots(newer: Record, older: Record, logged: Lengths) -> list[Slot]:
    """Return references to the messages of the record ``older`` that the author of the record
    ``newer`` had not seen.

    If the newer history lacks the whole turn of such a message, all messages of the turn in the
    older history are returned.
    """
    shown = newer.shown_keys
    slots = []
    for slot in older.window:
        if slot.key is None or _is_known(newer, older, slot.key, logged):
            continue
        known = newer.seen.get(slot.key, 0)
        has_grown = known < older.seen.get(slot.key, 0)
        if slot.number >= known or (has_grown and slot.key not in shown):
            slots.append(slot)
    present = older.shown_keys
    for key in sorted(
        shown - present
    ):  # evicted by the older author, grown since the newer one saw them
        slots += [Slot(key, at) for at in range(newer.seen.get(key, 0), older.seen.get(key, 0))]
    return slots


def latest_replacements(
    one: Mapping[int, Replacement], other: Mapping[int, Replacement]
) -> dict[int, Replacement]:
    """Merge two sets of new contents for redacted messages of a turn.
    Keep the newest content of each message.
    """
    return {
        at: max(found for found in (one.get(at), other.get(at)) if found is not None)
        for at in {**one, **other}
    }
