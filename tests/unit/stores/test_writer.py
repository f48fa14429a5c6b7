import asyncio
import threading
import time
from concurrent.futures import Future
from functools import partial
from typing import Any

import pytest

from strands_manga_memory.exceptions import StoreUnavailableError
from strands_manga_memory.stores.writer import TierHealth, Writer
from strands_manga_memory.testing import FakeClock
from tests.servers import wait_until


def test_work_of_one_key_is_done_in_order() -> None:
    writer, done = Writer(), []

    def work(number: int) -> None:
        time.sleep(0.002 * (1 - number % 2))  # the next one could overtake
        done.append(number)

    futures = [writer.submit("key", partial(work, number)) for number in range(50)]
    for future in futures:
        future.result(5)
    assert done == list(range(50))


def test_work_of_different_keys_is_done_side_by_side() -> None:
    writer = Writer(threads=4)
    together = threading.Barrier(4, timeout=5)
    for future in [writer.submit(number, together.wait) for number in range(4)]:
        future.result(5)


def test_an_idle_thread_does_not_make_two_keys_wait_for_each_other() -> None:
    """Two jobs come at once while one thread idles: the second one gets a thread of its own."""
    writer = Writer()
    writer.submit("first", lambda: None).result(5)
    wait_until(lambda: writer._idle == 1, "an idle thread")
    for _ in range(50):
        together = threading.Barrier(2, timeout=5)
        jobs = [writer.submit("hot", together.wait), writer.submit("durable", together.wait)]
        for job in jobs:
            job.result(5)


def test_work_becomes_due_while_every_thread_is_busy() -> None:
    writer = Writer()
    begun, release, done = threading.Event(), threading.Event(), threading.Event()
    writer.later("late", 0.2, done.set)
    job = writer.submit("busy", lambda: (begun.set(), release.wait())[1])
    assert begun.wait(5)
    assert done.wait(5)
    release.set()
    assert job.result(5)


def test_no_more_threads_than_allowed() -> None:
    writer = Writer(threads=3)
    release = threading.Event()
    jobs = [writer.submit(number, release.wait) for number in range(20)]
    assert writer._threads == 3
    assert writer.backlog == 20
    release.set()
    for job in jobs:
        assert job.result(5)
    wait_until(lambda: writer.backlog == 0, "the end of the work")


def test_nobody_can_cancel_work() -> None:
    writer = Writer(threads=1)
    release = threading.Event()
    first = writer.submit("key", release.wait)
    waiting: list[Future[Any]] = [
        writer.submit("key", lambda number=number: number) for number in range(5)
    ]
    assert not any(future.cancel() for future in [first, *waiting])

    async def impatient() -> None:
        tasks = [asyncio.ensure_future(asyncio.wrap_future(future)) for future in waiting]
        await asyncio.sleep(0)
        for task in tasks:
            task.cancel()

    asyncio.run(impatient())
    release.set()
    assert [future.result(5) for future in waiting] == list(range(5))
    assert writer.submit("key", lambda: "alive").result(5) == "alive"


def test_later_replaces_what_waits_under_its_key() -> None:
    clock = FakeClock()
    writer, done = Writer(clock=clock), []
    writer.later("key", 10, lambda: done.append("first"))
    writer.later("key", 20, lambda: done.append("second"))
    writer.later("other", 5, lambda: done.append("other"))
    assert writer.backlog == 2
    clock.advance(12)
    writer.submit("now", lambda: None).result(5)
    wait_until(lambda: done == ["other"], "what is due")
    clock.advance(10)
    writer.submit("now", lambda: None).result(5)
    wait_until(lambda: done == ["other", "second"], "what is due")
    wait_until(lambda: writer.backlog == 0, "the writer has nothing left")


def test_drain_does_everything_there_is_delayed_work_included() -> None:
    writer, done = Writer(), []
    writer.submit("key", lambda: done.append("now"))
    writer.later("key", 3600, lambda: done.append("later"))
    assert writer.drain(5)
    assert done == ["now", "later"]


def test_repeated_work_that_is_interrupted_is_tried_again() -> None:
    """Ctrl-C reaches the thread that drains the queue while it runs the work."""
    writer, done = Writer(), []

    def work() -> None:
        done.append(len(done))
        if len(done) == 1:
            raise KeyboardInterrupt

    writer.repeat("key", work)
    writer.repeat("key", lambda: done.append(-1))
    assert writer.drain(20.0)
    assert done == [0, 1, -1]
    assert not writer.has_repeated


def test_drain_gives_up_in_time() -> None:
    writer = Writer()
    begun, release = threading.Event(), threading.Event()
    job = writer.submit("key", lambda: (begun.set(), release.wait())[1])
    assert begun.wait(5)
    assert not writer.drain(0.05)
    release.set()
    assert job.result(5)
    assert writer.drain(5)


def test_drain_works_without_a_single_thread() -> None:
    """At the end of the interpreter no thread can be started any more."""
    writer, done = Writer(threads=1), []
    writer._threads = 1  # as if it were busy
    writer.submit("a", lambda: done.append("a"))
    writer.submit("b", lambda: done.append("b"))
    assert writer.drain(5)
    assert done == ["a", "b"]


# Health


def test_a_tier_is_up_until_it_fails_and_then_tried_now_and_again() -> None:
    clock = FakeClock()
    health = TierHealth(clock=clock)
    assert health.is_up
    assert all(health.may_call() for _ in range(5))
    health.record_failure()
    assert not health.is_up
    assert not health.may_call()
    assert 0.05 <= health.wait <= 0.1
    clock.advance(0.1)
    assert [health.may_call() for _ in range(3)] == [True, False, False]
    health.record_success()
    assert health.is_up
    assert health.may_call()


def test_it_is_tried_ever_more_seldom_at_most_every_five_seconds() -> None:
    clock = FakeClock()
    health = TierHealth(clock=clock)
    waits = []
    for _ in range(12):
        health.record_failure()
        waits.append(health.wait)
        clock.advance(health.wait)
    assert waits == pytest.approx([min(5.0, 0.1 * 2**number) for number in range(12)])


def test_a_success_disproves_a_deadline_that_passed_before() -> None:
    clock = FakeClock()
    health = TierHealth(clock=clock)
    asked_at = clock()
    clock.advance(1)
    health.record_success()
    health.record_failure(since=asked_at)
    assert health.is_up
    health.record_failure(since=clock() + 1)
    assert not health.is_up


def test_work_on_a_tier_that_is_down_is_not_done() -> None:
    clock, done = FakeClock(), []
    health = TierHealth(clock=clock)

    def failing() -> int:
        done.append("failed")
        raise StoreUnavailableError("no answer")

    assert health.call(lambda: 3) == 3
    assert health.call(failing) is None
    assert health.call(lambda: done.append("not yet")) is None
    assert done == ["failed"]
    clock.advance(0.1)
    assert (health.call(lambda: 4), health.is_up) == (4, True)
    with pytest.raises(ZeroDivisionError):
        health.call(lambda: 1 // 0)


def test_slow_work_of_many_keys_leaves_threads_to_other_work() -> None:
    writer, gate, order = Writer(threads=4), threading.Event(), []
    slow = [writer.submit(("flush", number), gate.wait, slow=True) for number in range(20)]
    for number in range(10):
        writer.submit(("save", number), lambda: order.append(1)).result(10)
    assert len(order) == 10
    assert not any(future.done() for future in slow)
    gate.set()
    assert [future.result(10) for future in slow] == [True] * 20
