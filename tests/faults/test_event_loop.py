"""Neither the event loop nor the exit of a process waits for a dead store."""

import asyncio
import ctypes
import os
import sqlite3
import subprocess
import sys
import threading
import time
from collections import Counter
from typing import Any

import pytest

from strands_manga_memory import MangaMemory
from strands_manga_memory.stores import open_hot_store
from strands_manga_memory.testing import ScriptedModel
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


PROGRAM = """
import sys
from strands.hooks import BeforeModelCallEvent
from tests.faults import talk
from tests.faults.talk import Stores

sessions = Stores({hot!r}, {durable!r}).manager({session!r}, flush_every=5)
agent = talk.new_agent(sessions)
agent("t0 tool")
{end}
"""

NORMAL = "agent.tool.lookup(query='direct')"
IN_A_TURN = """
def leave(event):
    sys.exit(3)

agent.hooks.add_callback(BeforeModelCallEvent, leave)
agent("t1 text")
"""
FORGOTTEN = """
agent.tool.lookup(query='direct')
del agent, sessions
"""


@pytest.mark.parametrize(
    ("end", "code", "pending"),
    [
        (IN_A_TURN, 3, "t1 text"),
        pytest.param(FORGOTTEN, 0, "direct", marks=pytest.mark.long),
        pytest.param(NORMAL, 0, "direct", marks=pytest.mark.long),
    ],
    ids=["sys_exit in a turn", "forgotten", "normal"],
)
def test_what_is_pending_is_saved_at_exit(
    new_process: NewProcess, sqlite: Stores, unique: str, end: str, code: int, pending: str
) -> None:
    program = PROGRAM.format(hot=sqlite.hot, durable=sqlite.durable, session=unique, end=end)
    found = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, cwd=os.getcwd()
    )
    assert found.returncode == code, found.stderr
    restored = new_process(sqlite)
    log = restored.log()
    assert sum(pending in str(message["content"]) for message in log) >= 1
    assert len({message["tracking_id"] for message in log}) == len(log) in (5, 8)
    # A turn that ends with an error is not cut: it comes back as the agent had it, and Strands
    # takes the next message after it.
    assert talk.problems(restored.agent.messages) == (
        ["the last message is user:[{'text': 't1 text'}]"] if end == IN_A_TURN else []
    )
    restored.agent("t2 tool")
    assert talk.marks(restored.agent.messages) >= Counter(talk.wanted_marks("t2", "tool"))


WITHOUT_HOT_TIER = """
import sys
from strands_manga_memory import MangaMemory
from strands_manga_memory.testing import ScriptedModel

memory = MangaMemory.open(hot={hot!r}, durable={durable!r}, memories=True)
agent = memory.agent(ScriptedModel(), user_id="u", session_id={session!r}, callback_handler=None)
agent("I prefer hardcover editions")
print("ready", flush=True)
sys.stdin.readline()
agent("a turn that the hot tier does not take")
{end}
print("done", flush=True)
"""


def started(program: str) -> subprocess.Popen[str]:
    """Start the program, and return it when it is ready."""
    pipe = subprocess.PIPE
    command = [sys.executable, "-c", program]
    process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True)
    assert process.stdout.readline() == "ready\n"
    return process


@pytest.mark.parametrize(
    ("fault", "end"),
    [
        ("blackhole", "memory.close(); agent('later'); agent._session_manager.flush()"),
        pytest.param("kill", "memory.close()", marks=pytest.mark.long),
    ],
)
def test_exit_does_not_wait_for_a_dead_hot_tier(
    sqlite: Stores, unique: str, fault: str, end: str
) -> None:
    """A process ends soon after ``close()`` if the durable tier has everything."""
    with servers.valkey() as hot, servers.FaultyProxy(hot.host, hot.port) as proxy:
        program = WITHOUT_HOT_TIER.format(
            hot=f"redis://{proxy.host}:{proxy.port}/0",
            durable=sqlite.durable,
            session=unique,
            end=end,
        )
        process = started(program)
        if fault == "kill":
            hot.kill()
            proxy.reset()
        else:
            proxy.blackhole()
        process.stdin.write("\n")
        process.stdin.flush()
        assert process.stdout.readline() == "done\n"
        with clocks.Idle() as idle:
            _, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    assert idle.seconds < 2.0, errors
    assert "left undone" not in errors
    with MangaMemory.open(durable=sqlite.durable) as memory:
        again = memory.agent(ScriptedModel(), user_id="u", session_id=unique)
        assert len(again.messages) == (6 if "later" in end else 4)


def test_exit_waits_for_a_turn_that_no_tier_has(sqlite: Stores, unique: str) -> None:
    """The durable tier takes the turn only during the exit."""
    with servers.valkey() as hot:
        program = WITHOUT_HOT_TIER.format(
            hot=hot.url, durable=sqlite.durable, session=unique, end=""
        )
        process = started(program)
        hot.kill()
        path = sqlite.durable.removeprefix("sqlite:///")
        with sqlite3.connect(path, isolation_level=None, check_same_thread=False) as lock:
            lock.execute("BEGIN EXCLUSIVE")
            release = threading.Timer(2.0, lock.rollback)
            release.start()
            _, errors = process.communicate("\n", timeout=60)
            release.join()
        lock.close()
    assert process.returncode == 0, errors
    with MangaMemory.open(durable=sqlite.durable) as memory:
        assert len(memory.agent(ScriptedModel(), user_id="u", session_id=unique).messages) == 4
