"""The preset ``measured`` against sessions that are held on real servers."""

import pytest

from strands_manga_memory.ops import Workload, session_use
from tests.benchmarks import cost, reset_texts
from tests.benchmarks.wire import staged

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("cost")]  # its sessions are held once

RESTORED = (9, 600, 3)
SHAPES = (RESTORED, (11, 700, 0))
"""None that the numbers of the model were fitted to; ``python -m tests.benchmarks cost --check``
holds eleven more.
"""


@pytest.fixture(scope="module")
def found() -> dict[str, float]:
    return cost.run(SHAPES)


def test_the_model_agrees_with_what_sessions_take(found: dict[str, float]) -> None:
    for name in cost.NAMES:
        assert found[f"{name}_of_new_users_off_by"] <= 0.10
        assert found[f"{name}_in_all_off_by"] <= 0.10


def test_a_message_to_a_restored_agent_reads_what_the_model_says(found: dict[str, float]) -> None:
    turns, size, earlier = RESTORED
    reset_texts()  # in the same words as those whose agent was kept
    with staged() as stage:
        restored = cost.measure_sessions(
            stage, "restored", turns, size, earlier, keeps_agents=False
        )
    kept = found[f"read_units_of_{turns}_turns_of_{size}_bytes_after_{earlier}"]
    said = {
        keeps: session_use(
            Workload(
                turns_per_session=turns,
                bytes_per_message=size,
                earlier_sessions=earlier,
                keeps_agents=keeps,
            )
        )
        for keeps in (True, False)
    }
    # Not the user's whole partition once a message, which would be some ten units each.
    shown = restored.read_units - kept
    assert shown == pytest.approx(said[False].read_units - said[True].read_units, abs=turns)
    assert said[False].hot_bytes > said[True].hot_bytes
