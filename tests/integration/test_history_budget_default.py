"""The default budget of a history follows the model's context window."""

from pathlib import Path
from typing import Any

import pytest
from strands import Agent
from strands.models import ModelRouter

from strands_manga_memory import (
    HistoryRecall,
    ImportanceWeightedConversationManager,
    MangaMemory,
    MangaMemorySettings,
)
from strands_manga_memory.conversation import budget_plan
from strands_manga_memory.testing import ScriptedModel

_BUDGETS = {None: 4_096, 8_000: 2_000, 32_768: 8_192, 200_000: 16_384, 1_000_000: 16_384}
"""Default budget of the history by the context window of the model."""


def _model(window: int | None) -> ScriptedModel:
    model = ScriptedModel(lambda _: "It is in stock.")
    model.update_config(context_window_limit=window)
    return model


def _agents(memory: MangaMemory, window: int | None, **asked: Any) -> list[Any]:
    """Build one agent in each way."""
    model, scope = _model(window), {"user_id": "u", "session_id": "s"}
    return [
        memory.agent(model, **scope, **asked),
        Agent(model=model, **memory.agent_kwargs(**scope, **asked)),
        memory.agent(ModelRouter([model, _model(1)]), **scope, **asked),
    ]


@pytest.mark.parametrize("window", _BUDGETS)
def test_every_agent_has_the_same_default_budget(window: int | None, memory: MangaMemory) -> None:
    """A quarter of the window, at most 16,384 tokens; 4,096 if unknown."""
    for agent in _agents(memory, window):
        assert agent.conversation_manager.usage(agent)["budget"] == _BUDGETS[window]
    assert budget_plan(window=window).history == _BUDGETS[window]


@pytest.mark.parametrize("window", _BUDGETS)
def test_summaries_and_recall_follow_the_window(window: int | None, memory: MangaMemory) -> None:
    """With summaries: at most 4,096 tokens, summarized at 8,000 or half the window."""
    budget = min(4_096, _BUDGETS[window])
    for agent in _agents(memory, window, history="summarize", recall=True):
        manager = agent.conversation_manager
        trigger = budget * 8_000 // 4_096
        assert manager.trigger_tokens == (trigger if window is None else min(trigger, window // 2))
        assert manager.hard_tokens == manager.trigger_tokens * 3 // 2
        assert manager.trimmer.max_tokens == budget
    recall = HistoryRecall(None)
    Agent(model=_model(window), plugins=[recall])
    assert recall.max_tokens == min(1_024, _BUDGETS[window] // 4)


def test_a_history_of_the_facade_costs_what_the_default_says(memory: MangaMemory) -> None:
    """With a window of 200,000 tokens no history exceeds 16,384 tokens."""
    largest = []
    for number, agent in enumerate(_agents(memory, 200_000)[:2]):
        agent.messages.clear()
        for turn in range(8):
            agent(f"Question {turn} of agent {number}: " + "a word and another one " * 640)
        largest.append(
            max(
                agent.conversation_manager.history.tokens(request.messages)
                for request in agent.model.requests
            )
        )
    assert all(14_000 < tokens <= 16_384 for tokens in largest)


def test_settings_take_the_place_of_the_default(memory: MangaMemory, tmp_path: Path) -> None:
    """A budget that is set holds whatever the window, also above 16,384."""
    for agent in _agents(memory, 200_000, max_tokens=60_000):
        assert agent.conversation_manager.max_tokens == 60_000
    defaults = MangaMemorySettings(summary_trigger_tokens=1_000)
    with MangaMemory.open(durable=f"sqlite:///{tmp_path}/other.db", defaults=defaults) as other:
        for agent in _agents(other, 200_000, history="summarize"):
            manager = agent.conversation_manager
            assert (manager.trigger_tokens, manager.trimmer.max_tokens) == (1_000, 1_000)


def test_a_manager_alone_keeps_4096_unless_it_is_told_to_follow_the_window() -> None:
    """``max_tokens=None`` follows the window."""
    alone, following = (
        ImportanceWeightedConversationManager(),
        ImportanceWeightedConversationManager(None),
    )
    for manager in (alone, following):
        Agent(model=_model(32_768), conversation_manager=manager)
    assert (alone.max_tokens, following.max_tokens) == (4_096, 8_192)
