"""roundtrips: traffic of a turn to the stores, counted at their sockets and by Valkey itself."""

import asyncio
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import mean
from typing import Any

from strands import Agent, tool
from strands.types.content import Messages

from strands_manga_memory import Codec, ImportanceWeightedConversationManager, TieredSessionManager
from strands_manga_memory.testing import Reply, ScriptedModel
from tests.benchmarks import progress, reset_texts, text
from tests.benchmarks.wire import PATIENT, Stage, Units, requests, socket_use, staged

BUDGETS = {
    "text_turn_round_trips": "== 1",
    "text_turn_durable_answers_waited_for": "== 0",
    "text_turn_socket_calls_on_event_loops": "== 0",
    "tool_turn_round_trips": "== 1",
    "tool_turn_durable_answers_waited_for": "== 0",
    "tool_turn_socket_calls_on_event_loops": "== 0",
    "six_turns_during_a_flush_round_trips": "== 6",
    "six_turns_during_a_flush_durable_answers_waited_for": "== 0",
    "commands_sent_per_turn_at_6_messages": "== 1",
    "commands_sent_per_turn_at_200_messages": "== 1",
    # With a flush, an agent that was restored tells other writers which turns are in the log.
    "commands_sent_per_turn_at_2000_messages": "<= 2",
    # With the list of the newest turns, the record's head and the view, which change in each turn.
    **{f"bytes_beyond_bodies_at_{age}_messages": "<= 2600" for age in (200, 2000)},
    # A turn in which evicted messages return stores their turns again.
    **{f"most_bytes_beyond_bodies_at_{age}_messages": "<= 7168" for age in (200, 2000)},
    **{f"bytes_per_turn_at_{age}_messages": "<= 4096" for age in (200, 2000)},
    # A turn in which the view was chosen anew, and the notes on the history were written with it.
    "bytes_beyond_bodies_uncompressed_at_200_messages": "<= 3400",
    # The list of the newest 100 turns is not full at 200 messages, and more evicted messages may
    # return.
    "bytes_per_turn_at_2000_over_200_messages": "<= 1.4",
    "commands_executed_per_turn_at_2000_over_200_messages": "<= 1.25",
    "write_units_per_flush_of_5_turns_of_1_kb": (
        "<= 13"
    ),  # each turn is an item of two units; the head has three
}

AGES = (6, 200, 2000)
_HOLD = 0.3


@dataclass(frozen=True)
class Turn:
    """Traffic of one turn.

    ``waited_for`` are the durable tier's answers before the end of the turn.
    """

    messages: int
    bodies: int
    round_trips: int
    waited_for: int
    bytes: int
    sent: int
    executed: int

    @property
    def beyond(self) -> int:
        """Bytes in addition to the roles and contents of the new messages."""
        return self.bytes - self.bodies


@tool
def look_up(title: str) -> str:
    """Look a manga up in the catalogue."""
    return text(300)


def _replies(messages: Messages) -> Reply:
    last = messages[-1]["content"]
    if any("look_up" in block.get("text", "") for block in last):
        return [
            {
                "toolUse": {
                    "toolUseId": f"use-{len(messages)}",
                    "name": "look_up",
                    "input": {"title": text(20)},
                }
            }
        ]
    return text(500)


def new_agent(
    stage: Stage, session: str, *, replies: Callable[[Messages], Reply] = _replies, **settings: Any
) -> Agent:
    """Return an agent whose session is stored on the stage."""
    manager = TieredSessionManager(
        session, **stage.tiers, hot_deadline=PATIENT, durable_deadline=PATIENT, **settings
    )
    return Agent(
        model=ScriptedModel(replies),
        tools=[look_up],
        agent_id="librarian",
        session_manager=manager,
        conversation_manager=ImportanceWeightedConversationManager(),
        callback_handler=None,
    )


def measured(stage: Stage, agent: Agent, prompt: str) -> Turn:
    """Run a turn, and return its traffic, including that of its background work."""
    stage.settle()
    stage.clear()
    before = {message.get("tracking_id") for message in agent.messages}
    agent(prompt)
    waited_for = stage.durable_answers()
    stage.settle()
    new = [message for message in agent.messages if message.get("tracking_id") not in before]
    bodies = [
        json.dumps({"role": m["role"], "content": m["content"]}, ensure_ascii=False).encode()
        for m in new
    ]
    commands = stage.commands()
    return Turn(
        messages=len(new),
        bodies=sum(map(len, bodies)),
        round_trips=stage.hot_wire.round_trips,
        waited_for=waited_for,
        bytes=stage.hot_wire.to_server_bytes + stage.hot_wire.to_client_bytes,
        sent=commands.get("evalsha", 0) + commands.get("eval", 0),
        executed=sum(commands.values()),
    )


def _turns(stage: Stage, *, with_tools: bool) -> dict[str, float]:
    """Run six turns with one flush, while the answers of the durable store are delayed."""
    name = "tool_turn" if with_tools else "text_turn"
    prompt = "look_up " + text(200) if with_tools else text(200)
    agent = new_agent(stage, name)
    for _ in range(4):
        agent(prompt)
    stage.settle()
    stage.durable_wire.hold = _HOLD
    turns, flushes = [], 0
    with socket_use(stage.hot_wire.port, stage.durable_wire.port) as use:
        for _ in range(6):
            turns.append(measured(stage, agent, prompt))
            flushes += bool(requests(stage.durable_wire.log))
    stage.durable_wire.hold = 0.0
    if not flushes or not use.elsewhere:
        raise RuntimeError(
            "nothing was flushed, or no use of a socket was seen: the counts mean nothing"
        )
    return {
        f"{name}_round_trips": max(turn.round_trips for turn in turns),
        f"{name}_durable_answers_waited_for": max(turn.waited_for for turn in turns),
        f"{name}_socket_calls_on_event_loops": use.on_loops,
    }


def _during_a_flush(stage: Stage) -> dict[str, float]:
    """Run six turns without pauses. The first starts a flush that takes longer than all of them."""
    agent = new_agent(stage, "during-a-flush")
    for _ in range(4):
        agent(text(200))
    stage.settle()
    stage.clear()
    stage.durable_wire.hold = 3 * _HOLD
    for _ in range(6):
        agent(text(200))
    waited_for, round_trips = stage.durable_answers(), stage.hot_wire.round_trips
    stage.durable_wire.hold = 0.0
    stage.settle()
    return {
        "six_turns_during_a_flush_round_trips": round_trips,
        "six_turns_during_a_flush_durable_answers_waited_for": waited_for,
    }


def _ageing(
    stage: Stage, session: str, ages: Sequence[int], **settings: Any
) -> dict[int, list[Turn]]:
    """Return ten turns of one conversation at each age."""
    agent = new_agent(stage, session, **settings)
    turns = 0

    async def grow(count: int) -> None:
        for _ in progress(range(count), f"growing a conversation by {2 * count} messages"):
            await agent.invoke_async(text(500))
            agent.model.requests.clear()
            stage.settle()  # what waits for a flush would else depend on how fast the machine is

    found: dict[int, list[Turn]] = {}
    for age in ages:
        asyncio.run(grow(age // 2 - turns))
        found[age] = [measured(stage, agent, text(500)) for _ in range(10)]
        turns = age // 2 + 10
    return found


def _by_age(stage: Stage) -> dict[str, float]:
    rows: dict[str, float] = {}
    for age, turns in _ageing(stage, "ageing", AGES).items():
        rows |= {
            f"commands_sent_per_turn_at_{age}_messages": max(turn.sent for turn in turns),
            f"commands_executed_per_turn_at_{age}_messages": mean(turn.executed for turn in turns),
            f"bytes_per_turn_at_{age}_messages": mean(turn.bytes for turn in turns),
            f"bytes_beyond_bodies_at_{age}_messages": mean(turn.beyond for turn in turns),
            f"most_bytes_beyond_bodies_at_{age}_messages": max(turn.beyond for turn in turns),
        }
    for what in ("commands_executed_per_turn", "bytes_per_turn"):
        rows[f"{what}_at_2000_over_200_messages"] = (
            rows[f"{what}_at_2000_messages"] / rows[f"{what}_at_200_messages"]
        )
    uncompressed = _ageing(stage, "uncompressed", [200], codec=Codec(compress_from=10**9))
    rows["bytes_beyond_bodies_uncompressed_at_200_messages"] = max(
        turn.beyond for turn in uncompressed[200]
    )
    return rows


def _flush_cost(stage: Stage) -> dict[str, float]:
    """Return the write units of a flush of five turns of 1 KB: 512 bytes of each role."""
    agent = new_agent(stage, "flush", replies=lambda _: text(512))
    stage.clear()
    units, costs = Units(), []
    for turn in range(40):
        agent(text(512))
        stage.settle()
        if turn % 5 == 4:
            before = units.writes
            units.take(requests(stage.durable_wire.log))
            costs.append(units.writes - before)
            stage.clear()
    return {"write_units_per_flush_of_5_turns_of_1_kb": max(costs[2:])}


def run() -> dict[str, float]:
    """Count the traffic on a new stage."""
    reset_texts()
    with staged() as here:
        return {
            **_turns(here, with_tools=False),
            **_turns(here, with_tools=True),
            **_during_a_flush(here),
            **_by_age(here),
            **_flush_cost(here),
        }
