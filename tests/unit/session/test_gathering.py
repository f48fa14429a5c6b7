"""Logs in which turns cross, and what is read of them."""

from __future__ import annotations

import dataclasses
import itertools
import random
from collections.abc import Iterator

from strands_manga_memory.session.gathering import _MOST_HELD, gathered
from strands_manga_memory.session.window import Logged
from strands_manga_memory.stores.codec import dump, load
from tests.unit.session.support import user


def slot(id_: str, seq: int, turn: int, turn_id: str = "", ordinal: int = 0, *, revision: int = 0) -> Logged:
    record = dump({"message": user(id_, tracking_id=id_), "turn": turn, "at": 1.0})
    return Logged(id_, 0, record, turn, 1.0, seq=seq, turn_id=turn_id, ordinal=ordinal, revision=revision)


def ids(*log: Logged) -> list[str]:
    return [one.tracking_id for one in gathered(log)]


def test_turns_that_cross_come_one_after_the_other() -> None:
    log = [slot("a1", 1, 1, "a.1", 1), slot("b1", 2, 2, "b.1", 1), slot("a2", 3, 1, "a.1", 2), slot("b2", 4, 2, "b.1", 2)]
    assert ids(*log) == ["a1", "a2", "b1", "b2"]


def test_a_turn_comes_where_it_ended() -> None:
    """Whoever ends a turn that others have overtaken puts it last in the window too."""
    log = [slot("a1", 1, 1, "a.1", 1), slot("b1", 2, 2, "b.1", 1), slot("b2", 3, 2, "b.1", 2), slot("a2", 4, 1, "a.1", 2)]
    assert ids(*log) == ["b1", "b2", "a1", "a2"]


def test_what_was_stored_in_another_order_comes_in_the_order_of_its_turn() -> None:
    assert ids(slot("a2", 1, 1, "a.1", 2), slot("a1", 2, 1, "a.1", 1)) == ["a1", "a2"]


def test_turns_of_one_writer_come_in_his_order() -> None:
    log = [slot("b", 1, 1, "b.1", 1), slot("a3", 2, 2, "a.3", 1), slot("c", 3, 3, "c.1", 1), slot("a2", 4, 4, "a.2", 1)]
    assert ids(*log, slot("a10", 5, 5, "a.10", 1)) == ["b", "a2", "a3", "c", "a10"]


def test_a_message_that_is_there_twice_comes_once_in_its_latest_revision() -> None:
    log = [slot("a", 1, 1, "a.1", 1), slot("b", 2, 2, "b.1", 1), slot("a", 3, 1, "a.1", 1, revision=1)]
    assert [(one.tracking_id, one.revision) for one in gathered(log)] == [("a", 1), ("b", 0)]


def test_numbers_of_turns_rise_and_each_turn_has_one() -> None:
    log = [slot("a1", 1, 3, "a.1", 1), slot("a2", 2, 4, "a.1", 2), slot("b", 3, 1, "b.1", 1), slot("c", 4, 9, "c.1", 1)]
    found = list(gathered(log))
    assert [one.turn for one in found] == [3, 3, 4, 9]
    assert [load(one.record)["turn"] for one in found] == [3, 3, 4, 9]
    assert log[2].turn == 1


def test_records_of_an_earlier_version_come_as_they_are_stored() -> None:
    log = [slot(f"m{seq}", seq, turn) for seq, turn in enumerate([1, 1, 2, 2, 2, 5], 1)]
    assert [one is other for one, other in zip(gathered(log), log, strict=True)] == [True] * 6


def test_any_crossing_of_turns_comes_apart_again() -> None:
    rng = random.Random(7)
    writers = {writer: [(turn, ordinal) for turn in range(1, 9) for ordinal in range(1, rng.randint(2, 6))] for writer in "abc"}
    whole = {writer: [f"{writer}{turn}-{ordinal}" for turn, ordinal in said] for writer, said in writers.items()}
    log: list[Logged] = []
    while left := [writer for writer, said in writers.items() if said]:
        writer = rng.choice(left)
        turn, ordinal = writers[writer].pop(0)
        log.append(slot(f"{writer}{turn}-{ordinal}", len(log) + 1, turn, f"{writer}.{turn}", ordinal))
    found = list(gathered(log))
    turns = [turn for turn, _ in itertools.groupby(found, key=lambda one: one.turn_id)]
    assert len(turns) == len(set(turns))
    for writer, said in whole.items():
        assert [one.tracking_id for one in found if one.tracking_id.startswith(writer)] == said


def test_a_long_log_is_read_as_it_is_asked_for() -> None:
    read: list[int] = []

    def log() -> Iterator[Logged]:
        for seq in range(1, 100_000):
            read.append(seq)
            yield slot(f"m{seq}", seq, seq, f"a.{seq}", 1)

    first = list(itertools.islice(gathered(log()), 10))
    assert [one.seq for one in first] == list(range(1, 11))
    assert len(read) <= _MOST_HELD + 10


def test_the_rest_of_a_turn_that_comes_very_late_comes_by_itself() -> None:
    begun = slot("a1", 1, 1, "a.1", 1)
    others = [slot(f"b{seq}", seq, seq, f"b.{seq}", 1) for seq in range(2, _MOST_HELD + 3)]
    rest = dataclasses.replace(begun, tracking_id="a2", seq=1000, ordinal=2)
    found = ids(begun, *others, rest)
    assert (found[0], found[-1], len(found)) == ("a1", "a2", len(others) + 2)
