"""Callbacks of the managers, called as Strands calls them and as others do."""

import threading
from typing import Any

import pytest
from strands import Agent
from strands.hooks import MessageAddedEvent
from strands.types.content import Message

from strands_manga_memory import ImportanceWeightedConversationManager
from strands_manga_memory.conversation import (
    SummaryTrigger,
    TieredCompactionConversationManager,
    TurnEviction,
    VerifiedSummarizingConversationManager,
    default_counter,
)
from strands_manga_memory.testing import ScriptedModel
from tests.benchmarks.sentences import prose

MANAGERS: list[Any] = [
    lambda: ImportanceWeightedConversationManager(500),
    lambda: VerifiedSummarizingConversationManager(
        SummaryTrigger(tokens=1_000),
        model=ScriptedModel(lambda _: "They talked."),
        trimmer=ImportanceWeightedConversationManager(500),
    ),
    lambda: TieredCompactionConversationManager(
        [TurnEviction()], trimmer=ImportanceWeightedConversationManager(500)
    ),
]


@pytest.mark.parametrize("made", MANAGERS)
def test_that_a_message_was_added_can_be_told_without_an_event_loop(made: Any) -> None:
    agent = Agent(model=ScriptedModel(lambda _: "yes"), conversation_manager=made())
    for number in range(20):
        for role in ("user", "assistant"):
            message: Any = {"role": role, "content": [{"text": f"{number} " + prose()[:300]}]}
            agent.messages.append(message)
            agent.hooks.invoke_callbacks(MessageAddedEvent(agent=agent, message=message))
        agent.conversation_manager.apply_management(agent)
    agent("and now?")  # whatever grew meanwhile, it is still a history that an agent goes on with
    assert agent.messages[-1]["content"] == [{"text": "yes"}]
    if isinstance(agent.conversation_manager, ImportanceWeightedConversationManager):
        assert sum(map(default_counter().count, agent.messages)) <= 500


class OffLoop:
    """Counts tokens, and notes which large texts it was given on the thread of an event loop."""

    exact = True

    def __init__(self) -> None:
        self.loop_thread = 0
        self.on_loop = 0

    def count(self, message: Message) -> int:
        size = sum(len(block.get("text", "")) for block in message["content"])
        if size > 60_000 and threading.get_ident() == self.loop_thread:
            self.on_loop += 1
        return size // 4 + 1


async def test_a_huge_answer_is_shortened_beside_the_event_loop_and_saved_with_its_turn() -> None:
    counter = OffLoop()
    counter.loop_thread = threading.get_ident()
    manager = ImportanceWeightedConversationManager(2_000, counter=counter)
    answers = iter(["short", prose()[:300_000], "short"])
    agent = Agent(model=ScriptedModel(lambda _: next(answers)), conversation_manager=manager)
    for text in ("hello", "go on", "thanks for that"):
        await agent.invoke_async(text)
        assert sum(map(counter.count, agent.messages)) <= 2_000, "at the end of each invocation"
    assert counter.on_loop == 0


class OffLoopExcerpts(OffLoop):
    """Counts tokens, and notes excerpts of large texts that it counted on the event loop."""

    def count(self, message: Message) -> int:
        if "characters cut" in str(message["content"]):
            self.on_loop += threading.get_ident() == self.loop_thread
        return super().count(message)


async def test_an_evicted_huge_answer_is_read_again_beside_the_event_loop() -> None:
    counter = OffLoopExcerpts()
    manager = ImportanceWeightedConversationManager(2_000, counter=counter)
    answers = iter([prose()[:300_000], *["short"] * 8])
    agent = Agent(model=ScriptedModel(lambda _: next(answers)), conversation_manager=manager)
    await agent.invoke_async("hello")
    counter.loop_thread = threading.get_ident()
    for number in range(8):
        await agent.invoke_async(f"{number} " + prose()[:1_500])
    assert counter.on_loop == 0
