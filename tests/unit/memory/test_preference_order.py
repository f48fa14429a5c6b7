"""Changes of a user's preferences give the same result in whatever order they arrive."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations

import pytest

from strands_manga_memory.memory import Preference
from strands_manga_memory.memory.statements import (
    LoggedChanges,
    PreferenceChange,
    Removal,
    Statement,
    message_digest,
    slot_states,
)


def stated(slot: str, value: str, at: float, message_id: str, **kind: bool) -> PreferenceChange:
    return PreferenceChange(statements=[Statement(Preference(slot, value, **kind), at, message_id)])


def forgotten(slot: str, value: str, at: float) -> PreferenceChange:
    return PreferenceChange(removals=[Removal.of_preference(slot, value, at)])


def retracted(message_id: str, at: float) -> PreferenceChange:
    return PreferenceChange(removals=[Removal(at, message=message_digest(message_id))])


CASES = [
    pytest.param(
        [
            stated("genre", "horror", 1, "m1"),
            stated("genre", "mystery", 2, "m2"),
            stated("genre", "romance", 3, "m3", adds=True),
        ],
        {"genre": "romance, mystery"},
        id="later statements of two devices",
    ),
    pytest.param(
        [
            stated("genre", "horror", 1, "m1"),
            forgotten("genre", "horror", 2),
            stated("author", "Ito", 3, "m2"),
        ],
        {"author": "Ito"},
        id="a forgotten preference",
    ),
    pytest.param(
        [
            stated("genre", "horror", 1, "m1"),
            forgotten("genre", "horror", 2),
            stated("genre", "horror", 3, "m2"),
        ],
        {"genre": "horror"},
        id="a statement after forgetting",
    ),
    pytest.param(
        [
            stated("genre", "horror", 1, "m1"),
            stated("genre", "mystery", 2, "m2"),
            retracted("m2", 3),
        ],
        {"genre": "horror"},
        id="the statement before a retracted one",
    ),
    pytest.param(
        [
            stated("genre", "horror", 1, "m1"),
            stated("genre", "horror", 2, "m2", liked=False),
            stated("name", "Ken", 3, "m3"),
        ],
        {"dislikes": "horror", "name": "Ken"},
        id="a rejected value",
    ),
    pytest.param(
        [
            stated("name", "Ken", 1, "m1"),
            stated("name", "Ken", 1, "m1"),
            stated("name", "Kenji", 2, "m2"),
        ],
        {"name": "Kenji"},
        id="a session that ends twice",
    ),
    pytest.param(
        [
            stated("budget", "3,000 yen a month", 1, "m1"),
            stated("allowance", "5,000 yen a month", 2, "m2"),
            forgotten("budget", "3,000 yen a month", 3),
        ],
        {"allowance": "5,000 yen a month"},
        id="a forgotten amount",
    ),
]


@pytest.mark.parametrize(("changes", "expected"), CASES)
def test_order_of_arrival_does_not_matter(
    changes: Sequence[PreferenceChange], expected: dict[str, str]
) -> None:
    """Only the times of messages decide, also for late transcripts and removals."""
    for order in permutations(changes):
        log = LoggedChanges()
        for change in order:
            log = log.with_change(change) or log
        assert {
            slot: state.value for slot, state in slot_states(log.statements).items()
        } == expected


def test_nothing_from_before_an_erasure_is_admitted() -> None:
    """Neither statements nor removals of before an erasure change the log."""
    log = LoggedChanges(erased_at=5)
    for change in (
        stated("genre", "horror", 5, "m1"),
        forgotten("genre", "horror", 4),
        retracted("m1", 5),
    ):
        assert log.with_change(change) is None
    later = log.with_change(stated("genre", "horror", 6, "m2"))
    assert later is not None
    assert [each.at for each in later.statements] == [6]
