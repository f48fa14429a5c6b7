"""Copies of one conversation as Hypothesis draws them: whatever two of them have in common is the same in both."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from strands_manga_memory.session.core.identity import Name, Segment, Stamp
from strands_manga_memory.session.core.merge import Copy, merge
from strands_manga_memory.session.core.records import Body, Message
from strands_manga_memory.session.core.registers import Register
from strands_manga_memory.session.core.vector import Entry, Vector
from strands_manga_memory.session.core.window import BodySlot, Window
from strands_manga_memory.stores.encoding.codec import dump

WRITERS = ("a", "b", "c")
NUMBERS = range(1, 6)
NAMES = st.builds(Name, st.sampled_from(WRITERS), st.sampled_from(NUMBERS))


def clock_of(writer: str, number: int) -> int:
    """Return the clock of a message's turn: two messages a turn, and writers whose clocks differ."""
    return (number + 1) // 2 * 3 + WRITERS.index(writer) % 2


def message(writer: str, number: int, revision: int = 0) -> Message:
    """Return the message of that name and revision."""
    first = number - (number - 1) % 4
    segment = Segment("life", clock_of(writer, first), writer, first)
    role = "user" if number % 2 else "assistant"
    said = {"role": role, "content": [{"text": f"{writer}{number} r{revision}"}], "tracking_id": f"{writer}{number}"}
    return Message(segment, Name(writer, number), clock_of(writer, number), float(number), dump(said), revision)


def body(writer: str, number: int, revision: int = 0) -> Body:
    """Return an edited form of a message."""
    return Body(
        dump({"role": "user", "content": [{"text": f"{writer}{number} edited r{revision}"}]}), Name(writer, number), revision
    )


@st.composite
def vectors(draw: Any) -> Vector:
    floor = draw(st.sampled_from([0, 0, 3, 4, 6]))
    last = draw(st.dictionaries(st.sampled_from(WRITERS), st.sampled_from(NUMBERS)))
    return Vector({w: Entry(n, clock_of(w, n)) for w, n in last.items()}, floor).joined(Vector())


def window(stamp: Stamp) -> Window:
    """Return the window that was written at this stamp; there is only one."""
    names = [Name(w, n) for w in WRITERS for n in NUMBERS if (stamp.clock * 7 + n * 3 + WRITERS.index(w)) % 4 == 0]
    edited = {name: body(*name) for name in names if (stamp.clock + name.number) % 3 == 0}
    slots = tuple(BodySlot(edited[name].id, name) if name in edited else name for name in names)
    last = {w: max([*(n.number for n in names if n.writer == w), stamp.clock % 4]) for w in WRITERS}
    seen = Vector({w: Entry(n, clock_of(w, n)) for w, n in last.items() if n})
    return Window(stamp, slots, seen, {one.id: one for one in edited.values()})


STAMPS = st.builds(Stamp, st.integers(1, 9), st.sampled_from(WRITERS))


@st.composite
def copies(draw: Any) -> Copy:
    """Draw a copy in its normal form."""
    vector = draw(vectors())
    redactions = draw(st.dictionaries(NAMES, st.just(1), max_size=2))
    names = draw(st.sets(NAMES))
    held = [message(*name, draw(st.sampled_from([0, 1]))) for name in names]
    paths = draw(st.dictionaries(st.sampled_from([("s", "x"), ("s", "y"), ("s", "y", "z")]), STAMPS))
    stamp = draw(st.none() | STAMPS)
    drawn = Copy(
        graves=frozenset(draw(st.sampled_from([[], [], ["g"], ["g", "h"], ["h"]]))),
        lives=frozenset(draw(st.sets(st.sampled_from(["l1", "l2"])))),
        clock=draw(st.integers(0, 9)),
        vector=vector,
        messages={one.name: one for one in held if vector.includes(one.name, one.clock)},
        window=None if stamp is None else window(stamp),
        states={path: Register(at, dump(f"{path} {at}")) for path, at in paths.items()},
        redactions=redactions,
    )
    return merge(drawn, drawn)
