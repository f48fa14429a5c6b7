"""A slice of the simulation of the session protocol."""

import pytest

from tests.faults.protocol.planted import PLANTED, SHOWN_BY
from tests.faults.protocol.runs import SETS, first_failure, play


@pytest.mark.parametrize("name", sorted(SETS))
def test_promises_hold_whatever_happens_between_two_store_calls(name: str) -> None:
    """No turn is lost, doubled, torn, reordered or resurrected in either tier."""
    failure = first_failure(SETS[name], range(4))
    assert failure is None, f"seed {failure[0]}: {failure[1]}"


BROKEN_ONCE = {
    "lossy": (2613, 2673, 5040, 662718810),
    "restored": (1128, 1493, 5034, 100249, 105857),
    "deletes": (2953, 831181),
    "durable-only": (31000352,),
    "rewinds": (100331, 31000102),
    "redacts": (2003, 500037),
    "everything": (
        100, 307, 849, 2030, 2109, 2133, 7100, 20176, 20246, 100042, 100137, 100430, 100934, 103264,
        310808, 311302, 8100004, 9100384,
    ),
}  # fmt: skip
"""Seeds of runs that found a fault of an earlier form of the protocol."""


@pytest.mark.parametrize(
    ("name", "seed"), [(name, seed) for name, seeds in BROKEN_ONCE.items() for seed in seeds]
)
def test_seeds_that_broke_a_promise_once_hold_it(name: str, seed: int) -> None:
    assert play(seed, SETS[name])[1] is None


def test_promises_hold_with_eight_live_agents() -> None:
    failure = first_failure(SETS["faults"], range(2), most=8, steps=400)
    assert failure is None, f"seed {failure[0]}: {failure[1]}"


@pytest.mark.parametrize("name", sorted(PLANTED))
def test_planted_fault_is_noticed(name: str) -> None:
    """A run that plants the fault breaks a promise within 400 seeds, usually at the first one."""
    options, plant = PLANTED[name]
    first = SHOWN_BY.get(name, 0)
    with plant():
        failure = first_failure(options, range(first, first + 400))
    assert failure is not None, f"400 seeds pass with the fault: {name}"


def test_seed_takes_the_same_steps_each_time() -> None:
    assert play(3, SETS["everything"])[0] == play(3, SETS["everything"])[0]
