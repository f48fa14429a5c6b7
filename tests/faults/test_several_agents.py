"""Unsaved data of several agents of a session in one process is independent."""

import gc
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from strands import Agent

from strands_manga_memory.session import TieredSessionManager, session_agent
from strands_manga_memory.stores import open_hot_store, open_table
from tests import servers
from tests.faults import talk
from tests.faults.conftest import NewProcess
from tests.faults.talk import Stores
from tests.faulty_stores import FaultyHotStore, FaultyTable
from tests.support import finish_writes

pytestmark = pytest.mark.xdist_group("services")


class Worker:
    """A process that builds agents of one session over stores that can fail."""

    def __init__(self, session: str, stores: Stores) -> None:
        self._session = session
        self.hot = FaultyHotStore(open_hot_store(stores.hot or ""))
        self.durable = FaultyTable(open_table(stores.durable))

    def agent(self, **settings: Any) -> Agent:
        """Build an agent of the session, with a session manager of its own."""
        patient = {"hot_deadline": 5.0, "durable_deadline": 10.0}
        manager = TieredSessionManager(
            self._session, hot=self.hot, durable=self.durable, **{**patient, **settings}
        )
        return talk.new_agent(manager)

    def outage(self, *, hot: bool, durable: bool) -> None:
        """Let tiers fail, or answer again."""
        self.hot.down, self.durable.down = hot, durable


@pytest.fixture
def worker(services: Stores, unique: str) -> Iterator[Callable[[], Worker]]:
    """Return a function that starts a worker process."""
    started: list[Worker] = []

    def start() -> Worker:
        started.append(Worker(unique, services))
        return started[-1]

    yield start
    for one in started:
        one.outage(hot=False, durable=False)
        finish_writes(one.hot, one.durable)
        one.hot.close()
        one.durable.close()


def stored_marks(new_process: NewProcess, services: Stores) -> list[str]:
    """Return the marks of the messages that another process finds in the log."""
    return sorted(talk.marks(new_process(services).log()).elements())


def wanted_marks(*tags: str) -> list[str]:
    return sorted(mark for tag in tags for mark in talk.wanted_marks(tag, "text"))


@pytest.mark.parametrize("is_released", [False, True], ids=["kept", "released"])
def test_retry_of_a_later_agent_does_not_replace_that_of_an_earlier_one(
    worker: Callable[[], Worker], new_process: NewProcess, services: Stores, is_released: bool
) -> None:
    """The session's next agent meets the same outage."""
    process = worker()
    first = process.agent()
    first("a0 text")
    first._session_manager.flush()
    process.outage(hot=True, durable=True)
    first("a1 text")
    first("a2 text")
    process.outage(hot=False, durable=False)
    second = process.agent()
    process.outage(hot=True, durable=True)
    second("b1 text")
    if is_released:
        del first
        gc.collect()
    process.outage(hot=False, durable=False)

    wanted = wanted_marks("a0", "a1", "a2", "b1")
    servers.wait_until(
        lambda: stored_marks(new_process, services) == wanted,
        "storing all turns",
        every=0.5,
    )
    found = new_process(services)
    assert sorted(talk.marks(found.agent.messages).elements()) == wanted
    assert talk.problems(found.agent.messages) == []


def test_agents_released_in_an_outage_are_all_stored(
    worker: Callable[[], Worker], new_process: NewProcess, services: Stores
) -> None:
    """Of 50 agents of one session 49 are released without being closed while no tier answers."""
    process = worker()
    agents = [process.agent() for _ in range(50)]
    process.outage(hot=True, durable=True)
    for number, agent in enumerate(agents):
        agent(f"t{number} text")
    last = agents.pop()
    agents.clear()
    del agent
    gc.collect()
    process.outage(hot=False, durable=False)
    last("t50 text")

    wanted = wanted_marks(*(f"t{number}" for number in range(51)))
    servers.wait_until(
        lambda: stored_marks(new_process, services) == wanted,
        "storing all turns",
        every=1.0,
    )


def test_timed_save_of_a_later_agent_does_not_replace_that_of_an_earlier_one(
    worker: Callable[[], Worker],
    new_process: NewProcess,
    services: Stores,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Messages appended outside of a turn by two agents are both saved by their timers."""
    monkeypatch.setattr(session_agent, "_PENDING_SECONDS", 0.3)
    process = worker()
    agents = [process.agent(), process.agent()]
    for number, agent in enumerate(agents):
        agent.tool.lookup(query=f"q{number}")

    def queries() -> list[str]:
        log = new_process(services).log()
        return [query for query in ("q0", "q1") if query in str(log)]

    servers.wait_until(lambda: queries() == ["q0", "q1"], "both tool calls", every=0.3)
