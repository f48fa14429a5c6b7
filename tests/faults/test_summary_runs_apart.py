"""Another process continues a summary run, which it finds through the session."""

import json
import time
from typing import Any

from strands import Agent

from strands_manga_memory.conversation import (
    SummaryCache,
    SummarySchedule,
    SummaryTrigger,
    VerifiedSummarizingConversationManager,
)
from strands_manga_memory.language import Prompt
from strands_manga_memory.stores import open_hot_store
from strands_manga_memory.testing import ScriptedModel
from tests.faults.forks import Child, forked_child
from tests.faults.talk import Stores

_PROSE = "The user told the shop about several friends."


def _agent(stores: Stores, session: str, summarizer: Any, *, patience: float = 0.0) -> Any:
    """Build an agent for one request; it waits so many seconds for a run of another process."""
    sessions = stores.manager(session, hot_deadline=5.0, durable_deadline=10.0)
    return Agent(
        agent_id="librarian",
        model=ScriptedModel(lambda _: "I have noted that, it is in stock. " * 4),
        conversation_manager=VerifiedSummarizingConversationManager(
            SummaryTrigger(turns=6),
            model=summarizer,
            log=sessions.history,
            schedule=SummarySchedule(wait_seconds=patience),
            cache=SummaryCache(open_hot_store(stores.hot or "memory://")),
        ),
        session_manager=sessions,
    )


def _say(agent: Agent, number: int) -> None:
    agent(f"The book number {number} is for my friend Friend{number}x, order {agent.session_id}.")


def test_run_that_a_process_finished_is_used_by_another(services: Stores, unique: str) -> None:
    """The drafts are found although more turns are old enough by then."""

    asked: list[Prompt] = []

    def summarize(prompt: Prompt) -> str:
        asked.append(prompt)
        return _PROSE

    def work(parent: Child) -> None:
        for number in range(6):
            agent = _agent(services, unique, summarize)
            _say(agent, number)
        agent.conversation_manager.finish(
            agent
        )  # what follows the answer of the last turn is not saved
        parent.say(asked=len(asked))

    child = forked_child(work)
    assert child.hear("asked")["asked"] > 0
    child.end()
    for number in range(6, 9):
        agent = _agent(services, unique, summarize)
        _say(agent, number)
        time.sleep(0.2)
        if _PROSE in json.dumps(agent.messages):
            break
    assert _PROSE in json.dumps(agent.messages)
    assert [
        number
        for number in range(number + 1)
        if f"Friend{number}x" not in json.dumps(agent.messages)
    ] == []
    assert asked == []


def test_run_of_a_process_is_not_begun_by_another(services: Stores, unique: str) -> None:
    """The second process continues if the first has died."""

    def work(parent: Child) -> None:
        def summarize(_: Prompt) -> str:
            parent.say(asked=True)
            parent.hear("never")
            return _PROSE

        for number in range(6):
            _say(_agent(services, unique, summarize), number)
        parent.hear("never")

    child = forked_child(work)
    assert child.hear("asked")
    asked: list[Prompt] = []

    def summarize(prompt: Prompt) -> str:
        asked.append(prompt)
        return _PROSE

    for number in range(6, 10):
        _say(_agent(services, unique, summarize, patience=60.0), number)
    time.sleep(0.2)
    assert asked == []
    child.kill()
    for number in range(10, 13):
        agent = _agent(services, unique, summarize)
        _say(agent, number)
        time.sleep(0.2)
    assert asked
    assert _PROSE in json.dumps(agent.messages)
