"""A slice of the simulation, and what it found."""

from __future__ import annotations

import pytest

from tests.faults.simulation.drawing import Step
from tests.faults.simulation.histories import one_after_the_other
from tests.faults.simulation.mutations import MUTATIONS
from tests.faults.simulation.pairs import FIRST, SECOND, failures
from tests.faults.simulation.runs import SETS, drawn_steps, played


@pytest.mark.parametrize("name", sorted(SETS))
def test_every_promise_holds_whatever_happens_between_two_calls_of_a_store(name: str) -> None:
    for seed in range(3):
        steps, error = drawn_steps(SETS[name], seed)
        assert error is None, f"seed {seed}: {error}, after {len(steps)} steps"


@pytest.mark.parametrize("name", sorted(MUTATIONS))
def test_the_simulation_notices_a_mend_that_is_taken_out(name: str) -> None:
    set_, begin, without = MUTATIONS[name]
    if isinstance(begin, list):
        with without():
            assert played(SETS[set_], begin) is not None
        assert played(SETS[set_], begin) is None
        return
    for seed in range(begin, begin + 40):
        with without():
            _, error = drawn_steps(SETS[set_], seed)
        if error is not None:
            assert drawn_steps(SETS[set_], seed)[1] is None
            return
    pytest.fail("40 seeds are clean without it")


@pytest.mark.parametrize("one", ["a turn", "a flush"])  # the others: --pairs
@pytest.mark.parametrize("other", sorted(SECOND))
def test_whatever_is_done_while_another_piece_of_work_stands(one: str, other: str) -> None:
    assert [*failures(FIRST[one], SECOND[other], "everything")] == []


def test_a_seed_takes_the_same_steps_each_time() -> None:
    assert drawn_steps(SETS["everything"], 3)[0] == drawn_steps(SETS["everything"], 3)[0]


@pytest.mark.parametrize("tiers", ["hot", "durable", "deletions"])
@pytest.mark.parametrize("idle", ["a day", "three days"])
def test_a_deleted_conversation_stays_deleted_when_its_agent_is_idle_for_longer_than_tombstones_live(
    tiers: str, idle: str
) -> None:
    steps = [
        Step("start"),
        Step("begin_turn", "p1"),
        Step("end_turn", "p1", (0, "plain", True)),
        Step("flush", "p1"),
        Step("delete_unopened"),
        Step("the_session_ends", None, (idle,)),
        Step("the_table_deletes_what_has_expired"),
    ]

    assert played(SETS[tiers], one_after_the_other(steps)) is None
