"""overhead: time that the whole layer adds to a bare agent's text turn, with embedded stores.

Measured on one processor. A turn waits for its save, so a second processor saves no time, but a virtual machine may need longer
to wake it than the whole layer takes, depending on where the kernel runs the writer's thread. The results with several
processors are shown as well.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from statistics import median
from typing import Any

from strands import Agent
from strands.agent.conversation_manager import SlidingWindowConversationManager
from strands.types.content import Message

from strands_manga_memory import MangaMemory
from strands_manga_memory.messages import fingerprint
from strands_manga_memory.testing import ScriptedModel
from tests.benchmarks import progress, text, turn_ms

BUDGETS = {"added_to_a_text_turn_ms": "< 1.0", "fingerprint_of_200_messages_ms": "< 0.5"}

_TURNS = 400
_WARM_UP = 60


def bare_agent(**settings: Any) -> Agent:
    """Return an agent that answers each prompt with 500 bytes."""
    return Agent(model=ScriptedModel(lambda _: text(500)), callback_handler=None, **settings)


async def _side_by_side(agents: Mapping[str, Agent]) -> dict[str, list[float]]:
    """Return the durations of the same turns for each agent. The agents alternate, and each is first as often as last."""
    times: dict[str, list[float]] = {name: [] for name in agents}
    order = list(agents)
    for _ in progress(range(_TURNS), f"{_TURNS} turns, bare and layered side by side"):
        prompt = text(500)
        for name in order:
            times[name].append(await turn_ms(agents[name], prompt))
        order.reverse()
    return times


async def _warmed_up(agent: Agent) -> Agent:
    for _ in range(_WARM_UP):
        await turn_ms(agent, text(500))
    return agent


async def _turns(layered: Agent) -> dict[str, list[float]]:
    await _warmed_up(layered)
    # Strands copies the history for every model call, so an agent with a shorter one is faster, whatever made it shorter.
    same_length = SlidingWindowConversationManager(window_size=len(layered.messages))
    return await _side_by_side(
        {
            "bare": await _warmed_up(bare_agent()),
            "layered": layered,
            "same_length": await _warmed_up(bare_agent(conversation_manager=same_length)),
        }
    )


def _layer(session: str) -> dict[str, list[float]]:
    with tempfile.TemporaryDirectory() as folder:
        memory = MangaMemory.open(durable=f"sqlite:///{folder}/sessions.sqlite3")
        times = asyncio.run(_turns(bare_agent(**memory.agent_kwargs(user_id="u", session_id=session))))
        memory.close()
    return times


def _added_to(name: str, times: Mapping[str, list[float]]) -> float:
    return median(after - before for before, after in zip(times[name], times["layered"], strict=True))


@contextmanager
def one_processor() -> Iterator[None]:
    """Keep this thread, and the threads that it starts, on one processor, if the system allows it."""
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(allowed)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, allowed)


def _fingerprints() -> float:
    messages: list[Message] = [
        {"role": "user", "content": [{"text": text(500)}], "tracking_id": f"{number:036}"}  # type: ignore[typeddict-unknown-key]
        for number in range(200)
    ]
    times = []
    for _ in range(200):
        start = time.perf_counter()
        for message in messages:
            fingerprint(message)
        times.append(time.perf_counter() - start)
    return 1000 * median(times)


def run() -> dict[str, float]:
    """Time the agents in one run."""
    with one_processor():
        times = _layer("one")
    return {
        "bare_text_turn_ms": median(times["bare"]),
        "layered_text_turn_ms": median(times["layered"]),
        "added_to_a_text_turn_ms": _added_to("bare", times),
        "added_to_a_text_turn_with_a_history_as_short_ms": _added_to("same_length", times),
        "added_to_a_text_turn_on_all_processors_ms": _added_to("bare", _layer("all")),
        "fingerprint_of_200_messages_ms": _fingerprints(),
    }
