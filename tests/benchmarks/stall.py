"""stall: longest time that the event loop is blocked while both stores are 200 ms away."""

from __future__ import annotations

import asyncio
import time

from strands import Agent

from strands_manga_memory import ImportanceWeightedConversationManager, TieredSessionManager
from strands_manga_memory.testing import ScriptedModel
from tests.benchmarks import progress, seconds_queued, text
from tests.benchmarks.wire import PATIENT, Stage, staged

BUDGETS = {"longest_stall_waiting_ms": "< 10", "longest_stall_with_default_deadlines_ms": "< 10"}

_AWAY = 0.2
_TURNS = 12
_TICK = 0.001
_MODEL = 0.02
"""Seconds of a model call, during which a loop is free."""


async def _longest_stall_ms(agent: Agent, label: str) -> float:
    """Run turns next to a task that wakes up every millisecond; return the longest delay of this task.

    The time in which the kernel ran another thread is left out.
    """
    longest = 0.0

    async def watch() -> None:
        nonlocal longest
        while True:
            start, queued = time.perf_counter(), seconds_queued()
            await asyncio.sleep(_TICK)
            longest = max(longest, time.perf_counter() - start - _TICK - (seconds_queued() - queued))

    watcher = asyncio.create_task(watch())
    for _ in progress(range(_TURNS), label):
        await agent.invoke_async(text(500))
    watcher.cancel()
    return 1000 * longest


def _agent(manager: TieredSessionManager | None = None) -> Agent:
    return Agent(
        model=ScriptedModel(lambda _: text(500), delay=_MODEL),
        session_manager=manager,
        conversation_manager=ImportanceWeightedConversationManager() if manager else None,
        callback_handler=None,
    )


def _measured(stage: Stage, session: str, **deadlines: float) -> tuple[float, float]:
    """Return the longest stall and the duration of a turn."""
    agent = _agent(TieredSessionManager(session, **stage.tiers, **deadlines))
    for _ in range(40):
        agent(text(500))
    stage.settle()
    stage.hold(_AWAY)
    start = time.perf_counter()
    stall = asyncio.run(_longest_stall_ms(agent, f"{_TURNS} turns with stores {_AWAY} s away"))
    taken = time.perf_counter() - start
    stage.hold(0.0)
    stage.settle()
    return stall, 1000 * taken / _TURNS


def run() -> dict[str, float]:
    """Time three agents in one run: one that waits for its stores, one with the default deadlines, and a bare one."""
    bare = _agent()
    for _ in range(40):
        bare(text(500))
    with staged() as stage:
        waiting, waiting_turn = _measured(stage, "waiting", hot_deadline=PATIENT, durable_deadline=PATIENT)
        default, default_turn = _measured(stage, "default")
    return {
        "longest_stall_waiting_ms": waiting,
        "longest_stall_with_default_deadlines_ms": default,
        "longest_stall_of_a_bare_agent_ms": asyncio.run(_longest_stall_ms(bare, f"{_TURNS} turns of a bare agent")),
        "turn_waiting_ms": waiting_turn,
        "turn_with_default_deadlines_ms": default_turn,
    }
