"""CircuitBreaker: its states, one after the other; the state machine tests them all together."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from strands_manga_memory.mcp import BreakerEvent, CircuitBreaker, Permit
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
