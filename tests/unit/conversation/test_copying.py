"""Copies of conversation managers, as whoever makes agents from a template makes them."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
from strands import Agent
from strands.types.content import Message

from strands_manga_memory import (
    ImportanceWeightedConversationManager,
    TieredCompactionConversationManager,
    VerifiedSummarizingConversationManager,
)
from strands_manga_memory.conversation import SummarySchedule, SummaryTrigger, ToolResultCap, VerifiedSummary, default_counter
from strands_manga_memory.messages import for_model
from strands_manga_memory.testing import ScriptedModel
from tests.histories import problems

BUDGET = 300


def summarized(prompt: Any) -> str:
    return "The user asks about books."


def importance() -> ImportanceWeightedConversationManager:
    return ImportanceWeightedConversationManager(BUDGET, max_turns=40, on_evict=lambda gone: None)


def verified() -> VerifiedSummarizingConversationManager:
    return VerifiedSummarizingConversationManager(
        SummaryTrigger(tokens=BUDGET, turns=4, keep_recent_turns=2),
        model=summarized,
        trimmer=importance(),
        log=list,
        schedule=SummarySchedule(strategy="async"),
    )


def compaction() -> TieredCompactionConversationManager:
    return TieredCompactionConversationManager([ToolResultCap(400), VerifiedSummary(verified())], window=2_000, untouched=2)


MANAGERS = pytest.mark.parametrize("made", [importance, verified, compaction])


def talk(manager: Any, mark: str) -> Agent:
    agent = Agent(
        model=ScriptedModel(lambda _: f"{mark} answer " * 20),
        conversation_manager=manager,
        callback_handler=None,
        agent_id=mark,
    )
    for number in range(12):
        agent(f"{mark} question {number} " + "about it " * 15)
    return agent


def spoken(messages: list[Message]) -> str:
    return str(messages)


def history_manager_of(manager: Any) -> ImportanceWeightedConversationManager:
    trimmer = getattr(manager, "trimmer", manager)
    assert isinstance(trimmer, ImportanceWeightedConversationManager)
    return trimmer


@MANAGERS
@pytest.mark.parametrize("times", [1, 2])
def test_a_copy_works_for_an_agent_of_its_own(made: Callable[[], Any], times: int) -> None:
    template = made()
    copies = [template]
    for _ in range(times):
        copies.append(copy.deepcopy(copies[-1]))
    agents = [talk(manager, f"agent{number}") for number, manager in enumerate(copies)]
    for number, agent in enumerate(agents):
        assert problems(for_model(agent.messages)) == []
        assert 0 < len(agent.messages) < 24
        for other in range(len(agents)):
            assert (f"agent{other} question" in spoken(agent.messages)) == (other == number)


@MANAGERS
def test_a_manager_in_use_is_copied_without_what_it_serves(made: Callable[[], Any]) -> None:
    manager = made()
    agent = talk(manager, "first")
    kept = list(agent.messages)
    copied = copy.deepcopy(manager)
    other = talk(copied, "second")
    assert agent.messages == kept
    assert "first question" not in spoken(other.messages)
    agent("first again")
    assert problems(for_model(agent.messages)) == problems(for_model(other.messages)) == []


@MANAGERS
def test_the_settings_of_a_copy_are_those_of_its_original(made: Callable[[], Any]) -> None:
    manager = made()
    copied = copy.deepcopy(manager)
    ours, theirs = history_manager_of(copied), history_manager_of(manager)
    assert ours is not theirs
    copied_limits, limits = ours.history.limits, theirs.history.limits
    assert (copied_limits.max_tokens, copied_limits.grow_to) == (limits.max_tokens, limits.grow_to)
    assert ours.max_turns == theirs.max_turns
    assert ours.counter is theirs.counter is default_counter()
    assert type(copied) is type(manager)


def test_a_copy_is_not_given_the_log_of_the_conversation_its_original_serves() -> None:
    def log() -> list[Message]:
        raise AssertionError("another conversation was read")

    template = VerifiedSummarizingConversationManager(
        SummaryTrigger(tokens=BUDGET, turns=2, keep_recent_turns=1),
        model=summarized,
        log=log,
        schedule=SummarySchedule(strategy="inline"),
    )
    agent = talk(copy.deepcopy(template), "other")
    assert agent.conversation_manager.stats().swapped > 0


def test_parts_given_twice_are_one_part_in_the_copy() -> None:
    stage = VerifiedSummary(verified())
    copied = copy.deepcopy([TieredCompactionConversationManager([stage]), stage])
    assert copied[0].stages[0] is copied[1]
    assert copied[0].trimmer is copied[1].manager.trimmer is not stage.manager.trimmer
