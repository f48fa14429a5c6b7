"""Learning a model's token ratio, and a whole request's plan."""

import pytest
from strands.types.content import Message

from strands_manga_memory.conversation import BudgetPlan, budget_plan
from strands_manga_memory.conversation.token_counter import Calibration


class Counter:
    def __init__(self, *, exact: bool) -> None:
        self.exact = exact

    def count(self, message: Message) -> int:
        return len(str(message["content"]))


def taught(
    ratio: float, *, exact: bool = True, times: int = 20, counted: int = 4_000
) -> Calibration:
    calibration = Calibration(Counter(exact=exact))
    for _ in range(times):
        calibration.observe(counted, int(counted * ratio))
    return calibration


def test_the_ratio_is_learned_and_the_budget_holds_by_both_counts() -> None:
    calibration = taught(1.25)
    assert calibration.ratio == pytest.approx(1.25, abs=0.01)
    budget = calibration.to_local_tokens(4_096)
    assert budget == pytest.approx(4_096 / 1.25, abs=30)
    assert calibration.to_model_tokens(budget) <= 4_096


@pytest.mark.parametrize(
    ("exact", "ratio", "learned"),
    [(True, 0.7, 1.0), (False, 0.7, 0.8), (True, 2.0, 1.6), (False, 2.0, 1.6)],
)
def test_the_ratio_has_bounds(exact: bool, ratio: float, learned: float) -> None:
    calibration = taught(ratio, exact=exact)
    assert calibration.ratio == pytest.approx(learned, abs=0.01)
    assert calibration.to_local_tokens(1_000) <= 1_000


@pytest.mark.parametrize(
    ("counted", "reported"),
    [(4_000, 0), (4_000, -1), (4_000, 12_000), (4_000, 1_500), (150, 200), (0, 10)],
)
def test_reports_that_cannot_be_right_are_ignored(counted: int, reported: int) -> None:
    calibration = Calibration(Counter(exact=False))
    calibration.observe(counted, reported)
    assert calibration.ratio == 1.0


def test_small_requests_count_for_less() -> None:
    assert taught(1.5, times=1, counted=300).ratio < 1.1 < taught(1.5, times=1).ratio


def test_ratio_does_not_follow_small_differences() -> None:
    """A ratio that a session stores in every turn would make every save larger."""
    calibration = taught(1.2, times=30)
    for number in range(50):
        calibration.observe(4_000, 4_800 + 16 * (-1) ** number)
    assert calibration.ratio == 1.2
    ratios = set()
    for number in range(50):
        calibration.observe(4_000, 4_800 + 40 * (-1) ** number)
        ratios.add(calibration.ratio)
    assert ratios <= {1.2, 1.21}


def test_a_restored_ratio_goes_on() -> None:
    calibration = Calibration(Counter(exact=True))
    calibration.restore(1.3)
    assert calibration.ratio == 1.3
    calibration.restore(7.0)
    assert calibration.ratio == 1.6


def test_restored_ratio_learns_as_the_original_does() -> None:
    """Agents that are built for one request each have the budgets of a live agent."""
    live = Calibration(Counter(exact=False))
    for number in range(40):
        later = Calibration(Counter(exact=False))
        later.restore(live.ratio)
        for each in (live, later):
            each.observe(
                700 + 97 * number, int((700 + 97 * number) * (1.0 + number * 37 % 60 / 100))
            )
        assert live.ratio == later.ratio


def test_a_plan_for_a_whole_request() -> None:
    plan = budget_plan()
    assert plan == BudgetPlan(
        system=800, user_context=500, history=4_096, current=200, tool_results=1_000, output=1_024
    )
    assert plan.total == 7_620
    assert plan.fits(8_192)
    assert not plan.fits(7_619)
    assert plan.left(8_192) == 572
    assert budget_plan(history=2_000, recall=1_024, state=100).total == 7_620 - 2_096 + 1_124


@pytest.mark.parametrize("value", [-1, 1.5, True, "800"])
def test_a_part_of_a_plan_is_a_whole_number(value: object) -> None:
    with pytest.raises(ValueError, match=r"system must be a whole number of 0 or more, got"):
        budget_plan(system=value)
