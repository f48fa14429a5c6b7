"""Several writers of a session: cut off, killed twice, started from a lost copy, retrying."""

import asyncio
import gc
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from strands import Agent
from strands.hooks import BeforeModelCallEvent
from strands.types.exceptions import EventLoopException

from strands_manga_memory.exceptions import ConflictError
from strands_manga_memory.session import TieredSessionManager, session_agent
from strands_manga_memory.stores import open_hot_store, open_table
from tests import servers
from tests.faults import talk
from tests.faults.conftest import NewProcess, Process, check_turns
from tests.faults.talk import Stores
from tests.faulty_stores import FaultyHotStore, FaultyTable
from tests.support import finish_writes

pytestmark = pytest.mark.xdist_group("services")


def cut_off(process: Process) -> None:
    """Let the process find out that it cannot reach the hot tier."""
    process.hot.down = True


def back(process: Process) -> None:
    """Let it reach the hot tier again, and try at once."""
    process.hot.down = False
    process.manager._tiers.writer.hot_health.record_success()


@pytest.fixture
def faulty(new_process: NewProcess, services: Stores) -> Callable[..., Process]:
    """Start a process on Valkey and DynamoDB that can be cut off from Valkey."""

    def start(**settings: Any) -> Process:
        assert services.hot is not None
        return new_process(services, hot=FaultyHotStore(open_hot_store(services.hot)), **settings)

    return start


@pytest.mark.parametrize("flush_every", [pytest.param(1, marks=pytest.mark.long), 5])
def test_a_writer_is_cut_off_from_the_hot_tier_while_another_goes_on(
    faulty: Callable[..., Process], new_process: NewProcess, services: Stores, flush_every: int
) -> None:
    one = faulty(flush_every=flush_every)
    one.agent("a0 tool")
    other = faulty(flush_every=flush_every)
    cut_off(one)
    for tag in ("a1", "a2"):
        one.agent(f"{tag} parallel")
        servers.wait_until(
            lambda: one.stats()["unsaved_messages"] == 0, "the flush past the hot tier"
        )
    other.agent("b1 tool")
    other.agent("b2 text")
    back(one)
    for number in (3, 4):
        one.agent(f"a{number} text")
        other.agent(f"b{number} tool")
    for process in (one, other, one):
        process.manager.flush()
        assert talk.problems(process.agent.messages) == []
    kinds = {
        "a0": "tool", "a1": "parallel", "a2": "parallel", "b1": "tool", "b2": "text", "b3": "tool",
        "b4": "tool",
    }  # fmt: skip
    check_turns(new_process, services, *kinds.items(), ("a3", "text"), ("a4", "text"))


def test_turns_are_cut_again_and_again(
    new_process: NewProcess, stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each worker is lost in the middle of its turn, after that was saved in part."""
    monkeypatch.setattr(session_agent, "_PENDING_SECONDS", 0.001)
    for number, kind in enumerate(["text", "tool", "text", "sequential"]):
        process = new_process(stores)
        assert talk.request_problems(talk.next_request(process.agent.messages)) == []

        async def die(event: BeforeModelCallEvent, process: Process = process) -> None:
            if event.agent.messages[-1]["content"][0].get("text") is None or kind == "text":  # noqa: B023
                saved = process.manager._conversations["A", "librarian"]
                await asyncio.to_thread(
                    servers.wait_until, lambda: not saved.local.is_dirty, "the save in the middle"
                )
                process.lose()
                raise SystemExit

        process.agent.hooks.add_callback(BeforeModelCallEvent, die)
        with pytest.raises((SystemExit, ConflictError)):
            process.agent(f"t{number} {kind}")
        process.settle()
    last = new_process(stores)
    assert talk.request_problems(talk.next_request(last.agent.messages)) == []
    assert [mark for mark in talk.marks(last.log()) if mark.startswith("user:")] == [
        "user:t0 text",
        "user:t1 tool",
        "user:t2 text",
        "user:t3 sequential",
    ]
    last.agent("t4 parallel")
    assert not [
        problem
        for request in last.agent.model.requests
        for problem in talk.request_problems(request.messages)
    ]


@pytest.mark.parametrize("call", [1, 2, 3])
def test_another_writer_comes_in_the_middle_of_a_turn(
    new_process: NewProcess, stores: Stores, monkeypatch: pytest.MonkeyPatch, call: int
) -> None:
    monkeypatch.setattr(session_agent, "_PENDING_SECONDS", 0.001)
    one = new_process(stores)
    one.agent("a0 tool")
    calls: list[int] = []
    others: list[Process] = []

    async def come_in(event: BeforeModelCallEvent) -> None:
        calls.append(1)
        if len(calls) == call:
            saved = one.manager._conversations["A", "librarian"]
            await asyncio.to_thread(
                servers.wait_until, lambda: not saved.local.is_dirty, "the save in the middle"
            )
            others.append(await asyncio.to_thread(new_process, stores))
            assert talk.request_problems(talk.next_request(others[0].agent.messages)) == []
            await asyncio.to_thread(others[0].agent, "b1 tool")

    one.agent.hooks.add_callback(BeforeModelCallEvent, come_in)
    one.agent("a1 sequential")
    calls += [1] * 9
    for process, name in ((one, "a"), (others[0], "b")):
        process.agent(f"{name}2 text")
        process.agent(f"{name}3 text")
        assert talk.problems(process.agent.messages) == []
    for process in (one, others[0], one):
        process.manager.flush()
    rest = [(f"{name}{n}", "text") for name in "ab" for n in (2, 3)]
    check_turns(new_process, stores, ("a0", "tool"), ("a1", "sequential"), ("b1", "tool"), *rest)


def test_what_follows_a_failed_turn_gives_way(new_process: NewProcess, stores: Stores) -> None:
    """It belongs to that turn, for which numbers had been set aside and given back."""
    one = new_process(stores, flush_every=5)
    one.agent("a0 text")

    def fail(_: BeforeModelCallEvent) -> None:
        raise RuntimeError

    one.agent.hooks.add_callback(BeforeModelCallEvent, fail)
    with pytest.raises((RuntimeError, EventLoopException)):
        one.agent("a1 text")
    one.settle()
    other = new_process(stores, flush_every=5)
    other.agent("b1 sequential")
    other.settle()
    one.agent.tool.lookup(query="direct")
    for process in (one, other, one):
        process.manager.flush()
    there = [
        talk.plain(new_process(stores).agent.messages)
        for stores in (stores, Stores(None, stores.durable))
    ]
    assert there[0] == there[1]
    log = new_process(stores).log()
    assert Counter(talk.marks(log)) >= Counter(
        [*talk.wanted_marks("b1", "sequential"), "user:a1 text"]
    )
    assert sum("direct" in str(message["content"]) for message in log) == 3


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
