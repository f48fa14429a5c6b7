"""``MangaMemory.close()`` and the saved conversations of agents that no longer exist."""

import gc
import time
from collections.abc import Callable
from typing import Any
from unittest.mock import Mock

import pytest
from strands import Agent

from strands_manga_memory import ConflictError, MangaMemory
from strands_manga_memory.exceptions import StoreUnavailableError
from strands_manga_memory.session.conversation_saver import ConversationSaver
from strands_manga_memory.stores import RedisHotStore, SQLiteTable
from strands_manga_memory.testing import ScriptedModel
from tests import clocks
from tests.faults.forks import Child, forked_child
from tests.unit.session.support import Stores, open_stores, texts

pytestmark = pytest.mark.xdist_group("services")


@pytest.fixture
def both(request: pytest.FixtureRequest) -> Stores:
    found = open_stores("valkey+sqlite", request)
    found.lose_hot()  # sessions of other tests
    return found


def opened(stores: Stores) -> MangaMemory:
    return MangaMemory.open(stores.hot or "memory://", stores.durable, memories=False)


def agent_of(memory: MangaMemory, session: str = "s") -> Agent:
    return memory.agent(ScriptedModel(), user_id="u", session_id=session)


def asked(memory: MangaMemory, session: str = "s") -> list[str]:
    """Return the questions in the history of a new agent."""
    messages = agent_of(memory, session).messages
    return [text for message in messages if message["role"] == "user" for text in texts([message])]


def talk(memory: MangaMemory, *sessions: str) -> None:
    """Ask three questions in each session, each with an agent of its own."""
    for number in range(3):
        for session in sessions:
            agent_of(memory, session)(f"{session} {number}")
    gc.collect()
    assert not memory.stats()["sessions"]


def asked_after_loss(stores: Stores, session: str = "s") -> list[str]:
    """Let the hot tier lose everything. Return the questions that are left."""
    stores.lose_hot()
    with opened(stores.elsewhere()) as memory:
        return asked(memory, session)


def test_sessions_of_agents_that_no_longer_exist_are_flushed(both: Stores) -> None:
    with opened(both) as memory:
        talk(memory, "one", "other")
    for session in ("one", "other"):
        assert asked_after_loss(both, session) == [f"{session} {number}" for number in range(3)]


def test_close_does_not_fail_if_the_sessions_cannot_be_flushed(
    both: Stores, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The hot tier fails after the turns were saved there; a later close flushes them."""
    memory = opened(both)
    talk(memory, "s")
    with monkeypatch.context() as failing:
        failing.setattr(RedisHotStore, "load", Mock(side_effect=StoreUnavailableError("no answer")))
        memory.close()
    assert "sessions=<1> | not flushed yet, a sweeper flushes them" in caplog.text

    memory.close()
    assert asked_after_loss(both) == ["s 0", "s 1", "s 2"]


def test_sessions_are_flushed_although_the_session_of_a_living_agent_cannot_be(
    both: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = opened(both)
    talk(memory, "s")
    live = agent_of(memory, "live")
    live("question")
    with monkeypatch.context() as failing:
        failing.setattr(
            ConversationSaver,
            "commit_all",
            Mock(side_effect=ConflictError("someone else saved it")),
        )
        with pytest.raises(ConflictError):
            memory.close()
    assert asked_after_loss(both) == ["s 0", "s 1", "s 2"]


def test_close_while_the_table_hangs_ends_in_time_and_begins_no_flush_later(
    both: Stores, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = opened(both)
    talk(memory, *(f"secret{number}" for number in range(20)))
    monkeypatch.setattr("strands_manga_memory.session.conversation_saver._FLUSH_SECONDS", 0.5)
    calls: list[object] = []

    def hang(*arguments: Any, **__: Any) -> None:
        calls.append(arguments)
        time.sleep(0.7)
        raise StoreUnavailableError("no answer")

    with monkeypatch.context() as hanging, caplog.at_level("INFO"):
        for method in ("get", "put", "query"):
            hanging.setattr(SQLiteTable, method, hang)
        with clocks.Idle() as idle:
            memory.close()
        assert idle.seconds < 1.0
        assert "sessions=<20> | not flushed yet" in caplog.text
        assert "secret" not in caplog.text
        time.sleep(0.1)
        begun = len(calls)
        time.sleep(1.0)
        assert len(calls) == begun


def delete(memory: MangaMemory, stores: Stores) -> None:
    memory.delete_session("u", "s")


def erase(memory: MangaMemory, stores: Stores) -> None:
    assert memory.forget_user("u").counts["sessions"]


def expire(memory: MangaMemory, stores: Stores) -> None:
    [conversation] = agent_of(memory)._session_manager._conversations.values()
    assert conversation.storage.expire(unused_since=time.time() + 1.0)


@pytest.mark.parametrize(
    ("end", "reaches_hot"),
    [(delete, True), (delete, False), (erase, True), (erase, False), (expire, True)],
)
def test_an_ended_session_is_not_stored_again(
    both: Stores, end: Callable[..., None], *, reaches_hot: bool
) -> None:
    """Another process ends the session, with both tiers or while it does not reach the hot tier."""
    memory = opened(both)
    talk(memory, "s")
    there = both.elsewhere() if reaches_hot else both.elsewhere().only_durable()
    with opened(there) as other:
        end(other, there)
    memory.close()
    memory.close()
    assert asked_after_loss(both) == []


def test_a_redaction_by_another_process_stays(both: Stores) -> None:
    """The other process does not reach the hot tier, which keeps the original until a flush."""
    memory = opened(both)
    talk(memory, "s")
    memory.close()
    agent_of(memory)("the secret")
    gc.collect()
    with opened(both.elsewhere()) as other:
        live = agent_of(other)
        message = next(message for message in live.messages if texts([message]) == ["the secret"])
        live._session_manager.redact_latest_message(
            {**message, "content": [{"text": "[redacted]"}]}, live
        )
    memory.close()
    assert asked_after_loss(both) == ["s 0", "s 1", "s 2", "[redacted]"]


def test_a_forked_child_leaves_the_sessions_of_its_parent_to_it(both: Stores) -> None:
    memory = opened(both)
    talk(memory, "s")

    def work(parent: Child) -> None:
        memory.close()
        parent.say(closed=True)

    child = forked_child(work)
    assert child.hear("closed")
    child.end()
    with opened(both.elsewhere().only_durable()) as other:
        assert asked(other) == ["s 0"]  # the first turn of a session is stored in both tiers
    memory.close()
    assert asked_after_loss(both) == ["s 0", "s 1", "s 2"]
