"""Cells: a copy as small records that are stored, compared and read by themselves. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from operator import attrgetter
from typing import Any, NamedTuple

from strands_manga_memory.exceptions import CorruptRecordError
from strands_manga_memory.session.core.identity import Name, Segment, Stamp
from strands_manga_memory.session.core.merge import Copy, merge
from strands_manga_memory.session.core.packed_messages import header_of, message_of
from strands_manga_memory.session.core.packed_vector import pack_entries, unpack_entries
from strands_manga_memory.session.core.packed_window import pack_window, unpack_window
from strands_manga_memory.session.core.records import Body, Message, framed, unframed
from strands_manga_memory.session.core.registers import Register, is_derived
from strands_manga_memory.session.core.vector import Entry, Tally, Vector
from strands_manga_memory.session.core.window import Window
from strands_manga_memory.stores.encoding.codec import MALFORMED, damaged, trusted

Key = tuple[Any, ...]
"""What a cell is about: of a message its name, of all else its kind (one letter) and a name."""

Cell = Any
"""What a cell holds: a message, body, window, entry of the vector, redaction (its revision), or register of a state."""

Version = Any
"""Equal versions of a key have equal contents."""


def kind_of(key: Key) -> str:
    """Return the kind of a cell, by its key."""
    return _MESSAGE if type(key) is Name else key[0]


def cells_of(copy: Copy, messages: Iterable[Name] = (), *, derived: bool = True) -> dict[Key, Cell]:
    """Return a copy's cells, with those of some of its messages; without those that are ``derived``, unless they are wanted."""
    cells: dict[Key, Cell] = {name: copy.messages[name] for name in messages}
    if copy.window is not None:
        cells |= {("b", id_): body for id_, body in copy.window.bodies.items()}
        cells["w",] = copy.window
    counted = copy.vector.counted
    cells |= {("v", writer): entry for writer, entry in copy.vector.last.items() if entry.clock > counted}
    cells |= {("r", *name): revision for name, revision in copy.redactions.items()}
    return cells | {("s", *path): register for path, register in copy.states.items() if derived or not is_derived(path)}


def versions_of(cells: Mapping[Key, Cell]) -> dict[Key, Version]:
    """Return the versions of cells."""
    version_of = {kind: one.version for kind, one in _KINDS.items()}
    return {key: version_of[kind_of(key)](cell) for key, cell in cells.items()}


def loses(before: Mapping[Key, Version], after: Mapping[Key, Version]) -> bool:
    """Tell whether of a copy's cells a state or a body has gone or changed: messages go on in the log, all else only names."""
    lost = (key for key, version in before.items() if kind_of(key) in "sb" and after.get(key) != version)
    return not all(is_derived(key[1:]) for key in lost)


def packed(cells: Mapping[Key, Cell]) -> bytes:
    """Return the stored form of cells that are stored together."""
    headers: list[Any] = []
    blobs: list[bytes] = []
    for key, cell in cells.items():
        kind = kind_of(key)
        header, its_blobs = _KINDS[kind].pack(cell)
        headers.append([kind, *(key if kind == _MESSAGE else key[1:]), header])
        blobs += its_blobs
    return framed(headers, blobs)


class Head(NamedTuple):
    """What a replica has beside its cells: the copy without them, and how many of them are neither messages nor bodies."""

    copy: Copy
    registers: int = 0

    @classmethod
    def of(cls, copy: Copy, cells: Iterable[Key]) -> Head:
        """Return the head of a copy of which a replica has these cells."""
        return cls(copy, sum(kind_of(key) not in _OPTIONAL for key in cells))

    def pack(self) -> bytes:
        """Return its stored form: the same from turn to turn, as a clock that the cells have is not in it."""
        copy, vector = self.copy, self.copy.vector
        clock = copy.clock if copy.clock > copy.clock_of_parts else 0
        header = [sorted(copy.graves), sorted(copy.lives), clock, copy.created, vector.floor, vector.below]
        header += [vector.counted, pack_entries(copy.counted_entries)]
        return framed([*header, self.registers])


def head_of(data: bytes, record: str) -> Head:
    """Return the head in its stored form; raise ``CorruptRecordError`` naming ``record`` if it is something else."""
    header, _ = unframed(data, record)
    with trusted(record):
        graves, lives, clock, created, floor, (messages, turns, at), counted, entries, registers = header
        below = Tally(int(messages), int(turns), float(at))
        vector = Vector(unpack_entries(entries), int(floor), int(counted), below)
        copy = Copy(frozenset(map(str, graves)), frozenset(map(str, lives)), int(clock), float(created), vector)
        return Head(copy, int(registers))


class ReadCells(NamedTuple):
    """What cells were read as.

    Args:
        copy: The copy that they make.
        records: The record of each cell.
        versions: The version of each cell.
        damaged: The records that cannot be read.
    """

    copy: Copy
    records: dict[Key, str]
    versions: dict[Key, Version]
    damaged: list[str]


def read_cells(head: Head, cells: Iterable[tuple[str, bytes]], record: str) -> ReadCells:
    """Return what a head and cells are; a record has one cell, or several that were packed together.

    Raises ``CorruptRecordError`` naming ``record`` if there are fewer registers than the head says.
    """
    found: dict[str, dict[Any, Cell]] = {kind: {} for kind in _KINDS}
    records: dict[Key, str] = {}
    damaged: list[str] = []
    segments: dict[tuple[Any, ...], Segment] = {}
    for name, data in cells:
        try:
            read = _read(data, name, segments)
        except CorruptRecordError:
            damaged.append(name)
            continue
        for kind, key, cell in read:
            found[kind][key] = cell
            records[key] = name
    missing = head.registers - sum(len(of_kind) for kind, of_kind in found.items() if kind not in _OPTIONAL)
    if missing > 0:
        raise CorruptRecordError(f"record={record!r} is damaged: {missing} of its registers cannot be read", record=record)
    versions = {key: _KINDS[kind].version(cell) for kind, of_kind in found.items() for key, cell in of_kind.items()}
    return ReadCells(_copy_of(head.copy, found), records, versions, damaged)


def _read(data: bytes, record: str, segments: dict[tuple[Any, ...], Segment]) -> list[tuple[str, Key, Cell]]:
    header, blobs = unframed(data, record)
    blobs.reverse()  # each cell takes its own from the end
    found: list[tuple[str, Key, Cell]] = []
    try:
        for kind, *name, rest in header:
            _, _, read, named_by = _KINDS[kind]
            if [*map(type, name)] != ([str] * len(name) if named_by is None else named_by):
                raise ValueError(f"{name!r:.100} names no cell")
            if read is None:
                of = Name(*name)
                found.append((kind, of, message_of(of, rest, blobs.pop(), segments)))
            else:
                found.append((kind, (kind, *name), read(rest, blobs)))
    except MALFORMED as error:
        raise damaged(record, error) from error
    return found


def _copy_of(head: Copy, cells: Mapping[str, dict[Any, Cell]]) -> Copy:
    """Return the copy of cells by kind. What it has at hand it includes, also if the cell that says so is damaged."""
    messages: dict[Name, Message] = cells[_MESSAGE]
    vector = head.vector.joined(Vector({writer: entry for (_, writer), entry in cells["v"].items()}))
    for message in messages.values():
        if not vector.includes(message.name, message.clock):
            vector = vector.including(message.name.writer, Entry(message.number, message.clock))
    window: Window | None = cells["w"].get(("w",))
    bodies = {id_: body for (_, id_), body in cells["b"].items()}
    drawn = replace(
        head,
        vector=vector,
        messages=messages,
        window=replace(window, bodies=bodies) if window is not None and bodies else window,
        states={key[1:]: register for key, register in cells["s"].items()},
        redactions={Name(*name): revision for (_, *name), revision in cells["r"].items()},
    )
    drawn = replace(drawn, clock=max(drawn.clock, drawn.clock_of_parts))
    return merge(drawn, drawn) if drawn.redactions else drawn


def _pack_entry(entry: Entry) -> tuple[Any, list[bytes]]:
    number, clock, saves, turns, at, opened, logged, left = entry
    unlogged = number - logged
    return [number, clock, saves, turns, at, opened, *([unlogged, left] if unlogged or left else [])], []


def _read_entry(header: Any, blobs: list[bytes]) -> Entry:
    number, clock, saves, turns, at, opened, *rest = header
    unlogged, left = rest or (0, 0)
    logged = int(number) - int(unlogged)
    return Entry(int(number), int(clock), int(saves), int(turns), float(at), int(opened), logged, int(left))


def _pack_register(register: Register) -> tuple[Any, list[bytes]]:
    return [*register.stamp, register.data is not None], [] if register.data is None else [register.data]


def _read_register(header: Any, blobs: list[bytes]) -> Register:
    clock, writer, has_data = header
    return Register(Stamp(int(clock), str(writer)), blobs.pop() if has_data else None)


def _read_body(header: Any, blobs: list[bytes]) -> Body:
    edits, revision, closes = header
    return Body(blobs.pop(), edits and Name(*edits), int(revision), closes and Stamp(*closes))


_MESSAGE = "m"

_OPTIONAL = frozenset("mb")
"""Kinds of cells a copy can be read without: one that is damaged costs that message."""


class _Kind(NamedTuple):
    """What is done with cells of a kind: one is stored as a header and some bytes, which its reader takes from a list's end."""

    version: Callable[[Any], Version]
    pack: Callable[[Any], tuple[Any, list[bytes]]]
    read: Callable[[Any, list[bytes]], Cell] | None  # None: it is a message
    named_by: list[type] | None  # types of the parts of its name; None: so many strings as there are


_KINDS: Mapping[str, _Kind] = {
    _MESSAGE: _Kind(attrgetter("revision"), lambda message: (header_of(message), [message.record]), None, [str, int]),
    "b": _Kind(lambda body: 0, lambda body: ([body.edits, body.revision, body.closes], [body.record]), _read_body, [str]),
    "w": _Kind(attrgetter("stamp"), lambda window: (0, [pack_window(window)]), lambda _, blobs: unpack_window(blobs.pop()), []),
    "v": _Kind(lambda entry: entry, _pack_entry, _read_entry, [str]),
    "r": _Kind(lambda revision: revision, lambda revision: (revision, []), lambda header, _: int(header), [str, int]),
    "s": _Kind(attrgetter("stamp"), _pack_register, _read_register, None),
}
