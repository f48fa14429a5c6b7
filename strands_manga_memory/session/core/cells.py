"""Cells: a copy as small records that are stored, compared and read by themselves. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from strands_manga_memory.exceptions import CorruptRecordError
from strands_manga_memory.session.core.identity import Name, Segment, Stamp
from strands_manga_memory.session.core.merge import Copy, merge
from strands_manga_memory.session.core.packed_window import pack_window, unpack_window
from strands_manga_memory.session.core.records import Body, Message, framed, header_of, message_of, unframed
from strands_manga_memory.session.core.registers import Register
from strands_manga_memory.session.core.vector import Entry, Tally, Vector
from strands_manga_memory.session.core.window import Window
from strands_manga_memory.stores.encoding.codec import trusted

Key = tuple[Any, ...]
"""What a cell is about: its kind (one letter) and a name."""

Version = Any
"""Equal versions of a key have equal contents."""


def message_key(name: Name) -> Key:
    """Return the key of a message's cell."""
    return "m", *name


def registers_of(copy: Copy) -> dict[Key, Version]:
    """Return the keys and versions of a copy's cells that no copy can be read without: all but those of messages and bodies."""
    found: dict[Key, Version] = {("v", writer): entry for writer, entry in copy.vector.last.items()}
    found |= {("r", *name): revision for name, revision in copy.redactions.items()}
    found |= {("s", *path): register.stamp for path, register in copy.states.items()}
    if copy.window is not None:
        found["w",] = copy.window.stamp
    return found


def cells_of(copy: Copy, messages: Iterable[Name] = ()) -> dict[Key, Version]:
    """Return the keys and versions of a copy's cells, with those of some of its messages."""
    bodies: dict[Key, Version] = {} if copy.window is None else {("b", id_): 0 for id_ in copy.window.bodies}
    return {message_key(name): copy.messages[name].revision for name in messages} | bodies | registers_of(copy)


def loses(before: Mapping[Key, Version], after: Mapping[Key, Version]) -> bool:
    """Tell whether of a copy's cells a state or a body has gone or changed: messages go on in the log, all else only names."""
    return any(key[0] in "sb" and after.get(key) != version for key, version in before.items())


def packed(key: Key, copy: Copy) -> bytes:
    """Return the stored form of a cell of a copy."""
    header, blobs = _PACKERS[key[0]](copy, *key[1:])
    return framed([*key, header], blobs)


def _packed_window(copy: Copy) -> tuple[Any, list[bytes]]:
    assert copy.window is not None  # noqa: S101 - for the type checker
    return pack_window(copy.window), []


def _packed_register(copy: Copy, *path: str) -> tuple[Any, list[bytes]]:
    stamp, data = copy.states[path]
    return [*stamp, data is not None], [] if data is None else [data]


def _packed_body(copy: Copy, id_: str) -> tuple[Any, list[bytes]]:
    assert copy.window is not None  # noqa: S101 - for the type checker
    body = copy.window.bodies[id_]
    return [body.edits, body.revision, body.closes], [body.record]


def _packed_message(copy: Copy, *name: Any) -> tuple[Any, list[bytes]]:
    message = copy.messages[Name(*name)]
    return header_of(message), [message.record]


_PACKERS: Mapping[str, Callable[..., tuple[Any, list[bytes]]]] = {
    "m": _packed_message,
    "v": lambda copy, writer: (copy.vector.last[writer], []),
    "r": lambda copy, *name: (copy.redactions[Name(*name)], []),
    "s": _packed_register,
    "w": _packed_window,
    "b": _packed_body,
}


class Head(NamedTuple):
    """What a replica has beside its cells.

    Args:
        copy: The copy, without cells.
        registers: So many cells belong to it that are neither messages nor bodies.
    """

    copy: Copy
    registers: int = 0

    @classmethod
    def of(cls, copy: Copy) -> Head:
        """Return the head of a copy."""
        return cls(copy, len(registers_of(copy)))

    def pack(self) -> bytes:
        """Return its stored form: the same from turn to turn, as a clock that the cells have is not in it."""
        copy, vector = self.copy, self.copy.vector
        clock = copy.clock if copy.clock > copy.clock_of_parts else 0
        header = [sorted(copy.graves), sorted(copy.lives), clock, copy.created, vector.floor, vector.below]
        return framed([*header, self.registers])


def head_of(data: bytes, record: str) -> Head:
    """Return the head in its stored form; raise ``CorruptRecordError`` naming ``record`` if it is something else."""
    header, _ = unframed(data, record)
    with trusted(record):
        graves, lives, clock, created, floor, (messages, turns, at), registers = header
        vector = Vector(floor=int(floor), below=Tally(int(messages), int(turns), float(at)))
        copy = Copy(frozenset(map(str, graves)), frozenset(map(str, lives)), int(clock), float(created), vector)
        return Head(copy, int(registers))


class Parts:
    """The cells that a replica has, as they are read one after the other; then the copy that they make.

    Args:
        head: The copy without cells.
    """

    def __init__(self, head: Copy) -> None:
        self._head = head
        self._last: dict[str, Entry] = {}
        self._messages: dict[Name, Message] = {}
        self._segments: dict[Segment, Segment] = {}
        self._states: dict[tuple[str, ...], Register] = {}
        self._redactions: dict[Name, int] = {}
        self._bodies: dict[str, Body] = {}
        self._window: Window | None = None

    def add(self, data: bytes, record: str) -> tuple[Key, Version]:
        """Take a cell; return its key and version.

        Raises:
            CorruptRecordError: It is none. Names ``record``.
        """
        header, blobs = unframed(data, record)
        with trusted(record):
            kind, *name, rest = header
            key = kind, *name
            hash(key)  # a name that holds a list is none
            return key, _READERS[kind](self, name, rest, blobs)

    def _add_message(self, name: Any, header: Any, blobs: list[bytes]) -> Version:
        message = message_of(Name(*name), header, blobs[0], self._segments)
        self._messages[message.name] = message
        return message.revision

    def _add_entry(self, name: Any, header: Any, blobs: list[bytes]) -> Version:
        number, clock, saves, turns, at, opened = header
        entry = self._last[str(name[0])] = Entry(int(number), int(clock), int(saves), int(turns), float(at), int(opened))
        return entry

    def _add_redaction(self, name: Any, header: Any, blobs: list[bytes]) -> Version:
        writer, number = name
        revision = self._redactions[Name(str(writer), int(number))] = int(header)
        return revision

    def _add_register(self, name: Any, header: Any, blobs: list[bytes]) -> Version:
        clock, writer, has_data = header
        stamp = Stamp(int(clock), str(writer))
        self._states[tuple(map(str, name))] = Register(stamp, blobs[0] if has_data else None)
        return stamp

    def _add_window(self, name: Any, header: Any, blobs: list[bytes]) -> Version:
        self._window = unpack_window(header)
        return self._window.stamp

    def _add_body(self, name: Any, header: Any, blobs: list[bytes]) -> Version:
        edits, revision, closes = header
        self._bodies[str(name[0])] = Body(blobs[0], edits and Name(*edits), int(revision), closes and Stamp(*closes))
        return 0

    def copy(self) -> Copy:
        """Return the copy. What it has at hand it includes, also if the cell that says so is damaged."""
        vector = self._head.vector.joined(Vector(self._last))
        for message in self._messages.values():
            if not vector.includes(message.name, message.clock):
                vector = vector.including(message.name.writer, Entry(message.number, message.clock))
        window = self._window and replace(self._window, bodies=self._bodies)
        drawn = replace(
            self._head,
            vector=vector,
            messages=self._messages,
            window=window,
            states=self._states,
            redactions=self._redactions,
        )
        drawn = replace(drawn, clock=max(drawn.clock, drawn.clock_of_parts))
        return merge(drawn, drawn) if self._redactions else drawn


_READERS: Mapping[str, Callable[..., Version]] = {
    "m": Parts._add_message,  # noqa: SLF001 - of this module
    "v": Parts._add_entry,  # noqa: SLF001
    "r": Parts._add_redaction,  # noqa: SLF001
    "s": Parts._add_register,  # noqa: SLF001
    "w": Parts._add_window,  # noqa: SLF001
    "b": Parts._add_body,  # noqa: SLF001
}
_OPTIONAL = frozenset("mb")
"""Kinds of cells a copy can be read without: one that is damaged costs that message."""


def read_cells(
    head: Head, cells: Iterable[tuple[str, bytes]], record: str
) -> tuple[Copy, dict[Key, tuple[str, Version]], list[str]]:
    """Return the copy that a head and cells make, the record and version of each cell, and the records that cannot be read.

    Raises:
        CorruptRecordError: There are fewer registers than the head says. Names ``record``.
    """
    parts = Parts(head.copy)
    found: dict[Key, tuple[str, Version]] = {}
    damaged: list[str] = []
    for name, data in cells:
        try:
            key, version = parts.add(data, name)
        except CorruptRecordError:
            damaged.append(name)
        else:
            found[key] = name, version
    missing = head.registers - sum(key[0] not in _OPTIONAL for key in found)
    if missing > 0:
        raise CorruptRecordError(f"record={record!r} is damaged: {missing} of its registers cannot be read", record=record)
    return parts.copy(), found, damaged
