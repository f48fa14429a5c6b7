"""Record of a conversation: the conversation's state as one process or one storage tier knows it.

The module does no I/O. The author of a record is the process that wrote it. The log has all turns
of a conversation. It is in the durable tier (a database table) or, without one, in the hot tier.
The incarnation of a conversation is a number that grows with each deletion, expiry or rewind.

The annotated types of the fields define the JSON form in which the fields are stored.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from functools import cached_property
from operator import attrgetter
from typing import Annotated, Any, NamedTuple

import orjson
from pydantic import PlainSerializer, PlainValidator

from strands_manga_memory.stores.codec import dump, json_bytes, load

MAX_MESSAGES = 200_000
"""Maximum number of messages in a stored list of turns. A list with more messages is damaged."""

_USUAL_LENGTH = 2  # a question and its answer

SEEN_TURNS = 100
"""Number of newest turns that every record lists as known to its author."""


class TurnKey(NamedTuple):
    """Unique key of a turn of a conversation. Keys are compared to put turns in order.

    A key has a time in milliseconds since 1970, and a random tag of the process that began the
    turn. The time is normally the clock's time when the turn began. If the process knows an equal
    or later time, it uses the latest known time plus 1 (a hybrid logical clock).
    """

    time: int
    tag: str

    def __str__(self) -> str:
        """Convert the key to text, such as ``1790000000000.5c8e01f2``. Texts sort like keys."""
        return f"{self.time:013d}.{self.tag}"

    @classmethod
    def parse(cls, text: str) -> TurnKey:
        """Convert text, such as ``1790000000000.5c8e01f2``, back to a turn key.

        Raises:
            ValueError: The text has another form.
        """
        time, dot, tag = text.partition(".")
        if not dot or not tag:
            raise ValueError(f"a turn key must be a time, a dot and a tag, got {text!r:.80}")
        return cls(int(time), tag)


class Version(NamedTuple):
    """Version of a conversation's record, which shows which of two records is newer.

    The newer record has the higher version, and a merge of two records prefers its content.

    Attributes:
        time: Time of the write in milliseconds since 1970, or a later time, so that the version is
            higher than all known versions.
        tag: Random text, which makes the version unique.
        minor: Number of later writes of the record without a change of the conversation, such as
            after turns were written to the log (list of all turns).
    """

    time: int = 0
    tag: str = ""
    minor: int = 0

    def next_minor(self) -> Version:
        """Return the next version for a write that does not change the conversation's content."""
        return self._replace(minor=self.minor + 1)


NO_VERSION = Version()
"""Version of a record that was never stored."""


class Slot(NamedTuple):
    """Reference to a message in an agent's history.

    Attributes:
        key: Key of the message's turn; None for a message that the conversation manager wrote.
        number: Index of the message in its turn, from 0.
        body: The message itself, serialized, if it was edited in the history or has no turn. None
            for an unedited message, which is in the turn.
    """

    key: TurnKey | None
    number: int = 0
    body: Any = None


Window = tuple[Slot, ...]
"""Type of an agent's history: references to its messages, in order."""

OUTDATED = b""
"""``Slot.body`` of a redacted message whose original the agent may still have."""


def with_outdated(window: Window, outdated: Collection[tuple[TurnKey | None, int]]) -> Window:
    """Mark messages of a history as ``OUTDATED``. ``outdated`` has their turn keys and indexes."""
    return tuple(slot._replace(body=OUTDATED) if slot[:2] in outdated else slot for slot in window)


# Stored forms


def keys_to_text(entries: Iterable[tuple[TurnKey | None, str]]) -> str:
    """Convert keys of turns, each with a note, to a short text.

    The text ``"+41.5c8e01f2 +2:3 :4 +3.90d1aa07"`` has these entries:

    - ``+41.5c8e01f2``: the key with the time 41 and the tag ``5c8e01f2``. It has no note.
    - ``+2:3``: the key with the time 43 (2 later) and the same tag. Its note is ``3``.
    - ``:4``: the same key again, or no key (None). The note ``4`` must show which.
    - ``+3.90d1aa07``: the key with the time 46 and the tag ``90d1aa07``.
    """
    words: list[str] = []
    before = TurnKey(0, "")
    for key, note in entries:
        name = ""
        if key is not None and key != before:
            tag = "" if key.tag == before.tag else f".{key.tag}"
            name, before = f"{key.time - before.time:+d}{tag}", key
        words.append(f"{name}:{note}" if note else name)
    return " ".join(words)


def keys_from_text(text: str) -> Iterator[tuple[TurnKey, str]]:
    """Convert the text of ``keys_to_text`` back to keys of turns with their notes."""
    key = TurnKey(0, "")
    for word in text.split():
        name, _, note = word.partition(":")
        time, _, tag = name.partition(".")
        key = TurnKey(key.time + int(time or 0), tag or key.tag)
        yield key, note


def _lengths_to_text(lengths: Mapping[TurnKey, int]) -> str:
    usual = {_USUAL_LENGTH: ""}
    return keys_to_text((key, usual.get(n, str(n))) for key, n in sorted(lengths.items()))


def _lengths_from_text(text: str) -> dict[TurnKey, int]:
    lengths = {key: int(note or _USUAL_LENGTH) for key, note in keys_from_text(text)}
    if sum(map(abs, lengths.values())) > MAX_MESSAGES:
        raise ValueError(f"the turns have over {MAX_MESSAGES} messages")
    return lengths


Dumped = Annotated[
    Any, PlainValidator(json_bytes), PlainSerializer(orjson.Fragment, return_type=Any)
]
"""Type of a message that ``dump`` has serialized."""

Value = Annotated[
    Any,
    PlainValidator(lambda value: load(json_bytes(value))),
    PlainSerializer(lambda value: orjson.Fragment(dump(value)), return_type=Any),
]
"""Type of any value that ``dump`` can serialize."""

KeyText = Annotated[TurnKey, PlainValidator(TurnKey.parse), PlainSerializer(str)]
"""Type of a turn key that is stored as one text."""

Keys = Annotated[
    AbstractSet[TurnKey],
    PlainValidator(lambda text: {key for key, _ in keys_from_text(text)}),
    PlainSerializer(lambda keys: keys_to_text((key, "") for key in sorted(keys))),
]
"""Type of a set of turn keys."""

Lengths = Annotated[
    Mapping[TurnKey, int], PlainValidator(_lengths_from_text), PlainSerializer(_lengths_to_text)
]
"""Type of a mapping from turn keys to numbers of messages."""


# Records


@dataclass(frozen=True, slots=True)
class StateValue:
    """Named state value of a conversation, such as an entry of ``agent.state``, with a version.

    The value has the version of the record in which it was first stored. A merge of two records
    keeps the value with the higher version.
    """

    version: Version
    value: Value


@dataclass(frozen=True, slots=True, order=True)
class Replacement:
    """New content of a redacted message.

    If a message was redacted several times, the replacement with the highest revision is valid.
    """

    revision: int
    message: Dumped


CONTINUES = "continues"
"""Key in ``Turn.about`` of a turn that continues the previous turn, such as after an interrupt."""


@dataclass(frozen=True, slots=True)
class Turn:
    """Turn of a conversation: the user's request and the messages up to the agent's answer.

    Only one process adds messages to a turn. A shorter copy of a turn is therefore the beginning of
    a longer copy.

    Args:
        messages: The messages, serialized.
        times: Times of the messages, in seconds since 1970.
        redacted: Revision number of each redacted message, keyed by the index of the message.
        is_open: Whether more messages may be added.
        about: Further values of the turn, such as the user's intent.
    """

    messages: tuple[Dumped, ...] = ()
    times: tuple[float, ...] = ()
    redacted: Mapping[int, int] = field(default_factory=dict)
    is_open: bool = False
    about: Mapping[str, Value] = field(default_factory=dict)

    def redact(self, replacements: Mapping[int, Replacement]) -> Turn:
        """Return a copy of the turn in which redacted messages have their new content.

        ``replacements`` has the new contents, keyed by the index of the message. A content that is
        older than the turn's present one is ignored.
        """
        if not replacements:
            return self
        messages, redacted = list(self.messages), dict(self.redacted)
        for at, new in replacements.items():
            if at < len(messages) and new > Replacement(redacted.get(at, 0), messages[at]):
                redacted[at], messages[at] = new.revision, new.message
        return replace(self, messages=tuple(messages), redacted=redacted)

    def merge(self, other: Turn) -> Turn:
        """Merge two copies of a turn into one.

        The result has all messages of the longer copy, and the newest redactions of both copies. It
        is open (messages may be added) only if both copies are open.
        """
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
    """State of a conversation: history, recent turns, state values and redactions.

    Each process and each storage tier has a record of the conversation. Records are merged when a
    process reads or writes a tier. ``Record()`` means that nothing is stored. The author of a
    record is the process that wrote it. The log is the list of all turns of the conversation. The
    incarnation is a number that grows with each deletion, expiry or rewind.

    Args:
        version: Version, higher than every version that the author had seen.
        incarnation: Incarnation of the conversation; 0 if none is known.
        deleted_below: First incarnation after the last deletion. Turns of earlier incarnations are
            deleted.
        last_rewind: Incarnation that the last rewind began; 0 if there was none.
        window: History of the agent, as references to messages.
        seen: Turns that the author knew, with their numbers of messages. Turns before the newest
            100 may be missing.
        removed: Turns that a rewind removed, with their numbers of messages then. A turn with more
            messages was continued, and is kept.
        states: Named state values, with their versions.
        redactions: New contents of redacted messages, keyed by turn and message index.
        turns: Turns in the history, and turns that the log lacks.
        unlogged: Turns that may be missing or incomplete in the log.
        last_used: Time when a turn or state was last stored, in seconds since 1970.
        created: Time when the incarnation began, in seconds since 1970; 0 if unknown.
        ids: Known unescaped ids of session, user, tenant and member (agent or orchestrator).
        is_closed: Whether a process has closed the conversation, so that the durable tier has all
            data of the hot tier.
    """

    version: Version = NO_VERSION
    incarnation: int = 0
    deleted_below: int = 0
    last_rewind: int = 0
    window: Window = ()
    manager_state: Value = None
    seen: Lengths = field(default_factory=dict)
    removed: Lengths = field(default_factory=dict)
    states: Mapping[str, StateValue] = field(default_factory=dict)
    redactions: Mapping[KeyText, Mapping[int, Replacement]] = field(default_factory=dict)
    turns: Mapping[TurnKey, Turn] = field(default_factory=dict)
    unlogged: Keys = frozenset()
    last_used: float = 0.0
    created: float = 0.0
    turn_count: int = 0
    message_count: int = 0
    ids: Mapping[str, str] = field(default_factory=dict)
    is_closed: bool = False

    @property
    def is_empty(self) -> bool:
        """Whether the record has no content, for example after a deletion or expiry."""
        return not (self.window or self.states or self.unlogged or self.turn_count)

    @property
    def shown_keys(self) -> set[TurnKey]:
        """Keys of the turns that have at least one message in the agent's history."""
        return {slot.key for slot in self.window if slot.key is not None}

    @property
    def incomplete_keys(self) -> set[TurnKey]:
        """Keys of turns in the agent's history whose messages are not all in this record."""
        return {
            slot.key
            for slot in self.window
            if slot.key is not None
            and slot.number >= len(self.turns.get(slot.key, _NO_TURN).messages)
        }

    def is_older_than_seen(self, key: TurnKey) -> bool:
        """Return whether a turn is too old for ``seen``, the list of turns that the author knew.

        The list may lack turns before the newest 100. True means that the author (writer of the
        record) may have known the turn.
        """
        return key not in self.seen and self._seen_from is not None and key < self._seen_from

    @cached_property
    def _seen_from(self) -> TurnKey | None:
        # A longer ``seen`` may lack turns that are older than its newest ones.
        return sorted(self.seen)[-SEEN_TURNS] if len(self.seen) >= SEEN_TURNS else None

    def counted_length(self, key: TurnKey) -> int:
        """Return how many messages of a turn are included in the record's ``message_count``.

        The result is 0 for a turn that a rewind removed, unless the turn was continued.
        """
        length = self.seen.get(key, 0)
        return length if length > self.removed.get(key, 0) else 0

    def with_turns(self, turns: Mapping[TurnKey, Turn]) -> Record:
        """Return a copy of the record that also contains the messages of ``turns``.

        If the record contains a turn already, both copies of the turn are merged.
        """
        read = {key: turn.merge(self.turns.get(key, turn)) for key, turn in turns.items()}
        return replace(self, turns={**self.turns, **read})

    def redact_turn(self, key: TurnKey, turn: Turn) -> Turn:
        """Return a copy of a turn, in which this record's redactions replace redacted messages."""
        return turn.redact(self.redactions.get(key, {}))

    def removes(self, key: TurnKey, turn: Turn) -> bool:
        """Return whether a rewind of the conversation removed a turn.

        A turn to which messages were added after the rewind is not removed.
        """
        return len(turn.messages) <= self.removed.get(key, 0)

    def logged_length(self, key: TurnKey) -> int:
        """Return how many messages of a turn are certainly in the log (list of all turns).

        The result is 0 if this record lists the turn in ``unlogged``: the log may lack some of it.
        """
        return 0 if key in self.unlogged else self.seen.get(key, 0)

    def lacks(self, key: TurnKey, turn: Turn) -> bool:
        """Return whether this record lacks messages or the end of ``turn``.

        It lacks the end if ``turn`` has ended, and the record's copy is still open.
        """
        if self.seen.get(key, 0) < len(turn.messages):
            return True
        return self.turns.get(key, _NO_TURN).is_open and not turn.is_open

    @property
    def logs_from(self) -> int:
        """Lowest incarnation (run) whose log (list of turns) is still needed.

        Logs from before a deletion or rewind are not needed. Logs from before an expiry are needed,
        because a sweeper (background job) reads them.
        """
        return max(self.deleted_below, self.last_rewind)

    def deletes(self, older: Record) -> bool:
        """Return whether the conversation was deleted between an older record and this one.

        An expiry or a rewind does not count as a deletion.
        """
        return older.incarnation < self.deleted_below

    def has_content_of(self, other: Record) -> bool:
        """Return whether two records have the same content, such as history, states and redactions.

        Their versions, times and counters may differ.
        """
        return bool(_content(self) == _content(other))

    def without_redacted_bodies(self, window: Sequence[Slot]) -> Window:
        """Return a history without the edited versions of messages that were redacted.

        An edited version, such as a truncated message, may still have the removed text. A reference
        to the redacted message replaces it.
        """
        if not self.redactions:
            return tuple(window)
        return tuple(
            Slot(slot.key, slot.number)
            if slot.key is not None and slot.number in self.redactions.get(slot.key, ())
            else slot
            for slot in window
        )

    def normalize(self) -> Record:
        """Return a copy of the record with redactions applied, without turns that are not needed.

        A turn is needed if it is in the agent's history, or if the log (list of all turns) may lack
        it. The list of known turns (``seen``) keeps the needed turns and the newest 100 turns.
        """
        window = self.without_redacted_bodies(self.window)
        needed = self.unlogged | self.shown_keys
        turns = {
            key: self.redact_turn(key, turn) for key, turn in self.turns.items() if key in needed
        }
        seen = self.seen
        if len(seen.keys() - needed) > SEEN_TURNS:
            listed = needed | set(sorted(seen)[-SEEN_TURNS:])
            seen = {key: length for key, length in seen.items() if key in listed}
        removed = {key: length for key, length in self.removed.items() if key in seen}
        return replace(self, window=window, turns=turns, seen=seen, removed=removed)


_content = attrgetter(
    "incarnation", "deleted_below", "window", "manager_state", "seen", "states", "redactions"
)


def missing_turns(record: Record, head: Record) -> set[TurnKey]:
    """Return the keys of a record's turns that are missing or incomplete in the log.

    The log is the durable tier's list of all turns. ``head`` is that tier's other record, which
    lists the log's turns.
    """
    if head.incarnation < record.incarnation:
        return set(record.turns)
    return {
        key
        for key, turn in record.turns.items()
        if (key in record.unlogged or not head.is_older_than_seen(key))
        and head.logged_length(key) < len(turn.messages)
    }


def head_record(record: Record, unlogged: AbstractSet[TurnKey], before: Record) -> Record:
    """Convert a conversation's record (state) to the head, the form that the durable tier stores.

    The head contains only the turns ``unlogged``, which are incomplete in the log (list of all
    turns). Its ``seen``, the number of messages of each turn, leaves out messages that are neither
    in ``record`` nor listed by ``before``, the previous head: a restored backup may lack them.
    """
    had = before.seen if before.incarnation == record.incarnation else {}
    seen = {}
    for key, length in record.seen.items():
        held = len(record.turns.get(key, _NO_TURN).messages)
        if known := min(length, max(held, had.get(key, 0))):
            seen[key] = known
    return replace(
        record,
        turns={key: record.turns[key] for key in unlogged if key in record.turns},
        unlogged=unlogged,
        seen=seen,
    )
