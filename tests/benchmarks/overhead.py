"""overhead: what the whole layer adds to a bare agent's text turn, with embedded stores."""

from __future__ import annotations

import asyncio
import tempfile
import time
from statistics import median
from typing import Any

from strands import Agent
from strands.agent.conversation_manager import SlidingWindowConversationManager
from strands.types.content import Message

from strands_manga_memory import MangaMemory
from strands_manga_memory.session.window import fingerprint
from strands_manga_memory.testing import ScriptedModel
from tests.benchmarks import progress, text, turn_ms

BUDGETS = {"added_to_a_text_turn_ms": "< 1.0", "fingerprint_of_200_messages_ms": "< 0.5"}

_TURNS = 400
_WARM_UP = 60


def bare_agent(**settings: Any) -> Agent:
    """Return an agent that answers each prompt with 500 bytes."""
    return Agent(model=ScriptedModel(lambda _: text(500)), callback_handler=None, **settings)


async def _paired(layered: Agent, label: str) -> tuple[list[float], list[float]]:
    """Alternate turns of the layered agent and of a bare one with a history of the same length."""
    for _ in range(_WARM_UP):
        await turn_ms(layered, text(500))
    bare = bare_agent(conversation_manager=SlidingWindowConversationManager(window_size=len(layered.messages)))
    for _ in range(_WARM_UP):
        await turn_ms(bare, text(500))
    pairs: list[tuple[float, float]] = []
    for number in progress(range(_TURNS), label):
        prompt = text(500)
        if number % 2:
            without = await turn_ms(bare, prompt)
            pairs.append((without, await turn_ms(layered, prompt)))
        else:
            with_layer = await turn_ms(layered, prompt)
            pairs.append((await turn_ms(bare, prompt), with_layer))
    return [without for without, _ in pairs], [with_layer for _, with_layer in pairs]


def _layer() -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        memory = MangaMemory.open(durable=f"sqlite:///{folder}/sessions.sqlite3")
        layered = bare_agent(**memory.agent_kwargs(user_id="u", session_id="s"))
        bare_ms, layered_ms = asyncio.run(_paired(layered, f"{_TURNS} turns, bare and layered in turn"))
        memory.close()
    return {
        "bare_text_turn_ms": median(bare_ms),
        "layered_text_turn_ms": median(layered_ms),
        "added_to_a_text_turn_ms": median(after - before for before, after in zip(bare_ms, layered_ms, strict=True)),
    }


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
    """Time both agents in one run."""
    return {**_layer(), "fingerprint_of_200_messages_ms": _fingerprints()}
