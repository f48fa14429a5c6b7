"""Records: messages and bodies as values, and the framed form of what is stored. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from strands_manga_memory.exceptions import CorruptRecordError
from strands_manga_memory.session.core.identity import Name, Segment, Stamp
from strands_manga_memory.session.core.shared_record import Shared, made, shared_with
from strands_manga_memory.stores.encoding.codec import MALFORMED, damaged, json_bytes, json_value, load_stored

WRITES = 2
"""Version of the stored form that is written."""

READS = frozenset({WRITES})
"""Versions that are read; others are refused. A new one takes two releases: all workers read it before one writes it."""


@dataclass(slots=True, eq=False)  # frozen, one takes six times as long to make, and a restore makes a hundred
class Message:
    """A message of the log; whoever has one never changes it.

    Args:
        segment: The segment that its author chose for it, its own or another writer's.
        name: Its name: whose it is, and which of the writer's messages.
        clock: The clock of its turn.
        at: When it was said, in seconds since 1970.
        kept: The message as dumped bytes, or what they are made of. They are only read when the message is shown.
        revision: How often it was redacted.
        about: What else its author kept with it, as text.
        was_lost: Of a message in a view: whether whoever wrote its window could not read it, or did not know what is before it.
        joins: Of a message in a view: whether the agent has it in one message with what is before it.
    """

    segment: Segment
    name: Name
    clock: int
    at: float
    kept: bytes | Shared
    revision: int = 0
    about: str = ""
    was_lost: bool = False
    joins: bool = False

    def __str__(self) -> str:
        """Return what it is called in errors."""
        return f"message {self.name}"

    def __eq__(self, other: object) -> bool:
        """Tell whether it is the same message, in whichever way the record is kept."""
        return isinstance(other, Message) and self._said == other._said

    __hash__ = None  # type: ignore[assignment]

    @property
    def _said(self) -> tuple[Any, ...]:
        return self.segment, self.name, self.clock, round(self.at * 1000), self.revision, self.about, self.record

    @property
    def writer(self) -> str:
        """Whose message it is."""
        return self.name.writer

    @property
    def number(self) -> int:
        """Which of its writer's messages it is."""
        return self.name.number

    @property
    def record(self) -> bytes:
        """The message as dumped bytes."""
        return self.kept if isinstance(self.kept, bytes) else made(self.kept)

    def joining(self) -> Message:
        """Return it as one that an agent has in one message with what is before it."""
        kept, about, lost = self.kept, self.about, self.was_lost  # by hand: ``replace`` takes four times as long
        return Message(self.segment, self.name, self.clock, self.at, kept, self.revision, about, lost, joins=True)

    def share(self, message: Any) -> None:
        """Keep nothing of the record that an agent's own message has as well, if it is that message's."""
        if isinstance(self.kept, bytes):
            self.kept = shared_with(message, self.kept) or self.kept

    def has_id(self, tracking_id: str) -> bool:
        """Tell whether the message has this ``tracking_id``."""
        may_have = isinstance(self.kept, bytes) or not tracking_id or tracking_id in self.kept
        return may_have and has_id(self.record, tracking_id)

    @property
    def turn(self) -> Stamp:
        """The key of its turn."""
        return Stamp(self.clock, self.name.writer)

    @property
    def order(self) -> tuple[int, str, int]:
        """Its place in the log."""
        return self.clock, *self.name

    @property
    def value(self) -> Any:
        """The message itself, a fresh one; raises ``CorruptRecordError`` if it cannot be read."""
        return load_stored(self.record, self)


def in_order(messages: Iterable[Message]) -> list[Message]:
    """Return messages in the order of the log."""
    return sorted(messages, key=lambda one: one.order)


@dataclass(frozen=True, slots=True)
class Body:
    """A message of a window that the log does not have in this form.

    Args:
        record: The message as dumped bytes.
        edits: The message that it stands for; None if it was synthesized.
        revision: That message's revision when it was edited. A higher one takes the body's place.
        closes: The turn whose closing note it was made of. The window shows nothing more of that turn.
        joins: In a view: whether the agent has it in one message with what is before it.
    """

    record: bytes
    edits: Name | None = None
    revision: int = 0
    closes: Stamp | None = None
    joins: bool = field(default=False, compare=False)

    def __str__(self) -> str:
        """Return what it is called in errors."""
        return f"body {self.id}"

    def joining(self) -> Body:
        """Return it as one that an agent has in one message with what is before it."""
        return replace(self, joins=True)

    @property
    def id(self) -> str:
        """Its key: equal bodies have equal ones."""
        about = repr((self.edits and tuple(self.edits), self.revision, self.closes and tuple(self.closes))).encode()
        return hashlib.blake2b(self.record, digest_size=8, salt=hashlib.blake2b(about, digest_size=8).digest()).hexdigest()

    @property
    def value(self) -> Any:
        """The message itself, a fresh one; raises ``CorruptRecordError`` if it cannot be read."""
        return load_stored(self.record, self)


class Mark(NamedTuple):
    """A place of a window where a message was left out: it shows that there was one, and nothing else.

    Args:
        role: Whose message it was.
        id: The mark's ``tracking_id``; empty if it is made of that of the message before.
        of: The message that was left out; None if that is not known.
    """

    role: str
    id: str = ""
    of: Name | None = None


class Lost(NamedTuple):
    """A message of a window, or of the log's end, that could not be read or is nowhere."""

    name: Name


Shown = Message | Body | Mark | Lost
"""What a view consists of."""

DAMAGED_TEXT = "[This message could not be read: its record is damaged.]"
"""What a damaged message says. Its record stays as it is."""

DAMAGED = "damaged"
"""Name in a message's custom metadata, with the name of the message, that marks it as standing in for a damaged one."""


def lost_message(shown: Shown, role: str) -> dict[str, Any]:
    """Return the placeholder for a message that cannot be read."""
    name = name_of(shown)
    id_ = f"unreadable-{name.writer}-{name.number}" if name is not None else "unreadable"
    return {
        "role": role,
        "content": [{"text": DAMAGED_TEXT}],
        "tracking_id": id_,
        "metadata": {"custom": {DAMAGED: str(name)}},
    }


def name_of(shown: Shown) -> Name | None:
    """Return the name of what is shown, or was left out there; None if it was synthesized."""
    if isinstance(shown, Body):
        return shown.edits
    return shown.of if isinstance(shown, Mark) else shown.name


def framed(header: Any, blobs: Sequence[bytes] = ()) -> bytes:
    """Return a header of JSON and some bytes as one value. The bytes come back without being read."""
    lengths = [len(blob) for blob in blobs]
    return b"".join([json_bytes([WRITES, lengths, header]), b"\n", *blobs])


def unframed(data: bytes, record: str) -> tuple[Any, list[bytes]]:
    """Return what :func:`framed` was given; raise ``CorruptRecordError`` naming ``record`` for else, or a newer version."""
    blobs, at = list[bytes](), 0
    try:  # not ``trusted``: this is done for each cell of each restore
        line, _, rest = data.partition(b"\n")
        version, lengths, header = json_value(line)
        if version not in READS:
            raise CorruptRecordError(
                f"record={record!r} has version {version!r}, this release reads {sorted(READS)}: upgrade it", record=record
            )
        for length in lengths:
            if type(length) is not int or length < 0:
                raise ValueError(f"{length!r:.100} is no length")
            blobs.append(rest[at : at + length])
            at += length
        if at != len(rest):
            raise ValueError("it is cut")
    except MALFORMED as error:
        raise damaged(record, error) from error
    return header, blobs


def has_id(record: bytes, tracking_id: str) -> bool:
    """Tell whether a message's record has this ``tracking_id``."""
    if tracking_id.encode() not in record:  # a hundred times as fast as reading it
        return False
    try:
        return (load_stored(record, "message").get("tracking_id") or "") == tracking_id
    except CorruptRecordError:
        return False
