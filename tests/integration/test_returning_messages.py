"""Evicted messages return to the window when there is room, and are restored exactly."""

from pathlib import Path
from typing import Any

import pytest
from strands import Agent
from strands.hooks import MessageAddedEvent

from strands_manga_memory import ImportanceWeightedConversationManager
from strands_manga_memory.conversation import EstimateCounter
from strands_manga_memory.messages import for_model
from strands_manga_memory.testing import ScriptedModel
from tests.histories import problems
from tests.support import open_session

BUDGET = 600
COUNTER = EstimateCounter()


def made(answer: Any, session: Any = None, **settings: Any) -> Agent:
    return Agent(
        model=ScriptedModel(answer),
        conversation_manager=ImportanceWeightedConversationManager(
            BUDGET, counter=COUNTER, **settings
        ),
        session_manager=session,
    )


def answered(number: int) -> str:
    return f"answer {number} many words on the weather "


def long_at_times(number: int) -> str:
    return f"question {number:03} on order ORD-{number:05} " + "many words on the weather " * (
        90 if number % 6 == 3 else 0
    )


def whole(agent: Agent) -> set[str]:
    return {message["content"][0].get("text", "")[:14] for message in agent.messages}


def returned(agent: Agent, turns: range) -> int:
    """Talk, and count the messages that were gone and are there again."""
    gone: set[str] = set()
    before: set[str] = whole(agent)
    count = 0
    for number in turns:
        agent(long_at_times(number))
        now = whole(agent)
        count += len(now & gone)
        gone = (gone | before) - now
        before = now
        assert problems(for_model(agent.messages)) == []
    return count


@pytest.mark.parametrize("settings", [{"trim_every": 4}, {}])
def test_what_a_long_text_squeezed_out_returns(settings: dict[str, int]) -> None:
    numbers = iter(range(1_000))
    agent = made(lambda _: answered(next(numbers)), **settings)
    assert returned(agent, range(40)) > 0
    manager: Any = agent.conversation_manager
    model: Any = agent.model
    for request in model.requests:
        # What the user says now comes on top.
        beyond = max(0, COUNTER.count(request.messages[-1]) - BUDGET // 2)
        assert sum(map(COUNTER.count, request.messages)) <= BUDGET + beyond
    ids = [fate.tracking_id for fate in manager.explain(agent)]
    assert len(ids) == len(set(ids))


def test_the_outcomes_of_all_messages_are_in_the_order_of_the_conversation() -> None:
    numbers, added = iter(range(1_000)), list[str | None]()
    agent = made(lambda _: answered(next(numbers)))
    agent.add_hook(lambda event: added.append(event.message["tracking_id"]), MessageAddedEvent)
    assert returned(agent, range(80)) > 0
    manager: Any = agent.conversation_manager
    ids = [outcome.tracking_id for outcome in manager.explain(agent)]
    assert ids == added[-len(ids) :]
    assert len(ids) == len(added)


@pytest.mark.parametrize("kind", ["file", "snapshot", "tiered"])
def test_a_restart_brings_back_the_very_window(kind: str, tmp_path: Path) -> None:
    numbers = iter(range(1_000))

    seen, window = 0, list[Any]()
    for start in range(0, 45, 15):
        manager = open_session(kind, tmp_path)
        agent = made(lambda _: answered(next(numbers)), manager, trim_every=4)
        assert [(message["role"], message["content"]) for message in agent.messages] == window
        seen += returned(agent, range(start, start + 15))
        window = [(message["role"], message["content"]) for message in agent.messages]
        if kind == "tiered":
            logged = [message["tracking_id"] for message in manager.history("default")]
            assert len(logged) == len(set(logged)) == 2 * (start + 15)
            manager.close()
    assert seen > 0


def test_nothing_of_a_conversation_comes_back_in_another() -> None:
    numbers = iter(range(1_000))
    agent = made(lambda _: answered(next(numbers)), trim_every=4)
    returned(agent, range(20))
    agent.messages.clear()
    for number in range(20):
        agent(f"other topic {number} " + "with some words of its own " * 8)
        assert not any("ORD-" in str(message["content"]) for message in agent.messages)


def test_what_is_forgotten_never_returns() -> None:
    numbers = iter(range(1_000))
    agent = made(lambda _: answered(next(numbers)), trim_every=4)
    agent("My first order is the one of last week.")
    agent("My code word is Sakura.")
    id_ = agent.messages[2]["tracking_id"]
    for number in range(300):
        agent(f"question {number:03} on order ORD-{number:05}, which must come to Osaka by Friday")
        if "Sakura" not in str(agent.messages):
            break
    assert "Sakura" not in str(agent.messages)
    agent.conversation_manager.forget(id_)
    for _ in range(12):
        agent("ok")
        assert "Sakura" not in str(agent.messages)
