"""Breakers that processes share through a hot store: each worker here has breakers, a clock and a connection of its own."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis
from strands import tool

from strands_manga_memory import InMemoryHotStore, RedisHotStore, guard_tool
from strands_manga_memory.mcp import GuardedTool, SharedBreakers
from strands_manga_memory.stores import HotStore
from strands_manga_memory.testing import FakeClock, FaultyHotStore
from tests.integration.mcp_support import call, policy
from tests.servers import Valkey


@pytest.fixture(params=["memory", "valkey"])
def hot(request: pytest.FixtureRequest, valkey_server: Valkey) -> Iterator[HotStore]:
    if request.param == "memory":
        yield InMemoryHotStore()
        return
    store = RedisHotStore(redis.Redis(host=valkey_server.host, port=valkey_server.port, socket_timeout=5), deadline=5)
    yield store
    store.close()


class Service:
    """A service all workers call."""

    def __init__(self) -> None:
        self.calls = 0
        self.up = False

    def worker(
        self, hot: Any, namespace: str, *, wall_clock: Callable[[], float] = time.time, **settings: Any
    ) -> tuple[GuardedTool, FakeClock]:
        @tool(name="service")
        async def service() -> str:
            """Work, or not."""
            self.calls += 1
            if not self.up:
                raise OSError("down")
            return "up"

        clock = FakeClock(float(id(service) % 1000))
        shared = SharedBreakers(hot, namespace=namespace, clock=clock, wall_clock=wall_clock)
        return guard_tool(service, policy(reset_after=30.0, **settings), shared=shared, clock=clock), clock


async def test_twenty_workers_find_out_with_five_calls(hot: HotStore, unique: str) -> None:
    service = Service()
    workers = [service.worker(hot, unique)[0] for _ in range(20)]
    codes = [(await call(worker)).code for worker in workers * 2]
    assert service.calls == 5
    assert codes == ["tool_error"] * 5 + ["circuit_open"] * 35
    assert "other processes" in (await call(workers[-1])).text


async def test_an_inspector_sees_the_state_that_they_share(hot: HotStore, unique: str) -> None:
    """Closed, open for a time, half-open, and closed again; by the clock on the wall, which no breaker goes by."""
    service, wall = Service(), FakeClock(1_700_000_000.0)
    seen = SharedBreakers(hot, namespace=unique, wall_clock=wall)
    worker, clock = service.worker(hot, unique, wall_clock=wall)

    def state() -> tuple[str, int, float]:
        shown = seen.state("/service")
        return str(shown.state), shown.failures, round(shown.retry_after)

    assert state() == ("closed", 0, 0)
    for _ in range(3):
        await call(worker)
    assert state() == ("closed", 3, 0)
    for _ in range(2):
        await call(worker)
    assert state() == ("open", 5, 30)
    wall.advance(10)
    assert state() == ("open", 5, 20)
    wall.advance(21)
    assert state() == ("half_open", 5, 0)
    clock.advance(31)
    await call(worker)  # the probe, which fails
    assert state() == ("open", 6, 30)
    service.up = True
    clock.advance(31)
    await call(worker)
    assert state() == ("closed", 0, 0)
    service.up = False
    await call(worker)
    assert state() == ("closed", 1, 0), "what was known of the trouble before is over"


async def test_one_of_them_sends_the_probe_and_all_hear_of_its_success(hot: HotStore, unique: str) -> None:
    service = Service()
    workers = [service.worker(hot, unique) for _ in range(4)]
    for worker, _ in workers * 2:
        await call(worker)
    assert service.calls == 5
    for _, clock in workers:
        clock.advance(31)
    assert [(await call(worker)).code for worker, _ in workers] == ["tool_error"] + ["circuit_open"] * 3
    assert service.calls == 6  # one probe, which failed
    service.up = True
    (prober, its_clock), *others = workers
    its_clock.advance(31)
    assert (await call(prober)).status == "success"
    for worker, clock in others:
        clock.advance(1.1)
        assert (await call(worker)).status == "success"


async def test_a_success_anywhere_starts_the_count_anew(hot: HotStore, unique: str) -> None:
    service = Service()
    workers = [service.worker(hot, unique) for _ in range(2)]
    for worker, _ in workers * 2:
        await call(worker)
    service.up = True
    assert (await call(workers[0][0])).status == "success"
    service.up = False
    for worker, clock in workers * 2:
        clock.advance(1.1)
        assert (await call(worker)).code == "tool_error"
    assert [worker.breaker.state for worker, _ in workers] == ["closed", "closed"]


async def test_without_its_store_each_worker_decides_alone(unique: str) -> None:
    store, service = FaultyHotStore(InMemoryHotStore()), Service()
    store.down = True
    worker, _ = service.worker(store, unique)
    codes = [(await call(worker)).code for _ in range(6)]
    assert codes == ["tool_error"] * 5 + ["circuit_open"]
    assert len(store.calls) == 1  # a store that failed is left alone for a while


def test_settings_that_make_no_sense_are_refused() -> None:
    with pytest.raises(ValueError, match="refresh must be"):
        SharedBreakers(InMemoryHotStore(), refresh=0)
    with pytest.raises(ValueError, match="namespace must not be empty"):
        SharedBreakers(InMemoryHotStore(), namespace="")
