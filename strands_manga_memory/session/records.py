"""Records: what a tier stores of one conversation, and its names. Pure."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal, NamedTuple

from strands_manga_memory.exceptions import CorruptRecordError
from strands_manga_memory.scope import encoded_id
from strands_manga_memory.session.checking import checked_number, checked_text, checked_time
from strands_manga_memory.session.window import Logged, Slot, parse_runs
from strands_manga_memory.stores.hot import ACTIVE, DELETED

SCHEMA = 1
"""Version of the head. A newer one is refused."""

MOST_WRITERS = 8
"""Writers whose last save number a head remembers."""

_TAGS = 1_000_000

MOST_RUNS = 200
"""Runs of message numbers that a durable head remembers; there is a gap where two writers' turns crossed."""

Kind = Literal["A", "M"]
"""An agent's conversation, or the state of a Graph or Swarm."""


@dataclass(frozen=True)
class Place:
    """Where a conversation is kept.

    Args:
        session: Escaped storage id of the session; the durable partition.
        member: Escaped name within the session: its kind and the agent's or orchestrator's id.
    """

    session: str
    member: str

    @classmethod
    def of(cls, session: str, kind: Kind, id_: str) -> Place:
        """Return the place of an agent or orchestrator, named by its own id."""
        return cls(session, f"{kind}:{encoded_id(id_)}")

    @classmethod
    def named(cls, conversation: str) -> Place:
        """Return the place of a conversation, by its name in the hot tier."""
        return cls(*conversation.rsplit("/", 1))

    @property
    def conversation(self) -> str:
        """Escaped name in the hot tier. No session id holds a slash, so no two places share one."""
        return f"{self.session}/{self.member}"

    @property
    def head_key(self) -> tuple[str, str]:
        """Key of the durable head."""
        return self.session, f"{self.member}#HEAD"

    def log_key(self, seq: int) -> tuple[str, str]:
        """Key of the log segment that begins with message ``seq``."""
        return self.session, f"{self.member}#LOG#{seq:012d}"

    @property
    def everything(self) -> tuple[str, str]:
        """First and last sort value of all the conversation's durable records."""
        return f"{self.member}#", f"{self.member}#~"


def segment_number(sort: str) -> tuple[int, bool]:
    """Return the first number of the segment that a row of the log belongs to, and whether it is a further part of it.

    Raises:
        CorruptRecordError: The row is none of a log.
    """
    number, _, part = sort.rpartition("#")[2].partition("~")
    if not (number.isdecimal() and len(number) == 12):
        raise CorruptRecordError(f"record={sort!r} is damaged: it is no segment of a log", record=sort)
    return int(number), bool(part)


def directory_key(session: str, ids: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return the key of a session's entry in its user's directory; None if the session has no user.

    No session id holds a slash, so the directory's partition is never a session's.
    """
    if not ids.get("user"):
        return None
    tenant = encoded_id(ids["tenant"]) if ids.get("tenant") else ""
    return f"user/{tenant}:{encoded_id(ids['user'])}", session


@dataclass(kw_only=True)
class Head:
    """The small facts of a conversation that change with every save.

    Args:
        created: When the conversation began, in seconds since 1970.
        active: When it was last saved.
        turns: User requests so far.
        messages: Messages logged so far.
        next: The sequence number the next logged message gets.
        first: The first sequence number of this incarnation; lower ones belong to one that ended.
        since: The epoch in which this incarnation began.
        buried: The epoch of the last tombstone: incarnations up to it were deleted, later ones that ended just expired.
        bodies: The number of the last body.
        flushed_turns: ``turns`` at the last durable flush.
        pending: Sequence numbers that only the hot tier has, as runs.
        revised: Those of ``pending`` that are not as they were logged: the durable tier may have them in an earlier revision.
        segments: Log segments of the durable tier that the window needs, as ``first-last,first-last``.
        garbage: First sequence numbers of segments that were written and never committed.
        open: Writers whose turn is not finished, with the sequence numbers of that turn, as runs.
        forgotten: A version: all later saves that are included are by writers that the copy still names.
        unknown: Fields of a later version; kept and written back.
    """

    created: float
    active: float
    turns: int = 0
    messages: int = 0
    next: int = 1
    first: int = 1
    since: int = 1
    buried: int = 0
    bodies: int = 0
    flushed_turns: int = 0
    pending: str = ""
    revised: str = ""
    segments: str = ""
    garbage: str = ""
    open: dict[str, str] = field(default_factory=dict)
    forgotten: int = 0
    unknown: dict[str, Any] = field(default_factory=dict)

    @property
    def frontier(self) -> int:
        """The lowest number that a message may still get: that of an open turn, or the next one."""
        return min([self.next, *(min(parse_runs(runs, record="head"), default=self.next) for runs in self.open.values())])

    def to_dict(self) -> dict[str, Any]:
        """Return the fields that say something."""
        known = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "unknown"}
        return {"schema": SCHEMA, **self.unknown, **{name: value for name, value in known.items() if value or value == 0}}

    @classmethod
    def from_dict(cls, data: object, *, record: str) -> Head:
        """Return the head that ``to_dict`` gave.

        Raises:
            CorruptRecordError: It is no head, or a newer version wrote it. Names ``record``.
        """
        if not isinstance(data, dict) or not isinstance(data.get("schema"), int):
            raise CorruptRecordError(f"record={record!r} is damaged: it is no head", record=record)
        if data["schema"] > SCHEMA:
            raise CorruptRecordError(
                f"record={record!r} has schema {data['schema']}, this package reads up to {SCHEMA}; upgrade it", record=record
            )
        known, unknown = {}, {}
        for name, value in data.items():
            if name in _CHECKS:
                known[name] = _CHECKS[name](value, record, name)
            elif name not in ("schema", "digest"):
                unknown[name] = value
        if not {"created", "active"} <= known.keys():
            raise CorruptRecordError(f"record={record!r} is damaged: it does not say when it began", record=record)
        return cls(**known, unknown=unknown)


def _open_turns(value: object, record: str, what: str) -> dict[str, str]:
    if not isinstance(value, dict):
        raise CorruptRecordError(f"record={record!r} is damaged: {what} is {value!r:.80}", record=record)
    return {writer: _runs(runs, record, what) for writer, runs in value.items()}


def _runs(value: object, record: str, what: str) -> str:
    text = checked_text(value, record, what)
    if "x" in text:
        raise CorruptRecordError(f"record={record!r} is damaged: {what} is {text!r:.80}", record=record)
    parse_runs(text, record=record)
    return text


def _numbers(value: object, record: str, what: str) -> str:
    text = checked_text(value, record, what)
    for number in filter(None, text.split(",")):
        checked_number(int(number) if number.isdecimal() and len(number) < 13 else number, record, what)
    return text


def _segments(value: object, record: str, what: str) -> str:
    text = checked_text(value, record, what)
    Segment.parse(text, record=record)
    return text


_CHECKS: dict[str, Callable[[object, str, str], Any]] = {
    "created": checked_time,
    "active": checked_time,
    "pending": _runs,
    "revised": _runs,
    "segments": _segments,
    "garbage": _numbers,
    "open": _open_turns,
    **dict.fromkeys(
        ("turns", "messages", "next", "first", "since", "buried", "bodies", "flushed_turns", "forgotten"), checked_number
    ),
}


class Save(NamedTuple):
    """A save: who made it, its number among his, and the version it made. ``("", 0, 0)``: none."""

    writer: str
    number: int
    version: int


@dataclass(kw_only=True)
class Stored:
    """A conversation as a tier has it.

    Args:
        epoch: Raised when the conversation ends or is deleted.
        version: Raised by every save.
        writers: Last save number of each of the latest writers, oldest first: a version vector.
        base: What never changes: the original ids.
        head: The small facts.
        slots: The window.
        fields: Dumped values by name: agent state, conversation manager state, interrupts, model state, metadata.
        state: ``active``, ``closing`` or ``deleted``.
        expired: Whether its logical time to live has passed.
        ahead: Whether the hot tier was ahead of this durable copy when it was written, or may have been.
    """

    epoch: int
    version: int
    writers: dict[str, int] = field(default_factory=dict)
    base: dict[str, Any] = field(default_factory=dict)
    head: Head
    slots: list[Slot] = field(default_factory=list)
    fields: dict[str, bytes] = field(default_factory=dict)
    state: str = ACTIVE
    expired: bool = False
    ahead: bool = False

    @property
    def made_by(self) -> Save:
        """The save that made this copy."""
        return Save(*next(reversed(self.writers.items()), ("", 0)), self.version)

    def includes(self, save: Save) -> bool:
        """Tell whether this copy was made on top of ``save``, as far as its head remembers."""
        return _includes(self.writers, self.head.forgotten, save)

    def includes_all(self, other: Stored) -> bool:
        """Tell whether this copy was made on top of ``other``, and has let go of nothing that it claims."""
        return goes_on_from(other, writers=self.writers, head=self.head)

    def is_part_of(self, writers: Mapping[str, int]) -> bool:
        """Tell whether whoever has seen ``writers`` has seen everything that is stored here."""
        return all(writers.get(writer, 0) >= number for writer, number in self.writers.items())

    def covers(self, writers: Mapping[str, int]) -> bool:
        """Tell whether everything that whoever has seen ``writers`` has seen is stored here."""
        return all(self.writers.get(writer, 0) >= number for writer, number in writers.items())


@dataclass(frozen=True, kw_only=True)
class Draft:
    """A conversation as it is to be stored: ``Stored`` plus who saves it and what the durable tier does not have yet."""

    epoch: int
    version: int
    writers: Mapping[str, int]
    writer: str
    number: int
    base: Mapping[str, Any]
    head: Head
    slots: tuple[Slot, ...]
    fields: Mapping[str, bytes]
    pending: tuple[Logged, ...]
    ttl: float


def ended(state: str, head: Head) -> int:
    """Return the last incarnation of which nothing can be stored any more, by the head of a later one or a tombstone."""
    return head.since if state == DELETED else head.since - 1


def goes_on_from(stored: Stored, *, writers: Mapping[str, int], head: Head) -> bool:
    """Tell whether a copy of these ``writers`` and this ``head`` was made on ``stored``, and has let go of nothing of it.

    A copy forgets all but the latest writers: it need not name all that ``stored`` does. If it does not name who made that, and
    awaits numbers that are stored there, those may be other messages.
    """
    made_by, is_full = stored.made_by, len(writers) >= MOST_WRITERS
    if made_by.writer not in writers and stored.head.next > min(parse_runs(head.pending, record="head"), default=head.next):
        return False
    claimed = (writers.get(writer, number if is_full else -1) >= number for writer, number in stored.writers.items())
    return _includes(writers, head.forgotten, made_by) and all(claimed)


def _includes(writers: Mapping[str, int], forgotten: int, save: Save) -> bool:
    if save.writer in writers:
        return writers[save.writer] >= save.number
    return save.version <= forgotten


def with_save(writers: Mapping[str, int], writer: str, number: int) -> dict[str, int]:
    """Return ``writers`` with this save as the latest, at most ``MOST_WRITERS`` of them."""
    kept = [(id_, n) for id_, n in writers.items() if id_ != writer][-(MOST_WRITERS - 1) :]
    return {**dict(kept), writer: number}


def forgotten_by(version: int, *, before: Mapping[str, int], after: Mapping[str, int]) -> int:
    """Return the version up to which a save of ``version`` forgets writers, at most; 0 if it forgets none.

    The writers that a copy names have saved one after the other, the one it forgets before all of them. If it forgets several
    at once, they are of copies that were joined, and nothing is known of their order.
    """
    gone = len(before.keys() - after.keys())
    return 0 if not gone else version - len(after) if gone == 1 else version - 1


def writers_text(writers: Mapping[str, int]) -> str:
    """Return a version vector as text: ``id=n id=n``."""
    return " ".join(f"{writer}={number}" for writer, number in writers.items())


def parse_writers(text: str, *, record: str) -> dict[str, int]:
    """Return the version vector of ``writers_text``; raise ``CorruptRecordError`` naming ``record`` if it is malformed."""
    try:
        return {writer: int(number) for writer, number in (pair.split("=") for pair in text.split())}
    except (ValueError, AttributeError) as error:
        raise CorruptRecordError(f"record={record!r} is damaged: {error}", record=record) from error


def tagged(version: int, content: str) -> int:
    """Return the version as a tier stores it: it ends with six digits that depend on who made it, and of what.

    Where a tier lost its copy, or writers were cut off from it, a version may be made twice. A write that expects the one must
    not be taken for one that expects the other.
    """
    return version * _TAGS + zlib.crc32(content.encode()) % _TAGS


def untagged(version: int) -> int:
    """Return the version of what ``tagged`` gave."""
    return version // _TAGS


def digest(epoch: int, version: int, writers: str, window: str) -> int:
    """Return a checksum over what is stored in the clear, to be kept inside the head."""
    return zlib.crc32(f"{epoch}:{version}:{writers}:{window}".encode())


def pack(parts: Mapping[str, bytes]) -> bytes:
    """Return named byte strings as one."""
    index = json.dumps([[name, len(data)] for name, data in parts.items()], separators=(",", ":"))
    return b"\n".join((index.encode(), b"".join(parts.values())))


def unpack(data: bytes, *, record: str) -> dict[str, bytes]:
    """Return the parts of ``pack``; raise ``CorruptRecordError`` naming ``record`` if they do not add up."""
    try:
        index, _, rest = data.partition(b"\n")
        parts, at = {}, 0
        for name, length in json.loads(index):
            parts[checked_text(name, record, "a name")] = rest[at : at + checked_number(length, record, "a length")]
            at += length
    except (ValueError, TypeError, RecursionError) as error:
        raise CorruptRecordError(f"record={record!r} is damaged: {error}", record=record) from error
    if at != len(rest):
        raise CorruptRecordError(f"record={record!r} is damaged: its parts do not add up", record=record)
    return parts


@dataclass(frozen=True, order=True)
class Segment:
    """A log segment: its first and last sequence number."""

    first: int
    last: int

    def __contains__(self, seq: int) -> bool:
        """Tell whether message ``seq`` is in it."""
        return self.first <= seq <= self.last

    @classmethod
    def parse(cls, text: str, *, record: str) -> list[Segment]:
        """Return the segments of ``segments_text``; raise ``CorruptRecordError`` naming ``record`` if it is malformed."""
        try:
            spans = (token.split("-") for token in text.split(",") if token)
            segments = [cls(int(first), int(last)) for first, last in spans]
            for segment in segments:
                checked_number(segment.last - segment.first, record, "the length of a segment")
                checked_number(segment.last, record, "the end of a segment")
            return segments
        except (ValueError, AttributeError) as error:
            raise CorruptRecordError(f"record={record!r} is damaged: {error}", record=record) from error


def segments_text(segments: Iterable[Segment]) -> str:
    """Return segments as text: ``1-8,9-14``."""
    return ",".join(f"{segment.first}-{segment.last}" for segment in segments)


def joined(segments: Iterable[Segment]) -> list[Segment]:
    """Return as few segments as possible that cover the same numbers; beyond ``MOST_RUNS`` the oldest gaps are closed."""
    runs: list[Segment] = []
    for segment in sorted(segments):
        if runs and segment.first <= runs[-1].last + 1:
            segment = Segment(runs[-1].first, max(runs.pop().last, segment.last))
        runs.append(segment)
    old, new = runs[: 1 - MOST_RUNS], runs[1 - MOST_RUNS :]
    return [Segment(old[0].first, old[-1].last), *new] if old else new


def outside(seqs: Iterable[int], segments: Iterable[Segment]) -> list[int]:
    """Return those of ``seqs`` that no segment holds, in order."""
    ordered = iter(sorted(segments, key=lambda segment: segment.first))
    found: list[int] = []
    segment = next(ordered, None)
    for seq in sorted(seqs):
        while segment is not None and segment.last < seq:
            segment = next(ordered, None)
        if segment is None or seq < segment.first:
            found.append(seq)
    return found


def needed_segments(slots: Iterable[Slot], segments: Iterable[Segment]) -> list[Segment]:
    """Return those segments that hold a message of the window, in order."""
    ordered = iter(sorted(segments, key=lambda segment: segment.first))
    needed: list[Segment] = []
    segment = next(ordered, None)
    for seq in sorted([slot.seq for slot in slots if isinstance(slot, Logged)]):
        while segment is not None and segment.last < seq:
            segment = next(ordered, None)
        if segment is None:
            break
        if segment.first <= seq and (not needed or needed[-1] is not segment):
            needed.append(segment)
    return needed
