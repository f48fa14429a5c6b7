"""Writers cut off from the hot tier, killed twice, or started from a lost copy."""

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from strands.hooks import BeforeModelCallEvent
from strands.types.exceptions import EventLoopException

from strands_manga_memory.exceptions import ConflictError
from strands_manga_memory.session import session_agent
from strands_manga_memory.stores import open_hot_store
from tests import servers
from tests.faults import talk
from tests.faults.conftest import NewProcess, Process, check_turns
from tests.faults.talk import Stores
from tests.faulty_stores import FaultyHotStore

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
