"""dead_tier: cost per turn of a dead hot tier, which refuses connections or never answers."""

from __future__ import annotations

import asyncio
import tempfile
from contextlib import suppress
from statistics import median

from strands import Agent

from strands_manga_memory import (
    ImportanceWeightedConversationManager,
    StoreUnavailableError,
    Table,
    TieredSessionManager,
    open_hot_store,
    open_table,
)
from strands_manga_memory.testing import ScriptedModel
from tests import servers
from tests.benchmarks import progress, text, turn_ms

DEADLINE_MS = 50
KINDS = ("refused", "blackhole")
BUDGETS = {
    # The deadline, and what a busy machine takes to notice that it has passed.
    **{f"{kind}_first_turn_added_ms": f"<= {DEADLINE_MS + 10}" for kind in KINDS},
    **{f"{kind}_later_turn_added_ms": "< 1.0" for kind in KINDS},
    **{f"{kind}_later_turns_that_waited": "== 0" for kind in KINDS},
}

_TURNS = 100
_PAUSE = 0.01
"""Seconds between turns, in which background work ends, as if a user typed."""


def _agent(session: str, hot: servers.Valkey, durable: Table) -> tuple[Agent, TieredSessionManager]:
    manager = TieredSessionManager(session, hot=open_hot_store(hot.url), durable=durable)
    agent = Agent(
        model=ScriptedModel(lambda _: text(500)),
        session_manager=manager,
        conversation_manager=ImportanceWeightedConversationManager(),
        callback_handler=None,
    )
    return agent, manager


async def _turn_ms(agent: Agent) -> float:
    taken = await turn_ms(agent, text(500))
    await asyncio.sleep(_PAUSE)
    return taken


async def _measured(kind: str, live: Agent, dying: Agent, server: servers.Valkey) -> dict[str, float]:
    for _ in range(40):
        await _turn_ms(live)
        await _turn_ms(dying)
    usual = median([await _turn_ms(live) for _ in range(20)])
    if kind == "refused":
        server.kill()
    else:
        server.pause()  # the kernel still accepts connections
    first = await _turn_ms(dying)
    added = []
    for _ in progress(range(_TURNS), f"{_TURNS} turns with a hot tier that is dead ({kind})"):
        alive = await _turn_ms(live)
        added.append(await _turn_ms(dying) - alive)
    return {
        f"{kind}_usual_turn_ms": usual,
        f"{kind}_first_turn_added_ms": first - usual,
        f"{kind}_later_turn_added_ms": median(added),
        f"{kind}_later_turns_that_waited": sum(more > 0.8 * DEADLINE_MS for more in added),
    }


def _recovered(manager: TieredSessionManager) -> bool:
    with suppress(StoreUnavailableError):
        manager.flush()
        return True
    return False


def run() -> dict[str, float]:
    """Time turns with a dead tier and turns with a healthy one, in one run."""
    rows: dict[str, float] = {}
    with servers.valkey() as steady, servers.valkey() as mortal, tempfile.TemporaryDirectory() as folder:
        table = open_table(f"sqlite:///{folder}/sessions.sqlite3")
        table.create_if_missing()
        for kind in KINDS:
            live, _ = _agent(f"{kind}-live", steady, table)
            dying, manager = _agent(f"{kind}-dying", mortal, table)
            rows |= asyncio.run(_measured(kind, live, dying, mortal))
            if kind == "refused":
                mortal.start()
            else:
                mortal.resume()
            servers.wait_until(lambda: _recovered(manager), "saving what was unsaved")  # noqa: B023 - called at once
    return rows
