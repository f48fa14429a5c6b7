"""CircuitBreaker: its states, any sequence of calls against a model, and errors of one user."""

import asyncio
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest
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
from strands import tool

from strands_manga_memory import guard_tool
from strands_manga_memory.mcp import BreakerEvent, BreakerPolicy, CircuitBreaker, Permit
from strands_manga_memory.testing import FakeClock

_LEASE = 3.25


def breaker_of(**settings: Any) -> tuple[CircuitBreaker, FakeClock]:
    clock = FakeClock(100.0)
    return CircuitBreaker(**settings, lease=_LEASE, clock=clock), clock


def acquired(breaker: CircuitBreaker) -> Permit:
    permit = breaker.try_acquire()
    assert permit is not None
    return permit


def fail(breaker: CircuitBreaker, times: int = 1) -> None:
    for _ in range(times):
        acquired(breaker).failure()


def half_open(**settings: Any) -> tuple[CircuitBreaker, FakeClock]:
    breaker, clock = breaker_of(**settings)
    fail(breaker, settings.get("failures", 5))
    clock.advance(breaker.retry_after)
    return breaker, clock


def test_a_probe_that_is_never_heard_of_again_does_not_hold_its_place() -> None:
    breaker, clock = half_open()
    lost = acquired(breaker)
    clock.advance(_LEASE - 1)
    assert breaker.try_acquire() is None  # it may still answer
    assert 0 < breaker.retry_after <= 1
    clock.advance(breaker.retry_after)
    probe = acquired(breaker)
    lost.success()  # too late
    assert breaker.state == "half_open"
    probe.failure()
    assert breaker.state == "open"
    lost.failure()
    assert breaker.retry_after == 30


def test_one_of_16_threads_gets_the_probe() -> None:
    """The slow state change would let other threads in without the lock."""
    breaker, _ = half_open()
    barrier, change = threading.Barrier(16), breaker._change

    def change_slowly(*arguments: Any) -> Any:
        event = change(*arguments)
        time.sleep(0.02)
        return event

    breaker._change = change_slowly

    def ask() -> Permit | None:
        barrier.wait()
        return breaker.try_acquire()

    with ThreadPoolExecutor(16) as threads:
        permits = [future.result() for future in [threads.submit(ask) for _ in range(16)]]
    assert sum(permit is not None for permit in permits) == 1


def test_a_successful_probe_ends_the_doubled_waits() -> None:
    breaker, clock = breaker_of(failures=1, reset_after=10, max_reset_after=50)
    for wait in (10, 20, 40, 50, 50):
        fail(breaker)
        assert breaker.retry_after == wait
        clock.advance(wait)
    acquired(breaker).success()
    fail(breaker)
    assert breaker.retry_after == 10


def test_outcomes_without_a_permit() -> None:
    breaker, clock = breaker_of(failures=2, max_reset_after=300)
    breaker.record(succeeded=False)
    assert breaker.state == "closed"
    breaker.record(succeeded=False)
    breaker.record(succeeded=False)  # a call that began before it opened
    assert (breaker.state, breaker.retry_after, breaker.failures) == ("open", 30, 2)
    clock.advance(30)
    breaker.record(succeeded=False)
    assert (breaker.state, breaker.retry_after) == ("open", 60)
    breaker.record(succeeded=True)
    assert (breaker.state, breaker.failures) == ("closed", 0)


def test_a_restored_breaker_waits_for_the_rest_of_its_time() -> None:
    breaker, clock = breaker_of(failures=3)
    breaker.restore(3, 12.0)
    assert (breaker.state, breaker.failures, breaker.retry_after) == ("open", 3, 12)
    clock.advance(12)
    fail(breaker)
    assert breaker.retry_after == 30
    breaker, _ = breaker_of(failures=3)
    breaker.restore(2, 0.0)
    assert breaker.state == "closed"
    fail(breaker)
    assert breaker.state == "open"


def test_listeners_hear_of_every_change_and_cannot_break_it() -> None:
    heard: list[BreakerEvent] = []

    def listen(event: BreakerEvent) -> None:
        heard.append(event)
        raise RuntimeError("a listener")

    clock = FakeClock(0)
    breaker = CircuitBreaker(1, name="server/tool", clock=clock, on_event=listen)
    fail(breaker)
    clock.advance(30)
    acquired(breaker).success()
    assert [(event.before, event.after, event.reason, event.at) for event in heard] == [
        ("closed", "open", "failures", 0),
        ("open", "half_open", "probe", 30),
        ("half_open", "closed", "probe_succeeded", 30),
    ]
    assert heard[0].name == "server/tool"


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


@tool
def get_order(order_id: str) -> dict[str, Any]:
    """Return an order."""
    if order_id == "known":
        return {"status": "success", "content": [{"text": "shipped"}]}
    return {"status": "error", "isError": True, "content": [{"text": f"no such order: {order_id}"}]}


async def ask(guarded: Any, user: str, order: str) -> str:
    use = {"toolUseId": "t", "name": "get_order", "input": {"order_id": order}}
    return str([event async for event in guarded.stream(use, {"user_id": user})][-1])


@pytest.mark.parametrize(
    "policy",
    [
        None,
        BreakerPolicy(timeout=20.0),
        BreakerPolicy(users=2),
        replace(BreakerPolicy(read_only=True), reset_after=5.0),
    ],
)
async def test_five_wrong_orders_of_one_user_open_no_breaker(policy: BreakerPolicy | None) -> None:
    guarded = guard_tool(get_order, policy)
    await ask(guarded, "u2", "known")
    for number in range(20):
        await ask(guarded, "u1", f"x{number}")
    assert "shipped" in await ask(guarded, "u2", "known")


async def test_one_of_several_users_opens_the_breaker_of_a_policy_for_one_user() -> None:
    guarded = guard_tool(get_order, BreakerPolicy(users=1))
    await ask(guarded, "u2", "known")
    for number in range(5):
        await ask(guarded, "u1", f"x{number}")
    assert guarded.status()["state"] == "open"


@pytest.mark.parametrize("policy", [None, BreakerPolicy(users=9)])
async def test_breaker_of_the_only_caller_closes_for_others(policy: BreakerPolicy | None) -> None:
    guarded = guard_tool(get_order, policy)
    for number in range(5):
        await ask(guarded, "u1", f"x{number}")
    assert guarded.status()["state"] == "open"
    assert "shipped" in await ask(guarded, "u2", "known")
    for number in range(5):
        await ask(guarded, "u1", f"x{number}")
    assert guarded.status()["state"] == "closed"


async def test_breaker_opened_by_timeouts_stays_open_for_a_new_user() -> None:
    @tool
    async def stall() -> None:
        """Never answer."""
        await asyncio.sleep(60)

    guarded = guard_tool(stall, BreakerPolicy(2, timeout=0.01))
    use = {"toolUseId": "t", "name": "stall", "input": {}}
    for user in ("u1", "u1", "u2"):
        async for _ in guarded.stream(use, {"user_id": user}):
            pass
    assert guarded.status()["state"] == "open"
    assert guarded.status()["rejected"] == 1


@pytest.mark.parametrize("count", [1, 2, 3, 50])
async def test_errors_of_all_callers_but_at_most_three_open_the_breaker(count: int) -> None:
    """Five errors in a row are needed, of all users so far, and of three if there are more."""
    guarded = guard_tool(get_order, BreakerPolicy(users=3))
    users = [f"u{number}" for number in range(count)]
    for user in users:
        await ask(guarded, user, "known")
    needed = users[-3:]
    for number in range(10):
        await ask(guarded, needed[number % max(1, len(needed) - 1)], "x")
    assert guarded.status()["state"] == ("open" if count == 1 else "closed")
    await ask(guarded, needed[-1], "x")
    assert guarded.status()["state"] == "open"
