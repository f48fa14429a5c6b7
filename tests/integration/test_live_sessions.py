"""Sessions of the smaller protocol, through a real agent: restores, two writers, states, redaction, deletion, cut turns."""

from __future__ import annotations

from typing import Any

import pytest
from strands import Agent
from strands.hooks import MessageAddedEvent

from strands_manga_memory import TieredSessionManager
from strands_manga_memory.testing import FakeClock, ScriptedModel
from tests.unit.session import support
from tests.unit.session.support import KINDS, MemoryTable, Stores, find, open_stores, same, texts, tool_use, user


@pytest.fixture(params=KINDS)
def stores(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Stores:
    """Each shape of tiers, with managers of the smaller protocol."""
    monkeypatch.setattr(support, "TieredSessionManager", TieredSessionManager)
    return open_stores(request.param, request)


def check(stores: Stores, live: Agent) -> None:
    """Check that a new process restores the same history and state, also from the durable tier alone after a flush."""
    restored = stores.agent()
    assert same(restored.messages, live.messages)
    assert restored.state.get() == live.state.get()
    if stores.hot is not None and stores.durable is not None:
        live._session_manager.flush()
        assert same(stores.only_durable().agent().messages, live.messages)


def test_every_turn_is_restored_exactly(stores: Stores) -> None:
    live = stores.agent()
    for number in range(12):
        live.state.set("count", number)
        live(f"question {number}")
        check(stores, live)
    assert live._session_manager.stats()["turns"] == 12
    assert live._session_manager.stats()["unsaved_messages"] == 0


def test_edited_history_is_restored_and_the_log_keeps_the_originals(stores: Stores) -> None:
    live = stores.agent()
    for number in range(4):
        live(f"question {number}")
    live.messages[0]["content"][0]["text"] = "shortened"
    del live.messages[2:4]
    live("and now")
    check(stores, live)
    log = texts(live._session_manager.history())
    assert log == ["question 0", "ok", "question 1", "ok", "question 2", "ok", "question 3", "ok", "and now", "ok"]


def test_turns_of_two_agents_are_all_kept_and_their_states_are_merged_by_key(stores: Stores) -> None:
    one, other = stores.agent(), stores.agent()
    one.state.set("a", 1)
    one("from one")
    other.state.set("b", 2)
    other("from the other")
    restored = stores.agent()
    assert {"from one", "from the other"} <= set(texts(restored.messages))
    assert restored.state.get() == {"a": 1, "b": 2}
    one("again")
    assert "from the other" in texts(one.messages) or "from the other" in texts(stores.agent().messages)


def test_redacted_message_is_replaced_in_history_and_log(stores: Stores) -> None:
    live = stores.agent()
    live("my secret")
    live("more")
    replaced = {**live.messages[0], "content": [{"text": "[redacted]"}]}
    live.messages[0]["content"] = replaced["content"]
    live._session_manager.redact_latest_message(replaced, live)
    check(stores, live)
    live._session_manager.flush()
    assert texts(stores.manager().history()) == ["[redacted]", "ok", "more", "ok"]
    assert texts(stores.agent().messages)[0] == "[redacted]"


def test_deleted_session_does_not_come_back_with_the_next_turn_of_a_live_agent(stores: Stores) -> None:
    live = stores.agent()
    live("before")
    stores.manager().delete_session()
    assert stores.agent().messages == []
    live("after the deletion")
    live("and on")
    assert "before" not in texts(stores.agent().messages)


def test_turn_that_a_crash_cut_is_restored_without_a_synthesized_message(stores: Stores) -> None:
    seen: list[list[str]] = []

    def look(event: MessageAddedEvent) -> None:
        live._session_manager._members.conversations["A", "default"].saver.request_flush().result()
        seen.append(texts(stores.agent().messages))

    live = stores.agent(ScriptedModel([[tool_use("t", "find", title="x")], "done"]), tools=[find])
    live.hooks.add_callback(MessageAddedEvent, look, order=1000)
    live("start")
    assert seen[0] == ["start"]
    assert seen[-1] == ["start", "toolUse", "toolResult", "done"]
    assert texts(stores.manager().history()) == ["start", "toolUse", "toolResult", "done"]


def test_seed_messages_and_metadata_are_kept(stores: Stores) -> None:
    live = stores.agent(messages=[user("seed")])
    live("hello")
    live._session_manager.set_metadata(locale="ja")
    assert stores.manager().metadata()["locale"] == "ja"
    check(stores, live)


def test_log_has_the_order_of_acceptance_when_two_agents_take_turns(stores: Stores) -> None:
    one, other = stores.elsewhere().agent(), stores.elsewhere().agent()
    for number in range(7):
        one(f"one {number}")
        other(f"other {number}")
    one._session_manager.flush()
    expected = [text for number in range(7) for text in (f"one {number}", "ok", f"other {number}", "ok")]
    assert texts(stores.manager().history()) == expected
    assert texts(stores.agent().messages) == expected


def test_half_a_character_is_kept_in_every_tier(stores: Stores) -> None:
    live = stores.agent()
    live("\ud83d")
    check(stores, live)


def test_closing_a_deleted_conversation_stores_nothing(stores: Stores) -> None:
    live = stores.agent()
    live("before")
    stores.manager().delete_session()
    live._session_manager.close()
    assert not stores.manager().exists()


def test_model_that_keeps_the_conversation_has_no_history_and_a_whole_log(stores: Stores) -> None:
    live = stores.agent(ScriptedModel(stateful=True))
    for number in range(7):
        live(f"question {number}")
    live._session_manager.flush()
    restored = stores.agent(ScriptedModel(stateful=True))
    assert restored.messages == []
    assert len(list(restored._session_manager.history())) == 14


def test_live_agent_begins_anew_after_the_stores_have_let_the_session_go() -> None:
    """The turn that it is told after a day of silence is kept; the history of the ended session is not stored again."""
    clock = FakeClock()
    durable: Any = MemoryTable()
    live = Agent(
        model=ScriptedModel(),
        session_manager=TieredSessionManager("s", durable=durable, clock=clock),
        callback_handler=None,
    )
    live("one")
    live._session_manager.flush()
    clock.advance(200_000)
    durable.rows.clear()
    live("two")
    live._session_manager.flush()
    assert texts(live.messages) == texts(TieredSessionManager("s", durable=durable, clock=clock).history()) == ["two", "ok"]
