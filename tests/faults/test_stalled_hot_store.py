"""Turns and agent starts while the hot store or an environment source does not answer."""

import asyncio
import json
import sqlite3
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import redis
from strands import Agent

from strands_manga_memory import ConversationScope, DialogueSlot, MangaMemory
from strands_manga_memory.exceptions import StoreUnavailableError
from strands_manga_memory.stores import RedisHotStore
from strands_manga_memory.testing import ScriptedModel
from tests import clocks, servers
from tests.support import WatchedStore, state_of
from tests.unit.session.support import SurvivingHotStore

pytestmark = pytest.mark.usefixtures("usual_waits")

SCOPE = ConversationScope("u1", "s1")


class SlowModel(ScriptedModel):
    """Model whose answer takes longer than the pause after which a running turn is saved."""

    async def stream(self, *arguments: Any, **named: Any) -> Any:
        await asyncio.sleep(0.4)
        async for event in super().stream(*arguments, **named):
            yield event


@pytest.fixture
def hot() -> Iterator[Any]:
    """A hot store outside the process whose calls stall while ``answers`` is not set."""
    answers = threading.Event()
    answers.set()
    store: Any = WatchedStore(SurvivingHotStore(), lambda *_, **__: answers.wait(20))
    store.answers = answers
    yield store
    answers.set()


def seconds(work: Callable[[], object]) -> float:
    with clocks.Idle() as idle:
        work()
    return idle.seconds


def test_turns_with_task_state_do_not_wait_for_a_stalled_store_and_share_their_state_later(
    hot: Any, tmp_path: Path
) -> None:
    memory = MangaMemory.open(hot=hot, durable=f"sqlite:///{tmp_path}/s.db")
    agent = memory.agent(ScriptedModel(), scope=SCOPE, task_state=True)
    agent("hello")
    servers.wait_until(lambda: not agent._session_manager.stats()["unsaved_messages"], "the save")
    hot.answers.clear()
    first = state_of(agent)
    first.dialogue.set_intent("reorder")
    assert seconds(lambda: [agent("and again") for _ in range(3)]) < 3.0
    hot.answers.set()
    other = memory.agent(
        ScriptedModel(), user_id="u1", session_id="s1", agent_id="other", task_state=True
    )
    second = state_of(other)
    servers.wait_until(lambda: other("hm") and second.dialogue.intent == "reorder", "the intent")
    memory.close()


def test_the_end_of_a_turn_does_not_wait_for_a_save_that_stalls_since_its_beginning(
    hot: Any, tmp_path: Path
) -> None:
    durable = f"sqlite:///{tmp_path}/s.db"
    memory = MangaMemory.open(hot=hot, durable=durable)
    agent = memory.agent(SlowModel(), scope=SCOPE)
    agent("one")
    hot.answers.clear()
    assert seconds(lambda: agent("two")) < 3.0
    hot.answers.set()
    memory.close()
    history = MangaMemory.open(durable=durable).session(SCOPE).history()
    assert [one["content"][0]["text"] for one in history] == ["one", "ok", "two", "ok"]


@pytest.mark.parametrize("task_state", [True, False])
def test_an_agent_starts_without_a_slow_source_and_takes_its_data_when_they_arrive(
    task_state: bool, tmp_path: Path
) -> None:
    released, loads = threading.Event(), []

    def load(scope: ConversationScope) -> dict[str, Any]:
        loads.append(scope)
        released.wait(20)
        return {"tier": "vip", "cart": ["B07X1234"]}

    memory = MangaMemory.open(durable=f"sqlite:///{tmp_path}/s.db", environment=load)
    agents: list[Any] = []

    def start() -> None:
        model = ScriptedModel()
        agents.append(memory.agent(model, scope=SCOPE, task_state=task_state))
        agents[0]("hello")

    assert seconds(start) < 10.0
    session = agents[0]._session_manager
    assert not session.metadata("default").get("cart")
    released.set()
    servers.wait_until(lambda: session._tiers.ttl.ttl(1) == 3600, "the lifetime of the tier")
    agents[0]("and now?")
    assert session.metadata("default")["cart"] == ["B07X1234"]
    assert len(loads) == 1
    memory.close()


def test_a_stored_turn_has_the_intent_that_is_active_at_its_end(tmp_path: Path) -> None:
    def answer(messages: Any) -> Any:
        last = messages[-1]["content"]
        intents = [name for name in ("order", "refund") if name in last[-1].get("text", "")]
        given = {"toolUseId": f"t{len(messages)}", "name": "update_slots"}
        return [{"toolUse": {**given, "input": {"intent": one}}} for one in intents] or "ok"

    intents = {"order": [DialogueSlot(name="volume", question="Which?")], "refund": []}
    with MangaMemory.open(durable=f"sqlite:///{tmp_path}/s.db") as memory:
        agent = memory.agent(ScriptedModel(answer), scope=SCOPE, task_state={"intents": intents})
        for text in ("hi", "I want to order", "and?", "I want a refund", "thanks"):
            agent(text)
    query = "select item from manga_sessions where sort like '%#TURN#%' order by sort"
    with sqlite3.connect(tmp_path / "s.db") as table:
        items = [json.loads(item) for (item,) in table.execute(query)]
    assert [item.get("intent") for item in items] == [None, "order", "order", "refund", "refund"]


def test_changes_of_memories_reach_the_table_while_redis_does_not_answer(
    tmp_path: Path, valkey_server: servers.Valkey, unique: str
) -> None:
    """Neither the background work nor a caller waits for the socket, which hangs for 6 s."""
    with servers.FaultyProxy(valkey_server.host, valkey_server.port) as proxy:
        client = redis.Redis(port=proxy.port, socket_timeout=6)
        memory = MangaMemory.open(
            RedisHotStore(client, prefix=unique, deadline=6),
            f"sqlite:///{tmp_path}/m.db",
            memories=True,
        )
        agent = memory.agent(ScriptedModel(), user_id="u1", session_id="s1")
        agent("hello")
        proxy.blackhole()
        user = memory.user("u1")

        def stored() -> dict[str, str]:
            return {
                str(record.metadata["preference_key"]): record.memory_id
                for record in user.recall(type="preference", limit=None)
            }

        waited = seconds(lambda: agent("My favorite genre is horror."))
        waited += seconds(lambda: servers.wait_until(stored, "the stored preference"))
        waited += seconds(lambda: user.prefer("format", "ebook"))
        assert stored().keys() == {"genre", "format"}
        waited += seconds(lambda: user.forget(stored()["genre"]))
        waited += seconds(lambda: user.remember("Bought volume 3."))
        assert stored().keys() == {"format"}
        assert waited < 4.0
        proxy.passing()
        memory.close()
        client.close()


class Stage:
    """A process with Valkey, and with DynamoDB for sessions and memories, each behind a proxy."""

    def __init__(self, stack: ExitStack, valkey: servers.Valkey, dynamodb: servers.DynamoDB):
        self.proxies = {
            tier: stack.enter_context(servers.FaultyProxy(server.host, server.port))
            for tier, server in (("hot", valkey), ("durable", dynamodb), ("memories", dynamodb))
        }
        urls = {
            tier: f"dynamodb://{tier}?region=us-east-1&endpoint=http://{proxy.host}:{proxy.port}"
            for tier, proxy in self.proxies.items()
        }
        urls["hot"] = f"redis://{servers.HOST}:{self.proxies['hot'].port}/0"
        self.names = uuid.uuid4().hex  # the servers keep data of other tests
        self.memory = stack.enter_context(MangaMemory.open(**urls))
        stack.callback(self.passing)
        self.memory.user("u1").prefer("genre", "horror")
        self.agent("warm", user_id="u2")("hello")  # opens connections

    def agent(self, session_id: str, *, user_id: str = "u1") -> Agent:
        """Build an agent with all parts that read a store."""
        self.model = ScriptedModel()
        return self.memory.agent(
            self.model,
            user_id=user_id,
            session_id=f"{self.names}-{session_id}",
            task_state=True,
            recall=True,
        )

    def seconds(self, session_id: str) -> float:
        """Return the seconds for which the construction of an agent waits."""
        with clocks.Idle() as idle:
            self.agent(session_id)
        return idle.seconds

    def passing(self) -> None:
        for proxy in self.proxies.values():
            proxy.passing()


@pytest.fixture
def stage(valkey_server: servers.Valkey, dynamodb_server: servers.DynamoDB) -> Iterator[Stage]:
    with ExitStack() as stack:
        yield Stage(stack, valkey_server, dynamodb_server)


def shown(stage: Stage) -> str:
    return str(stage.model.requests[-1])


def test_the_reads_of_an_agent_share_one_wait_for_a_silent_hot_store(stage: Stage) -> None:
    stage.proxies["hot"].blackhole()
    assert stage.seconds("s1") < 2.2
    assert stage.seconds("s2") < 0.9
    stage.agent("s3")("hello")
    assert "horror" in shown(stage)  # read from the table


def test_an_agent_starts_soon_while_hot_store_and_memory_table_are_silent(stage: Stage) -> None:
    stage.proxies["hot"].blackhole()
    stage.proxies["memories"].blackhole()
    assert stage.seconds("s1") < 2.2
    assert stage.seconds("s2") < 0.9


def test_a_silent_memory_table_delays_agents_once_and_is_read_when_it_answers(stage: Stage) -> None:
    stage.proxies["memories"].blackhole()
    assert stage.seconds("s1") < 2.9
    assert stage.seconds("s2") < 0.9
    stage.passing()
    stage.agent("s3")("hello")
    assert "horror" in shown(stage)


def test_no_conversation_without_a_tier_is_restored_within_the_deadline(stage: Stage) -> None:
    stage.proxies["durable"].blackhole()
    for _ in range(2):
        with clocks.Idle() as idle, pytest.raises(StoreUnavailableError):
            stage.agent("s1")
        assert idle.seconds < 2.9


def test_turns_of_a_hot_store_that_is_silent_at_first_are_merged_later(stage: Stage) -> None:
    first = stage.agent("s1")
    for text in ("one", "two"):
        first(text)
    servers.wait_until(lambda: not _unsaved(first), "save")
    stage.proxies["hot"].blackhole()
    second = stage.agent("s1")
    stage.passing()
    servers.wait_until(lambda: second("and now?") and "two" in str(second.messages), "merge")


def _unsaved(agent: Agent) -> int:
    manager: Any = agent._session_manager
    unsaved: int = manager.stats()["unsaved_messages"]
    return unsaved
