"""Version vectors and their floor."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from strands_manga_memory.session.core.identity import Name
from strands_manga_memory.session.core.packed_vector import pack_entries, unpack_entries
from strands_manga_memory.session.core.vector import MOST_KNOWN, MOST_WRITERS, Entry, Vector
from strands_manga_memory.stores.encoding.codec import json_bytes
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
def test_shortening_a_vector_excludes_nothing(vector: Vector, seen: Vector, to: int) -> None:
    compacted = vector.as_logged().compacted(to=to)
    shorter = compacted.shortened(seen, to=to)

    assert included(shorter) >= included(compacted) >= included(vector)
    assert all(shorter.last[writer] == entry for writer, entry in compacted.last.items() if seen.number(writer) < entry.number)


@given(vectors(), st.integers(0, 3))
def test_a_writer_with_messages_that_are_not_logged_never_leaves(vector: Vector, to: int) -> None:
    shorter = vector.compacted(to=to).shortened(vector, to=to)

    assert shorter.last == vector.last


def crowd(count: int, *, logged: int = 4, opened: int = 0) -> Vector:
    """Return the vector of one turn each of so many writers, shortened whenever it is too long."""
    vector = Vector()
    for at in range(count):
        vector = vector.including(f"w{at}", Entry(4, at + 1, 1, 1, float(at), opened, logged))
        if sum(entry.clock > vector.counted for entry in vector.last.values()) > MOST_WRITERS:
            vector = vector.compacted()
        if len(vector.last) > MOST_KNOWN:
            vector = vector.shortened(vector)
    return vector


def test_a_vector_of_five_hundred_writers_that_came_and_went_stays_short() -> None:
    vector = crowd(500)

    assert len(vector.last) <= MOST_KNOWN
    assert sum(entry.clock > vector.counted for entry in vector.last.values()) <= MOST_WRITERS
    assert vector.tally[:2] == (2000, 500)
    assert vector.includes(Name("w3", 4), 4)
    assert not vector.includes(Name("late", 1), 501)
    assert len(json_bytes(pack_entries(vector.last))) < 2_000
    assert unpack_entries(pack_entries(vector.last)).keys() == vector.last.keys()


def test_the_last_forty_writers_are_named_however_many_there_were() -> None:
    assert {f"w{at}" for at in range(460, 500)} <= crowd(500).last.keys()


def test_a_writer_that_is_to_be_kept_stays_below_the_floor() -> None:
    vector = Vector({f"w{at}": Entry(1, at, logged=1) for at in range(1, 11)}).compacted(to=0)

    shorter = vector.shortened(vector, keep=["w2"], to=5)

    assert (shorter.floor, shorter.above) == (5, 5)
    assert sorted(shorter.last) == sorted(["w2", "w6", "w7", "w8", "w9", "w10"])
    assert shorter.joined(Vector({"w1": Entry(1, 1, logged=1)})) == shorter


def test_a_turn_below_the_floor_of_another_vector_stays_unless_it_is_known_to_be_logged() -> None:
    late = Vector({"late": Entry(2, 3)})
    other = Vector({"a": Entry(2, 12)}, floor=9, counted=9)

    assert "late" in late.joined(other).last
    assert "late" not in late.as_logged().joined(other).last
    assert "late" in late.joined(other).as_logged().joined(other).last
