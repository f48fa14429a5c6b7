"""Agents built for one request each, with hundreds of writers in a conversation."""

import asyncio
import itertools
import random
import re
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from strands import Agent, tool
from strands.agent.conversation_manager import (
    NullConversationManager,
    SlidingWindowConversationManager,
)
from strands.hooks import BeforeModelCallEvent

from strands_manga_memory import ConflictError, ImportanceWeightedConversationManager, MangaMemory
from strands_manga_memory.conversation import EstimateCounter
from strands_manga_memory.testing import ScriptedModel
from tests.support import CUT_TEXT, PLACEHOLDER
from tests.unit.session.support import SHAPES, Stores, open_stores, quiet, texts, tool_use

pytestmark = pytest.mark.xdist_group("services")


class WorkerExitError(BaseException):
    """The worker process ends in the middle of a turn."""


@pytest.fixture(params=SHAPES)
def stores(request: pytest.FixtureRequest) -> Stores:
    return open_stores(request.param, request)


@pytest.fixture
def both(request: pytest.FixtureRequest) -> Stores:
    return open_stores("valkey+sqlite", request)


def new_agent(stores: Stores, **arguments: Any) -> Agent:
    arguments.setdefault("conversation_manager", NullConversationManager())
    return stores.agent(ScriptedModel(), agent_id="a", **arguments)


def serve(stores: Stores, text: str, **arguments: Any) -> Agent:
    """Serve a request with an agent of its own."""
    live = new_agent(stores, **arguments)
    live(text)
    quiet(live)
    return live


def window() -> SlidingWindowConversationManager:
    return SlidingWindowConversationManager(10)


def asked(live: Agent) -> list[str]:
    """Return the questions of a history."""
    return [text for m in live.messages if m["role"] == "user" for text in texts([m])]


def check_valid(messages: list[Any]) -> None:
    roles = [message["role"] for message in messages]
    assert all(one != other for one, other in itertools.pairwise(roles)), roles


def cut_turn(stores: Stores, text: str) -> None:
    """Serve a request whose worker exits before the answer, when the question is saved."""
    live = new_agent(stores)

    def exits(_: BeforeModelCallEvent) -> None:
        for conversation in live._session_manager._conversations.values():
            conversation.saver.request_flush().result()
            conversation.saver.error = ConflictError("this worker is gone")
        raise WorkerExitError

    live.hooks.add_callback(BeforeModelCallEvent, exits)
    with suppress(WorkerExitError, ConflictError):
        live(text)


def test_turns_of_two_workers_at_once_stay_after_the_hot_copy_expired(stores: Stores) -> None:
    """Two requests at a time, 44 in all; the hot copy expires in the middle and at the end."""
    with ThreadPoolExecutor(2) as workers:
        for number in range(22):
            list(
                workers.map(
                    lambda name, at=number: serve(stores.elsewhere(), f"turn {at} {name}"),
                    ["one", "other"],
                )
            )
            if number == 11 and stores.durable is not None:
                new_agent(stores)._session_manager.flush()
                stores.lose_hot()

    wanted = {f"turn {number} {name}" for number in range(22) for name in ("one", "other")}
    live = new_agent(stores)
    assert set(asked(live)) == wanted
    check_valid(live.messages)
    live._session_manager.flush()
    if stores.durable is not None:
        stores.lose_hot()
        assert new_agent(stores).messages == live.messages


def test_a_turn_that_was_saved_late_is_in_the_history(stores: Stores) -> None:
    """A worker answers while thirty others do; its turn comes behind what it had seen."""
    serve(stores, "first")
    late = new_agent(stores)

    def others(_: BeforeModelCallEvent) -> None:
        for number in range(30):
            serve(stores, f"turn {number}")

    late.hooks.add_callback(BeforeModelCallEvent, others)
    late("late")
    quiet(late)
    serve(stores, "last")

    live = new_agent(stores)
    assert sorted(asked(live)) == sorted(
        ["first", "late", "last", *(f"turn {number}" for number in range(30))]
    )
    check_valid(live.messages)


@pytest.mark.parametrize(
    ("count", "manager"),
    [
        (20, NullConversationManager),
        (60, SlidingWindowConversationManager),
        pytest.param(90, NullConversationManager, marks=pytest.mark.long),
    ],
)
def test_a_turn_cut_by_a_crash_stays_closed_later(both: Stores, count: int, manager: Any) -> None:
    """The cut turn is closed in valid requests, and not in the history."""
    serve(both, "first")
    cut_turn(both, "cut")
    for number in range(count):
        live = serve(both, f"turn {number}", conversation_manager=manager())
        check_valid(live.model.requests[-1].messages)

    live = new_agent(both, conversation_manager=manager())
    assert CUT_TEXT not in texts(live.messages)
    live("last")
    check_valid(live.model.requests[-1].messages)
    if manager is NullConversationManager:
        assert texts(live.messages[:4]) == ["first", "ok", "cut", "turn 0"]
        assert texts(live.model.requests[-1].messages[:5]) == [
            "first",
            "ok",
            "cut",
            PLACEHOLDER,
            "turn 0",
        ]


@pytest.mark.long
def test_bytes_of_a_record_do_not_grow_with_the_number_of_earlier_agents(both: Stores) -> None:
    sizes: list[int] = []
    for number in range(180):
        serve(both, f"turn {number:03}", conversation_manager=window())
        if number >= 120:
            fields = both.client.hgetall(next(both.client.scan_iter(match=f"smm:*{both.session}*")))
            sizes.append(sum(map(len, [*fields, *fields.values()])))

    assert max(sizes[30:]) < 1.05 * max(sizes[:30]) < 12_000


class EndOfLog:
    """Reads the end of a session's log as ``MangaMemory`` does, and notes each read."""

    def __init__(self) -> None:
        self.session: Any = None
        self.reads: list[int] = []
        self.is_on_loop = False

    def __call__(self, most: int) -> list[Any]:
        self.reads.append(most)
        with suppress(RuntimeError):
            asyncio.get_running_loop()
            self.is_on_loop = True
        return [record["message"] for record in self.session.records("a", last=most)]


def rebuilt(stores: Stores, log: Any, **arguments: Any) -> Agent:
    manager = ImportanceWeightedConversationManager(
        600, counter=EstimateCounter(), trim_every=4, recent_log=log
    )
    live = new_agent(stores, conversation_manager=manager, **arguments)
    if isinstance(log, EndOfLog):
        log.session = live._session_manager
    return live


def test_the_log_is_read_once_and_only_to_trim(both: Stores) -> None:
    """A history within budget reads nothing; several trimmings read once."""
    live = rebuilt(both, log := EndOfLog())
    live("short")
    quiet(live)
    assert log.reads == []
    live = rebuilt(both, log)
    for number in range(40):
        live(f"question {number} " + "many words on the weather " * 10)
    quiet(live)
    assert len(log.reads) == 1
    assert log.reads[0] < 200
    assert not log.is_on_loop
    assert len(live.messages) < 40


def test_a_log_that_cannot_be_read_fails_no_turn(both: Stores) -> None:
    """The history is trimmed without it."""

    def fails(most: int) -> list[Any]:
        raise OSError

    live = rebuilt(both, fails)
    for number in range(20):
        live(f"question {number} " + "many words on the weather " * 10)
    quiet(live)
    assert len(live.messages) < 30


def test_messages_that_were_taken_out_of_a_history_do_not_return_from_the_log(both: Stores) -> None:
    live = rebuilt(both, EndOfLog())
    for number in range(4):
        live(f"question {number} " + "many words on the weather " * 12)
    live("my secret is 4711")
    del live.messages[-2:]
    live._session_manager.sync_agent(live)
    quiet(live)

    log = EndOfLog()
    for number in range(20):
        live = rebuilt(both, log)
        live(f"later {number} " + "many words on the weather " * (60 if number % 6 == 0 else 2))
        quiet(live)
        assert not any("4711" in text for text in texts(live.messages))
    assert log.reads


@tool
def catalogue(query: str) -> dict[str, Any]:
    """List titles."""
    items = [
        {"id": f"B{at:04}", "title": f"A Silent Voice {at}", "about": f"Volume {at} of {query}."}
        for at in range(80)
    ]
    return {"status": "success", "content": [{"json": {"items": items}}]}


def shop_answer(messages: list[Any]) -> Any:
    """Call the tool when a catalogue is asked for; answer anything else."""
    last = messages[-1]["content"][-1]
    if "catalogue" not in last.get("text", ""):
        return "Volume 1 costs 600 yen, and volume 2 costs 700 yen. " * 4
    return [tool_use(last["text"][-2:], "catalogue", query="drama")]


def shop_turns(count: int) -> list[str]:
    turns = [f"How much is the other volume, order ORD-{n:05}, turn {n:02}" for n in range(count)]
    return [f"Show the catalogue, turn {at:02}" if at % 9 == 8 else t for at, t in enumerate(turns)]


def id_of_digits() -> uuid.UUID:
    """Return a random id that has as many tokens as every other one, however a counter cuts it."""
    return uuid.UUID("".join(random.choices("123456789", k=32)))


def shop_requests(agent: Callable[[], Agent], turns: list[str]) -> Iterator[list[str]]:
    """Ask an agent; yield each request's blocks without the random names in markers."""
    for text in turns:
        live = agent()
        seen = len(live.model.requests)
        live(text)
        for request in live.model.requests[seen:]:
            blocks = [
                f"{message['role']} {block}"
                for message in request.messages
                for block in message["content"]
            ]
            yield [re.sub(r"read_cut_message\(\S+\)", "", block) for block in blocks]


@pytest.mark.long
@pytest.mark.parametrize("trim_every", [0, 7])
def test_agents_built_for_each_request_send_what_a_live_agent_sends_after_a_large_result(
    trim_every: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If every turn trims, messages that a large result evicts return once the result is old."""
    monkeypatch.setattr(uuid, "uuid4", id_of_digits)
    turns = shop_turns(36)

    def requests(name: str, *, rebuilt: bool) -> list[list[str]]:
        with MangaMemory.open(durable=f"sqlite:///{tmp_path / name}.sqlite3") as memory:

            def build() -> Agent:
                model = ScriptedModel(shop_answer)
                return memory.agent(
                    model,
                    user_id="u",
                    session_id="s",
                    tools=[catalogue],
                    max_tokens=2_048,
                    trim_every=trim_every,
                )

            live = build()
            return list(shop_requests(build if rebuilt else lambda: live, turns))

    expected = requests("live", rebuilt=False)
    returned = any(len(later) > len(one) + 4 for one, later in itertools.pairwise(expected))
    assert returned or trim_every, "nothing returned"
    assert requests("rebuilt", rebuilt=True) == expected
