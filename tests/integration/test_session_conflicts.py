"""Several workers on one session: each message once, turns whole, or ``ConflictError``."""

import threading
import time
from collections import Counter
from contextlib import nullcontext
from typing import Any

import pytest
from strands import Agent, ToolContext, tool
from strands.agent.conversation_manager import (
    NullConversationManager,
    SlidingWindowConversationManager,
)
from strands.hooks import BeforeInvocationEvent, BeforeModelCallEvent

from strands_manga_memory import ConflictError, InMemoryHotStore, TieredSessionManager
from strands_manga_memory.testing import FakeClock, ScriptedModel
from tests.faulty_stores import FaultyHotStore
from tests.histories import problems
from tests.support import WatchedStore
from tests.unit.session.support import (
    Stores,
    agent,
    find,
    interrupt_answers,
    one_tool_turn,
    quiet,
    same,
    texts,
    tool_use,
)


def device(stores: Stores, **named: Any) -> Agent:
    return stores.elsewhere().agent(conversation_manager=NullConversationManager(), **named)


def test_a_turn_under_a_lease_is_complete_although_the_hot_tier_fails_at_the_end() -> None:
    """The lease then ends by itself, and an error in the block is not replaced by another."""
    clock = FakeClock()
    hot = FaultyHotStore(InMemoryHotStore(clock=clock))
    manager = TieredSessionManager("s", hot=hot, clock=clock)
    live = agent(manager)
    for error in (None, KeyError("of the block")):
        with pytest.raises(KeyError) if error else nullcontext(), manager.lease(ttl=60.0):
            assert str(live("hello")) == "ok\n"
            hot.down = True
            if error:
                raise error
        hot.down = False
        with pytest.raises(ConflictError), manager.lease():
            pass
        clock.advance(61.0)
    with manager.lease():
        pass


@pytest.mark.parametrize("ttl", [0, -1.0, float("nan"), float("inf")])
def test_a_lease_without_a_finite_time_is_refused(ttl: float) -> None:
    manager = TieredSessionManager("s", hot=InMemoryHotStore())
    with pytest.raises(ValueError, match="ttl must be a"), manager.lease(ttl=ttl):
        pass


def test_a_turn_that_began_before_another_ended(both: Stores) -> None:
    """The other turn comes in the middle of ours, which was saved in part."""
    inside: list[Agent] = []

    one = device(both, model=one_tool_turn(), tools=[find], flush_every=1)

    def meanwhile(event: BeforeModelCallEvent) -> None:
        if len(inside) == 0:
            other = device(both, flush_every=1)
            inside.append(other)
            other("meanwhile")
            other._session_manager.flush()

    one.hooks.add_callback(BeforeModelCallEvent, meanwhile)
    one("search")
    one._session_manager.flush()
    quiet(one)
    log = texts(both.manager().history())
    assert log in (
        ["search", "toolUse", "toolResult", "done", "meanwhile", "ok"],
        ["meanwhile", "ok", "search", "toolUse", "toolResult", "done"],
    )
    cold = both.only_durable().agent(conversation_manager=NullConversationManager())
    assert same(cold.messages, both.agent(conversation_manager=NullConversationManager()).messages)
    assert problems(cold.messages) == []
    one("next")
    assert problems(one.messages) == []
    inside[0]("next too")
    assert problems(inside[0].messages) == []
    inside[0]._session_manager.flush()
    assert Counter(texts(both.manager().history())) == Counter(
        [*log, "next", "toolUse", "toolResult", "done", "next too", "ok"]
    )


def test_segments_do_not_span_the_numbers_of_an_open_turn(both: Stores) -> None:
    """A turn is saved in part, another is flushed, and the first continues."""
    one = device(both, flush_every=100)
    one("hello")
    one._session_manager.flush()
    stop: list[bool] = []

    def flush_the_others(event: BeforeModelCallEvent) -> None:
        if not stop:
            stop.append(True)
            other = device(both)
            other("in between")
            other._session_manager.close()

    one.hooks.add_callback(BeforeModelCallEvent, flush_the_others)
    one("long turn")
    one._session_manager.close()
    both.lose_hot()
    cold = both.agent(conversation_manager=NullConversationManager())
    assert sorted(texts(cold.messages)) == sorted(
        ["hello", "ok", "in between", "ok", "long turn", "ok"]
    )
    assert sorted(texts(both.manager().history())) == sorted(
        ["hello", "ok", "in between", "ok", "long turn", "ok"]
    )


# What is merged, and how


def test_states_are_merged_by_top_level_key(stores: Stores) -> None:
    one = device(stores, state={"shared": 0, "list": [1]})
    one("hello")
    other = device(stores)
    one.state.set("mine", 1)
    one.state.set("shared", 1)
    one("one")
    other.state.set("theirs", 2)
    other.state.set("shared", 2)
    other.state.delete("list")
    other("other")
    other("again")
    assert other.state.get() == {"shared": 2, "mine": 1, "theirs": 2}
    assert stores.agent().state.get() == {"shared": 2, "mine": 1, "theirs": 2}
    one("and one")
    one("more")
    assert one.state.get() == {"shared": 2, "mine": 1, "theirs": 2}


def test_state_set_between_turns_after_a_merge_is_kept(both: Stores) -> None:
    one, other = device(both), device(both)
    one("one")
    other("other")  # merged: the agent takes it over at its next turn
    other.state.set("between", True)
    other("again")
    assert other.state.get() == {"between": True}
    assert both.agent().state.get() == {"between": True}


def test_changes_between_turns_are_kept_when_a_refresh_finds_another_turn(stores: Stores) -> None:
    one, other = device(stores, refresh="turn"), device(stores)
    one.state.set("removed", 1)
    one("one")
    other("other")
    one.state.set("between", 1)
    one.state.delete("removed")
    one.messages[0]["content"] = [{"text": "edited"}]
    one("again")
    assert one.state.get() == {"between": 1}
    assert texts(one.messages) == ["edited", "ok", "other", "ok", "again", "ok"]
    assert stores.agent().state.get() == {"between": 1}


def test_a_message_that_another_agent_inserted_is_kept(stores: Stores) -> None:
    """Messages without a turn, such as summaries, stand only in the history."""
    one = device(stores)
    one("one")
    other = device(stores)
    one.messages[:0] = [
        {"role": "user", "content": [{"text": "What did we say?"}]},
        {"role": "assistant", "content": [{"text": "a summary"}]},
    ]
    one("again")
    other("other")
    quiet(other)
    restored = stores.agent(conversation_manager=NullConversationManager())
    assert texts(restored.messages)[:3] == ["What did we say?", "a summary", "one"]
    assert texts(restored.messages)[-4:] == ["again", "ok", "other", "ok"]


def test_a_live_list_changes_only_before_an_invocation(both: Stores) -> None:
    one, other = device(both), device(both)
    one("one")
    other("other")
    quiet(other)
    assert texts(other.messages) == ["other", "ok"]
    before = other.messages
    other._session_manager.flush()
    assert other.messages is before
    assert texts(before) == ["other", "ok"]
    other("again")
    assert texts(other.messages) == ["one", "ok", "other", "ok", "again", "ok"]
    assert texts(other.model.requests[-1].messages) == ["one", "ok", "other", "ok", "again"]


def test_a_refresh_has_its_whole_deadline_however_long_ago_the_last_turn_was(
    both: Stores, caplog: pytest.LogCaptureFixture
) -> None:
    one = device(both, refresh="turn", hot_deadline=3.0, durable_deadline=3.0)
    other = device(both)
    one("one")
    quiet(one)
    other("other")
    quiet(other)
    time.sleep(3.05)
    one("what did I say")
    assert texts(one.model.requests[-1].messages) == ["one", "ok", "other", "ok", "what did I say"]
    assert "not saved" not in caplog.text


def test_log_has_the_turns_of_two_agents_in_the_order_in_which_they_began(stores: Stores) -> None:
    """Without ``refresh``, neither agent knows the other's last turn when it begins one."""
    one, other = device(stores), device(stores)
    for number in range(5):
        one(f"one {number}")
        other(f"other {number}")
    questions = texts(stores.manager().history())[::2]
    assert questions == [f"{who} {number}" for number in range(5) for who in ("one", "other")]


def test_evictions_of_the_one_who_saved_first_stand(stores: Stores) -> None:
    one = stores.elsewhere().agent(conversation_manager=SlidingWindowConversationManager(4))
    for number in range(3):
        one(f"one {number}")
    other = stores.elsewhere().agent(conversation_manager=SlidingWindowConversationManager(4))
    one("one 3")
    other("other 0")
    quiet(other)
    restored = stores.agent(conversation_manager=SlidingWindowConversationManager(4))
    assert texts(restored.messages) == ["one 2", "ok", "one 3", "ok", "other 0", "ok"]
    assert len(list(stores.manager().history())) == 10


def test_metadata_is_merged(both: Stores) -> None:
    one, other = both.elsewhere().manager(), both.elsewhere().manager()
    first, second = agent(one), agent(other)
    first("hello")
    second("hi")
    one.set_metadata(locale="ja")
    other.set_metadata(cart=["Akira 1"])
    one.set_metadata(tier="vip")
    metadata = both.manager().metadata()
    assert (metadata["locale"], metadata["cart"], metadata["tier"]) == ("ja", ["Akira 1"], "vip")


# What is not merged


@tool(context=True)
def pay(tool_context: ToolContext) -> str:
    """Pay, if a human agrees."""
    return f"paid: {tool_context.interrupt('approval', reason='it costs')}"


def test_an_active_interrupt_does_not_merge(stores: Stores) -> None:
    idle = device(stores)
    idle("hello")
    buyer = device(stores, model=ScriptedModel([[tool_use("p", "pay")]]), tools=[pay])
    result = buyer("buy")
    assert result.stop_reason == "interrupt"
    quiet(buyer)
    with pytest.raises(ConflictError, match="interrupt"):
        idle("something else")
    resumed = device(stores, model=ScriptedModel(["thanks"]), tools=[pay])
    assert resumed(interrupt_answers(result)).stop_reason == "end_turn"
    assert texts(stores.manager().history()) == [
        "hello", "ok", "buy", "toolUse", "toolResult", "thanks",
    ]  # fmt: skip


def test_an_interrupt_that_another_worker_has_answered_takes_no_second_answer(both: Stores) -> None:
    """The model is not called with a history that ends with the other worker's answer."""
    buyer = device(both, model=ScriptedModel([[tool_use("p", "pay")]]), tools=[pay], refresh="turn")
    result = buyer("buy")
    answer = [{"interruptResponse": {"interruptId": result.interrupts[0].id, "response": "yes"}}]
    device(both, model=ScriptedModel(["thanks"]), tools=[pay])(answer)
    with pytest.raises(ConflictError, match="the interrupt has ended"):
        buyer(answer)
    assert len(buyer.model.requests) == 1
    buyer("goodbye")
    said = ["buy", "toolUse", "toolResult", "thanks", "goodbye", "ok"]
    assert texts(buyer.messages) == said
    quiet(buyer)
    assert texts(both.manager().history()) == said


def test_workers_close_after_another_worker_has_answered_the_interrupt(stores: Stores) -> None:
    buyer = device(stores, model=ScriptedModel([[tool_use("p", "pay")]]), tools=[pay])
    result = buyer("buy")
    idle = device(stores, tools=[pay])
    for one in (buyer, idle):
        one.state.set("page", 2)
    resumed = device(stores, model=ScriptedModel(["thanks"]), tools=[pay])
    resumed(interrupt_answers(result))
    for one in (buyer, idle, resumed):
        one._session_manager.close()
    assert texts(stores.manager().history()) == ["buy", "toolUse", "toolResult", "thanks"]
    restored = device(stores, tools=[pay])
    assert texts(restored.messages) == ["buy", "toolUse", "toolResult", "thanks"]
    assert restored.state.get("page") == 2
    assert not restored._interrupt_state.activated


def test_no_interrupt_that_a_late_flush_finds_in_a_turn_is_merged_either(both: Stores) -> None:
    goes_on, is_held = threading.Event(), threading.Event()
    there = both.elsewhere()

    def held(*_: Any, **__: Any) -> None:
        assert not is_held.is_set() or goes_on.wait(20)

    there.durable = WatchedStore(there.durable, held)
    idle = there.agent(conversation_manager=NullConversationManager(), durable_deadline=0.1)
    is_held.set()
    idle("hello")
    buyer = device(both, model=ScriptedModel([[tool_use("p", "pay")]]), tools=[pay])
    assert buyer("buy").stop_reason == "interrupt"
    quiet(buyer)

    def flushes(event: BeforeInvocationEvent) -> None:
        goes_on.set()
        quiet(idle)

    idle.hooks.add_callback(BeforeInvocationEvent, flushes)
    with pytest.raises(ConflictError, match="interrupt"):
        idle("something else")


def test_looking_is_no_conflict(both: Stores) -> None:
    """A process that only opens, flushes and closes changes nothing for the others."""
    one = device(both)
    one("one")
    quiet(one)
    for _ in range(3):
        idle = device(both)
        idle._session_manager.flush()
        idle._session_manager.close()
    one("two")
    quiet(one)
    assert texts(both.manager().history()) == ["one", "ok", "two", "ok"]


def test_what_the_other_changed_is_not_changed_back(both: Stores) -> None:
    one, other = device(both), device(both)
    one.state.set("cart", ["a"])
    one("hello")
    other("hi")
    other("hi again")
    other.state.set("cart", ["a", "b"])
    other("and b")
    for text in ("go on", "and on", "and on"):
        one(text)
    assert one.state.get("cart") == other.state.get("cart") == ["a", "b"]
    assert both.agent().state.get("cart") == ["a", "b"]
