"""Record of a conversation: its state as one process or tier knows it. No I/O.

The author of a record is the process that wrote it. The log holds all turns, in the durable tier if
there is one. An incarnation is one run of the conversation, until a deletion, expiry or rewind.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from operator import attrgetter
from typing import Any, NamedTuple

SEEN_TURNS = 100
"""Number of newest turns that every record lists as seen by its author."""


class TurnKey(NamedTuple):
    """Unique key of a turn: a Lamport time, and a random tag of the process.

    The key is greater than all keys that the process knew when it began the turn.
    """

    time: int
    tag: str

    def __str__(self) -> str:
        """Return the key as text. The texts sort in the order of the keys."""
        return f"{self.time:012d}.{self.tag}"

    @classmethod
    def parse(cls, text: str) -> TurnKey:
        """Parse a turn key from its text. Any other text raises ``ValueError``."""
        time, dot, tag = text.partition(".")
        if not dot or not tag:
            raise ValueError(f"a turn key must be a time, a dot and a tag, got {text!r:.80}")
        return cls(int(time), tag)


class Version(NamedTuple):
    """Version of a record.

    Attributes:
        time: Lamport time.
        tag: Random text.
        marks: Number of later writes that changed only ``unlogged``, the list of turns that may be
            missing in the log.
    """

    time: int = 0
    tag: str = ""
    marks: int = 0

    def marked(self) -> Version:
        """Return the version for a write that changes only ``unlogged``."""
        return self._replace(marks=self.marks + 1)


NO_VERSION = Version()
"""Version of a record that was never stored."""


class Slot(NamedTuple):
    """Reference to a message in an agent's history.

    Attributes:
        key: Key of the message's turn; None for a message of the conversation manager.
        number: Index of the message in its turn, from 0.
        body: Serialized message, if it was edited or has no key.
    """

    key: TurnKey | None
    number: int = 0
    body: Any = None


Window = tuple[Slot, ...]
"""Type of an agent's history: references to its messages, in order."""

Lengths = Mapping[TurnKey, int]
"""Type of numbers of messages, keyed by turn."""


class Entry(NamedTuple):
    """Named state value, with the version of the record that set it."""

    version: Version
    value: Any


class Replacement(NamedTuple):
    """New content of a redacted message. Of several replacements, the highest revision is valid."""

    revision: int
    message: Any


CONTINUES = "continues"
"""Name in ``Turn.about`` of a turn that continues the previous one, such as after an interrupt."""


@dataclass(frozen=True, slots=True)
class Turn:
    """Messages of one request, in order.

    Only one process adds messages to a turn, so a shorter copy is the beginning of a longer one.

    Args:
        messages: The messages, serialized.
        times: Times of the messages, in seconds since 1970.
        redacted: Revision number of each redacted message, keyed by its index.
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
        """Short text that tells copies of a turn apart, such as ``3+:1.2``.

        The example has 3 messages, is open (``+``), and has revision 2 of the message with index 1.
        """
        redacted = ",".join(f"{at}.{times}" for at, times in sorted(self.redacted.items()))
        return f"{len(self.messages)}{'+' if self.is_open else ''}:{redacted}"

    def redact(self, replacements: Mapping[int, Replacement]) -> Turn:
        """Return the turn with newer contents of messages, keyed by the index of the message."""
        if not replacements:
            return self
        messages, redacted = list(self.messages), dict(self.redacted)
        for at, new in replacements.items():
            if at < len(messages) and new > (redacted.get(at, 0), messages[at]):
                redacted[at], messages[at] = new.revision, new.message
        return replace(self, messages=tuple(messages), redacted=redacted)

    def merge(self, other: Turn) -> Turn:
        """Merge two copies of a turn: the longer one, with the newest redactions of both."""
        if self == other:
            return self
        sizes = [(len(one.messages), not one.is_open) for one in (self, other)]
        longer, shorter = (self, other) if sizes[0] >= sizes[1] else (other, self)
        merged = longer.redact(
            {at: Replacement(times, shorter.messages[at]) for at, times in shorter.redacted.items()}
        )
        return replace(merged, is_open=self.is_open and other.is_open)


_NO_TURN = Turn()


@dataclass(frozen=True)
class Record:
    """State of a conversation, as one process or one tier knows it.

    The author is the process that wrote the record. An incarnation is one run of the conversation,
    until a deletion, expiry or rewind.

    Args:
        version: Version, higher than every version that the author had seen.
        incarnation: Number of the incarnation; 0 if none is known.
        carries_from: First incarnation after the last deletion. Turns of earlier incarnations are
            deleted. Turns of later ones that are not in the log yet move to the present one.
        last_rewind: Incarnation that the last rewind began; 0 if there was none.
        window: History of the agent, as references to messages.
        notes: State of the conversation manager.
        seen: Number of messages of each turn that the author knew. Turns before the newest 100 may
            be missing.
        removed: Number of messages that a turn had when a rewind removed it, keyed by turn. A turn
            that has more messages now was continued, and is not removed.
        states: Named state values, with their versions.
        redactions: New contents of redacted messages, keyed by turn and message index.
        turns: Turns in the history, and turns that the log lacks.
        unlogged: Turns that may be incomplete in the log, with the number of messages in the log.
        last_used: Time when a turn or state was last stored, in seconds since 1970.
        created: Time when the incarnation began, in seconds since 1970; 0 if unknown.
        turn_count: Number of turns so far.
        message_count: Number of messages so far.
        ids: Known unescaped ids of session, user, tenant and member (agent or orchestrator).
        is_closed: Whether a process closed the conversation when it wrote this record to the
            durable tier, which then has everything that the hot tier has.
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
    is_closed: bool = False

    @property
    def is_empty(self) -> bool:
        """Whether there is no content: nothing was stored, or the conversation has ended."""
        return not (self.window or self.states or self.unlogged or self.turn_count)

    @property
    def shown_keys(self) -> set[TurnKey]:
        """Keys of the turns in the agent's history."""
        return {slot.key for slot in self.window if slot.key is not None}

    @property
    def lacking(self) -> set[TurnKey]:
        """Keys of turns of the history whose messages must be read from the log."""
        return {
            slot.key
            for slot in self.window
            if slot.key is not None
            and slot.number >= len(self.turns.get(slot.key, _NO_TURN).messages)
        }

    def has_forgotten(self, key: TurnKey) -> bool:
        """Return whether ``seen`` may lack a turn only because the turn is too old.

        The list then does not show whether the author knew the turn.
        """
        return key not in self.seen and self._horizon is not None and key < self._horizon

    @cached_property
    def _horizon(self) -> TurnKey | None:
        """Key of the oldest of the newest 100 turns in ``seen``; None if there are fewer."""
        return sorted(self.seen)[-SEEN_TURNS] if len(self.seen) >= SEEN_TURNS else None

    def counted_length(self, key: TurnKey) -> int:
        """Return how many messages of a turn are included in ``message_count``.

        The result is 0 for a turn that a rewind removed.
        """
        length = self.seen.get(key, 0)
        return length if length > self.removed.get(key, 0) else 0

    def with_turns(self, turns: Mapping[TurnKey, Turn]) -> Record:
        """Return the record with the messages of the given turns added."""
        read = {key: turn.merge(self.turns.get(key, turn)) for key, turn in turns.items()}
        return replace(self, turns={**self.turns, **read})

    def redacted(self, key: TurnKey, turn: Turn) -> Turn:
        """Apply this record's redactions to a turn, and return the result."""
        return turn.redact(self.redactions.get(key, {}))

    def removes(self, key: TurnKey, turn: Turn) -> bool:
        """Return whether a rewind removed a turn, and no message was added to the turn since."""
        return len(turn.messages) <= self.removed.get(key, 0)

    def logged_length(self, key: TurnKey) -> int:
        """Return how many messages of a turn are in the log, according to this record."""
        return self.unlogged.get(key, self.seen.get(key, 0))

    def lacks(self, key: TurnKey, turn: Turn) -> bool:
        """Return whether a copy of a turn has messages, or an end, that this record lacks."""
        if self.seen.get(key, 0) < len(turn.messages):
            return True
        return self.turns.get(key, _NO_TURN).is_open and not turn.is_open

    @property
    def logs_from(self) -> int:
        """First incarnation whose log is still needed. The last deletion or rewind began it."""
        return max(self.carries_from, self.last_rewind)

    def deletes(self, older: Record) -> bool:
        """Return whether the conversation was deleted between ``older`` and this record."""
        return older.incarnation < self.carries_from

    def expire(self, version: Version, incarnation: int) -> Record:
        """Return an empty record of a new incarnation, which replaces an expired conversation.

        When it is joined with an older record, turns that are not in the log yet are taken over.
        """
        return Record(version, incarnation, self.carries_from, self.last_rewind, seen=self.seen)

    def has_content_of(self, other: Record) -> bool:
        """Return whether another record has the same incarnation and content."""
        return bool(_content(self) == _content(other))

    def without_redacted_bodies(self, window: Sequence[Slot]) -> Window:
        """Return an agent's history without edited versions of messages that were redacted."""
        if not self.redactions:
            return tuple(window)
        return tuple(
            Slot(slot.key, slot.number)
            if slot.key is not None and slot.number in self.redactions.get(slot.key, ())
            else slot
            for slot in window
        )

    def normalize(self) -> Record:
        """Apply redactions, and drop turns that the record need not contain.

        Turns in the agent's history, and turns that may be missing in the log, stay. ``seen`` also
        keeps the newest 100 turns.
        """
        window = self.without_redacted_bodies(self.window)
        needed = self.unlogged.keys() | self.shown_keys
        turns = {key: self.redacted(key, turn) for key, turn in self.turns.items() if key in needed}
        seen = self.seen
        if len(seen.keys() - needed) > SEEN_TURNS:
            listed = needed | set(sorted(seen)[-SEEN_TURNS:])
            seen = {key: length for key, length in seen.items() if key in listed}
        removed = {key: length for key, length in self.removed.items() if key in seen}
        return replace(self, window=window, turns=turns, seen=seen, removed=removed)


_content = attrgetter(
    "incarnation", "carries_from", "window", "notes", "seen", "states", "redactions"
)


def flat_redactions(
    redactions: Mapping[TurnKey, Mapping[int, Replacement]],
) -> set[tuple[tuple[TurnKey, int], Replacement]]:
    """Return redactions as pairs of a message (turn key and index) and its new content."""
    return {((key, at), new) for key, found in redactions.items() for at, new in found.items()}


def is_nothing(record: Record | None) -> bool:
    """Return whether a tier's record is missing or has no content."""
    return record is None or record.is_empty


def begins_log(record: Record, head: Record | None) -> bool:
    """Return whether the durable tier has nothing of the incarnation (run) of ``record`` yet.

    ``head`` is the record in the durable tier; None if there is none.
    """
    return head is None or head.incarnation < record.incarnation


def missing_turns(record: Record, head: Record | None) -> dict[TurnKey, int]:
    """Find turns of which the log lacks messages.

    The result has the number of messages in the log, keyed by turn. ``head`` is the record in the
    durable tier; None if there is none.
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
    """Return a record in the form that the durable tier stores.

    Only turns that are incomplete in the log keep their messages. A message counts as seen if
    ``record`` contains it or ``before`` counted it. Others may be missing in a table that was
    restored from a backup.

    Args:
        record: The record.
        unlogged: Turns that are incomplete in the log, with the number of messages in the log.
        before: The previously stored record; None if there is none.
    """
    had = before.seen if before is not None and before.incarnation == record.incarnation else {}
    seen = {}
    for key, length in record.seen.items():
        held = len(record.turns.get(key, _NO_TURN).messages)
        if known := min(length, max(held, had.get(key, 0))):
            seen[key] = known
    return replace(
        record,
        turns={key: record.turns[key] for key in unlogged if key in record.turns},
        unlogged=dict(unlogged),
        seen=seen,
    )


def ended_turns(record: Record, keys: Iterable[TurnKey], silent_since: float) -> set[TurnKey]:
    """Return those of ``keys`` whose turns have ended.

    A turn without a message after ``silent_since`` (seconds since 1970) counts as ended.
    """
    turns = record.turns
    return {
        key
        for key in keys
        if key in turns
        and (not turns[key].is_open or max(turns[key].times, default=0.0) <= silent_since)
    }
