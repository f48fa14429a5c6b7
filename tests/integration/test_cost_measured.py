"""The preset ``measured`` against sessions that are held on real servers."""

from __future__ import annotations

import pytest

from strands_manga_memory.ops.cost import Workload, session_use
from tests.benchmarks import begin_anew, cost
from tests.benchmarks.wire import staged


def test_the_model_agrees_with_what_sessions_take() -> None:
    shapes = ((7, 400, 0), (14, 900, 0), (9, 600, 3))  # none that its numbers were fitted to
    found = cost.run(shapes)
    for name in cost.NAMES:
        assert found[f"{name}_of_new_users_off_by"] <= 0.10
        assert found[f"{name}_in_all_off_by"] <= 0.10


def test_a_message_whose_agent_is_restored_reads_as_much_more_as_the_model_says() -> None:
    turns, size, earlier = 8, 600, 6
    read = {}
    with staged() as stage:
        for keeps in (True, False):
            begin_anew()
            read[keeps] = cost.held(stage, f"restored{keeps}", turns, size, earlier, keeps_agents=keeps).read_units
    said = {
        keeps: session_use(
            Workload(turns_per_session=turns, bytes_per_message=size, earlier_sessions=earlier, keeps_agents=keeps)
        )
        for keeps in (True, False)
    }
    # Not the user's whole partition once a message, which would be some ten units each.
    assert read[False] - read[True] == pytest.approx(said[False].read_units - said[True].read_units, abs=turns)
    assert said[False].hot_bytes > said[True].hot_bytes
