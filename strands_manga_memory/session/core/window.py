"""Window: what an agent's history holds, as names, bodies and marks, and the view that is made of it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

from strands_manga_memory.session.core.identity import Name, Segment, Stamp
from strands_manga_memory.session.core.records import Body, Lost, Mark, Message, Shown, in_order, name_of
from strands_manga_memory.session.core.vector import NOTHING, Vector


class BodySlot(NamedTuple):
    """A body in a window, by its id, and the message in whose place it stands; None if it was synthesized."""

    body: str
    name: Name | None = None


class Joined(NamedTuple):
    """A message or body of a window that the agent has in one message with the slot before it."""

    slot: Name | BodySlot


Slot = Name | BodySlot | Joined | Mark | Lost
"""A place of a window: a message or a body, a mark, or a message that whoever wrote the window could not read."""


def shown_name(slot: Slot) -> Name | None:
    """Return the message that a slot shows, edited or not."""
    if isinstance(slot, Mark):
        return None
    slot = slot.slot if isinstance(slot, Joined) else slot
    return slot.name if isinstance(slot, BodySlot | Lost) else slot


@dataclass(frozen=True)
class Window:
    """A register: the window that somebody wrote; a message that ``seen`` includes and the slots lack was evicted."""

    stamp: Stamp
    slots: tuple[Slot, ...] = ()
    seen: Vector = NOTHING
    bodies: Mapping[str, Body] = field(default_factory=dict)

    @property
    def order(self) -> tuple[int, Stamp]:
        """Its place among windows: below a higher floor its author may not have seen what left the vector."""
        return self.seen.floor, self.stamp

    @cached_property
    def names(self) -> frozenset[Name]:
        """The messages that it shows, edited or not."""
        return frozenset(name for name in map(shown_name, self.slots) if name is not None)


def slots_of(view: Iterable[Shown | Name]) -> tuple[tuple[Slot, ...], dict[str, Body]]:
    """Return a view, or names of it, as slots, and the bodies that they name."""
    slots: list[Slot] = []
    bodies: dict[str, Body] = {}
    for one in view:
        if isinstance(one, Body):
            bodies[one.id] = one
            slots.append(_slot(BodySlot(one.id, one.edits), one))
        elif isinstance(one, Message):
            slots.append(Lost(one.name) if one.was_lost else _slot(one.name, one))
        else:
            slots.append(one)
    return tuple(slots), bodies


def _slot(slot: Name | BodySlot, shown: Message | Body) -> Slot:
    return Joined(slot) if shown.joins else slot


def without_redacted(window: Window | None, redactions: Mapping[Name, int]) -> Window | None:
    """Return a window without bodies of messages that were redacted since; the messages take their places."""
    if window is None or not redactions:
        return window

    def stale(body: Body) -> bool:
        return body.edits is not None and body.revision < redactions.get(body.edits, 0)

    if not any(map(stale, window.bodies.values())):
        return window
    return replace(window, bodies={id_: body for id_, body in window.bodies.items() if not stale(body)})


def later(one: Window | None, other: Window | None) -> Window | None:
    """Return the later of two windows; of one that was read twice, all bodies that either reading had."""
    if one is None or other is None or one is other:
        return one or other
    if one.stamp == other.stamp:
        if other.bodies.keys() <= one.bodies.keys():
            return one
        return Window(one.stamp, one.slots, one.seen, {**other.bodies, **one.bodies})
    return max(one, other, key=lambda window: window.order)


def view(window: Window | None, vector: Vector, messages: Mapping[Name, Message]) -> list[Shown]:
    """Return what an agent gets to see.

    That is the window's slots, then, in the log's order, the messages that its author had not seen. Of a turn that the
    window has decided upon in part, the rest comes right after that part, or not at all if the part's end was evicted.

    Args:
        window: The window; None if nobody has written one.
        vector: What the copy includes.
        messages: The messages at hand. For one that is included and not at hand there is a ``Lost`` in its place.
    """
    base = [] if window is None else [_resolved(slot, window.bodies, messages) for slot in window.slots]
    seen = NOTHING if window is None else window.seen
    tail = undecided(window, vector, messages)
    places = _Places(base, seen)
    by_place: dict[int, list[Shown]] = {}
    for message in in_order([*tail, *gaps(window, vector, tail)]):
        place = places.of(message.turn)
        if place is not None:
            by_place.setdefault(place, []).append(messages.get(message.name) or Lost(message.name))
    shown: list[Shown] = []
    for at, one in enumerate(base):
        before = by_place.get(at, ())
        shown.extend(before)
        shown.append(_apart(one) if before else one)
    for at in (len(base), len(base) + 1):  # what goes on with the last turn, then new turns
        shown.extend(by_place.get(at, ()))
    return shown


def _apart(one: Shown) -> Shown:
    """Return a message that somebody's rest of a turn stands before: it may be of the same role now."""
    if isinstance(one, Message):
        return replace(one, was_lost=True, joins=False)
    return replace(one, joins=False) if isinstance(one, Body) else one


def is_decided(window: Window | None, vector: Vector, name: Name) -> bool:
    """Tell whether the author of a window had seen an included message: it is shown if a slot shows it, and evicted otherwise.

    A writer that the window's vector does not name was seen if it has left the copy's vector, too: no writer leaves that one
    before the window shows or evicts its messages.
    """
    entry = vector.last.get(name.writer)
    number = 0 if window is None else window.seen.number(name.writer)
    if name.number <= max(number, entry.left if entry is not None else 0) or (window is not None and name in window.names):
        return True
    return entry is None and not number


def undecided(window: Window | None, vector: Vector, messages: Mapping[Name, Message]) -> list[Message]:
    """Return the messages at hand that the window was not decided upon; for arguments see :func:`view`."""
    decided = {} if window is None else {writer: entry.number for writer, entry in window.seen.last.items()}
    tail = [
        one
        for one in messages.values()
        if one.name.number > decided.get(one.name.writer, 0) and not is_decided(window, vector, one.name)
    ]
    return [one for one in tail if vector.includes(one.name, one.clock)]


class _Places:
    """Where messages that a window was not decided upon come."""

    def __init__(self, base: Sequence[Shown], seen: Vector) -> None:
        self._end, self._seen = len(base) + 1, seen
        self._after = {name: at for at, name in enumerate(map(name_of, base), 1) if name is not None}
        self._closed = closed_turns(base)

    def of(self, turn: Stamp) -> int | None:
        """Return the place of a turn's messages; None if it was evicted, or closed, before they were said."""
        if turn in self._closed:
            return None
        last = self._seen.last.get(turn.writer)
        if last is None or last.clock != turn.clock:
            return self._end
        return self._after.get(Name(turn.writer, last.number))


def _resolved(slot: Slot, bodies: Mapping[str, Body], messages: Mapping[Name, Message]) -> Shown:
    if isinstance(slot, Mark):
        return slot
    if isinstance(slot, Joined):
        part = _resolved(slot.slot, bodies, messages)
        return part.joining() if isinstance(part, Message | Body) else part
    if isinstance(slot, BodySlot) and slot.body in bodies:
        return bodies[slot.body]
    name = shown_name(slot) or Name("", 0)  # of a synthesized body that is gone nothing is known
    found = messages.get(name)
    if found is None:
        return Lost(name)
    return replace(found, was_lost=True) if isinstance(slot, Lost) else found


def closed_turns(view: Iterable[Shown]) -> set[Stamp | None]:
    """Return the turns that somebody closed with a note of his own."""
    return {one.closes for one in view if isinstance(one, Body)}


MOST_GAPS = 1000
"""Of one writer no more messages that are nowhere are shown: of a vector that says too much, or a log that is gone."""


def gaps(window: Window | None, vector: Vector, at_hand: Iterable[Message]) -> list[Message]:
    """Return messages that cannot be read for those that are included, not at hand, and not seen by the window's author.

    Each is of the turn of the next one of its writer that is at hand; without any, of the writer's last turn.
    """
    by_writer: dict[str, dict[int, Message]] = {}
    for message in at_hand:
        by_writer.setdefault(message.writer, {})[message.number] = message
    seen, shown = (NOTHING, frozenset[Name]()) if window is None else (window.seen, window.names)
    lost: list[Message] = []
    for writer, last in vector.last.items():
        known, clock, at = by_writer.get(writer, {}), last.clock, last.at
        first = max(seen.number(writer) + 1, last.left + 1, last.number + 1 - MOST_GAPS)
        for number in range(last.number, first - 1, -1):
            if number in known:
                clock, at = known[number].clock, known[number].at
            elif Name(writer, number) not in shown:
                lost.append(Message(Segment("", clock, writer, 1), Name(writer, number), clock, at, b""))
    return lost
