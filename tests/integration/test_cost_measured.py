"""The preset ``measured`` against sessions that are held on real servers."""

from __future__ import annotations

from tests.benchmarks import cost


def test_the_model_agrees_with_what_sessions_take() -> None:
    shapes = ((7, 400, 0), (14, 900, 0), (9, 600, 3))  # none that its numbers were fitted to
    found = cost.run(shapes)
    for name in cost.NAMES:
        assert found[f"{name}_of_new_users_off_by"] <= 0.10
        assert found[f"{name}_in_all_off_by"] <= 0.10
