"""A slice of the simulation of the session protocol."""

import pytest

from tests.faults.protocol.planted import PLANTED, SHOWN_BY
from tests.faults.protocol.runs import SETS, first_failure, play


@pytest.mark.parametrize("name", sorted(SETS))
def test_promises_hold_whatever_happens_between_two_store_calls(name: str) -> None:
    """No turn is lost, doubled, torn, reordered or resurrected in either tier."""
    failure = first_failure(SETS[name], range(4))
    assert failure is None, f"seed {failure[0]}: {failure[1]}"


@pytest.mark.parametrize(
    ("name", "seed"),
    [
        ("lossy", 2613),
        ("lossy", 2673),
        ("lossy", 5040),
        ("restored", 1128),
        ("restored", 1493),
        ("restored", 5034),
        ("restored", 100249),
        ("restored", 105857),
        ("deletes", 2953),
        ("deletes", 831181),
        ("durable-only", 31000352),
        ("rewinds", 100331),
        ("rewinds", 31000102),
        ("redacts", 2003),
        ("redacts", 500037),
        ("everything", 100),
        ("everything", 307),
        ("everything", 849),
        ("everything", 2030),
        ("everything", 2109),
        ("everything", 2133),
        ("everything", 7100),
        ("everything", 20176),
        ("everything", 20246),
        ("everything", 100042),
        ("everything", 100137),
        ("everything", 100430),
        ("everything", 100934),
        ("everything", 103264),
        ("everything", 8100004),
        ("everything", 9100384),
    ],
)
def test_seeds_that_broke_a_promise_once_hold_it(name: str, seed: int) -> None:
    """Runs that found a fault of an earlier form of the protocol stay clean."""
    assert play(seed, SETS[name])[1] is None


def test_promises_hold_with_eight_live_agents() -> None:
    """Eight agents of one conversation lose nothing of one another."""
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
    """A run depends on its seed alone, so that a failure can be repeated."""
    assert play(3, SETS["everything"])[0] == play(3, SETS["everything"])[0]
