"""A full history of which every other message was left out: half the messages, the same texts, and the same after a restart."""

from __future__ import annotations

import html
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from strands import Agent
from strands.session import FileSessionManager

from strands_manga_memory.conversation import HistoryRecall, ImportanceWeightedConversationManager, as_said
from strands_manga_memory.conversation.history.stubs import is_stub
from strands_manga_memory.joining import is_joined, joined
from strands_manga_memory.messages import problems
from strands_manga_memory.session import TieredSessionManager
from strands_manga_memory.stores import InMemoryHotStore, SQLiteTable
from strands_manga_memory.testing import ScriptedModel
from tests.benchmarks import begin_anew, text

_BUDGET, _TURNS = 1_500, 60


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
        model=model, agent_id="a", session_manager=session, conversation_manager=manager, callback_handler=None, **settings
    )


@pytest.fixture
def agent() -> Agent:
    begin_anew()
    agent = made()
    agent.said = talk(agent)  # type: ignore[attr-defined]
    return agent


def test_what_one_speaker_said_in_a_row_is_one_message_of_several_texts(agent: Agent) -> None:
    said = [message for message in as_said(agent.messages) if not is_stub(message)]
    assert sum(map(is_joined, agent.messages)) > 2
    assert len(agent.messages) < len(said), "less messages than texts"
    assert problems(agent.messages) == []
    everything: list[str] = agent.said  # type: ignore[attr-defined]
    at = [everything.index(message["content"][0]["text"]) for message in said]
    assert at == sorted(set(at)), "each once, in the order of speech"
    assert len({message["tracking_id"] for message in said}) == len(said)


def test_each_request_begins_with_the_one_before_between_two_steps(agent: Agent) -> None:
    model: Any = agent.model
    requests = [[(m["role"], m["content"]) for m in request.messages] for request in model.requests[-30:]]
    whole = [now[: len(then)] == then for then, now in itertools.pairwise(requests)]
    assert sum(whole) >= len(whole) * 0.75
    assert all(problems(request.messages) == [] for request in model.requests)


def test_explain_tells_of_each_message_under_its_own_id(agent: Agent) -> None:
    manager: Any = agent.conversation_manager
    fates = {fate.tracking_id: fate.fate for fate in manager.explain(agent)}
    said = [message for message in as_said(agent.messages) if not is_stub(message)]
    assert {fates[message["tracking_id"]] for message in said} == {"kept"}
    assert len(fates) == len(agent.said)  # type: ignore[attr-defined]


def test_recall_quotes_nothing_that_is_part_of_a_joined_message() -> None:
    begin_anew()
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
        assert not [each for each in said if each.strip() in quoted and each in _texts(history) and each not in gone]
        quotes += quoted.partition("<recalled_history>")[2]
    assert any(each.strip() in quotes for each in said)


def _texts(messages: list[Any]) -> str:
    return "".join(block["text"] for message in messages for block in message["content"])


def in_files(folder: Path) -> Callable[[], Any]:
    return lambda: FileSessionManager("s", storage_dir=str(folder))


def in_tiers(folder: Path) -> Callable[[], Any]:
    hot, durable = InMemoryHotStore(), SQLiteTable(folder / "sessions.sqlite3")
    durable.create_if_missing()
    return lambda: TieredSessionManager("s", hot=hot, durable=durable)


@pytest.mark.parametrize("kept", [in_files, in_tiers])
def test_a_restored_history_is_the_live_one_turn_after_turn(kept: Callable[[Path], Callable[[], Any]], tmp_path: Path) -> None:
    begin_anew()
    session = kept(tmp_path)
    live = made(session())
    said = talk(live, 40)
    for _ in range(25):
        assert any(map(is_joined, live.messages))
        close = getattr(live._session_manager, "close", None)
        if close is not None:
            close()
        restored = made(session())
        assert restored.messages == live.messages
        live = restored
        said += talk(live, 1)
    texts = [m["content"][0]["text"] for m in as_said(live.messages) if not is_stub(m)]
    assert [each for each in said if each in texts] == texts
    bodies = [one for one in as_said(live.messages) if not is_stub(one)]
    assert all("tracking_id" in one for one in bodies)


def test_what_was_joined_and_pinned_stays() -> None:
    begin_anew()
    agent = made()
    talk(agent)
    at = next(at for at, message in enumerate(agent.messages) if is_joined(message))
    pinned = agent.messages[at] = {**agent.messages[at]}
    pinned["metadata"] = {**pinned["metadata"], "custom": {"pinned": True}}
    parts = as_said([pinned])
    talk(agent, 30)
    texts = str(agent.messages)
    assert all(part["content"][0]["text"] in texts for part in parts if not is_stub(part))
    kept = [one for one in as_said(agent.messages) if (one.get("metadata") or {}).get("custom")]
    assert [one["content"] for one in kept] == [part["content"] for part in parts if not is_stub(part)]


def test_an_agent_may_be_given_the_history_of_another_one(agent: Agent) -> None:
    heir = made(messages=list(agent.messages))
    assert heir.messages == agent.messages
    talk(heir, 10)
    assert problems(heir.messages) == []
    assert joined(as_said(heir.messages)[:1]) == heir.messages[0]
