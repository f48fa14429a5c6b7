"""Changes of a user's preferences give the same result in whatever order they arrive."""

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


def stated(slot: str, value: str, at: int, **kind: bool) -> PreferenceChange:
    """Return a preference that the message ``m<at>`` states at this time."""
    return PreferenceChange(statements=[Statement(Preference(slot, value, **kind), at, f"m{at}")])


def forgotten(slot: str, value: str, at: float) -> PreferenceChange:
    return PreferenceChange(removals=[Removal.of_preference(slot, value, at)])


def retracted(message_id: str, at: float) -> PreferenceChange:
    return PreferenceChange(removals=[Removal(at, message=message_digest(message_id))])


CASES = {
    "later statements of two devices": (
        [
            stated("genre", "horror", 1),
            stated("genre", "mystery", 2),
            stated("genre", "romance", 3, adds=True),
        ],
        {"genre": "romance, mystery"},
    ),
    "a forgotten preference": (
        [stated("genre", "horror", 1), forgotten("genre", "horror", 2), stated("author", "Ito", 3)],
        {"author": "Ito"},
    ),
    "a statement after forgetting": (
        [
            stated("genre", "horror", 1),
            forgotten("genre", "horror", 2),
            stated("genre", "horror", 3),
        ],
        {"genre": "horror"},
    ),
    "the statement before a retracted one": (
        [stated("genre", "horror", 1), stated("genre", "mystery", 2), retracted("m2", 3)],
        {"genre": "horror"},
    ),
    "a rejected value": (
        [
            stated("genre", "horror", 1),
            stated("genre", "horror", 2, liked=False),
            stated("name", "Ken", 3),
        ],
        {"dislikes": "horror", "name": "Ken"},
    ),
    "a session that ends twice": (
        [stated("name", "Ken", 1), stated("name", "Ken", 1), stated("name", "Kenji", 2)],
        {"name": "Kenji"},
    ),
    "a forgotten amount": (
        [
            stated("budget", "3,000 yen a month", 1),
            stated("allowance", "5,000 yen a month", 2),
            forgotten("budget", "3,000 yen a month", 3),
        ],
        {"allowance": "5,000 yen a month"},
    ),
}


@pytest.mark.parametrize(("changes", "expected"), CASES.values(), ids=CASES)
def test_order_of_arrival_does_not_matter(
    changes: Sequence[PreferenceChange], expected: dict[str, str]
) -> None:
    """Only the times of messages decide, also for late transcripts and removals."""
    for order in permutations(changes):
        log = LoggedChanges()
        for change in order:
            log = log.with_change(change) or log
        assert {s: state.value for s, state in slot_states(log.statements).items()} == expected


def test_nothing_from_before_an_erasure_is_admitted() -> None:
    log = LoggedChanges(erased_at=5)
    for change in (
        stated("genre", "horror", 5),
        forgotten("genre", "horror", 4),
        retracted("m5", 5),
    ):
        assert log.with_change(change) is None
    assert [each.at for each in log.with_change(stated("genre", "horror", 6)).statements] == [6]
