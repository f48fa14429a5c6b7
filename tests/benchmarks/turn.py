"""turn: cost of a text turn with the whole layer relative to a bare agent's.

Both agents take the same turns alternately in one process; the bare agent has the same texts in its
history. Measured is the processor time of the whole process, including background flushes; the
servers are separate processes. A ratio is the median of ten stretches of 16 turns, each two trims
of the history long. Also measured are live turns with recall, and the memory of a live agent. With
``--kit FOLDER``, recorded dialogues show the effect of trimming in steps on a prompt cache, and its
cost; with ``--plot FILE`` also as a plot.
"""

import asyncio
import gc
import os
import tempfile
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from strands import Agent
from strands.agent.conversation_manager import (
    NullConversationManager,
    SlidingWindowConversationManager,
)
from strands.session import FileSessionManager, SnapshotSessionManager
from strands.storage import LocalFileStorage

from strands_manga_memory import MangaMemory
from strands_manga_memory.stores.writer import shared_writer
from tests import servers
from tests.benchmarks import Answers, prefixes, progress, reset_texts, text

KIT: Path | None = None
"""Folder of the kit; set by the command line."""

PLOT: Path | None = None
"""PNG file for a plot of uncached tokens by turn; needs the kit and matplotlib."""

BUDGETS = {
    "live_over_bare_sqlite": "<= 2.2",
    "live_over_bare_services": "<= 2.2",
    "restored_over_bare_sqlite": "<= 5",
    "restored_over_bare_services": "<= 5",
    "memory_of_60_messages_over_bare": "<= 1.6",
}

_CHARACTERS = 200
_TEXTS = 74
"""Approximate number of texts in our full history."""

_WARM_UP, _STRETCHES, _STRETCH = 80, 10, 16
_TURNS = _STRETCHES * _STRETCH
_RECALLING = "live_with_recall"

_AGENTS = 8
_AT_REST = 2.0
"""Seconds until no postponed or periodic work waits any more; that work belongs to no agent."""


def bare_agent(**settings: Any) -> Agent:
    """Return an agent with ``settings``, otherwise without this package."""
    return Agent(model=Answers(_CHARACTERS), callback_handler=None, **settings)


@contextmanager
def embedded() -> Iterator[MangaMemory]:
    """Open a memory in this process and a SQLite file."""
    with tempfile.TemporaryDirectory() as folder:
        memory = MangaMemory.open(durable=f"sqlite:///{folder}/sessions.sqlite3", memories=False)
        yield memory
        memory.close()


@contextmanager
def services() -> Iterator[MangaMemory]:
    """Open a memory in Valkey and a DynamoDB API."""
    with servers.valkey() as valkey, servers.dynamodb() as dynamodb:
        os.environ.setdefault("AWS_ACCESS_KEY_ID", "test")
        os.environ.setdefault("AWS_SECRET_ACCESS_KEY", "test")
        memory = MangaMemory.open(
            f"redis://{valkey.host}:{valkey.port}/0?deadline=5",
            dynamodb.table_url("turns"),
            memories=False,
        )
        yield memory
        memory.close()


STAGES: dict[str, Callable[[], Any]] = {"sqlite": embedded, "services": services}


@dataclass(frozen=True)
class Side:
    """Agents whose turns are timed: how to build one, and the work around each turn."""

    build: Callable[[], Agent]
    settle: Callable[[], object] = lambda: None


def ours(memory: MangaMemory, session: str) -> Side:
    """Return agents with the whole layer."""
    writer = shared_writer(memory._stores["hot"], memory._stores["durable"])
    return Side(
        lambda: bare_agent(
            **memory.agent_kwargs(user_id="u", session_id=session, recall=session == _RECALLING)
        ),
        lambda: writer.drain(30.0),
    )


def strands_side(kind: str, folder: str, session: str) -> Side:
    """Return agents with Strands' session manager on the local disk and sliding window."""

    def build() -> Agent:
        manager: Any = FileSessionManager(session, storage_dir=folder)
        if kind == "snapshot":
            manager = SnapshotSessionManager(session, storage=LocalFileStorage(folder))
        window = SlidingWindowConversationManager(_TEXTS, should_truncate_results=False)
        return bare_agent(agent_id="a", session_manager=manager, conversation_manager=window)

    return Side(build)


async def paired(side: Side, *, restored: bool) -> tuple[float, float]:
    """Return the time of a turn relative to a bare agent's, and in processor seconds."""
    live, bare = side.build(), bare_agent(conversation_manager=NullConversationManager())

    async def layered_turn(prompt: str) -> Agent:
        of_turn = live
        if restored:
            of_turn = await asyncio.to_thread(side.build)
        await of_turn.invoke_async(prompt)
        return of_turn

    async def bare_turn(prompt: str) -> Agent:
        await bare.invoke_async(prompt)
        return bare

    taken: dict[Any, list[float]] = {layered_turn: [], bare_turn: []}
    order = list(taken)
    history = live.messages
    for _ in progress(range(_WARM_UP + _TURNS), f"turns, {'restored' if restored else 'live'}"):
        prompt = text(_CHARACTERS)
        bare.messages[:] = history
        for turn in order:
            start = time.process_time()
            after = await turn(prompt)
            side.settle()
            taken[turn].append(time.process_time() - start)
            if turn is layered_turn:
                history = after.messages
        order.reverse()
    layered, alone = (
        [sum(each[at : at + _STRETCH]) for at in range(_WARM_UP, _WARM_UP + _TURNS, _STRETCH)]
        for each in taken.values()
    )
    ratios = (one / other for one, other in zip(layered, alone, strict=True))
    return median(ratios), median(layered) / _STRETCH


def run() -> dict[str, float]:
    """Time everything; with the kit, pass its dialogues through both methods of trimming."""
    rows: dict[str, float] = {}
    if KIT is not None:
        BUDGETS.update(prefixes.BUDGETS)
        rows = prefixes.run(KIT / "data" / "dev", plot=PLOT)

    def timed(name: str, side: Callable[[str], Side], *more: str) -> None:
        for way in ("live", "restored", *more):
            ratio, seconds = asyncio.run(paired(side(way), restored=way == "restored"))
            rows[f"{way}_over_bare_{name}"] = ratio
            rows[f"{way}_turns_a_second_and_core_{name}"] = 1 / seconds

    for name, stage in STAGES.items():
        with stage() as memory:
            timed(name, partial(ours, memory), _RECALLING)
    for kind in ("file", "snapshot"):
        with tempfile.TemporaryDirectory() as folder:
            timed(f"strands_{kind}", partial(strands_side, kind, folder))
    return {**rows, "memory_of_60_messages_over_bare": _memory()}


def _memory() -> float:
    """Return the memory of a live agent with 60 messages, relative to a bare agent."""
    with servers.valkey() as valkey, tempfile.TemporaryDirectory() as folder:
        memory = MangaMemory.open(
            f"redis://{valkey.host}:{valkey.port}/0?deadline=5",
            f"sqlite:///{folder}/sessions.sqlite3",
            memories=False,
        )
        with closing(memory):
            return _memory_over_bare(memory)


def _memory_over_bare(memory: MangaMemory) -> float:
    def ours(number: int) -> dict[str, Any]:
        return memory.agent_kwargs(user_id="u", session_id=f"s{number}")

    def bare(number: int) -> dict[str, Any]:
        return {"conversation_manager": NullConversationManager()}

    for settings in (ours, bare):  # what all agents share comes with the first
        asyncio.run(_play(bare_agent(**settings(_AGENTS))))
    return _each(ours) / _each(bare)


def _each(settings: Callable[[int], dict[str, Any]]) -> float:
    gc.collect()
    tracemalloc.start()
    agents = [asyncio.run(_play(bare_agent(**settings(number)))) for number in range(_AGENTS)]
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
