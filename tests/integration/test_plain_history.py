"""A trimmed history has the original messages; only requests have a provider's form."""

import html
import itertools
from typing import Any

import pytest
from strands import Agent

from strands_manga_memory.conversation import HistoryRecall, ImportanceWeightedConversationManager
from strands_manga_memory.messages import for_model
from strands_manga_memory.session import TieredSessionManager
from strands_manga_memory.testing import ScriptedModel
from tests.benchmarks import reset_texts, text
from tests.histories import problems

_BUDGET, _TURNS = 1_500, 40


def talk(agent: Agent, turns: int = _TURNS) -> list[str]:
    """Let an agent say and hear something new in each turn; return all that was said."""
    said: list[str] = []
    for _ in range(turns):
        prompt = text(160)
        said += [prompt, agent(prompt).message["content"][0]["text"]]
    return said


def made(session: Any = None, **settings: Any) -> Agent:
    manager = ImportanceWeightedConversationManager(_BUDGET, trim_every=6)
    manager.persist_layout = not isinstance(session, TieredSessionManager)
    model = ScriptedModel(lambda _: text(160))
    return Agent(
        model=model, agent_id="a", session_manager=session, conversation_manager=manager, **settings
    )


@pytest.fixture
def agent() -> Agent:
    reset_texts()
    agent = made()
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
    agent = made(plugins=[HistoryRecall(400)])
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
    heir = made(messages=list(agent.messages))
    assert heir.messages == agent.messages
    talk(heir, 10)
    assert problems(for_model(heir.messages)) == []
    assert heir.messages[0] == agent.messages[0]
