"""Record of a conversation at one holder, and the join of two records. Pure.

A holder is the hot tier, the durable head, or a process. A store replaces a record only by compare-and-set, so the author of a
record has read the record that it replaces.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

SEEN_TURNS = 100
"""Turn keys that a record lists as seen at least, in addition to those of its window and of its unlogged turns."""


class TurnKey(NamedTuple):
    """Identity of a turn: a Lamport time and a random tag. Greater than every key that the turn's author had seen."""

    time: int
    tag: str

    def __str__(self) -> str:
        """Return a text that sorts as the key does."""
        return f"{self.time:012d}.{self.tag}"

    @classmethod
    def parse(cls, text: str) -> TurnKey:
        """Parse a key; raise ``ValueError`` if the text is none."""
        time, dot, tag = text.partition(".")
        if not dot or not tag:
            raise ValueError(f"a turn key must be a time, a dot and a tag, got {text!r:.80}")
        return cls(int(time), tag)


class Version(NamedTuple):
    """Version of a record. ``marks`` counts the writes that only note which turns are in the log now."""

    time: int = 0
    tag: str = ""
    marks: int = 0

    def marked(self) -> Version:
        """Return the version of a record of the same content with another list of unlogged turns."""
        return self._replace(marks=self.marks + 1)


NO_VERSION = Version()
"""Version of a record of which nothing is known."""


class Slot(NamedTuple):
    """Position in a window: message ``number`` of a turn, counted from 0, in another form if there is a ``body``.

    Without a key: a note that the conversation manager synthesized.
    """

    key: TurnKey | None
    number: int = 0
    body: Any = None


class Entry(NamedTuple):
    """State entry: its value, and the version that set it."""

    version: Version
    value: Any


class Replacement(NamedTuple):
    """Replaced content of a message. Of two replacements the one with the higher revision is valid."""

    revision: int
    message: Any


CLOSED = "closed"
"""Name of a state entry: whether the durable tier was given everything, so that an empty hot tier has lost nothing."""

CONTINUES = "continues"
"""Name in ``Turn.about``: the turn continues the one before it, as after an interrupt, and is not counted."""


@dataclass(frozen=True, slots=True)
class Turn:
    """Messages of one request, from its first one on.

    Only the author of a turn adds messages to it, so of two copies the shorter one is the beginning of the longer one.

    Args:
        messages: The messages.
        times: When each message was added, in seconds since 1970.
        redacted: Revisions of the messages that were replaced, by index.
        is_open: Whether the author may add messages.
        about: Further content of the turn, such as the intent.
    """

    messages: tuple[Any, ...] = ()
    times: tuple[float, ...] = ()
    redacted: Mapping[int, int] = field(default_factory=dict)
    is_open: bool = False
    about: Mapping[str, Any] = field(default_factory=dict)

    @property
    def form(self) -> str:
        """Text that is equal for copies of the turn with equal content."""
        redacted = ",".join(f"{at}.{times}" for at, times in sorted(self.redacted.items()))
        return f"{len(self.messages)}{'+' if self.is_open else ''}:{redacted}"

    def redact(self, replacements: Mapping[int, Replacement]) -> Turn:
        """Return the turn with replacements of messages by index, where they are newer than the content."""
        new = {
            at: found
            for at, found in replacements.items()
            if at < len(self.messages) and found > (self.redacted.get(at, 0), self.messages[at])
        }
        if not new:
            return self
        messages = tuple(new[at].message if at in new else message for at, message in enumerate(self.messages))
        redacted = {**self.redacted, **{at: found.revision for at, found in new.items()}}
        return replace(self, messages=messages, redacted=redacted)

    def merge(self, other: Turn) -> Turn:
        """Return the union of two copies of the turn."""
        if self == other:
            return self
        longer, shorter = (self, other) if len(self.messages) >= len(other.messages) else (other, self)
        merged = longer.redact({at: Replacement(times, shorter.messages[at]) for at, times in shorter.redacted.items()})
        return replace(merged, is_open=self.is_open and other.is_open)


@dataclass(frozen=True)
class Record:
    """State of a conversation at one holder.

    Args:
        version: Every write has a version greater than all that its author had seen.
        incarnation: Number of the conversation's incarnation; 0 if nothing is known of one. Deletion and expiry begin the next.
        carries_from: Lowest incarnation whose unlogged turns continue in this one. A deletion carries none over.
        window: History of the agent.
        notes: State of the conversation manager, which belongs to the window.
        seen: Number of messages that the author had seen, by turn: of the newest 100 turns, the window's, the unlogged ones.
        states: State entries by name.
        redactions: Replacements by turn and index of the message.
        turns: Turns that the window or the log still needs, if the holder has them.
        unlogged: Turns that may be incomplete in the log, with the number of messages that the log is known to have.
        last_used: When a turn or state was last stored, in seconds since 1970.
        created: When the incarnation began, in seconds since 1970; 0 if unknown.
        turn_count: Turns so far.
        message_count: Messages so far.
        ids: Known original ids of session, user, tenant and member.
    """

    version: Version = NO_VERSION
    incarnation: int = 0
    carries_from: int = 0
    window: tuple[Slot, ...] = ()
    notes: Any = None
    seen: Mapping[TurnKey, int] = field(default_factory=dict)
    states: Mapping[str, Entry] = field(default_factory=dict)
    redactions: Mapping[TurnKey, Mapping[int, Replacement]] = field(default_factory=dict)
    turns: Mapping[TurnKey, Turn] = field(default_factory=dict)
    unlogged: Mapping[TurnKey, int] = field(default_factory=dict)
    last_used: float = 0.0
    created: float = 0.0
    turn_count: int = 0
    message_count: int = 0
    ids: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_empty(self) -> bool:
        """Whether it has no content: nothing was stored, or a deletion or an expiry left this record."""
        return not (self.window or self.states or self.unlogged or self.turn_count)

    @property
    def is_closed(self) -> bool:
        """Whether its writer gave everything to the durable tier."""
        return bool(self.states[CLOSED].value) if CLOSED in self.states else False

    @property
    def shown_keys(self) -> set[TurnKey]:
        """Keys of the turns in the window."""
        return {slot.key for slot in self.window if slot.key is not None}

    @property
    def lacking(self) -> set[TurnKey]:
        """Keys of the turns in the window whose messages the record does not hold."""
        ends: dict[TurnKey, int] = {}
        for slot in self.window:
            if slot.key is not None:
                ends[slot.key] = max(ends.get(slot.key, 0), slot.number + 1)
        return {key for key, end in ends.items() if key not in self.turns or len(self.turns[key].messages) < end}

    def has_forgotten(self, key: TurnKey) -> bool:
        """Return whether the list of seen turns begins after a key."""
        return key not in self.seen and self._horizon is not None and key < self._horizon

    @cached_property
    def _horizon(self) -> TurnKey | None:
        """Lowest key of the newest turns that are listed as seen; None if the list reaches back to the beginning."""
        return sorted(self.seen)[-SEEN_TURNS] if len(self.seen) >= SEEN_TURNS else None

    def logged_length(self, key: TurnKey) -> int:
        """Return how many messages of a turn are known to be in the log."""
        return self.unlogged[key] if key in self.unlogged else self.seen.get(key, 0)

    def lacks(self, key: TurnKey, turn: Turn) -> bool:
        """Return whether the record has not seen all of a turn."""
        known = self.turns.get(key)
        if self.seen.get(key, 0) < len(turn.messages):
            return True
        return known is not None and known.is_open and not turn.is_open

    def has_content_of(self, other: Record) -> bool:
        """Return whether both records have one incarnation and the same content, apart from unlogged turns."""
        return all(getattr(self, name) == getattr(other, name) for name in _CONTENT)

    def without_redacted_bodies(self, window: Sequence[Slot]) -> tuple[Slot, ...]:
        """Return a window in which redacted messages have only their replacement as form."""
        if not self.redactions:
            return tuple(window)
        return tuple(
            Slot(slot.key, slot.number)
            if slot.key is not None and slot.body is not None and slot.number in self.redactions.get(slot.key, ())
            else slot
            for slot in window
        )

    def normalize(self) -> Record:
        """Return the record with its redactions applied, and without the turns and keys that it does not need."""
        window = self.without_redacted_bodies(self.window)
        needed = self.unlogged.keys() | {slot.key for slot in window if slot.key is not None}
        turns = {key: turn.redact(self.redactions.get(key, {})) for key, turn in self.turns.items() if key in needed}
        seen = self.seen
        if len(seen.keys() - needed) > SEEN_TURNS:
            listed = needed | set(sorted(seen)[-SEEN_TURNS:])
            seen = {key: length for key, length in seen.items() if key in listed}
        return replace(self, window=window, turns=turns, seen=seen)


_CONTENT = ("incarnation", "carries_from", "window", "notes", "seen", "states", "redactions")


def join(one: Record, other: Record, logged: Mapping[TurnKey, int] | None = None) -> Record:
    """Return the join of two records.

    The record of the higher incarnation and version stands. Its window is followed by the turns of the other window that its
    author had not seen. State entries: the later version of each. Redactions: the union.

    Args:
        one: A record.
        other: Another record of the conversation, in any order.
        logged: Turns that the newer record has forgotten and the log has, with the number of messages there.

    Returns:
        A record with the version of the newer one. A store that accepts it is given a version of its own.
    """
    newer, older = (one, other) if (one.incarnation, one.version) >= (other.incarnation, other.version) else (other, one)
    if older.incarnation < newer.incarnation:
        older = _carried_over(older, newer)
    logged = logged or {}
    fresh = _unseen_slots(newer, older, logged)
    seen = {key: max(newer.seen.get(key, 0), length) for key, length in older.seen.items()}
    uncounted = {
        key: length - newer.seen.get(key, 0)
        for key, length in seen.items()
        if length > newer.seen.get(key, 0) and not _is_known(newer, older, key, logged)
    }
    new_turns = sum(key not in newer.seen and _is_counted(older, key) for key in uncounted)
    seen = {**newer.seen, **seen}
    unlogged = {
        key: max(newer.logged_length(key), older.logged_length(key), logged.get(key, 0))
        for key in {**older.unlogged, **newer.unlogged}
    }
    states = {**older.states, **newer.states}
    for name, entry in older.states.items():
        states[name] = max(entry, states[name], key=lambda found: found.version)
    return replace(
        newer,
        window=insert_slots(newer.window, fresh),
        seen=seen,
        states=states,
        redactions=_united(newer.redactions, older.redactions),
        turns={key: turn.merge(newer.turns.get(key, turn)) for key, turn in {**newer.turns, **older.turns}.items()},
        unlogged={key: length for key, length in unlogged.items() if length < seen.get(key, 0)},
        last_used=max(newer.last_used, older.last_used),
        created=min(filter(None, (newer.created, older.created)), default=0.0),
        turn_count=max(older.turn_count, newer.turn_count + new_turns),
        message_count=max(older.message_count, newer.message_count + sum(uncounted.values())),
        ids=newer.ids or older.ids,
    ).normalize()


def insert_slots(window: Sequence[Slot], slots: Iterable[Slot]) -> tuple[Slot, ...]:
    """Return a window with further slots: behind the other messages of their turn, if the window has any, else at its end."""
    result = list(window)
    present = {slot[:2] for slot in window if slot.key is not None}
    for slot in slots:
        if slot[:2] in present:
            continue
        at = next((at for at in range(len(result), 0, -1) if result[at - 1].key == slot.key), len(result))
        result.insert(at, slot)
        present.add(slot[:2])
    return tuple(result)


def place_slots(window: Sequence[Slot], slots: Iterable[Slot], order: Sequence[Slot]) -> tuple[Slot, ...]:
    """Return a window with further slots, each behind the slot that precedes it in another window."""
    result = [slot[:2] for slot in window]
    placed = list(window)
    for slot in slots:
        if slot[:2] in result:
            continue
        before = reversed(order[: order.index(slot)])
        at = next((result.index(other[:2]) + 1 for other in before if other[:2] in result), 0)
        placed.insert(at, slot)
        result.insert(at, slot[:2])
    return tuple(placed)


def grown_slots(window: Sequence[Slot], other: Sequence[Slot], known: Collection[tuple[TurnKey | None, int]]) -> list[Slot]:
    """Return the slots of another window that are not among the known ones.

    If a turn has new messages and the window has evicted it, all slots of the turn are returned, because the new messages
    alone make no sense.
    """
    new = {slot.key for slot in other if slot.key is not None and slot[:2] not in known}
    shown = {slot.key for slot in window}
    return [slot for slot in other if slot.key in new and (slot[:2] not in known or slot.key not in shown)]


def begins_log(record: Record, head: Record | None) -> bool:
    """Return whether a record's incarnation has no head yet, and so no log."""
    return head is None or head.incarnation < record.incarnation


def missing_turns(record: Record, head: Record | None) -> dict[TurnKey, int]:
    """Return the turns that a record holds and the log lacks, according to the durable head.

    Args:
        record: The record.
        head: The durable head; None if there is none.

    Returns:
        The keys of the turns, each with the number of messages that the log has.
    """
    if head is None or begins_log(record, head):
        return dict.fromkeys(record.turns, 0)
    missing = {}
    for key, turn in record.turns.items():
        length = head.logged_length(key)
        if head.has_forgotten(key) and key not in record.unlogged:
            continue
        if length < len(turn.messages):
            missing[key] = length
    return missing


def ended_turns(record: Record, keys: Iterable[TurnKey], silent_since: float) -> set[TurnKey]:
    """Return the turns that may be put into the log: they ended, or their author has added nothing since a time."""
    found = {key: record.turns[key] for key in keys if key in record.turns}
    return {key for key, turn in found.items() if not turn.is_open or max(turn.times, default=silent_since + 1) <= silent_since}


def _carried_over(older: Record, newer: Record) -> Record:
    """Return the content that the next incarnation inherits: unlogged turns after an expiry, nothing after a deletion."""
    if older.incarnation < max(1, newer.carries_from):
        return Record()
    kept = older.unlogged.keys()
    return Record(
        window=tuple(slot for slot in older.window if slot.key in kept),
        seen={key: older.seen[key] for key in kept if key in older.seen},
        redactions={key: found for key, found in older.redactions.items() if key in kept},
        turns={key: turn for key, turn in older.turns.items() if key in kept},
        unlogged=dict.fromkeys(kept, 0),
        last_used=older.last_used,
        ids=older.ids,
    )


def _is_counted(record: Record, key: TurnKey) -> bool:
    return key not in record.turns or not record.turns[key].about.get(CONTINUES)


def _is_known(newer: Record, older: Record, key: TurnKey, logged: Mapping[TurnKey, int]) -> bool:
    """Return whether the newer record had seen a turn that it no longer lists: it had if the turn was ever logged."""
    return newer.has_forgotten(key) and (key not in older.unlogged or key in logged)


def _unseen_slots(newer: Record, older: Record, logged: Mapping[TurnKey, int]) -> list[Slot]:
    """Return the slots that the newer window lacks because its author had not seen their messages.

    If a turn got messages after the newer window had evicted it, all its slots are returned, because the new messages alone
    make no sense.
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
    for key in sorted(shown - present):  # the older author evicted the turn, whose end the newer author had not seen
        slots += [Slot(key, at) for at in range(newer.seen.get(key, 0), older.seen.get(key, 0))]
    return slots


def _united(
    newer: Mapping[TurnKey, Mapping[int, Replacement]], older: Mapping[TurnKey, Mapping[int, Replacement]]
) -> dict[TurnKey, Mapping[int, Replacement]]:
    return {key: latest_replacements(newer.get(key, {}), older.get(key, {})) for key in {**older, **newer}}


def latest_replacements(one: Mapping[int, Replacement], other: Mapping[int, Replacement]) -> dict[int, Replacement]:
    """Return the union of two sets of replacements of a turn; for each message the newer replacement."""
    return {at: max(found for found in (one.get(at), other.get(at)) if found is not None) for at in {**one, **other}}
