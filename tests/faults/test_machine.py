"""A slice of the machine campaign."""

from __future__ import annotations

import pytest

from tests.faults.machine import MACHINES, drawn, new_world, quiet


@pytest.mark.parametrize("machine", sorted(MACHINES))
@pytest.mark.parametrize("more", [False, True], ids=["plain", "refresh, delete and sweep"])
def test_random_steps(machine: str, more: bool) -> None:
    with quiet():
        for seed in range(15):
            steps, error = drawn(new_world(machine, refreshes=more, deletes=more, sweeps=more), seed)
            assert error is None, f"seed {seed}: {error}, after {len(steps)} steps"
