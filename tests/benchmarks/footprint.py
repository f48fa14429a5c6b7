"""Bytes of text turns to both tiers, and memory of a live agent relative to a bare one.

Part of the benchmark ``turn``. The sentences are natural, the history is full.
"""

import asyncio
import gc
import tempfile
import time
import tracemalloc
from collections.abc import Callable
from contextlib import closing
from typing import Any

from strands import Agent
from strands.agent.conversation_manager import NullConversationManager

from strands_manga_memory import MangaMemory
from tests import servers
from tests.benchmarks import progress, reset_texts, text
from tests.benchmarks.wire import Stage, requests, staged

BUDGETS = {
    **{f"bytes_a_text_turn_at_{age}_messages": "<= 4096" for age in (200, 2_000)},
    "durable_requests_a_turn": (
        "<= 1.6"
    ),  # every fifth turn flushes: one conditional put for each turn, one for the head
    "memory_of_60_messages_over_bare": "<= 1.6",
}

_AGES = (200, 2_000)
_CHARACTERS = 200
_COUNTED = 40
"""Number of counted turns at each age."""

_AGENTS = 8
_AT_REST = 2.0
"""Seconds until no postponed or periodic work waits any more; that work belongs to no agent."""


def run(build: Callable[..., Agent]) -> dict[str, float]:
    """Count bytes, and measure memory.

    Args:
        build: Function that returns an agent with the given arguments, otherwise without this
            package.
    """
    with (
        staged() as stage,
        closing(MangaMemory.open(stage.hot, stage.durable, memories=False)) as memory,
    ):
        rows = asyncio.run(_bytes_sent(stage, memory, build))
    with (
        servers.valkey() as valkey,
        tempfile.TemporaryDirectory() as folder,
    ):  # a wire would keep what passes in this process
        hot = f"redis://{valkey.host}:{valkey.port}/0?deadline=5"
        with closing(
            MangaMemory.open(hot, f"sqlite:///{folder}/sessions.sqlite3", memories=False)
        ) as memory:
            return {**rows, "memory_of_60_messages_over_bare": _memory(memory, build)}


async def _bytes_sent(
    stage: Stage, memory: MangaMemory, build: Callable[..., Agent]
) -> dict[str, float]:
    rows: dict[str, float] = {}
    agent = build(**memory.agent_kwargs(user_id="u", session_id="sent"))
    turns = 0
    for age in _AGES:
        for _ in progress(range(age // 2 - turns), f"growing a conversation to {age} messages"):
            await agent.invoke_async(text(_CHARACTERS))
            stage.settle()
        stage.clear()
        for _ in range(_COUNTED):
            await agent.invoke_async(text(_CHARACTERS))
            stage.settle()
        turns = age // 2 + _COUNTED
        sent = {"hot": stage.hot_wire, "durable": stage.durable_wire}
        rows[f"bytes_a_text_turn_at_{age}_messages"] = stage.bytes / _COUNTED
        rows |= {
            f"to_the_{tier}_tier_at_{age}_messages": wire.to_server_bytes / _COUNTED
            for tier, wire in sent.items()
        }
        rows["durable_requests_a_turn"] = len(requests(stage.durable_wire.log)) / _COUNTED
    return rows


def _memory(memory: MangaMemory, build: Callable[..., Agent]) -> float:
    """Return the memory of a live agent with 60 messages, relative to a bare agent."""

    def ours(number: int) -> dict[str, Any]:
        return memory.agent_kwargs(user_id="u", session_id=f"s{number}")

    def bare(number: int) -> dict[str, Any]:
        return {"conversation_manager": NullConversationManager()}

    for settings in (ours, bare):  # what all agents share comes with the first
        asyncio.run(_play(build(**settings(_AGENTS))))
    return _each(build, ours) / _each(build, bare)


def _each(build: Callable[..., Agent], settings: Callable[[int], dict[str, Any]]) -> float:
    gc.collect()
    tracemalloc.start()
    agents = [asyncio.run(_play(build(**settings(number)))) for number in range(_AGENTS)]
    time.sleep(_AT_REST)
    gc.collect()
    taken = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    return taken / len(agents)


async def _play(agent: Agent) -> Agent:
    reset_texts()
    for _ in range(30):
        await agent.invoke_async(text(_CHARACTERS))
    if agent._session_manager is not None:
        await asyncio.to_thread(agent._session_manager.flush)
    return agent
