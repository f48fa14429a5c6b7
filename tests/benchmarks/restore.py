"""restore: reads of restoring a conversation, from 10 to 10,000 logged messages."""

import asyncio
import uuid

from strands import Agent
from strands.hooks import AfterInvocationEvent, BeforeInvocationEvent, MessageAddedEvent
from strands.types.content import Message

from strands_manga_memory import HotStore, Table, TieredSessionManager
from strands_manga_memory.conversation import ImportanceWeightedConversationManager
from strands_manga_memory.testing import ScriptedModel
from tests.benchmarks import progress, text
from tests.benchmarks.wire import PATIENT, Stage, requests, rounds, staged

AGES = (10, 100, 1000, 10000)
BUDGETS = {
    "restored_exactly": "== 1",
    "hot_rounds": "== 1",
    "hot_round_trips": "== 1",
    "hot_durable_requests": "== 1",
    "cold_rounds": (
        "<= 4"
    ),  # the head, the newest keys of the log, and turns of the window, which may be in two batches
    "cold_rounds_with_a_window_of_3_mb": "<= 5",
    **{f"{tier}_requests_at_10000_over_10_messages": "<= 1" for tier in ("hot", "cold")},
    # What is noted of a history is written from two dozen messages on: at 10 there is nothing of it
    # yet.
    "hot_bytes_at_10000_over_100_messages": "<= 1.25",
    # Segments are read whole, one for each part of the window that is in it: a single one at 10
    # messages, several from then on, more or fewer as the window happens to lie. What grew with the
    # log would be a hundred times as much.
    "cold_bytes_at_10000_over_100_messages": "<= 2",
}
_HOLD = 0.25  # longer than any pause of this process, such as a collection of garbage
_TURNS_A_FLUSH = 5
_MESSAGE = 1800
"""Bytes of a message.
Ten messages fill the history's budget, so that the window has one size at any length of the log.
"""


def opened(
    session: str, hot: HotStore, durable: Table, *, max_tokens: int = 4096
) -> tuple[Agent, TieredSessionManager]:
    """Return a new or restored agent of a session, and its session manager."""
    manager = TieredSessionManager(
        session, hot=hot, durable=durable, hot_deadline=PATIENT, durable_deadline=PATIENT
    )
    agent = Agent(
        model=ScriptedModel(),
        agent_id=session,
        session_manager=manager,
        conversation_manager=ImportanceWeightedConversationManager(max_tokens),
        callback_handler=None,
    )
    return agent, manager


async def converse(agent: Agent, turns: int, length: int = _MESSAGE) -> None:
    """Run the agent's hooks for turns of a user and an assistant message, without a model."""
    for _ in progress(range(turns), f"logging {2 * turns} messages"):
        await agent.hooks.invoke_callbacks_async(BeforeInvocationEvent(agent=agent))
        for role in ("user", "assistant"):
            message: Message = {
                "role": role,
                "content": [{"text": text(length)}],
                "tracking_id": str(uuid.uuid4()),
            }
            agent.messages.append(message)
            await agent.hooks.invoke_callbacks_async(MessageAddedEvent(agent, message))
        agent.conversation_manager.apply_management(agent)
        await agent.hooks.invoke_callbacks_async(AfterInvocationEvent(agent=agent))


def counted(stage: Stage, live: Agent, hot: HotStore, **settings: int) -> dict[str, float]:
    """Restore the session with stores ``_HOLD`` seconds away, and return the traffic."""
    stage.hold(_HOLD)
    stage.clear()
    restored, _ = opened(live.agent_id, hot, stage.durable, **settings)
    log = list(stage.hot_wire.log)
    stage.hold(0.0)
    durable = requests(log)
    return {
        "rounds": rounds(log),
        "round_trips": stage.hot_wire.round_trips,
        "durable_requests": len(durable),
        "requests": stage.hot_wire.round_trips + len(durable),
        "bytes": stage.bytes,
        "exactly": float(restored.messages == live.messages),
    }


def _by_age(stage: Stage) -> dict[str, float]:
    cold = stage.another_hot_store("cold")
    for hot in (stage.hot, cold):
        opened("warm-up", hot, stage.durable)
    live, manager = opened("ageing", *stage.unwatched)
    found: dict[str, dict[int, dict[str, float]]] = {"hot": {}, "cold": {}}
    turns = 0
    for age in AGES:
        while (
            turns < age // 2
        ):  # a flush of its own for as many turns on a busy machine as on an idle one
            coming = min(_TURNS_A_FLUSH, age // 2 - turns)
            asyncio.run(converse(live, coming))
            manager.flush()
            turns += coming
        found["hot"][age] = counted(stage, live, stage.hot)
        found["cold"][age] = counted(stage, live, cold)
    cold.close()
    rows: dict[str, float] = {
        "restored_exactly": min(
            counts["exactly"] for ages in found.values() for counts in ages.values()
        ),
        "hot_rounds": max(counts["rounds"] for counts in found["hot"].values()),
        "hot_round_trips": max(counts["round_trips"] for counts in found["hot"].values()),
        "hot_durable_requests": max(counts["durable_requests"] for counts in found["hot"].values()),
        "cold_rounds": max(counts["rounds"] for counts in found["cold"].values()),
    }
    for tier, ages in found.items():
        for what in ("requests", "bytes"):
            for age in AGES:
                rows[f"{tier}_{what}_at_{age}_messages"] = ages[age][what]
            rows[f"{tier}_{what}_at_10000_over_10_messages"] = ages[10000][what] / ages[10][what]
        rows[f"{tier}_bytes_at_10000_over_100_messages"] = ages[10000]["bytes"] / ages[100]["bytes"]
    return rows


def _large(stage: Stage) -> dict[str, float]:
    """Measure a window of 3 MB: 30 messages of 100 KB."""
    budget = {"max_tokens": 10**7}
    live, manager = opened("large", *stage.unwatched, **budget)
    asyncio.run(converse(live, 15, 100_000))
    manager.flush()
    cold = stage.another_hot_store("cold")
    opened("warm-up", cold, stage.durable)
    found = counted(stage, live, cold, **budget)
    cold.close()
    if not found["exactly"]:
        raise RuntimeError("the large window was not restored exactly: its counts mean nothing")
    return {f"cold_{what}_with_a_window_of_3_mb": found[what] for what in ("rounds", "requests")}


def run() -> dict[str, float]:
    """Count the reads on a new stage."""
    with staged() as stage:
        return {**_by_age(stage), **_large(stage)}
