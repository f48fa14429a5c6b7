"""Our policies as ``ContextStrategy`` of agents, next to Strands' own, restored exactly."""

import dataclasses
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from strands import Agent
from strands.agent.conversation_manager import NullConversationManager
from strands.agent.conversation_manager.compression.pin_message import pin_message
from strands.experimental.context_manager import (
    ContextManager,
    ContextManagerConfig,
    ContextState,
    ContextStrategy,
    Offload,
)
from strands.storage import InMemoryStorage
from strands.types.exceptions import ContextWindowOverflowException

from strands_manga_memory import (
    HistoryRecall,
    ImportanceWeightedConversationManager,
    TieredCompactionConversationManager,
    VerifiedSummarizingConversationManager,
    as_strategy,
)
from strands_manga_memory.conversation import PolicyStrategy, SummarySchedule, SummaryTrigger
from strands_manga_memory.testing import ScriptedModel
from tests.support import open_session, stub_tool
from tests.unit.session.support import same, tool_use

pytestmark = pytest.mark.filterwarnings("ignore:.*experimental.*")

FILLER = "about volumes and editions and prices " * 4


catalogue = stub_tool("catalogue", "one volume after another, " * 2_000)


def answers(messages: Any) -> Any:
    last = messages[-1]["content"]
    if "toolResult" in last[0]:
        return "There are many."
    text = last[-1].get("text", "")
    if text.startswith("list"):
        return [tool_use(f"c{len(messages)}", "catalogue")]
    return f"answer {text[:40]}"


def summarized(prompt: Any) -> str:
    return "- They talked about volumes, editions and prices."


POLICIES: dict[str, Callable[[], Any]] = {
    "importance": lambda: ImportanceWeightedConversationManager(400),
    "summary": lambda: VerifiedSummarizingConversationManager(
        SummaryTrigger(tokens=600, keep_recent_turns=2),
        model=summarized,
        trimmer=ImportanceWeightedConversationManager(400),
        schedule=SummarySchedule(strategy="inline"),
    ),
    "compaction": lambda: TieredCompactionConversationManager(window=800, untouched=4),
}


def built(policy: Any, model: Any = None, *more: Any, stash: Any = True, **kwargs: Any) -> Agent:
    config = ContextManagerConfig(strategies=[*more, as_strategy(policy)], stash=stash)
    return Agent(
        model=model or ScriptedModel(answers), tools=[catalogue], context_manager=config, **kwargs
    )


@pytest.fixture(params=["tiered", "file", "snapshot"])
def session(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], Any]:
    return lambda: open_session(request.param, tmp_path)


@pytest.mark.parametrize("name", POLICIES)
def test_it_acts_like_the_manager_and_restores(name: str, session: Callable[[], Any]) -> None:
    policy = POLICIES[name]()
    live = built(policy, session_manager=session(), stash=False)  # whose tool the twin has not
    by_hand = POLICIES[name]()
    twin = Agent(model=ScriptedModel(answers), tools=[catalogue], conversation_manager=by_hand)
    for number in range(14):
        for agent in (live, twin):
            agent(f"question {number} {FILLER}")
        # The stages of a compaction write their summary in a thread, so when it comes is not the
        # same.
        assert name == "compaction" or [m["content"] for m in live.messages] == [
            m["content"] for m in twin.messages
        ]
        if number == 3:
            for agent in (live, twin):
                pin_message(agent.messages, len(agent.messages) - 1)
    assert (
        policy.usage(live) == by_hand.usage(twin)
        if name != "compaction"
        else policy.stats().compactions
    )
    assert len(live.messages) < 28
    assert any((m.get("metadata") or {}).get("custom", {}).get("pinned") for m in live.messages)
    restored = built(POLICIES[name](), session_manager=session())
    assert same(restored.messages, live.messages)
    for agent in (live, restored):
        agent.state.delete("manga_context")  # what follows is another process's
    restored(f"and on {FILLER}")
    assert "and on" in str(restored.messages[-2])


def test_the_budget_holds_at_every_model_call() -> None:
    policy = ImportanceWeightedConversationManager(400)
    model = ScriptedModel(answers)
    agent = built(policy, model)
    for number in range(12):
        agent(f"question {number} {FILLER}")
    assert max(policy.history.tokens(request.messages) for request in model.requests) <= 400
    assert isinstance(agent.conversation_manager, NullConversationManager)


def test_an_overflow_makes_room_and_the_call_is_tried_again() -> None:
    overflows = iter([ContextWindowOverflowException("full")])
    said = False

    def model(messages: Any) -> Any:
        nonlocal said
        if len(messages) > 12 and not said:
            said = True
            return next(overflows)
        return answers(messages)

    policy = ImportanceWeightedConversationManager(100_000)
    agent = built(policy, ScriptedModel(model))
    for number in range(7):
        agent(f"question {number} {FILLER}")
    assert said
    assert len(agent.messages) < 12
    assert "question 6" in str(agent.messages[-2])


def test_beside_strands_own_strategies_and_the_stash(session: Callable[[], Any]) -> None:
    offload = Offload.truncate("tool_results", {"preview_tokens": 200}).when(threshold=400)
    storage = {"storage": InMemoryStorage()}
    live = built(
        ImportanceWeightedConversationManager(2_000),
        None,
        offload,
        "overflow_protection",
        session_manager=session(),
        stash=storage,
    )
    live("list everything")
    for number in range(8):
        live(f"question {number} {FILLER}")
    assert "[Stashed]" in str(live.messages)
    assert len(str(live.messages)) < 20_000
    assert "retrieve_context" in live.tool_names
    again = Offload.truncate("tool_results", {"preview_tokens": 200}).when(threshold=400)
    restored = built(
        ImportanceWeightedConversationManager(2_000),
        None,
        again,
        session_manager=session(),
        stash=storage,
    )
    assert same(restored.messages, live.messages)


def test_recall_brings_back_what_has_left() -> None:
    model = ScriptedModel()
    policy = ImportanceWeightedConversationManager(400, max_turns=4, includes_recall=True)
    agent = built(policy, model, plugins=[HistoryRecall(100)])
    agent("Hello there.")
    agent("The van at the corner was green.")
    for number in range(14):
        agent(f"The shelf number {number} was brown.")
    assert "van at the corner" not in str(agent.messages)
    agent("Was the van green?")
    assert "van at the corner" in str(model.requests[-1].messages)
    assert "search_history" in agent.tool_names


def test_one_policy_serves_one_agent_and_others_are_refused() -> None:
    policy = ImportanceWeightedConversationManager()
    built(policy)
    with pytest.raises(ValueError, match="already serves an agent"):
        built(policy)
    with pytest.raises(ValueError, match="policy must be"):
        as_strategy(NullConversationManager())


def test_what_strands_calls_experimental_is_as_we_know_it() -> None:
    """If this fails, Strands moved: ``conversation/strategy.py`` is the one module to change."""
    assert isinstance(as_strategy(ImportanceWeightedConversationManager()), ContextStrategy)
    found = {"messages", "agent", "utilization", "overflow", "stash"}
    assert found <= {f.name for f in dataclasses.fields(ContextState)}
    assert {"strategies", "stash"} <= set(ContextManagerConfig.__annotations__)
    assert {"strategies", "stash"} <= set(inspect.signature(ContextManager).parameters)
    calls: list[dict[str, Any]] = []

    class Watched(PolicyStrategy):
        def init(self, agent: Agent, **kwargs: Any) -> None:
            calls.append(kwargs)

    config = ContextManagerConfig(strategies=[Watched(ImportanceWeightedConversationManager())])
    agent = Agent(model=ScriptedModel(), context_manager=config)
    assert calls == [{"stash": agent.context_manager.stash}]
