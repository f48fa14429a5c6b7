"""Agents behind Agent Squad, without the pitfalls of its own Strands agent and storages."""

import asyncio
import builtins
import importlib
import logging
import sys
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
from agent_squad.agents import Agent as SquadAgent
from agent_squad.agents import (
    AgentCallbacks,
    AgentOptions,
    BedrockLLMAgent,
    BedrockLLMAgentOptions,
    SupervisorAgent,
    SupervisorAgentOptions,
)
from agent_squad.classifiers import Classifier, ClassifierResult
from agent_squad.orchestrator import AgentSquad
from agent_squad.storage.summarizing_chat_storage import SummarizingChatStorage
from agent_squad.types import ConversationMessage, TimestampedMessage
from strands import Agent, ToolContext, tool

from strands_manga_memory import ConversationScope, InMemoryHotStore, MangaMemory, open_hot_store
from strands_manga_memory.exceptions import MangaMemoryError, StoreUnavailableError
from strands_manga_memory.squad import (
    BusyError,
    ConversationTurns,
    Handoff,
    Handoffs,
    SessionChatStorage,
    SessionStrandsAgent,
)
from strands_manga_memory.testing import ScriptedModel
from tests import clocks, servers
from tests.faults.forks import Child, forked_child
from tests.faulty_stores import FaultyHotStore, FaultyTable
from tests.unit.session.support import tool_use

UNANSWERED = "(This was not answered.)"
SORRY = "Sorry, something went wrong. Please try again."


class KeywordClassifier(Classifier):
    """Selects the agent whose id is said, else the first one."""

    def __init__(self) -> None:
        super().__init__()
        self.histories: list[str] = []

    async def process_request(
        self, input_text: str, chat_history: list[ConversationMessage]
    ) -> ClassifierResult:
        self.histories.append(self.history)
        found = next(
            (agent for id_, agent in self.agents.items() if id_ in input_text),
            next(iter(self.agents.values())),
        )
        return ClassifierResult(selected_agent=found, confidence=1.0)


class Shop:
    """A squad of two agents, ``alpha`` and ``beta``, like a process of its own."""

    def __init__(self, memory: MangaMemory, *, streaming: bool = False, **settings: Any) -> None:
        self.memory = memory
        self.models: list[ScriptedModel] = []
        self.agents: list[Agent] = []
        self.seen: list[dict[str, Any]] = []
        self.arguments: dict[str, Any] = {}
        self.tools: list[Any] = [self.look_up(), self.remember()]
        self.script: Callable[[Any], Any] = self.reply
        self.handoffs = settings.get("handoffs")
        self.entered, self.may_go_on = threading.Event(), threading.Event()
        self.storage = SessionChatStorage(memory)
        self.classifier = KeywordClassifier()
        self.squad = AgentSquad(classifier=self.classifier, storage=self.storage)
        self.streaming = streaming
        for name in ("Alpha", "Beta"):
            options = AgentOptions(name=name, description=f"answers as {name}")
            self.squad.add_agent(
                SessionStrandsAgent(options, self.build, streaming=streaming, **settings)
            )

    def build(self, scope: ConversationScope) -> Agent:
        model = ScriptedModel(lambda messages: self.script(messages))
        arguments = {
            **self.memory.agent_kwargs(**vars(scope)),
            **{k: v() for k, v in self.arguments.items()},
        }
        agent = Agent(model=model, tools=self.tools, retry_strategy=None, **arguments)
        self.models.append(model)
        self.agents.append(agent)
        return agent

    def look_up(self) -> Any:
        @tool(context=True)
        async def look_up(tool_context: ToolContext) -> str:
            """Look something up; takes as long as the test wants."""
            self.seen.append(
                {
                    k: tool_context.invocation_state.get(k)
                    for k in ("user_id", "session_id", "agent_id", "shop")
                }
            )
            self.entered.set()
            await asyncio.to_thread(self.may_go_on.wait, 30)
            return "found 4242"

        return look_up

    def remember(self) -> Any:
        @tool(context=True)
        def remember(tool_context: ToolContext) -> str:
            """Count the calls in the agent's state."""
            count = (tool_context.agent.state.get("count") or 0) + 1
            tool_context.agent.state.set("count", count)
            return f"count {count}"

        return remember

    @staticmethod
    def reply(messages: Any) -> Any:
        block = messages[-1]["content"][0]
        if "toolResult" in block:
            return f"it says {block['toolResult']['content'][0]['text']}"
        text = block["text"]
        if "boom" in text:
            return RuntimeError("db password=hunter2")
        name = "look_up" if "look" in text else "remember" if "count" in text else None
        return [{"text": "let me see. "}, tool_use("t1", name)] if name else f"heard {text}"

    async def ask(self, text: str, user: str = "u1", session: str = "s1", **params: Any) -> str:
        response = await self.squad.route_request(
            text, user, session, params or None, stream_response=self.streaming
        )
        if isinstance(response.output, ConversationMessage):
            return str(response.output.content[0]["text"])
        chunks = [chunk async for chunk in response.output]
        finals = [chunk.final_message for chunk in chunks if chunk.final_message]
        assert len(finals) == 1
        answer = str(finals[0].content[0]["text"])
        assert "".join(chunk.text or "" for chunk in chunks).endswith(answer)
        return answer

    def log(self, agent: str = "alpha", user: str = "u1", session: str = "s1") -> list[list[str]]:
        return told(self.memory.session(ConversationScope(user, session, agent)).history())


def told(messages: Any) -> list[list[str]]:
    return [
        [m["role"][0], *(block.get("text") or next(iter(block)) for block in m["content"])]
        for m in messages
    ]


def shown(messages: list[ConversationMessage]) -> list[tuple[Any, str]]:
    return [(message.role, message.content[0]["text"]) for message in messages]


OpenMemory = Callable[..., MangaMemory]


@pytest.fixture(params=["embedded", "valkey"])
def open_memory(request: pytest.FixtureRequest, tmp_path: Path, unique: str) -> OpenMemory:
    def opened(**settings: Any) -> MangaMemory:
        hot = None
        if request.param == "valkey":
            hot = open_hot_store(f"{request.getfixturevalue('valkey_server').url}?prefix={unique}")
        memory = MangaMemory.open(
            hot, f"sqlite:///{tmp_path / 'm.sqlite3'}", hot_deadline=5.0, **settings
        )
        request.addfinalizer(memory.close)
        return memory

    return opened


@pytest.fixture(params=["whole", "streamed"])
def streaming(request: pytest.FixtureRequest) -> bool:
    return bool(request.param == "streamed")


# What the model sees


async def test_tool_calls_survive_a_restart(open_memory: OpenMemory, streaming: bool) -> None:
    shop = Shop(open_memory(), streaming=streaming)
    shop.may_go_on.set()
    assert await shop.ask("look") == "it says found 4242"
    shop.memory.close()
    again = Shop(open_memory(), streaming=streaming)
    assert await again.ask("thanks") == "heard thanks"
    assert told(again.models[-1].requests[-1].messages) == [
        ["u", "look"],
        ["a", "let me see. ", "toolUse"],
        ["u", "toolResult"],
        ["a", "it says found 4242"],
        ["u", "thanks"],
    ]
    assert again.log() == [*told(again.models[-1].requests[-1].messages), ["a", "heard thanks"]]


async def test_users_and_agents_share_neither_messages_nor_state(memory: MangaMemory) -> None:
    shop = Shop(memory)
    assert await shop.ask("count") == "it says count 1"
    assert await shop.ask("count", "u2") == "it says count 1"
    assert await shop.ask("count beta") == "it says count 1"
    assert await shop.ask("count", session="s2") == "it says count 1"
    assert await shop.ask("count") == "it says count 2"
    assert [len(model.requests[0].messages) for model in shop.models] == [1, 1, 1, 1, 5]


async def test_what_the_caller_holds_is_not_the_agents_own(memory: MangaMemory) -> None:
    shop = Shop(memory)
    await shop.ask("hello")
    first = await shop.storage.fetch_chat("u1", "s1", "alpha")
    first[0].content[0]["text"] = "changed"
    assert shown(await shop.storage.fetch_chat("u1", "s1", "alpha")) == [
        ("user", "hello"),
        ("assistant", "heard hello"),
    ]
    await shop.ask("again")
    assert told(shop.models[-1].requests[-1].messages)[0] == ["u", "hello"]


# Who asks


async def test_tools_know_the_user_and_no_one_can_be_another(memory: MangaMemory) -> None:
    shop = Shop(memory)
    shop.may_go_on.set()
    await shop.ask("look", "u1", user_id="u2", session_id="s9", agent_id="beta", shop="Kanda")
    found = shop.seen
    assert found == [{"user_id": "u1", "session_id": "s1", "agent_id": "alpha", "shop": "Kanda"}]


async def test_an_empty_id_is_no_conversation(memory: MangaMemory) -> None:
    agent = Shop(memory).squad.agents["alpha"]
    assert (await agent.process_request("hello", " ", "s1", [])).content == [{"text": SORRY}]


def test_names_that_make_no_id_are_refused() -> None:
    with pytest.raises(ValueError, match="商品案内"):
        SessionStrandsAgent(
            AgentOptions(name="商品案内", description=""),
            lambda scope: Agent(model=ScriptedModel()),
        )


# At the same time


async def test_two_users_and_one_twice_at_once(open_memory: OpenMemory, streaming: bool) -> None:
    shop = Shop(open_memory(), streaming=streaming)
    first = asyncio.create_task(shop.ask("look"))
    await asyncio.to_thread(shop.entered.wait, 30)
    # A second message while a tool runs, and another user, whom nobody keeps waiting.
    second = asyncio.create_task(shop.ask("my second"))
    assert await shop.ask("hello", "u2") == "heard hello"
    assert not second.done()
    shop.may_go_on.set()
    assert await asyncio.gather(first, second) == ["it says found 4242", "heard my second"]
    assert [line[-1] for line in shop.log()] == [
        "look", "toolUse", "toolResult", "it says found 4242", "my second", "heard my second",
    ]  # fmt: skip
    assert shop.log(user="u2") == [["u", "hello"], ["a", "heard hello"]]
    for model in shop.models:
        everything = str([told(request.messages) for request in model.requests])
        assert ("hello" in everything) != ("look" in everything or "my second" in everything)


async def test_one_conversation_in_order_many_side_by_side(memory: MangaMemory) -> None:
    shop = Shop(memory)
    agent = shop.squad.agents["alpha"]
    asked = [(f"m{number}", f"u{number % 4}") for number in range(20)]
    answers = await asyncio.gather(*(agent.process_request(t, user, "s1", []) for t, user in asked))
    assert [a.content[0]["text"] for a in answers] == [f"heard {text}" for text, _ in asked]
    for user in range(4):
        expected = [text for n in range(user, 20, 4) for text in (f"m{n}", f"heard m{n}")]
        assert [line[1] for line in shop.log(user=f"u{user}")] == expected


async def test_the_event_loop_is_not_blocked_while_an_agent_is_built(memory: MangaMemory) -> None:
    shop = Shop(memory)
    started, build = threading.Event(), shop.build

    def slow(scope: ConversationScope) -> Agent:
        started.set()
        assert shop.may_go_on.wait(30)
        return build(scope)

    shop.squad.add_agent(SessionStrandsAgent(AgentOptions(name="slow", description=""), slow))
    task = asyncio.create_task(shop.ask("slow"))
    await asyncio.to_thread(started.wait, 30)
    # A blocked loop would not come this far, and nobody would let it go on.
    shop.may_go_on.set()
    assert await task == "heard slow"


async def test_a_request_does_not_wait_for_ever(memory: MangaMemory) -> None:
    shop = Shop(memory, wait=0.0, busy_text="one moment")
    first = asyncio.create_task(shop.ask("look"))
    # The very first request is let in at once: nobody is before it.
    await asyncio.to_thread(shop.entered.wait, 30)
    assert await shop.ask("second") == "one moment"
    shop.may_go_on.set()
    assert await first == "it says found 4242"
    assert ["u", "second"] not in shop.log()


async def test_a_request_that_gives_up_waiting_leaves_the_line(memory: MangaMemory) -> None:
    shop = Shop(memory)
    first = asyncio.create_task(shop.ask("look"))
    await asyncio.to_thread(shop.entered.wait, 30)
    second, third = asyncio.create_task(shop.ask("second")), asyncio.create_task(shop.ask("third"))
    await asyncio.sleep(0.05)
    second.cancel()
    shop.may_go_on.set()
    assert await asyncio.gather(first, third) == ["it says found 4242", "heard third"]
    assert ["u", "second"] not in shop.log()
    assert not shop.squad.agents["alpha"]._turns._queues


async def test_two_processes_take_turns(open_memory: OpenMemory) -> None:
    here = open_memory()
    shop = Shop(here, hot=here.hot)
    elsewhere = MangaMemory(hot=here.hot, durable=here.durable)
    other = Shop(elsewhere, hot=elsewhere.hot)
    first = asyncio.create_task(shop.ask("look"))
    await asyncio.to_thread(shop.entered.wait, 30)
    second = asyncio.create_task(other.ask("second"))
    with pytest.raises(
        MangaMemoryError, match=r"agent 'alpha' .* after 0\.2 s: repeat the"
    ) as busy:
        async with ConversationTurns(here.hot).wait_for_turn(
            ConversationScope("u1", "s1", "alpha"), wait=0.2
        ):
            pass
    assert busy.type is BusyError
    assert not second.done()
    shop.may_go_on.set()
    assert await asyncio.gather(first, second) == ["it says found 4242", "heard second"]
    assert len(other.models[0].requests[0].messages) == 5


@pytest.fixture
def dying(valkey_server: servers.Valkey, unique: str) -> tuple[Child, str]:
    """A process in the middle of a turn, and where it is leased."""
    url = f"{valkey_server.url}?prefix={unique}"

    async def hold(parent: Child) -> None:
        turns = ConversationTurns(open_hot_store(url), lease=2.0)
        async with turns.wait_for_turn(ConversationScope("u1", "s1", "alpha"), wait=30):
            await asyncio.sleep(2.3)  # longer than the lease
            parent.say(holds=True)
            await asyncio.sleep(600)

    child = forked_child(lambda parent: asyncio.run(hold(parent)))
    child.hear("holds")
    return child, url


async def test_killed_process_delays_nobody(memory: MangaMemory, dying: tuple[Child, str]) -> None:
    child, url = dying
    hot = open_hot_store(url)
    with pytest.raises(BusyError):
        async with ConversationTurns(hot).wait_for_turn(
            ConversationScope("u1", "s1", "alpha"), wait=0.2
        ):
            pass
    shop = Shop(memory, hot=hot)
    child.kill()
    with clocks.Idle() as idle:
        assert await shop.ask("hello") == "heard hello"
    assert idle.seconds < 4.4
    hot.close()


async def test_a_lease_that_cannot_be_had_stops_nobody() -> None:
    hot = FaultyHotStore(InMemoryHotStore())
    hot.down = True
    async with ConversationTurns(hot).wait_for_turn(ConversationScope("u", "s"), wait=5.0):
        assert hot.calls == ["replace_value"]


async def test_a_lease_is_given_back() -> None:
    hot, scope = InMemoryHotStore(), ConversationScope("u", "s")
    async with ConversationTurns(hot).wait_for_turn(scope, wait=5.0):
        pass
    name = f"{scope.storage_session_id}/A:default"
    assert hot.replace_value(f"lease/{name}", b"someone else", expect=None, ttl=1.0)


# Streams


async def test_a_stream_closed_half_way_leaves_all_sound(open_memory: OpenMemory) -> None:
    shop = Shop(open_memory(), streaming=True)
    response = await shop.squad.route_request("look", "u1", "s1", stream_response=True)
    stream: AsyncIterator[Any] = response.output
    async with aclosing(stream):
        assert (await anext(stream)).text == "let me see. "
        await asyncio.to_thread(shop.entered.wait, 30)
    shop.may_go_on.set()
    assert await shop.ask("next") == "heard next"
    seen = told(shop.models[-1].requests[-1].messages)
    assert [line[0] for line in seen] == ["u", "a", "u", "a", "u"]
    assert seen[-2:] == [
        ["a", "(The request was cancelled before it was answered.)"],
        ["u", "next"],
    ]


async def test_a_stream_that_is_forgotten_ends_by_itself(memory: MangaMemory) -> None:
    shop = Shop(memory, streaming=True)
    response = await shop.squad.route_request("look", "u1", "s1", stream_response=True)
    stream = response.output
    await anext(stream)
    shop.may_go_on.set()
    assert await shop.ask("next") == "heard next"  # although the first stream is still open
    rest = [chunk async for chunk in stream]
    assert rest[-1].final_message.content == [{"text": "it says found 4242"}]
    assert ["a", "it says found 4242"] in shop.log()


async def test_a_stream_that_nobody_reads_does_nothing(memory: MangaMemory) -> None:
    shop = Shop(memory, streaming=True)
    stream = await shop.squad.agents["alpha"].process_request("hello", "u1", "s1", [])
    await stream.aclose()
    assert shop.models == []
    assert shop.log() == []


async def test_a_cancelled_request_with_a_hanging_tool_frees_it(memory: MangaMemory) -> None:
    shop = Shop(memory, grace=0.05)
    task = asyncio.create_task(shop.ask("look"))
    await asyncio.to_thread(shop.entered.wait, 30)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await shop.ask("next") == "heard next"  # the tool has not come back yet
    shop.may_go_on.set()
    roles = [line[0] for line in told(shop.models[-1].requests[-1].messages)]
    assert roles == ["u", "a", "u", "a", "u"] or roles == ["u", "a", "u"]


async def test_a_streaming_agent_whose_caller_does_not_stream(memory: MangaMemory) -> None:
    shop = Shop(memory, streaming=True)
    response = await shop.squad.route_request("hello", "u1", "s1", stream_response=False)
    assert response.output.content == [{"text": "heard hello"}]
    whole = Shop(memory)
    response = await whole.squad.route_request("hello", "u1", "s1", stream_response=True)
    assert response.output.content == [{"text": "heard hello"}]


# What goes wrong


async def test_no_exception_reaches_the_user_and_the_next_turn_is_sound(
    memory: MangaMemory, streaming: bool, caplog: pytest.LogCaptureFixture
) -> None:
    shop = Shop(memory, streaming=streaming)
    with caplog.at_level(logging.INFO):
        assert await shop.ask("boom") == SORRY
    assert "hunter2" not in caplog.text
    assert "RuntimeError" in caplog.text
    assert await shop.ask("and now") == "heard and now"
    assert told(shop.models[-1].requests[-1].messages) == [
        ["u", "boom"],
        ["a", SORRY],
        ["u", "and now"],
    ]
    assert shown(await shop.storage.fetch_all_chats("u1", "s1")) == [
        ("user", "boom"),
        ("assistant", f"[alpha] {SORRY}"),
        ("user", "and now"),
        ("assistant", "[alpha] heard and now"),
    ]


async def test_a_factory_that_raises_or_shares_its_agents(memory: MangaMemory) -> None:
    def broken(scope: ConversationScope) -> Agent:
        raise RuntimeError("db password=hunter2")

    shared = Agent(model=ScriptedModel(["one", "two"]), agent_id="shared")
    nameless = SessionStrandsAgent(
        AgentOptions(name="nameless", description=""), lambda scope: Agent(model=ScriptedModel())
    )
    same = SessionStrandsAgent(AgentOptions(name="shared", description=""), lambda scope: shared)
    raising = SessionStrandsAgent(AgentOptions(name="raising", description=""), broken)
    answers = [
        (await agent.process_request("hi", "u", "s", [])).content
        for agent in (raising, nameless, same, same)
    ]
    assert answers == [[{"text": SORRY}], [{"text": SORRY}], [{"text": "one"}], [{"text": SORRY}]]


async def test_a_store_that_is_down_is_told_in_words_for_users(tmp_path: Path) -> None:
    opened = MangaMemory.open(durable=f"sqlite:///{tmp_path / 'm.sqlite3'}")
    table = FaultyTable(opened.durable)
    shop = Shop(MangaMemory(hot=opened.hot, durable=table))
    await shop.ask("hello")
    table.down = True
    answer = await shop.ask("hello?")
    assert answer == "The conversation cannot be reached just now. Please try again in a moment."
    with pytest.raises(StoreUnavailableError, match="try again"):
        await shop.storage.save_chat_message("u1", "s1", "lex", said("user", "hi"))
    table.down = False
    assert [line[-1] for line in shop.log()] == ["hello", "heard hello"]


def test_without_the_extra_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def missing(name: str, *arguments: Any, **named: Any) -> Any:
        if name.startswith("agent_squad"):
            raise ModuleNotFoundError(f"No module named {name!r}")
        return real(name, *arguments, **named)

    for name in [name for name in sys.modules if name.startswith("strands_manga_memory.squad")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(ImportError, match=r"pip install 'strands-manga-memory\[squad\]'"):
        importlib.import_module("strands_manga_memory.squad")


# The history that Agent Squad sees


def said(role: Any, text: str) -> ConversationMessage:
    return ConversationMessage(role, [{"text": text}])


class Parrot(SquadAgent):
    """An agent of another framework: Agent Squad gives it its history and stores what it says."""

    def __init__(self, **options: Any) -> None:
        super().__init__(AgentOptions(name="Parrot", description="repeats", **options))
        self.histories: list[list[tuple[Any, str]]] = []

    async def process_request(
        self, input_text: str, *arguments: Any, **named: Any
    ) -> ConversationMessage:
        self.histories.append(shown(arguments[2]))
        return said("assistant", f"{input_text}!")


async def test_there_is_one_history_of_all_agents(open_memory: OpenMemory) -> None:
    shop = Shop(open_memory())
    shop.may_go_on.set()
    parrot = Parrot()
    shop.squad.add_agent(parrot)
    for text in ("look", "parrot hi", "beta hi", "parrot more"):
        await shop.ask(text)
    assert parrot.histories == [[], [("user", "parrot hi"), ("assistant", "parrot hi!")]]
    expected = [
        ("user", "look"),
        ("assistant", "[alpha] it says found 4242"),
        ("user", "parrot hi"),
        ("assistant", "[parrot] parrot hi!"),
        ("user", "beta hi"),
        ("assistant", "[beta] heard beta hi"),
        ("user", "parrot more"),
        ("assistant", "[parrot] parrot more!"),
    ]
    assert shown(await shop.storage.fetch_all_chats("u1", "s1")) == expected
    # The classifier formats block 0 of every message as text, and asks before each turn.
    assert shop.classifier.histories[-1].count("\n") == 5
    shop.memory.close()
    again = Shop(open_memory())
    assert shown(await again.storage.fetch_all_chats("u1", "s1")) == expected
    assert again.memory.session(ConversationScope("u1", "s1")).agents() == [
        "alpha",
        "beta",
        "parrot",
    ]
    assert await again.storage.fetch_all_chats("u2", "s1") == []


async def test_a_user_who_is_forgotten_leaves_nothing_in_the_squad(open_memory: OpenMemory) -> None:
    memory = open_memory()
    shop = Shop(memory, handoffs=Handoffs(memory))
    shop.squad.add_agent(Parrot())
    for user in ("u1", "u2"):
        for text in ("hello", "parrot hi"):
            await shop.ask(text, user)
    note = Handoff(from_agent="alpha", to_agent="beta", summary="a note")
    Handoffs(memory).write(note, user_id="u1", session_id="s1")
    report = memory.forget_user("u1")
    assert report.complete, report
    assert await shop.storage.fetch_all_chats("u1", "s1") == []
    assert await shop.storage.fetch_chat("u1", "s1", "parrot") == []
    assert Handoffs(memory).read(ConversationScope("u1", "s1", "beta")) == []
    assert len(await shop.storage.fetch_all_chats("u2", "s1")) == 4


async def test_chat_needs_no_statistics(
    memory: MangaMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A chat must not count turns and tokens of thousands of sessions."""
    monkeypatch.setattr(MangaMemory, "stats", lambda self: pytest.fail("statistics of the process"))
    storage = SessionChatStorage(memory)
    await storage.save_chat_messages("u", "s", "lex", [said("user", "q"), said("assistant", "a")])
    assert shown(await storage.fetch_chat("u", "s", "lex")) == [("user", "q"), ("assistant", "a")]
    assert len(await storage.fetch_all_chats("u", "s")) == 2


async def test_history_sizes(memory: MangaMemory) -> None:
    storage = SessionChatStorage(memory)
    for number in range(5):
        pair = [said("user", f"q{number}"), said("assistant", f"a{number}")]
        assert await storage.save_chat_messages("u", "s", "lex", pair, 6)
    sizes = [len(await storage.fetch_chat("u", "s", "lex", size)) for size in (None, 0, 1, 2, 3, 4)]
    assert sizes == [6, 0, 0, 2, 2, 4]
    assert shown(await storage.fetch_chat("u", "s", "lex", 2)) == [
        ("user", "q4"),
        ("assistant", "a4"),
    ]
    for part in (SessionChatStorage, Handoffs):
        with pytest.raises(ValueError, match="memory must be MangaMemory, got 'memory'"):
            part("memory")


async def test_a_question_asked_twice_is_not_dropped(memory: MangaMemory) -> None:
    storage = SessionChatStorage(memory)
    for role, text in (("user", "are you there"), ("user", "hello?"), ("assistant", "yes")):
        await storage.save_chat_message("u", "s", "lex", TimestampedMessage(role, [{"text": text}]))
    manager = memory.session(ConversationScope("u", "s", "lex"))
    assert [line[1] for line in told(manager.history())] == ["are you there", "hello?", "yes"]
    # What is shown alternates: a supervisor takes it two by two.
    assert shown(await storage.fetch_chat("u", "s", "lex")) == [
        ("user", "are you there"),
        ("assistant", UNANSWERED),
        ("user", "hello?"),
        ("assistant", "yes"),
    ]


async def test_what_an_agent_says_unasked_is_shown(memory: MangaMemory) -> None:
    storage = SessionChatStorage(memory)
    for role, text in (
        ("assistant", "Welcome!"),
        ("user", "hi"),
        ("assistant", "Hello."),
        ("assistant", "It arrived."),
    ):
        await storage.save_chat_message("u", "s", "lex", said(role, text))
    expected = [
        ("user", "(Nothing was asked.)"),
        ("assistant", "Welcome!"),
        ("user", "hi"),
        ("assistant", "Hello.\nIt arrived."),
    ]
    assert shown(await storage.fetch_chat("u", "s", "lex")) == expected
    assert [text for _, text in shown(await storage.fetch_all_chats("u", "s"))][1::2] == [
        "[lex] Welcome!",
        "[lex] Hello.\nIt arrived.",
    ]


async def test_without_pairs_nothing_is_shown_that_nobody_said(memory: MangaMemory) -> None:
    storage = SessionChatStorage(memory, pairs=False)
    for role, text in (("assistant", "Welcome!"), ("user", "hi"), ("user", "hello?")):
        await storage.save_chat_message("u", "s", "lex", said(role, text))
    assert shown(await storage.fetch_chat("u", "s", "lex")) == [
        ("assistant", "Welcome!"),
        ("user", "hi"),
        ("user", "hello?"),
    ]
    assert [text for _, text in shown(await storage.fetch_all_chats("u", "s"))] == [
        "[lex] Welcome!",
        "hi",
        "hello?",
    ]


async def test_a_limit_of_agent_squad_bounds_history_not_log(memory: MangaMemory) -> None:
    storage = SessionChatStorage(memory)
    for number in range(6):
        await storage.save_chat_message("u", "s", "lex", said("user", f"q{number}"), 5)
        saved = await storage.save_chat_message("u", "s", "lex", said("assistant", f"a{number}"), 5)
    latest = [("user", "q4"), ("assistant", "a4"), ("user", "q5"), ("assistant", "a5")]
    assert shown(saved) == latest
    assert shown(await storage.fetch_chat("u", "s", "lex")) == latest
    assert len(await storage.fetch_all_chats("u", "s")) == 4
    saved = await storage.save_chat_message("u", "s", "lex", said("user", "q6"), 5)
    assert shown(saved) == [*latest[2:], ("user", "q6")]
    manager = memory.session(ConversationScope("u", "s", "lex"))
    assert manager.stats()["window_messages"] <= 5
    assert [line[1] for line in told(manager.history())] == [
        *(f"{who}{number}" for number in range(6) for who in "qa"),
        "q6",
    ]


@pytest.mark.parametrize(
    "content", ["hello", ["hello"], [{"text": "hello"}], {"text": "hello"}], ids=repr
)
async def test_content_that_is_text_is_stored(memory: MangaMemory, content: Any) -> None:
    storage = SessionChatStorage(memory)
    user: Any = "user"
    saved = await storage.save_chat_messages(
        "u", "s", "lex", [ConversationMessage(user, content), said("assistant", "hi")]
    )
    assert shown(saved) == [("user", "hello"), ("assistant", "hi")]


async def test_nothing_is_lost_when_many_write_at_once(open_memory: OpenMemory) -> None:
    storage = SessionChatStorage(open_memory())
    pairs = [[said("user", f"q{number}"), said("assistant", f"a{number}")] for number in range(6)]
    await asyncio.gather(*(storage.save_chat_messages("u", "s", "lex", pair) for pair in pairs))
    found = shown(await storage.fetch_chat("u", "s", "lex"))
    assert sorted(found[::2]) == [("user", f"q{number}") for number in range(6)]
    assert all(q[1][1:] == answer[1][1:] for q, answer in zip(found[::2], found[1::2], strict=True))


@pytest.mark.parametrize(
    "content",
    [
        [],
        [{"text": 42}],
        [{"text": None}],
        [{"text": "hi"}, {"text": 42}, {"text": None}],
        [{"text": "hi"}, {"unknown": 1}],
    ],
    ids=["empty", "a number", "nothing", "several", "unknown"],
)
async def test_a_session_is_shown_with_any_messages(memory: MangaMemory, content: Any) -> None:
    seeds: Any = [
        {"role": "user", "content": content},
        {"role": "assistant", "content": [{"text": "hello"}]},
    ]
    agent = memory.agent(ScriptedModel(), user_id="u", session_id="s", messages=seeds)
    agent("and now")
    storage = SessionChatStorage(memory)
    said = "hi" if len(content) > 1 else ""
    expected = [("user", said), ("assistant", "hello"), ("user", "and now"), ("assistant", "ok")]
    assert shown(await storage.fetch_chat("u", "s", "default")) == expected
    assert len(await storage.fetch_all_chats("u", "s")) == 4


async def test_content_without_text_is_not_stored(memory: MangaMemory) -> None:
    storage = SessionChatStorage(memory)
    assert not await storage.save_chat_message(
        "u", "s", "lex", ConversationMessage("user", [{"toolUse": {}}])
    )
    assert not await storage.save_chat_message("u", "s", "lex", ConversationMessage("user", None))
    assert await storage.fetch_all_chats("u", "s") == []


async def test_a_storage_that_summarizes_works_over_ours(memory: MangaMemory) -> None:
    async def summarize(messages: list[ConversationMessage]) -> str:
        return f"{len(messages)} messages"

    storage = SessionChatStorage(memory)
    # It passes max_history_size, which not every storage takes.
    outer = SummarizingChatStorage(storage, summarize)
    await outer.save_chat_message("u", "s", "lex", said("user", "q"))
    await outer.save_chat_message("u", "s", "lex", said("assistant", "a"))
    assert shown(await outer.fetch_chat("u", "s", "lex", 10)) == [("user", "q"), ("assistant", "a")]


# Callbacks and supervisors


class Noted(AgentCallbacks):
    def __init__(self) -> None:
        self.calls: list[tuple[str, Any]] = []

    async def on_agent_start(
        self, agent_name: str, *arguments: Any, **named: Any
    ) -> dict[str, Any]:
        self.calls.append(("start", (agent_name, named["payload_input"], named["user_id"])))
        return {"run": 7}

    async def on_llm_new_token(self, token: str, **named: Any) -> None:
        self.calls.append(("token", token))

    async def on_agent_end(
        self, agent_name: str, response: Any, *arguments: Any, **named: Any
    ) -> None:
        self.calls.append(("end", (response.content[0]["text"], named["agent_tracking_info"])))


async def test_callbacks_are_called(memory: MangaMemory, streaming: bool) -> None:
    shop, noted = Shop(memory, streaming=streaming), Noted()
    options = AgentOptions(name="Gamma", description="", callbacks=noted)
    shop.squad.add_agent(SessionStrandsAgent(options, shop.build, streaming=streaming))
    await shop.ask("gamma")
    assert noted.calls == [
        ("start", ("Gamma", "gamma", "u1")),
        ("token", "heard gamma"),
        ("end", ("heard gamma", {"run": 7})),
    ]


@pytest.mark.parametrize("name", ["on_agent_start", "on_llm_new_token", "on_agent_end"])
async def test_a_callback_that_raises(memory: MangaMemory, name: str) -> None:
    async def broken(*arguments: Any, **named: Any) -> Any:
        raise RuntimeError("db password=hunter2")

    shop, noted = Shop(memory), Noted()
    setattr(noted, name, broken)
    shop.squad.add_agent(
        SessionStrandsAgent(AgentOptions(name="Gamma", description="", callbacks=noted), shop.build)
    )
    # An answer that the session has is the user's, whatever comes after it.
    assert await shop.ask("gamma") == ("heard gamma" if name == "on_agent_end" else SORRY)
    noted = Noted()
    shop.squad.agents["gamma"].callbacks = noted
    assert await shop.ask("gamma again") == "heard gamma again"


def supervisor_of(shop: Shop) -> SupervisorAgent:
    lead = BedrockLLMAgent(BedrockLLMAgentOptions(name="Lead", description="", client=object()))
    supervisor = SupervisorAgent(
        SupervisorAgentOptions(
            name="Supervisor",
            description="supervises",
            lead_agent=lead,
            team=list(shop.squad.agents.values()),
            storage=shop.storage,
        )
    )
    supervisor.user_id, supervisor.session_id, supervisor.additional_params = "u1", "s1", {}
    return supervisor


async def test_members_run_in_their_own_event_loops(
    open_memory: OpenMemory, streaming: bool
) -> None:
    memory = open_memory()
    shop = Shop(memory, streaming=streaming, hot=memory.hot)
    shop.may_go_on.set()
    supervisor = supervisor_of(shop)
    everyone = [{"recipient": name, "content": "look"} for name in ("Alpha", "Beta")]
    for _ in range(2):
        answer = await supervisor.send_messages(everyone)
        assert answer == "Alpha: it says found 4242Beta: it says found 4242"
    # The same member several times at once, each in a loop of its own.
    answer = await supervisor.send_messages(
        [{"recipient": "Alpha", "content": f"m{number}"} for number in range(4)]
    )
    assert answer == "".join(f"Alpha: heard m{number}" for number in range(4))
    assert await shop.ask("back in the first loop") == "heard back in the first loop"
    assert len(shop.models[-1].requests[-1].messages) == 4 + 4 + 8 + 1
    # The supervisor takes the history two by two.
    history = await shop.storage.fetch_all_chats("u1", "s1")
    assert supervisor._format_agents_memory(history).count("found 4242") == 4


# What Strands does with tools


@tool(context=True)
def sign(what: str, tool_context: ToolContext) -> str:
    """Sign, if the user agrees."""
    answer = tool_context.interrupt("signature", reason=f"Sign the {what}?")
    return f"{what} signed: {answer}"


async def test_next_message_answers_an_interrupt(open_memory: OpenMemory, streaming: bool) -> None:
    shop = Shop(open_memory(), streaming=streaming)
    shop.tools = [sign]
    shop.script = lambda messages: (
        [{"text": "One thing."}, tool_use("s", "sign", what="contract")]
        if len(messages) == 1
        else Shop.reply(messages)
    )
    assert await shop.ask("deal") == "One thing.\nSign the contract?"
    shop.memory.close()
    again = Shop(open_memory(), streaming=streaming)
    again.tools = [sign]
    assert await again.ask("yes please") == "it says contract signed: yes please"
    assert await again.ask("thanks") == "heard thanks"
    assert [line[0] for line in again.log()] == ["u", "a", "u", "a", "u", "a"]


# Handoffs and what is known of the user


def test_handoffs_are_checked() -> None:
    with pytest.raises(ValueError, match="summary"):
        Handoff(from_agent="a", to_agent="b", summary=" ")
    for to_agent in ("", "a"):
        with pytest.raises(ValueError, match="to_agent"):
            Handoff(from_agent="a", to_agent=to_agent, summary="x")


def test_a_handoff_needs_to_know_whose_it_is(memory: MangaMemory) -> None:
    script = [[tool_use("h", "hand_over", agent_id="beta", summary="x")], "done"]
    agent = Agent(model=ScriptedModel(script), tools=[Handoffs(memory).tool({"beta": ""})])
    agent("hello", invocation_state={"user_id": "u1"})
    result = agent.messages[2]["content"][0]["toolResult"]
    assert result["status"] == "error"
    assert "SessionStrandsAgent" in result["content"][0]["text"]


async def test_an_agent_hands_over_to_another_one(open_memory: OpenMemory) -> None:
    memory = open_memory()
    shop = Shop(memory, handoffs=Handoffs(memory))
    shop.tools.append(Handoffs(memory).tool({"beta": "complaints"}))

    def script(messages: Any) -> Any:
        text = messages[-1]["content"][0].get("text", "")
        if "complain" in text:
            return [
                tool_use(
                    "h", "hand_over", agent_id="beta", summary="Order <17> is late & he is angry."
                )
            ]
        return Shop.reply(messages)

    shop.script = script
    assert (await shop.ask("I complain")).startswith("it says beta knows")
    shop.memory.close()
    again = Shop(open_memory(), handoffs=Handoffs(open_memory()))
    await again.ask("count beta")
    block = again.models[0].requests[0].messages[0]["content"][1]["text"]
    assert block == '<handoff from="alpha">Order &lt;17&gt; is late &amp; he is angry.</handoff>'
    # Nobody sees it but the model, and it is given once.
    assert ("user", "count beta") in shown(await again.storage.fetch_all_chats("u1", "s1"))
    await again.ask("beta again")
    assert again.models[-1].requests[-1].messages[-1]["content"] == [{"text": "beta again"}]


async def test_a_handoff_is_not_another_users_and_not_to_a_stranger(memory: MangaMemory) -> None:
    handoffs = Handoffs(memory)
    shop = Shop(memory, handoffs=handoffs)
    shop.tools.append(handoffs.tool({"beta": "complaints"}))
    shop.script = lambda messages: (
        [tool_use("h", "hand_over", agent_id="nobody", summary="x")]
        if len(messages) == 1
        else Shop.reply(messages)
    )
    assert "Colleagues: beta" in await shop.ask("hello")
    handoff = Handoff(from_agent="alpha", to_agent="beta", summary="for u1")
    handoffs.write(handoff, user_id="u1", session_id="s1")
    assert handoffs.read(ConversationScope("u1", "s1", "beta")) == [handoff]
    for user, session, agent in (("u2", "s1", "beta"), ("u1", "s2", "beta"), ("u1", "s1", "alpha")):
        assert handoffs.read(ConversationScope(user, session, agent)) == []


async def test_a_handoff_waits_until_its_request_was_answered(memory: MangaMemory) -> None:
    handoffs = Handoffs(memory)
    shop = Shop(memory, handoffs=handoffs)
    for summary in ("old", "new"):
        note = Handoff(from_agent="alpha", to_agent="beta", summary=summary)
        handoffs.write(note, user_id="u1", session_id="s1")
    assert await shop.ask("beta boom") == SORRY
    await shop.ask("beta once more")
    assert "new" in str(shop.models[-1].requests[-1].messages[-1])
    assert "old" not in str(shop.models[-1].requests)
    assert handoffs.read(ConversationScope("u1", "s1", "beta")) == []


# What was added to the session for it


def test_messages_of_other_frameworks(open_memory: OpenMemory) -> None:
    memory = open_memory()
    manager = memory.session(ConversationScope("u", "s", "lex"))
    messages: Any = [
        {"role": "user", "content": [{"text": "q"}]},
        {"role": "assistant", "content": [{"text": "a"}]},
    ]
    manager.log(messages)
    manager.log(messages, "other", keep=1)
    assert "tracking_id" not in messages[0]
    assert manager.agents() == ["lex", "other"]
    assert [record["seq"] for record in memory.session(manager.scope).records(last=1)] == [2]
    live = Agent(model=ScriptedModel(), session_manager=manager, agent_id="live")
    live("hello")
    with pytest.raises(ValueError, match="live"):
        manager.log(messages, "live")
    taken_up = memory.session(ConversationScope("u", "s", "lex"))
    restored = Agent(model=ScriptedModel(), session_manager=taken_up, agent_id="lex")
    restored("more")
    assert told(restored.messages) == [["u", "q"], ["a", "a"], ["u", "more"], ["a", "ok"]]
