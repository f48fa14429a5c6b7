"""trim: cost of keeping a history within its budget, in addition to counting the tokens of its texts.

Times are CPU times of this thread, so that other work on the machine does not count.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from typing import Any

from strands import Agent
from strands.agent.conversation_manager import NullConversationManager
from strands.types.content import Message

from strands_manga_memory.conversation import ImportanceWeightedConversationManager, TokenCounter, default_counter
from strands_manga_memory.testing import ScriptedModel
from tests.benchmarks import progress, text

BUDGETS = {
    "first_trim_of_10000_messages_s": "< 0.5",
    "tokens_after_the_first_trim": "<= 4096",
    "later_turn_ms": "< 1.0",
    "largest_request_in_tokens": "<= 4096",
}

_MESSAGES = 10_000
_CHARACTERS = 460
"""Characters of about 100 tokens of English."""

_TURNS = 200
_WARM_UP = 60


class _Timed:
    """Token counter that measures its own time."""

    exact = True

    def __init__(self) -> None:
        self._counter: TokenCounter = default_counter()
        self.seconds = 0.0

    def count(self, message: Message) -> int:
        start = time.thread_time()
        tokens = self._counter.count(message)
        self.seconds += time.thread_time() - start
        return tokens


def _agent(manager: Any, messages: list[Message]) -> Agent:
    model = ScriptedModel(lambda _: text(_CHARACTERS), usage=lambda _: 0)
    return Agent(model=model, conversation_manager=manager, messages=messages, callback_handler=None)


def _message(at: int) -> Message:
    return {"role": "user" if at % 2 == 0 else "assistant", "content": [{"text": text(_CHARACTERS)}]}


async def _turn(agent: Agent, prompt: str, counter: _Timed | None = None) -> float:
    """Return the CPU seconds of a turn, without those of counting."""
    start, counting = time.thread_time(), counter.seconds if counter else 0.0
    await agent.invoke_async(prompt)
    return time.thread_time() - start - (counter.seconds - counting if counter else 0.0)


async def _later_turns(agent: Agent, counter: _Timed) -> list[float]:
    """Return the manager's cost in each turn, compared with an agent that has an equal history and no manager."""
    bare = _agent(NullConversationManager(), list(agent.messages))
    added = []
    for number in progress(range(_TURNS + _WARM_UP), "later turns"):
        prompt = text(_CHARACTERS)
        first_bare = number % 2 == 0
        seconds = await _turn(bare, prompt) if first_bare else 0.0
        ours = await _turn(agent, prompt, counter)
        seconds = seconds if first_bare else await _turn(bare, prompt)
        del bare.messages[: len(bare.messages) - len(agent.messages)]
        added.append(ours - seconds)
    return added[_WARM_UP:]


def run() -> dict[str, float]:
    """Trim 10,000 messages of 100 tokens, then hold 200 more turns."""
    counter = _Timed()
    manager = ImportanceWeightedConversationManager(4_096, counter=counter)
    agent = _agent(manager, [_message(at) for at in range(_MESSAGES)])
    start, counting = time.thread_time(), counter.seconds
    manager.apply_management(agent)
    first = time.thread_time() - start - (counter.seconds - counting)
    after = manager.usage(agent)["tokens"]
    added = asyncio.run(_later_turns(agent, counter))
    model: Any = agent.model
    largest = max(sum(map(default_counter().count, request.messages)) for request in model.requests)
    return {
        "messages": _MESSAGES,
        "counting_10000_messages_s": counter.seconds,
        "first_trim_of_10000_messages_s": first,
        "tokens_after_the_first_trim": after,
        "messages_in_the_window": len(agent.messages),
        "later_turn_ms": statistics.median(added) * 1_000,
        "largest_request_in_tokens": largest,
    }
