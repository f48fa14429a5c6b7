"""Two processes summarize one session: facts survive; summaries, runs and deletions are kept."""

import json
import random
import threading
import time
from typing import Any

import pytest
from strands import Agent

from strands_manga_memory.conversation import (
    SummaryCache,
    SummarySchedule,
    SummaryTrigger,
    VerifiedSummarizingConversationManager,
)
from strands_manga_memory.conversation.summary_record import record_of
from strands_manga_memory.language import Prompt
from strands_manga_memory.stores import open_hot_store
from strands_manga_memory.testing import ScriptedModel
from tests.faults import talk
from tests.faults.forks import WITHIN, Child, forked_child
from tests.faults.talk import Stores

TURNS = 24
PROSE = "The user told the shop about several friends."


def summarizing(
    stores: Stores,
    session: str,
    summarizer: Any = lambda _: PROSE,
    *,
    patience: float = 0.0,  # what a killed process began is begun again at once
    cache: SummaryCache | None = None,
    **settings: Any,
) -> tuple[Agent, Any]:
    """Return an agent that summarizes after six turns, and its session manager."""
    sessions = stores.manager(session, hot_deadline=5.0, durable_deadline=10.0, **settings)
    agent = Agent(
        agent_id="librarian",
        model=ScriptedModel(lambda _: "I have noted that, it is in stock. " * 4),
        conversation_manager=VerifiedSummarizingConversationManager(
            SummaryTrigger(turns=6),
            model=summarizer,
            log=sessions.history,
            schedule=SummarySchedule(wait_seconds=patience),
            cache=cache,
        ),
        session_manager=sessions,
    )
    return agent, sessions


def for_request(stores: Stores, session: str, summarizer: Any, **settings: Any) -> Agent:
    """Build an agent for one request."""
    cache = SummaryCache(open_hot_store(stores.hot or "memory://"))
    return summarizing(stores, session, summarizer, cache=cache, **settings)[0]


def fact(name: str, number: int) -> str:
    return f"Friend{name}{number}x"


def say(agent: Agent, name: str, number: int) -> None:
    agent(f"The book number {number} is for my friend {fact(name, number)}.")
    agent.conversation_manager.finish(agent)


def shown(agent: Agent) -> str:
    return json.dumps(agent.messages, ensure_ascii=False)


def records(agent: Agent) -> list[Any]:
    return [record for message in agent.messages if (record := record_of(message))]


def assert_covered(agent: Agent, sessions: Any) -> None:
    """There is one summary, which covers all messages that left the window."""
    (record,) = records(agent)
    logged = [message["tracking_id"] for message in sessions.history()]
    first, last = logged.index(record.segments[0].first), logged.index(record.segments[-1].last)
    window = {message["tracking_id"] for message in agent.messages}
    gone = [at for at, id_ in enumerate(logged) if id_ not in window]
    assert gone
    assert set(gone) <= set(range(first, last + 1))
    assert len(gone) // 2 <= record.last_turn <= (last + 1 - first) // 2


@pytest.mark.parametrize("backend", ["services", pytest.param("sqlite", marks=pytest.mark.long)])
def test_two_processes_summarize(backend: str, unique: str, request: pytest.FixtureRequest) -> None:
    stores: Stores = request.getfixturevalue(backend)

    def work(name: str, parent: Child) -> None:
        agent, sessions = summarizing(stores, unique, refresh="turn")
        parent.say(ready=True)
        parent.hear("go")
        for number in range(TURNS):
            say(agent, name, number)
        sessions.close()
        parent.say(swapped=agent.conversation_manager.stats().swapped)

    children = [forked_child(lambda parent, name=name: work(name, parent)) for name in "AB"]
    for child in children:
        child.hear("ready")
    for child in children:
        child.say(go=True)
    assert min([child.hear("swapped")["swapped"] for child in children]) > 0
    for child in children:
        child.end()

    agent, sessions = summarizing(stores, unique)
    said = [fact(name, number) for name in "AB" for number in range(TURNS)]
    log = json.dumps(list(sessions.history()), ensure_ascii=False)
    assert {value: log.count(f"{value}.") for value in said} == dict.fromkeys(said, 1)
    assert [value for value in said if value not in shown(agent)] == []
    assert_covered(agent, sessions)
    assert talk.problems(agent.messages) == []
    assert len(agent.messages) < 2 * len(said)
    for number in range(7):
        say(agent, "C", number)
    assert_covered(agent, sessions)
    assert [value for value in said if value not in shown(agent)] == []
    assert talk.problems(agent.messages) == []
    sessions.close()


def test_a_process_killed_while_it_summarizes_loses_nothing_it_acknowledged(
    services: Stores, unique: str
) -> None:
    rng, said, rounds, has_summary = random.Random(5), 0, 0, False

    def work(parent: Child, begin: int) -> None:
        def slow(_: Prompt) -> str:
            parent.say(asked=True)
            parent.hear("write")
            return PROSE

        agent, _ = summarizing(services, unique, slow)
        for number in range(begin, begin + 100):
            agent(f"The book number {number} is for my friend {fact('K', number)}.")
            parent.say(done=number + 1)

    while rounds < 6 or not has_summary:
        rounds += 1
        child, asked = forked_child(lambda parent, begin=said: work(parent, begin)), 0
        last = said + rng.randrange(6, 14)
        while said < last:
            heard = child.hear()
            said, asked = heard.get("done", said), asked + ("asked" in heard)
            if "asked" in heard and rng.random() < 0.7:
                child.say(write=True)
        said = max([said, *(line["done"] for line in child.kill() if "done" in line)])
        agent, sessions = summarizing(services, unique)
        assert [number for number in range(said) if fact("K", number) not in shown(agent)] == []
        assert talk.problems(agent.messages) == []
        assert len(records(agent)) <= 1
        has_summary = bool(records(agent))
        said = len([message for message in sessions.history() if message["role"] == "user"])
        sessions.close()


def test_a_session_another_process_deletes_stays_deleted_when_the_summary_is_ready(
    services: Stores, unique: str
) -> None:
    def work(parent: Child) -> None:
        asked, deleted = threading.Event(), threading.Event()

        def held(_: Prompt) -> str:
            asked.set()
            assert deleted.wait(WITHIN)
            return PROSE

        agent, sessions = summarizing(services, unique, held)
        for number in range(6):
            agent(f"The book number {number} is for my friend {fact('D', number)}.")
        assert asked.wait(WITHIN)
        parent.say(asked=True)
        parent.hear("deleted")
        deleted.set()
        agent.conversation_manager.finish(
            agent
        )  # the summary is swapped into the history in memory
        agent("Something else.")
        agent("And one more thing.")
        sessions.close()
        parent.say(view=shown(agent))

    child = forked_child(work)
    child.hear("asked")
    other = services.manager(unique)
    other.delete_session()
    other.close()
    child.say(deleted=True)
    view = child.hear("view")["view"]
    child.end()
    assert "Friend" not in view
    agent, sessions = summarizing(services, unique)
    assert "Friend" not in shown(agent)
    assert "Friend" not in json.dumps(list(sessions.history()))
    assert records(agent) == []
    sessions.close()


# Runs that another process continues


def say_order(agent: Agent, number: int) -> None:
    agent(f"The book number {number} is for my friend Friend{number}x, order {agent.session_id}.")


def test_run_that_a_process_finished_is_used_by_another(services: Stores, unique: str) -> None:
    """The drafts are found although more turns are old enough by then."""

    asked: list[Prompt] = []

    def summarize(prompt: Prompt) -> str:
        asked.append(prompt)
        return PROSE

    def work(parent: Child) -> None:
        for number in range(6):
            agent = for_request(services, unique, summarize)
            say_order(agent, number)
        agent.conversation_manager.finish(
            agent
        )  # what follows the answer of the last turn is not saved
        parent.say(asked=len(asked))

    child = forked_child(work)
    assert child.hear("asked")["asked"] > 0
    child.end()
    for number in range(6, 9):
        agent = for_request(services, unique, summarize)
        say_order(agent, number)
        time.sleep(0.2)
        if PROSE in json.dumps(agent.messages):
            break
    assert PROSE in json.dumps(agent.messages)
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
            return PROSE

        for number in range(6):
            say_order(for_request(services, unique, summarize), number)
        parent.hear("never")

    child = forked_child(work)
    assert child.hear("asked")
    asked: list[Prompt] = []

    def summarize(prompt: Prompt) -> str:
        asked.append(prompt)
        return PROSE

    for number in range(6, 10):
        say_order(for_request(services, unique, summarize, patience=60.0), number)
    time.sleep(0.2)
    assert asked == []
    child.kill()
    for number in range(10, 13):
        agent = for_request(services, unique, summarize)
        say_order(agent, number)
        time.sleep(0.2)
    assert asked
    assert PROSE in json.dumps(agent.messages)
