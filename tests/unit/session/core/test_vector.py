"""Version vectors and their floor."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from strands_manga_memory.session.core.identity import Name
from strands_manga_memory.session.core.vector import MOST_WRITERS, Entry, Vector
from tests.unit.session.core.values import NUMBERS, WRITERS, clock_of, vectors

NAMES = [Name(writer, number) for writer in WRITERS for number in NUMBERS]


def included(vector: Vector) -> set[Name]:
    return {name for name in NAMES if vector.includes(name, clock_of(*name))}


@given(vectors(), vectors())
def test_a_join_includes_what_either_includes_and_nothing_else(one: Vector, other: Vector) -> None:
    assert included(one.joined(other)) == included(one) | included(other)


@given(vectors(), vectors(), vectors())
def test_joins_are_commutative_associative_and_idempotent(one: Vector, other: Vector, third: Vector) -> None:
    assert one.joined(other) == other.joined(one)
    assert one.joined(other).joined(third) == one.joined(other.joined(third))
    assert one.joined(one) == one


@given(vectors(), vectors(), st.integers(0, 3))
def test_shortening_a_vector_hides_nothing_that_is_pending(vector: Vector, stored: Vector, to: int) -> None:
    pending = included(vector) - included(stored)
    waiting = [clock_of(*name) for name in pending]

    shorter = vector.shortened(stored, waiting=waiting, to=to)

    assert included(shorter) >= included(vector)
    assert all(clock_of(*name) > shorter.floor for name in pending if not vector.floor >= clock_of(*name))


def test_a_vector_of_five_hundred_writers_that_came_and_went_stays_short() -> None:
    vector = Vector()
    for at in range(500):
        vector = vector.including(f"w{at}", Entry(4, at + 1))
        if len(vector.last) > MOST_WRITERS:
            vector = vector.shortened(vector)

    assert len(vector.last) <= MOST_WRITERS
    assert vector.includes(Name("w3", 4), 4)
    assert not vector.includes(Name("late", 1), 501)


def test_a_writer_with_pending_messages_stays_and_so_does_who_spoke_after_it() -> None:
    vector = Vector({f"w{at}": Entry(1, at) for at in range(1, 11)})
    stored = Vector({writer: entry for writer, entry in vector.last.items() if writer != "w4"})

    assert vector.shortened(stored, waiting=[4], to=2).floor == 3
