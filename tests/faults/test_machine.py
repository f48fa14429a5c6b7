"""A slice of the machine campaign."""

from __future__ import annotations

import pytest

from tests.faults.machine import EVERYTHING, MACHINES, drawn, new_world, quiet


@pytest.mark.parametrize("machine", sorted(MACHINES))
@pytest.mark.parametrize("happens", [{}, EVERYTHING], ids=["little", "everything"])
def test_random_steps(machine: str, happens: dict[str, bool]) -> None:
    with quiet():
        for seed in range(15):
            steps, error = drawn(new_world(machine, **happens), seed)
            assert error is None, f"seed {seed}: {error}, after {len(steps)} steps"
