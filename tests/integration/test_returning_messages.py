"""A trimmed history: its budget, its original messages, and messages that return."""

import html
import itertools
from pathlib import Path
from typing import Any

import pytest
from strands import Agent
from strands.hooks import MessageAddedEvent
from strands.models import ModelRouter

from strands_manga_memory import (
    HistoryRecall,
    ImportanceWeightedConversationManager,
    MangaMemory,
    MangaMemorySettings,
)
from strands_manga_memory.conversation import EstimateCounter, budget_plan
from strands_manga_memory.messages import for_model
from strands_manga_memory.session import TieredSessionManager
from strands_manga_memory.testing import ScriptedModel
from tests.benchmarks import reset_texts, text
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


_BUDGET, _TURNS = 1_500, 40


def talk(agent: Agent, turns: int = _TURNS) -> list[str]:
    """Let an agent say and hear something new in each turn; return all that was said."""
    said: list[str] = []
    for _ in range(turns):
        prompt = text(160)
        said += [prompt, agent(prompt).message["content"][0]["text"]]
    return said


def trimming_agent(session: Any = None, **settings: Any) -> Agent:
    manager = ImportanceWeightedConversationManager(_BUDGET, trim_every=6)
    manager.persist_layout = not isinstance(session, TieredSessionManager)
    model = ScriptedModel(lambda _: text(160))
    return Agent(
        model=model, agent_id="a", session_manager=session, conversation_manager=manager, **settings
    )


@pytest.fixture
def agent() -> Agent:
    reset_texts()
    agent = trimming_agent()
    agent.said = talk(agent)
    return agent


def has_neighbours(messages: list[Any]) -> bool:
    """Return whether two messages of one role stand beside each other."""
    return any(one["role"] == other["role"] for one, other in itertools.pairwise(messages))


def test_a_trimmed_history_holds_the_messages_that_were_said(agent: Agent) -> None:
    """Neighbours of one role are neither merged nor separated."""
    everything: list[str] = agent.said
    assert all(len(message["content"]) == 1 for message in agent.messages)
    at = [everything.index(message["content"][0]["text"]) for message in agent.messages]
    assert at == sorted(set(at)), "each once, in the order of speech"
    assert has_neighbours(agent.messages)
    assert problems(for_model(agent.messages)) == []


def test_no_question_runs_into_the_next_one(agent: Agent) -> None:
    """The user's words that the model is to answer are a message of their own."""
    model: Any = agent.model
    for request in model.requests:
        assert len(request.messages[-1]["content"]) == 1


def test_recall_quotes_no_message_of_the_history() -> None:
    reset_texts()
    agent = trimming_agent(plugins=[HistoryRecall(400)])
    said = talk(agent)
    model: Any = agent.model
    quotes = ""
    gone = [each for each in said if each not in _texts(agent.messages)][:8]
    for asked in gone:
        agent(f"What was it about: {asked}?")
        *history, question = model.requests[-1].messages
        assert any(len(message["content"]) > 1 for message in history)
        quoted = html.unescape(_texts([question]))
        assert not [
            each
            for each in said
            if each.strip() in quoted and each in _texts(history) and each not in gone
        ]
        quotes += quoted.partition("<recalled_history>")[2]
    assert any(each.strip() in quotes for each in said)


def _texts(messages: list[Any]) -> str:
    return "".join(block["text"] for message in messages for block in message["content"])


def test_an_agent_may_be_given_the_history_of_another_one(agent: Agent) -> None:
    heir = trimming_agent(messages=list(agent.messages))
    assert heir.messages == agent.messages
    talk(heir, 10)
    assert problems(for_model(heir.messages)) == []
    assert heir.messages[0] == agent.messages[0]
