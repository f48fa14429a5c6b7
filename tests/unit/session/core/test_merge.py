"""The laws of merging copies."""

from __future__ import annotations

import itertools

from hypothesis import given, settings

from strands_manga_memory.session.core.identity import Name
from strands_manga_memory.session.core.merge import EMPTY, Copy, merge
from strands_manga_memory.session.core.records import Body, Message, in_order, name_of
from strands_manga_memory.session.core.vector import Entry, Vector
from strands_manga_memory.session.core.window import gaps, shown_name
from tests.unit.session.core.values import clock_of, copies, message


@settings(max_examples=110)
@given(copies(), copies(), copies())
def test_the_laws_of_merging(one: Copy, other: Copy, third: Copy) -> None:
    """Every law on the same copies, in every order: to draw them takes ten times as long as to judge them."""
    for copy in (one, other, third):
        merging_is_idempotent_and_nothing_adds_nothing(copy)
    for order in itertools.permutations((one, other, third)):
        merging_is_associative(*order)
    for pair in itertools.permutations((one, other, third), 2):
        for law in LAWS:
            law(*pair)


def merging_is_associative(one: Copy, other: Copy, third: Copy) -> None:
    assert merge(merge(one, other), third) == merge(one, merge(other, third))


def merging_is_idempotent_and_nothing_adds_nothing(one: Copy) -> None:
    assert merge(one, one) == one
    assert merge(one, EMPTY) == one


def merging_is_commutative(one: Copy, other: Copy) -> None:
    assert merge(one, other) == merge(other, one)


def a_merge_includes_both_copies(one: Copy, other: Copy) -> None:
    joined = merge(one, other)

    assert merge(one, joined) == joined
    assert merge(other, joined) == joined
    for copy in (one, other):
        assert joined.graves >= copy.graves
        if copy.graves != joined.graves:
            continue
        assert joined.vector.at_least(copy.vector)
        for name, kept in copy.messages.items():
            redacted = joined.redactions.get(name, 0)
            assert name in joined.messages or redacted > kept.revision
            assert name not in joined.messages or joined.messages[name].revision >= kept.revision


def no_message_that_a_window_evicted_comes_back(one: Copy, other: Copy) -> None:
    joined = merge(one, other)
    if joined.window is None:
        return

    slots = joined.window.names
    for shown in joined.view:
        name = name_of(shown)
        if isinstance(shown, Message) and name not in slots:
            assert not joined.window.seen.includes(shown.name, shown.clock)


def nothing_of_a_life_that_is_over_is_in_a_merge(one: Copy, other: Copy) -> None:
    joined = merge(one, other)

    for copy in (one, other):
        if joined.graves > copy.graves:
            rest = other if copy is one else one
            assert joined.messages == (rest.messages if rest.graves == joined.graves else {})


def what_was_redacted_is_in_no_merge_in_an_earlier_form(one: Copy, other: Copy) -> None:
    joined = merge(one, other)

    for name, revision in joined.redactions.items():
        assert name not in joined.messages or joined.messages[name].revision >= revision
        for shown in joined.view:
            assert not (isinstance(shown, Body) and shown.edits == name and shown.revision < revision)


def a_view_shows_each_message_once_and_each_turn_in_its_order(one: Copy, other: Copy) -> None:
    joined = merge(one, other)
    names = [name for name in map(name_of, joined.view) if name is not None]

    assert len(names) == len(set(names))
    slots = [] if joined.window is None else list(map(shown_name, joined.window.slots))
    tail = [name for name in names if name not in slots]
    for writer in {name.writer for name in tail}:
        numbers = [name.number for name in tail if name.writer == writer]
        assert numbers == sorted(numbers)


LAWS = (
    merging_is_commutative,
    a_merge_includes_both_copies,
    no_message_that_a_window_evicted_comes_back,
    nothing_of_a_life_that_is_over_is_in_a_merge,
    what_was_redacted_is_in_no_merge_in_an_earlier_form,
    a_view_shows_each_message_once_and_each_turn_in_its_order,
)


def test_messages_of_a_last_turn_that_is_nowhere_come_where_they_were_said() -> None:
    there = [message(*name) for name in (("a", 1), ("a", 2), ("b", 1), ("b", 2))]
    vector = Vector({"a": Entry(4, clock_of("a", 4)), "b": Entry(2, clock_of("b", 2))})
    copy = Copy(lives=frozenset({"life"}), vector=vector, messages={one.name: one for one in there})

    lost = [Name("a", 3), Name("a", 4)]
    assert [name_of(shown) for shown in copy.view] == [*(one.name for one in there), *lost]
    assert copy.lacks == frozenset(lost)
    assert [one.name for one in in_order([*there, *gaps(None, vector, there)])] == [*(one.name for one in there), *lost]
