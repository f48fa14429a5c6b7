"""Construction of agents while the hot store or the memory table accepts requests and is silent."""

import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from strands import Agent

from strands_manga_memory import MangaMemory
from strands_manga_memory.exceptions import StoreUnavailableError
from strands_manga_memory.testing import ScriptedModel
from tests import clocks, servers

pytestmark = pytest.mark.usefixtures("usual_waits")


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
