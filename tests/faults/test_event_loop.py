"""The event loop never waits for a store."""

import asyncio
import ctypes
import time
from typing import Any

import pytest

from strands_manga_memory.stores import open_hot_store
from tests import clocks, servers
from tests.faults import talk
from tests.faults.conftest import Far, NewProcess
from tests.faults.talk import Stores

AWAY = 0.2
TRIES = 4


def test_the_loop_runs_on_with_stores_200_ms_away(new_process: NewProcess, far: Far) -> None:
    process = new_process(far.stores, flush_every=1)
    process.agent("t0 tool")
    process.settle()

    async def longest(agent: Any, tag: str) -> float:
        async with clocks.Loop() as loop:
            await agent.invoke_async(f"{tag} tool")
            return loop.longest

    async def run() -> tuple[float, float]:
        bare = talk.bare_agent()
        ours, theirs = [], []
        for number in range(TRIES):
            theirs.append(await longest(bare, f"t{number}"))
            ours.append(await longest(process.agent, f"t{number + 1}"))
        return min(ours), min(theirs)

    far.hot.delay = far.durable.delay = AWAY
    ours, theirs = asyncio.run(run())
    far.hot.delay = far.durable.delay = 0.0
    assert ours < 0.010 + theirs
    assert talk.problems(process.agent.messages) == []


def test_a_dead_hot_tier_costs_one_deadline_once(new_process: NewProcess, far: Far) -> None:
    """The tier accepts connections without answers: only the first turn waits."""
    process = new_process(far.stores, hot_deadline=0.25)
    process.agent("t0 text")
    process.settle()

    def is_up() -> bool:
        return process.stats()["hot"] == "up"

    servers.wait_until(is_up, "the use of the hot tier")
    far.hot.blackhole()
    start = time.monotonic()
    asyncio.run(process.agent.invoke_async("t1 text"))
    assert time.monotonic() - start >= 0.2
    with clocks.Idle() as idle:
        for number in range(2, 8):
            asyncio.run(process.agent.invoke_async(f"t{number} text"))
    assert idle.seconds < 0.125
    far.hot.passing()
    servers.wait_until(is_up, "the return of the hot tier")
    process.manager.flush()
    wanted = sorted(mark for number in range(8) for mark in talk.wanted_marks(f"t{number}", "text"))
    assert sorted(talk.marks(new_process(far.stores).log()).elements()) == wanted


def test_a_process_that_is_held_up_takes_no_tier_for_dead(
    new_process: NewProcess, services: Stores, caplog: pytest.LogCaptureFixture
) -> None:
    """As by a garbage collection, in which neither loop nor writer runs."""
    hold_the_interpreter = ctypes.PyDLL(None).usleep  # without giving it up meanwhile
    hot = open_hot_store(services.hot or "")
    write = hot.write

    def held_up(*given: Any) -> Any:
        hold_the_interpreter(150_000)
        return write(*given)

    process = new_process(services, hot=hot, hot_deadline=0.05)
    process.agent("t0 text")
    hot.write = held_up
    asyncio.run(process.agent.invoke_async("t1 text"))

    assert "not saved yet" not in caplog.text
    assert process.stats()["hot_error"] == ""
    assert process.stats()["unsaved_messages"] == 0
