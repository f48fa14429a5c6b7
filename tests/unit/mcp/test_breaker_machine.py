"""The breaker under any sequence of calls, outcomes and waits, against a model."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    invariant,
    precondition,
    rule,
)

from strands_manga_memory.mcp import BreakerPolicy, CircuitBreaker, Permit
from strands_manga_memory.testing import FakeClock

POLICY = BreakerPolicy(failures=2, reset_after=10.0, timeout=2.0)


class Breaker(RuleBasedStateMachine):
    """Every permit belongs to an era: from one change of state, or of the probe, to the next.

    Only its own era hears of it.
    """

    permits: Bundle[tuple[Permit, int]] = Bundle("permits")

    def __init__(self) -> None:
        super().__init__()
        self.clock = FakeClock(0.0)
        self.breaker = CircuitBreaker(
            POLICY.failures, POLICY.reset_after, lease=POLICY.lease, clock=self.clock
        )
        self.state = "closed"
        self.era = 0
        self.failures = 0
        self.open_until = 0.0
        self.probe: Permit | None = None
        self.probe_since = 0.0

    def _change(self, state: str) -> None:
        self.state, self.probe = state, None
        self.era += 1
        if state == "open":
            self.open_until = self.clock.now + POLICY.reset_after
        if state == "closed":
            self.failures = 0

    def _admits(self) -> bool:
        if self.state == "open":
            return self.clock.now >= self.open_until
        held = self.probe is not None and self.clock.now - self.probe_since < POLICY.lease
        return self.state == "closed" or not held

    @rule(target=permits)
    def ask(self) -> object:
        expected = self._admits()
        permit = self.breaker.try_acquire()
        assert (permit is not None) == expected
        if permit is None:
            return (None, -1)
        assert permit.is_probe == (self.state != "closed")
        if self.state == "open":
            self._change("half_open")
        elif self.state == "half_open":
            self.era += 1
        if self.state == "half_open":
            self.probe, self.probe_since = permit, self.clock.now
        return (permit, self.era)

    @rule(
        held=consumes(permits),
        outcome=st.sampled_from(["failure", "failure", "failure", "success", "ignore"]),
        again=st.booleans(),
    )
    def report_outcome(self, held: tuple[Permit | None, int], outcome: str, again: bool) -> None:
        permit, era = held
        if permit is None:
            return
        getattr(permit, outcome)()
        if again:
            permit.failure()
        if permit is self.probe:
            self.probe = None
        if era != self.era or outcome == "ignore":
            return
        if outcome == "failure":
            self.failures += 1
            if self.state == "half_open" or self.failures >= POLICY.failures:
                self._change("open")
        elif self.state == "half_open":
            self._change("closed")
        else:
            self.failures = 0

    @rule(seconds=st.sampled_from([0.1, 1.0, 2.5, 3.5, 9.9, 10.0, 100.0]))
    def wait(self, seconds: float) -> None:
        self.clock.advance(seconds)

    @rule(held=consumes(permits))
    def lose(self, held: tuple[Permit | None, int]) -> None:
        """Nobody will ever settle it."""

    @precondition(lambda self: self.state != "closed")  # else it hardly ever opens
    @rule()
    def close_by_hand(self) -> None:
        self.breaker.reset()
        self._change("closed")

    @invariant()
    def says_what_it_does(self) -> None:
        breaker = self.breaker
        effective = (
            "half_open"
            if self.state == "open" and self.clock.now >= self.open_until
            else self.state
        )
        assert breaker.state == effective
        assert breaker.failures == self.failures
        assert (breaker.retry_after == 0) == self._admits()
        assert breaker.retry_after <= POLICY.reset_after + 1e-9  # times are sums of floats
        expected = "degraded" if effective == "half_open" or self.failures >= 1 else "healthy"
        assert breaker.health == ("unavailable" if effective == "open" else expected)


Breaker.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestBreaker = Breaker.TestCase
