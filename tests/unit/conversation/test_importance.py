"""The manager in a real agent with a scripted model, without a session."""

import json
import logging
from typing import Any

import pytest
from strands import Agent
from strands.middleware import InvokeModelContext, InvokeModelStage
from strands.types.exceptions import ContextWindowOverflowException
from strands.vended_plugins.context_injector import ContextInjector

from strands_manga_memory.conversation import (
    EstimateCounter,
    ImportanceWeightedConversationManager,
    default_counter,
)
from strands_manga_memory.exceptions import CorruptRecordError
from strands_manga_memory.testing import ScriptedModel
from tests.histories import problems
from tests.unit.conversation.messages import assistant, calls, pinned, results, user

COUNTER = default_counter()
OVERFLOW = ContextWindowOverflowException("prompt is too long")


def tokens(messages: list[Any]) -> int:
    return sum(map(COUNTER.count, messages))


def made(
    budget: int = 500,
    *,
    model: Any = None,
    messages: list[Any] | None = None,
    agent: Any = None,
    **settings: Any,
) -> Agent:
    """An agent with a manager."""
    return Agent(
        model=model or ScriptedModel(),
        conversation_manager=ImportanceWeightedConversationManager(budget, **settings),
        messages=messages,
        retry_strategy=None,
        **(agent or {}),
    )


def chat(exchanges: int, size: int = 40) -> list[Any]:
    """A conversation of so many exchanges, of some ``size`` tokens a message."""
    return [
        message
        for number in range(exchanges)
        for message in (
            user(f"question {number} " + "about it " * (size // 2)),
            assistant(f"answer {number} " + "of mine " * (size // 2)),
        )
    ]


# --- The budget -----------------------------------------------------------------------------------


def test_messages_of_others_are_never_changed_in_place() -> None:
    long_result = results("a", content=[{"text": "row " * 5_000}])
    history = [user(), calls("a"), long_result, assistant()]
    content = json.dumps(history)
    agent = made(messages=list(history))
    agent.conversation_manager.apply_management(agent)
    assert tokens(agent.messages) <= 500
    assert json.dumps(history) == content
    assert agent.messages[2]["tracking_id"] == long_result["tracking_id"]


def test_pins_over_the_budget_are_kept_and_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    agent = made(200, messages=[user(), assistant(), pinned(user("keep " * 400)), assistant()])
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            agent("next")
    assert agent.messages[2]["content"][0]["text"] == "keep " * 400
    assert len([record for record in caplog.records if "exceed the budget" in record.message]) == 1
    assert "keep" not in caplog.text


def test_the_first_turn_never_grows() -> None:
    agent = made()
    for number in range(30):
        agent(f"question {number} " + "word " * 40)
        agent.conversation_manager.apply_management(agent)
    fates = agent.conversation_manager.explain(agent)
    assert [fate.reason for fate in fates if fate.reason == "first turn"] == ["first turn"] * 2


def test_an_instruction_stays_longer_than_other_weighty_messages() -> None:
    wishes = (f"I prefer edition {n} of Berserk from Hakusensha in Tokyo." for n in range(40))
    talk = [each for text in wishes for each in (user(text), assistant("Noted."))]
    talk[20:20] = [user("Never use emojis."), assistant("Understood.")]
    agent = made(400, messages=talk)
    agent.conversation_manager.apply_management(agent)
    [fate] = [
        fate for fate in agent.conversation_manager.explain(agent) if fate.act == "instruction"
    ]
    assert fate.outcome == "kept"
    assert fate.signals["instruction"] == 3.0


def test_what_others_add_to_a_request_is_trimmed_for_that_call_alone() -> None:
    def add(context: InvokeModelContext) -> InvokeModelContext:
        return context.replace(
            messages=[
                *context.messages[:-1],
                assistant("seen " * 600),
                user("more " * 100),
                context.messages[-1],
            ]
        )

    class Adding(ContextInjector):
        def init_agent(self, agent: Any) -> None:
            super().init_agent(agent)
            agent.add_middleware(InvokeModelStage.Input, add)

    model = ScriptedModel()
    agent = made(model=model, agent={"plugins": [Adding(lambda _: None)]})
    agent("hello")
    assert problems(model.requests[0].messages) == []
    assert tokens(model.requests[0].messages) <= 500
    assert len(agent.messages) == 2


def test_what_is_injected_for_one_call_has_its_own_budget() -> None:
    note = "<state>" + "phase " * 200 + "</state>"
    model = ScriptedModel(lambda _: "answer " * 30)
    agent = made(
        300, model=model, agent={"plugins": [ContextInjector(lambda _: note, trigger="everyTurn")]}
    )
    for number in range(10):
        agent(f"question {number} " + "word " * 30)
    for request in model.requests:
        *history, last = request.messages
        assert note in last["content"][-1]["text"]
        assert tokens([*history, {**last, "content": last["content"][:-1]}]) <= 300
        assert problems(request.messages) == []
    assert note not in json.dumps(agent.messages)
    assert tokens(agent.messages) > 150


def test_both_the_models_count_and_ours_are_within_the_budget() -> None:
    def reported(messages: list[Any]) -> int:
        return int(1.3 * tokens(messages))

    model = ScriptedModel(lambda _: "answer " * 80, usage=reported)
    agent = made(1_000, model=model)
    for number in range(40):
        agent(f"question {number} " + "word " * 70)
    assert all(tokens(request.messages) <= 1_000 for request in model.requests)
    assert all(reported(request.messages) <= 1_010 for request in model.requests[-10:])
    usage = agent.conversation_manager.usage(agent)
    assert usage["budget"] == 1_000
    assert usage["tokens"] + usage["left"] == 1_000
    assert usage["tokens"] == pytest.approx(1.3 * tokens(agent.messages), rel=0.03)
    assert agent.conversation_manager.get_state()["ratio"] == pytest.approx(1.3, abs=0.06)


# --- A full window --------------------------------------------------------------------------------


def test_upstream_3338_an_overflow_that_cannot_be_reduced_raises_instead_of_recursing() -> None:
    model = ScriptedModel(lambda _: OVERFLOW)
    agent = made(4_096, messages=chat(20), model=model)
    with pytest.raises(
        ContextWindowOverflowException, match="less than a quarter of the history"
    ) as caught:
        agent("and now?")
    assert caught.value.__cause__ is OVERFLOW
    assert len(model.requests) < 12
    assert problems(model.requests[-1].messages) == []


def test_an_overflow_with_nothing_to_free_raises_at_once_and_changes_nothing() -> None:
    model = ScriptedModel(lambda _: OVERFLOW)
    agent = made(messages=[pinned(user("keep " * 100)), assistant("ok")], model=model)
    before = list(agent.messages)
    with pytest.raises(ContextWindowOverflowException):
        agent("hi")
    assert agent.messages[:2] == before
    assert len(model.requests) == 1
    empty = made()
    with pytest.raises(ContextWindowOverflowException):
        empty.conversation_manager.reduce_context(empty, OVERFLOW)


def test_without_an_overflow_reducing_drops_what_need_not_stay_and_never_raises() -> None:
    agent = made(4_096, messages=chat(20))
    before = tokens(agent.messages)
    agent.conversation_manager.reduce_context(agent)
    assert tokens(agent.messages) <= before * 3 // 4
    must_stay = made(4_096, messages=[user("word " * 100), assistant()])
    must_stay.conversation_manager.reduce_context(must_stay)
    assert len(must_stay.messages) == 2
    assert "word " * 100 in must_stay.messages[0]["content"][0]["text"]


def test_the_window_of_the_model_can_be_a_threshold_too() -> None:
    model = ScriptedModel(lambda _: "answer " * 100, usage=lambda messages: 10 * tokens(messages))
    model.update_config(context_window_limit=10_000)
    agent = made(4_096, model=model, proactive_compression={"compression_threshold": 0.5})
    for number in range(20):
        agent(f"question {number}")
    assert all(tokens(request.messages) < 1_000 for request in model.requests)


# --- What can go wrong ----------------------------------------------------------------------------


def test_a_counter_that_fails_ends_no_conversation(caplog: pytest.LogCaptureFixture) -> None:
    class Broken:
        def count(self, message: Any) -> int:
            raise OSError("no vocabulary")

    agent = made(counter=Broken())
    with caplog.at_level(logging.WARNING):
        assert str(agent("hello")).strip() == "ok"
    assert "could not be trimmed" in caplog.text


def test_equal_copies_of_a_message_are_evicted_one_by_one() -> None:
    history = chat(12)
    history[4:4] = [{**message} for message in history[2:4]]
    agent = made(messages=list(history))
    agent.conversation_manager.apply_management(agent)
    stays = set(map(id, agent.messages))
    assert 0 < len(agent.messages) < len(history)
    assert [message for message in history if id(message) in stays] == agent.messages


def test_a_history_replaced_while_it_was_looked_at_is_left_alone() -> None:
    replacement = chat(2)

    class Replacing(EstimateCounter):
        def count(self, message: Any) -> int:
            agent.messages[:] = replacement
            return super().count(message)

    agent = made(200, counter=Replacing())
    agent.messages[:] = chat(12)
    agent.conversation_manager.apply_management(agent)
    assert agent.messages == replacement


# --- What users ask -------------------------------------------------------------------------------


def test_explain_tells_the_fate_of_every_message_in_the_order_of_speech() -> None:
    history = [
        *chat(1),
        user("I prefer horror manga."),
        assistant("Noted."),
        user("Hello!"),
        assistant("Hi!"),
        *chat(5),
        user("List them."),
        calls("a"),
        results("a", content=[{"text": "row " * 600}]),
        assistant("Done."),
    ]
    agent = made(messages=list(history))
    agent.conversation_manager.apply_management(agent)
    fates = agent.conversation_manager.explain(agent)
    assert [fate.tracking_id for fate in fates] == [message["tracking_id"] for message in history]
    preference, hello, early, result = fates[2], fates[4], fates[6], fates[-2]
    assert (preference.role, preference.act, preference.score, preference.outcome) == (
        "user",
        "preference",
        0.9,
        "kept",
    )
    assert (hello.act, hello.score) == ("greeting", 0.1)
    assert (early.act, early.score, early.outcome, early.reason) == (
        "unmatched",
        0.5,
        "dropped",
        "no room in the budget",
    )
    assert (result.act, result.outcome, result.reason) == (
        "tool_result",
        "shortened",
        "current turn",
    )
    assert fates[0].reason == "first turn"
    assert sum(fate.tokens for fate in fates if fate.outcome != "dropped") == tokens(agent.messages)


# --- State ----------------------------------------------------------------------------------------


def test_a_state_of_another_manager_or_a_broken_one_is_refused() -> None:
    manager = ImportanceWeightedConversationManager()
    good = manager.get_state()
    with pytest.raises(
        ValueError, match="the session holds the state of 'SlidingWindowConversationManager'"
    ):
        manager.restore_from_session(
            {"__name__": "SlidingWindowConversationManager", "removed_message_count": 2}
        )
    for broken in (
        {"removed_message_count": None},
        {"removed_message_count": -1},
        {"ratio": "1"},
        {"layout": {"v": 9}},
    ):
        with pytest.raises(CorruptRecordError):
            manager.restore_from_session({**good, **broken})
    assert manager.restore_from_session({**good, "something_newer": 1}) is None


def test_a_snapshot_loaded_later_replaces_the_messages_and_nothing_else() -> None:
    agent = made()
    for number in range(10):
        agent(f"question {number} " + "word " * 50)
    snapshot = agent.take_snapshot(preset="session")
    kept = [message["content"] for message in agent.messages]
    agent("later")
    agent.load_snapshot(snapshot)
    assert [message["content"] for message in agent.messages] == kept
    agent("and on")
    assert tokens(agent.messages) <= 500


def test_seed_messages_get_ids_before_anything_else() -> None:
    agent = made(
        messages=[
            {"role": "user", "content": [{"text": "hi"}]},
            {"role": "assistant", "content": [{"text": "hello"}]},
        ]
    )
    assert all(message["tracking_id"] for message in agent.messages)


def test_a_message_that_is_shortened_is_named_in_the_log_without_its_text(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, logger="strands_manga_memory")
    agent = made(500)
    agent("a clause of the contract " * 400)
    assert "messages were shortened" not in caplog.text
    agent("Thanks. Another question?")
    line = next(record for record in caplog.records if "truncated messages" in record.getMessage())
    assert line.levelno == logging.INFO
    assert line.getMessage().startswith("messages=<1>, tokens_before=<")
    assert "clause" not in caplog.text
