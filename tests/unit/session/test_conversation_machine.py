"""Several processes hold one conversation while they die and the tiers fail: no message is lost, doubled, mixed up or back."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from tests.unit.session.world import Step, World


class SessionMachine(RuleBasedStateMachine):
    """Steps of a world with two tiers, as Hypothesis chooses them."""

    has_hot = has_durable = True

    def __init__(self) -> None:
        super().__init__()
        self.world = World(hot=self.has_hot, durable=self.has_durable)
        self.world.take(Step("start"))

    @rule(data=st.data())
    def something_happens(self, data: Any) -> None:
        self.world.take(self.world.drawn(lambda options: data.draw(st.sampled_from(options))))

    def teardown(self) -> None:
        self.world.end()


# The same examples every time; new ones are what ``python -m tests.faults.machine`` is for.
SessionMachine.TestCase.settings = settings(
    max_examples=60, stateful_step_count=40, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck)
)
TestTwoTiers = SessionMachine.TestCase


class HotOnly(SessionMachine):
    has_durable = False


class DurableOnly(SessionMachine):
    has_hot = False


TestHotOnly = HotOnly.TestCase
TestHotOnly.settings = settings(SessionMachine.TestCase.settings, max_examples=20, stateful_step_count=30)
TestDurableOnly = DurableOnly.TestCase
TestDurableOnly.settings = TestHotOnly.settings
