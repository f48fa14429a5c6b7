"""Slots: a window as JSON, short for what most windows are: messages of one writer in order, with marks among them. Pure."""

from __future__ import annotations

import base64
import functools
from collections.abc import Callable
from typing import Any

from strands_manga_memory.session.core.identity import Name, Stamp
from strands_manga_memory.session.core.packed_vector import pack_entries, unpack_entries
from strands_manga_memory.session.core.records import Lost, Mark
from strands_manga_memory.session.core.vector import Entry, Vector
from strands_manga_memory.session.core.window import BodySlot, Joined, Slot, Window
from strands_manga_memory.stores.encoding.codec import json_bytes, json_value

_SHOWN, _JOINED, _LOST, _GAP, _SHORT = "k", "j", "l", ".", "~"
_DIGITS, _HEXADECIMAL = 32, frozenset("0123456789abcdef")
_MARKS = {"u": "user", "a": "assistant"}
_LETTERS = {role: letter for letter, role in _MARKS.items()}
_OF_LETTER: dict[str, Callable[[Name], Slot]] = {_SHOWN: lambda name: name, _JOINED: Joined, _LOST: Lost}

_JOIN = "+"
"""Before the id of a body, which has digits and letters only."""

_LONGEST_GAP = 250
"""More messages of a writer than these that are not shown end a run."""

_MOST_SLOTS = 100_000
"""A window that has more is damaged, whatever else it says."""

_MOST_KEPT, _KEPT_BYTES = 64, 4_096
"""So many windows of up to so many bytes are kept as they were read: a restore reads the same one from both tiers."""


def pack_window(window: Window) -> bytes:
    """Return a window without its bodies as bytes of JSON.

    That is its stamp, its runs and what it was decided upon. A run is ``[writer, first, pattern, ids]``: a letter for each
    message from the first one on - shown, joined to what is before it, lost, left out with a mark, or not there - and the ids
    that marks have of their own. What is in no run stands for itself: ``[body, writer, number]``, ``[body]``, with a sign
    before a body that is joined to what is before it, or ``["", role, id]`` for a mark of nothing known.
    """
    runs: list[list[Any]] = []
    last: Name | None = None
    for slot in window.slots:
        name, letter = _in_run(slot)
        if name is None:
            runs.append(_alone(slot))
        else:
            if last is None or last.writer != name.writer or not 0 < name.number - last.number <= _LONGEST_GAP:
                runs.append([name.writer, name.number, "", []])
                last = Name(name.writer, name.number - 1)
            runs[-1][2] += _GAP * (name.number - last.number - 1) + letter
            runs[-1][3] += [_short(slot.id)] if isinstance(slot, Mark) else []
        last = name
    seen = window.seen
    entries = {writer: Entry(entry.number, entry.clock, logged=entry.number) for writer, entry in seen.last.items()}
    return json_bytes([*window.stamp, runs, seen.floor, pack_entries(entries)])


def _in_run(slot: Slot) -> tuple[Name | None, str]:
    """Return the message whose place a slot is, and its letter in a run; no message if it stands for itself."""
    if isinstance(slot, Mark):
        return (slot.of, _LETTERS[slot.role]) if slot.role in _LETTERS else (None, "")
    if isinstance(slot, Lost):
        return slot.name, _LOST
    shown, letter = (slot.slot, _JOINED) if isinstance(slot, Joined) else (slot, _SHOWN)
    return (None, "") if isinstance(shown, BodySlot) else (shown, letter)


def _alone(slot: Slot) -> list[Any]:
    if isinstance(slot, Joined):
        body, *name = _alone(slot.slot)
        return [_JOIN + body, *name]
    if isinstance(slot, BodySlot):
        return [slot.body, *(slot.name or ())]
    role, id_, of = Mark(*slot)
    return ["", role, id_, *(of or ())]


def unpack_window(data: bytes) -> Window:
    """Return what :func:`pack_window` was given; raise ``ValueError``, ``TypeError`` or ``LookupError`` for anything else."""
    return _kept(data) if len(data) <= _KEPT_BYTES else _unpacked(data)


@functools.lru_cache(maxsize=_MOST_KEPT)
def _kept(data: bytes) -> Window:
    return _unpacked(data)


def _unpacked(data: bytes) -> Window:
    clock, writer, runs, floor, seen = json_value(data)
    slots: list[Slot] = []
    for run in runs:
        slots.extend(_of_run(*run) if len(run) == 4 else [_of_alone(*run)])
        if len(slots) > _MOST_SLOTS:
            raise ValueError(f"its window shows over {_MOST_SLOTS} messages")
    last = {one: Entry(entry.number, entry.clock) for one, entry in unpack_entries(seen).items()}
    return Window(Stamp(int(clock), str(writer)), tuple(slots), Vector(last, int(floor)))


def _of_run(writer: str, first: int, pattern: str, ids: list[str]) -> list[Slot]:
    following, found = iter(ids), list[Slot]()
    for number, letter in enumerate(pattern, int(first)):
        if letter != _GAP:
            name = Name(writer, number)
            shown = _OF_LETTER.get(letter)
            found.append(Mark(_MARKS[letter], _long(str(next(following))), name) if shown is None else shown(name))
    return found


def _short(id_: str) -> str:
    """Return an id of a mark in its stored form: of a UUID, as Strands makes them, 23 characters instead of 36."""
    digits = id_.replace("-", "")
    if len(digits) == _DIGITS and _HEXADECIMAL.issuperset(digits) and _dashed(digits) == id_:
        return _SHORT + base64.urlsafe_b64encode(bytes.fromhex(digits)).decode().rstrip("=")
    return _SHORT + id_ if id_.startswith(_SHORT) else id_


def _long(stored: str) -> str:
    """Return what :func:`_short` was given; raise ``ValueError`` for what it never returns."""
    if not stored.startswith(_SHORT) or stored.startswith(2 * _SHORT):
        return stored.removeprefix(_SHORT)
    return _dashed(base64.urlsafe_b64decode(stored[1:] + "==").hex())


def _dashed(digits: str) -> str:
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def _of_alone(body: str, *rest: Any) -> Slot:
    if body:
        slot = BodySlot(str(body).removeprefix(_JOIN), Name(str(rest[0]), int(rest[1])) if rest else None)
        return Joined(slot) if str(body).startswith(_JOIN) else slot
    role, id_, *of = rest
    return Mark(str(role), str(id_), Name(str(of[0]), int(of[1])) if of else None)
