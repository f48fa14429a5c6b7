"""Several live agents of one session: durable requests, and flushes of others' turns."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from strands import Agent
from strands.agent.conversation_manager import NullConversationManager

from strands_manga_memory import TieredSessionManager
from strands_manga_memory.testing import ScriptedModel
from tests.benchmarks.wire import PATIENT, Stage, requests, staged

pytestmark = pytest.mark.xdist_group("wire")  # its servers are started once

MOST_REQUESTS = 1.6
"""Requests to DynamoDB that a turn may make, however many agents of the session live."""


@pytest.fixture(scope="module")
def running() -> Iterator[Stage]:
    with staged() as stage:
        yield stage


@pytest.fixture
def stage(running: Stage) -> Stage:
    running.settle()
    running.clear()
    return running


def manager(stage: Stage, session: str, **settings: Any) -> TieredSessionManager:
    return TieredSessionManager(
        session, **{**stage.tiers, "hot_deadline": PATIENT, "durable_deadline": PATIENT, **settings}
    )


def live_agents(stage: Stage, session: str, count: int, **settings: Any) -> list[Agent]:
    agents = []
    for _ in range(count):
        agents.append(
            Agent(
                model=ScriptedModel(lambda _: "fine"),
                agent_id="librarian",
                session_manager=manager(stage, session, **settings),
                conversation_manager=NullConversationManager(),
            )
        )
        stage.settle()
    return agents


def take_turns(stage: Stage, agents: list[Agent], rounds: int, *, name: str = "turn") -> list[str]:
    """Let each agent take a turn in each round; return the texts of the user."""
    said = []
    for number in range(rounds):
        for position, agent in enumerate(agents):
            said.append(f"{name} {number} of agent {position}")
            agent(said[-1])
            stage.settle()
    return said


def logged(stage: Stage, session: str, **stores: Any) -> list[str]:
    """Return the texts of the user in the log."""
    history = manager(stage, session, **stores).history("librarian")
    return [
        block["text"]
        for message in history
        if message["role"] == "user"
        for block in message["content"]
    ]


def test_durable_requests_of_agents_that_answer_at_once(stage: Stage, unique: str) -> None:
    """Eight agents collide in the hot tier; flushes put no turn twice."""
    agents = live_agents(stage, unique, 8)
    said = take_turns(stage, agents, 3, name="first")
    stage.clear()

    async def at_once(number: int) -> list[str]:
        texts = [f"turn {number} of agent {position}" for position in range(8)]
        await asyncio.gather(*(a.invoke_async(text) for a, text in zip(agents, texts, strict=True)))
        return texts

    counted = [text for number in range(4) for text in asyncio.run(at_once(number))]
    stage.settle()
    assert len(requests(stage.durable_wire.log)) / len(counted) <= MOST_REQUESTS
    for agent in agents:
        agent._session_manager.flush()
    assert sorted(logged(stage, unique, hot=None)) == sorted([*said, *counted])
