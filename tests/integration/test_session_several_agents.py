"""Durable requests of several live agents of one session."""

import asyncio
from typing import Any

import pytest
from strands import Agent
from strands.agent.conversation_manager import NullConversationManager

from strands_manga_memory import TieredSessionManager
from strands_manga_memory.testing import ScriptedModel
from tests.benchmarks.wire import PATIENT, requests, staged
from tests.unit.session.support import texts

pytestmark = pytest.mark.xdist_group("wire")  # its servers are started once

MOST_REQUESTS = 1.6
"""Requests to DynamoDB that a turn may make, however many agents of the session live."""


def test_durable_requests_of_agents_that_answer_at_once(unique: str) -> None:
    """Eight agents collide in the hot tier; flushes put no turn twice."""
    with staged() as stage:

        def manager(**stores: Any) -> TieredSessionManager:
            patient = {"hot_deadline": PATIENT, "durable_deadline": PATIENT}
            return TieredSessionManager(unique, **{**stage.tiers, **patient, **stores})

        agents = []
        for _ in range(8):
            agents.append(
                Agent(
                    model=ScriptedModel(lambda _: "fine"),
                    agent_id="librarian",
                    session_manager=manager(),
                    conversation_manager=NullConversationManager(),
                )
            )
            stage.settle()
        said = [f"first {number} of agent {at}" for number in range(3) for at in range(8)]
        for number, text in enumerate(said):
            agents[number % 8](text)
            stage.settle()
        stage.clear()

        async def at_once(number: int) -> list[str]:
            turn = [f"turn {number} of agent {at}" for at in range(8)]
            await asyncio.gather(
                *(a.invoke_async(text) for a, text in zip(agents, turn, strict=True))
            )
            return turn

        counted = [text for number in range(4) for text in asyncio.run(at_once(number))]
        stage.settle()
        assert len(requests(stage.durable_wire.log)) / len(counted) <= MOST_REQUESTS
        for agent in agents:
            agent._session_manager.flush()
        log = texts(manager(hot=None).history("librarian"))
        assert sorted(text for text in log if text != "fine") == sorted([*said, *counted])
