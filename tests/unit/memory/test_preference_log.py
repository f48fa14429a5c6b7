"""Log of a user's preferences: damage, bounds, and order of its writes."""

import time
import uuid
from collections.abc import Sequence
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest

from strands_manga_memory import PiiPolicy, UserMemoryStore
from strands_manga_memory.exceptions import StoreUnavailableError
from strands_manga_memory.memory import (
    CallablePreferenceSink,
    MemoryKeeper,
    Owner,
    Preference,
    PreferenceOutbox,
    PreferenceSignal,
)
from strands_manga_memory.memory.hot_profile import STATE, ProfileState
from strands_manga_memory.memory.statements import (
    LoggedChanges,
    PreferenceChange,
    Removal,
    Statement,
    message_digest,
    slot_states,
)
from strands_manga_memory.messages.transcripts import Transcript, Utterance
from strands_manga_memory.stores import USER_MEMORY, InMemoryHotStore, SQLiteTable, Table
from tests.faulty_stores import FaultyHotStore, FaultyTable
from tests.support import finish_writes

OWNER = Owner("u1")


@pytest.fixture
def table(tables: tuple[Table, Table]) -> Table:
    return tables[1]


@pytest.mark.parametrize(
    "damage", [{"removals": [7]}, {"statements": [["genre", "horror"]]}, {"revision": None}]
)
def test_a_damaged_hot_record_of_a_user_is_not_taken_for_empty(damage: dict[str, Any]) -> None:
    statement = Statement(Preference("genre", "horror"), 1.0, "m1")
    content = STATE.dump_python(ProfileState(statements=(statement,)))
    assert STATE.dump_python(STATE.validate_python(content)) == content
    with pytest.raises((KeyError, ValueError)):
        STATE.validate_python({**content, **damage})


def test_a_repeated_change_adds_its_signals_once(table: Table) -> None:
    log = PreferenceOutbox(table, CallablePreferenceSink(print)).log_of(OWNER)
    stated = [Statement(Preference("genre", "horror"), 1.0, "m1")]
    change = LoggedChanges().with_change(
        PreferenceChange(statements=stated, signals=log.signals_of(stated))
    )
    assert change.with_change(PreferenceChange(statements=stated, signals=change.signals)) is None


def test_a_sink_that_is_down_for_weeks_does_not_fill_the_log() -> None:
    logged: LoggedChanges | None = LoggedChanges()
    for number in range(1_000):
        preference = Preference(f"key {number % 7}", f"value {number}", adds=True)
        statement = Statement(preference, float(number), uuid.uuid4().hex, f"session-{number}")
        logged = logged.with_change(
            PreferenceChange(
                statements=[statement], signals=[PreferenceSignal.from_statement(OWNER, statement)]
            )
        )
    numbers = [each.number for each in logged.signals]
    assert [each.at for each in logged.signals[-56:]] == list(
        range(944, 1_000)
    )  # the latest 8 of each of 7 subjects
    assert len(numbers) <= 400
    assert numbers == sorted(numbers)


def test_deletions_that_the_log_has_dropped_still_count(table: Table) -> None:
    now = time.time()
    log = UserMemoryStore(table, user_id="u1").preference_log
    for first, count in ((0, 1), (1, 300)):
        removals = [
            Removal(now - 500 + number, message=message_digest(f"m{number}"))
            for number in range(first, first + count)
        ]
        log.apply(PreferenceChange(removals=removals))
    log.apply(
        PreferenceChange(statements=[Statement(Preference("genre", "horror"), now - 1_000, "m0")])
    )
    assert not UserMemoryStore(table, user_id="u1").recall()
    said = [
        Utterance("user", "My favorite genre is horror.", 1, now - 1_000, "m0"),
        Utterance("assistant", "Noted.", 1, now - 999),
    ]
    transcript = Transcript(
        user_id="u1",
        tenant=None,
        session_id="s1",
        agent_id="default",
        mark="1",
        utterances=tuple(said),
        turns=1,
        covered=2,
        revisions=0,
        ended_at=now,
    )
    assert MemoryKeeper(table=table, pii=PiiPolicy()).finalize(transcript) is None
    assert not UserMemoryStore(table, user_id="u1").recall()


def test_a_retraction_in_an_outage_is_published_once_before_it_is_stored(tmp_path: Path) -> None:
    table = SQLiteTable(tmp_path / "m.db", USER_MEMORY)
    table.create_if_missing()
    faulty: Any = FaultyTable(table)
    hot: Any = FaultyHotStore(InMemoryHotStore())
    log = UserMemoryStore(faulty, user_id="u1", hot=hot).preference_log
    retraction = PreferenceChange(removals=[Removal(2.0, message=message_digest("m1"))])
    faulty.down = True
    with pytest.raises(StoreUnavailableError):
        log.apply(retraction)
    published = hot.calls.count("write")
    log.apply_later(retraction)
    while faulty.calls.count("batch_get") < 4:  # the first try, and retries
        time.sleep(0.01)
    assert hot.calls.count("write") == published == 1
    faulty.down = False
    finish_writes(None, faulty)
    assert hot.calls.count("write") == 2


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
