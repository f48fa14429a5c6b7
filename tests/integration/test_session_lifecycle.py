"""Everything an agent has besides messages, and every action between them, survives."""

import asyncio
import logging
import threading
from contextlib import aclosing
from typing import Any

import pytest
from pydantic import BaseModel
from strands import Agent, ToolContext, tool
from strands.agent.conversation_manager import (
    NullConversationManager,
    SlidingWindowConversationManager,
    SummarizingConversationManager,
)
from strands.agent.state import AgentState
from strands.bidi import BidiAgent
from strands.bidi.models import BidiModel
from strands.hooks import (
    AfterInvocationEvent,
    BeforeInvocationEvent,
    BeforeModelCallEvent,
    BeforeToolCallEvent,
)
from strands.types.agent import ConcurrentInvocationMode

from strands_manga_memory import TieredSessionManager
from strands_manga_memory.testing import FakeClock, ScriptedModel
from tests.servers import wait_until
from tests.support import WatchedStore, stub_tool
from tests.unit.session.support import (
    PATIENT,
    Stores,
    agent,
    assistant,
    check_restored,
    find,
    interrupt_answers,
    quiet,
    same,
    texts,
    tool_use,
    user,
)

# State


def test_states_survive_and_the_system_prompt_is_that_of_the_constructor(both: Stores) -> None:
    live = both.agent(state={"kept": [1, {"ん": None}]}, system_prompt="the old prompt")
    for order in (-100, 0, 100):
        live.hooks.add_callback(
            AfterInvocationEvent,
            lambda event, order=order: event.agent.state.set(
                f"at {order}", len(event.agent.messages)
            ),
            order=order,
        )
    live._model_state["response_id"] = "r-1"
    live("hello")
    live.state.set("basket", ["Akira 1", "Akira 2"])
    live.state.delete("kept")
    live("more")
    restored = check_restored(both, live, system_prompt="the new prompt")
    assert restored.state.get() == {
        "at -100": 4,
        "at 0": 4,
        "at 100": 4,
        "basket": ["Akira 1", "Akira 2"],
    }
    assert restored._model_state == {"response_id": "r-1"}
    restored("again")
    assert restored.model.requests[-1].system_prompt == "the new prompt"


def test_state_changed_between_turns_is_saved_by_flush_and_by_the_next_turn(stores: Stores) -> None:
    live = stores.agent()
    live("hello")
    live.state.set("between", 1)
    live._session_manager.flush()
    assert check_restored(stores, live).state.get() == {"between": 1}
    if stores.durable is not None:
        assert stores.only_durable().agent().state.get() == {"between": 1}
    live.state.set("between", 2)
    live("again")
    assert check_restored(stores, live).state.get() == {"between": 2}


def test_another_conversation_manager_takes_over_with_a_warning(
    both: Stores, caplog: pytest.LogCaptureFixture
) -> None:
    live = both.agent(conversation_manager=SlidingWindowConversationManager(4))
    for number in range(4):
        live(f"question {number}")
    live._session_manager.flush()
    with caplog.at_level(logging.WARNING):
        restored = check_restored(both, live, SummarizingConversationManager)
    assert "another conversation manager takes over" in caplog.text
    restored("on")
    again = check_restored(both, restored, NullConversationManager)
    again("and on")
    check_restored(both, again, NullConversationManager)
    assert len(list(again._session_manager.history())) == 12


# Interrupts


@tool(context=True)
def pay(amount: int, tool_context: ToolContext) -> str:
    """Pay, if a human agrees."""
    answer = tool_context.interrupt("approval", reason={"amount": amount})
    return f"paid {amount}" if answer == "yes" else "not paid"


def test_interrupt_in_a_tool_and_resume_over_a_restart(stores: Stores) -> None:
    script = [[tool_use("f", "find", title="x"), tool_use("p", "pay", amount=7)], "thank you"]
    live = stores.agent(ScriptedModel(script), tools=[pay, find])
    result = live("buy it")
    assert result.stop_reason == "interrupt"
    for _ in range(2):  # restored twice, each time the same
        restored = check_restored(
            stores, live, model=ScriptedModel(["thank you"]), tools=[pay, find]
        )
        assert texts(restored.messages) == ["buy it", "toolUse"]
    if stores.durable is not None:
        live._session_manager.flush()
        assert same(stores.only_durable().agent(tools=[pay, find]).messages, live.messages)
    assert restored(interrupt_answers(result, "yes")).stop_reason == "end_turn"
    assert texts(restored.messages) == ["buy it", "toolUse", "toolResult", "thank you"]
    results = {
        block["toolResult"]["toolUseId"]: block["toolResult"]
        for block in restored.messages[2]["content"]
    }
    assert results["p"]["content"] == [{"text": "paid 7"}]
    assert results["f"]["content"] == [{"text": "found x"}]
    after = check_restored(stores, restored, tools=[pay, find])
    assert not after._interrupt_state.activated
    assert texts(stores.manager().history()) == ["buy it", "toolUse", "toolResult", "thank you"]
    after("next")
    check_restored(stores, after)


def test_interrupt_in_a_hook_and_resume_over_a_restart(both: Stores) -> None:
    def ask(event: BeforeToolCallEvent) -> None:
        if event.interrupt("may I", reason="it costs") != "yes":
            event.cancel_tool = "no"

    def build(script: list[Any]) -> Agent:
        built = both.agent(ScriptedModel(script), tools=[find])
        built.hooks.add_callback(BeforeToolCallEvent, ask)
        return built

    live = build([[tool_use("f", "find", title="x")]])
    result = live("find it")
    assert result.stop_reason == "interrupt"
    restored = build(["there"])
    assert same(restored.messages, live.messages)
    assert restored(interrupt_answers(result, "yes")).stop_reason == "end_turn"
    assert texts(restored.messages) == ["find it", "toolUse", "toolResult", "there"]
    check_restored(both, restored)


def test_an_interrupt_is_flushed_at_once(both: Stores) -> None:
    live = both.agent(
        ScriptedModel(["hello", [tool_use("p", "pay", amount=7)]]), tools=[pay], flush_every=100
    )
    live("hi")
    live._session_manager.flush()
    result = live("buy it")
    quiet(live)
    both.lose_hot()
    restored = both.agent(ScriptedModel(["thank you"]), tools=[pay])
    assert same(restored.messages, live.messages)
    assert restored(interrupt_answers(result, "yes")).stop_reason == "end_turn"


def test_a_second_interrupt_after_the_first(both: Stores) -> None:
    live = both.agent(
        ScriptedModel([[tool_use("p", "pay", amount=7)], [tool_use("q", "pay", amount=8)]]),
        tools=[pay],
    )
    first = live("buy it")
    second = check_restored(
        both, live, model=ScriptedModel([[tool_use("q", "pay", amount=8)], "done"]), tools=[pay]
    )
    result = second(interrupt_answers(first, "yes"))
    assert result.stop_reason == "interrupt"
    third = check_restored(both, second, model=ScriptedModel(["done"]), tools=[pay])
    assert third(interrupt_answers(result, "no")).stop_reason == "end_turn"
    assert texts(third.messages) == [
        "buy it", "toolUse", "toolResult", "toolUse", "toolResult", "done",
    ]  # fmt: skip


# What an invocation can do


def test_a_hook_resumes_the_agent(both: Stores) -> None:
    live = both.agent(ScriptedModel(["first", "second", "third"]))
    rounds = iter(["go on", "and on"])

    def again(event: AfterInvocationEvent) -> None:
        event.resume = next(rounds, None)

    live.hooks.add_callback(AfterInvocationEvent, again)
    live("start")
    assert texts(live.messages) == ["start", "first", "go on", "second", "and on", "third"]
    check_restored(both, live)
    assert texts(live._session_manager.history()) == texts(live.messages)
    assert live._session_manager.stats()["turns"] == 3


@pytest.mark.parametrize("stateful", [False, True])
def test_a_continuation_updates_the_message_it_continues(both: Stores, stateful: bool) -> None:
    """Strands announces the merged message again under the same id."""
    from strands.agent import _continuation

    live = both.agent(ScriptedModel(["answer", "more"], stateful=stateful))
    used: list[bool] = []

    def continue_once(event: BeforeModelCallEvent) -> None:
        if not used:
            used.append(True)
            _continuation.add_input(
                event, _continuation._ContinuationInput(args=[user("and this")])
            )

    live.hooks.add_callback(BeforeModelCallEvent, continue_once)
    live("start")
    live("next")
    logged = list(live._session_manager.history())
    assert [block["text"] for block in logged[0]["content"]] == ["start", "and this"]
    assert texts(logged) == ["start", "answer", "next", "more"]
    if not stateful:
        check_restored(both, live)
    live._session_manager.flush()
    assert same(list(both.manager().history()), logged)


def test_cancelled_before_it_began(both: Stores) -> None:
    live = both.agent()
    live("one")

    def deny(event: BeforeInvocationEvent) -> None:
        event.cancel = "not allowed"

    live.hooks.add_callback(BeforeInvocationEvent, deny)
    live("two")
    assert texts(live.messages) == ["one", "ok", "not allowed"]
    check_restored(both, live)
    assert texts(live._session_manager.history()) == ["one", "ok", "not allowed"]


def test_cancel_from_a_tool(both: Stores) -> None:
    @tool(context=True)
    def stop(tool_context: ToolContext) -> str:
        """Stop."""
        tool_context.agent.cancel(message="stopped by a tool")
        return "stopping"

    live = both.agent(ScriptedModel([[tool_use("s", "stop")], "never"]), tools=[stop])
    assert live("go").stop_reason == "cancelled"
    check_restored(both, live, tools=[stop])
    live("again")
    check_restored(both, live, tools=[stop])
    assert same(list(live._session_manager.history()), live.messages)


def test_cancel_signal_in_the_stream(both: Stores) -> None:
    signal = threading.Event()
    live = both.agent(ScriptedModel(["a long answer", "short"]))

    async def run() -> None:
        async with aclosing(live.stream_async("go", cancel_signal=signal)) as events:
            async for event in events:
                if "data" in event:
                    signal.set()

    asyncio.run(run())
    check_restored(both, live)
    signal.clear()
    live("again")
    check_restored(both, live)


def test_a_save_goes_on_when_its_caller_is_cancelled(both: Stores) -> None:
    """Cancelling the caller in the middle of the save cancels no write."""
    entered, go_on = threading.Event(), threading.Event()

    def wait(name: str, *_: Any, **__: Any) -> None:
        if name == "write":
            entered.set()
            go_on.wait(10)

    store = both.hot
    both.hot = WatchedStore(store, wait)
    live = both.agent()

    async def run() -> None:
        task = asyncio.create_task(live.invoke_async("hello"))
        await asyncio.to_thread(entered.wait, 10)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        go_on.set()

    asyncio.run(run())
    live._session_manager.flush()
    both.hot = store
    assert texts(both.agent().messages) == ["hello", "ok"]


@tool
async def order(title: str) -> str:
    """Order a volume."""
    await asyncio.sleep(0.1)
    return f"{title} is ordered"


@pytest.mark.parametrize("is_awaited", [True, False])
def test_results_of_background_tasks_continue_an_answer_that_is_logged_once(
    both: Stores, is_awaited: bool
) -> None:
    tasks: Any = {"always": ["order"], "wait_for_completion": is_awaited}
    model = ScriptedModel([[tool_use("o", "order", title="Akira")], "It is being ordered."])
    live = both.agent(model, tools=[order], background_tasks=tasks)
    live("order Akira")
    if not is_awaited:  # another process delivers that the task was lost
        live = both.agent(tools=[order], background_tasks=tasks)
        live(None)
    assert "toolUse" in live.messages[3]["content"][-1]
    assert same(list(live._session_manager.history()), live.messages)
    check_restored(both, live)
    live("thanks")
    assert same(list(both.agent()._session_manager.history()), live.messages)


class Volume(BaseModel):
    title: str
    number: int


def test_structured_output_model(both: Stores) -> None:
    live = both.agent(ScriptedModel([[tool_use("v", "Volume", title="Akira", number=1)], "done"]))
    assert live("which", structured_output_model=Volume).structured_output == Volume(
        title="Akira", number=1
    )
    check_restored(both, live)
    live("again")
    check_restored(both, live)
    assert same(list(live._session_manager.history()), live.messages)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_structured_output_leaves_no_trace(both: Stores) -> None:
    live = both.agent(ScriptedModel(["hi", '{"title": "Akira", "number": 2}']))
    live("hello")
    assert live.structured_output(Volume, "which").number == 2
    check_restored(both, live)
    assert texts(live._session_manager.history()) == ["hello", "hi"]
    live("again")
    check_restored(both, live)


def test_a_stateful_model_has_an_empty_window_and_a_log(both: Stores) -> None:
    live = both.agent(ScriptedModel(stateful=True), tools=[find])
    live("one")
    prompt = [user("two")]
    live(prompt)
    live(prompt)
    live.tool.find(title="x")
    assert live._session_manager.stats()["window_messages"] == len(live.messages)
    live("three")
    live._session_manager.flush()
    restored = both.agent(ScriptedModel(stateful=True))
    assert restored.messages == []
    logged = texts(restored._session_manager.history())
    assert logged[:6] == ["one", "ok", "two", "ok", "two", "ok"]
    assert logged[-2:] == ["three", "ok"]
    assert len(logged) == 12


# Who may share a session


def test_the_same_id_twice_is_refused(both: Stores) -> None:
    manager = both.manager()
    first = agent(manager, agent_id="a")
    with pytest.raises(ValueError, match="agent_id 'a' is already used"):
        agent(manager, agent_id="a")
    first("still works")
    check_restored(both, first)


def test_reentrant_invocations_are_refused(both: Stores) -> None:
    with pytest.raises(ValueError, match="UNSAFE_REENTRANT"):
        both.agent(concurrent_invocation_mode=ConcurrentInvocationMode.UNSAFE_REENTRANT)


class Microphone(BidiModel):
    async def start(self, *arguments: Any, **named: Any) -> None: ...

    async def stop(self) -> None: ...

    async def receive(self) -> Any: ...

    async def send(self, content: Any) -> None: ...

    def get_config(self) -> Any:
        return {"model_id": "m"}

    def get_audio_config(self) -> Any: ...

    def update_config(self, **config: Any) -> None: ...


def test_a_bidirectional_agent_is_refused(both: Stores) -> None:
    Microphone.__abstractmethods__ = frozenset()
    with pytest.raises(ValueError, match="must be a strands Agent, got BidiAgent"):
        BidiAgent(model=Microphone(), session_manager=both.manager())


@pytest.mark.parametrize("session_id", ["", "  ", "x" * 1025, 7, None, b"s", "\ud800"])
def test_bad_ids_fail_at_construction(both: Stores, session_id: Any) -> None:
    with pytest.raises(ValueError, match="session_id must"):
        TieredSessionManager(session_id, hot=both.hot, durable=both.durable)


# Looking and waiting


def test_records_carry_what_the_mission_asks_for(both: Stores) -> None:
    """Role, content, intent, tool calls and results, latency, cache hit."""

    class Cached(ScriptedModel):
        async def stream(self, *arguments: Any, **named: Any) -> Any:
            async for event in super().stream(*arguments, **named):
                if "metadata" in event:
                    event["metadata"]["usage"]["cacheReadInputTokens"] = 96
                yield event

    live = both.agent(Cached([[tool_use("f", "find", title="x")], "there"]), tools=[find])
    live._session_manager.set_metadata(active_intent="search")
    live("find it")
    live._session_manager.flush()
    records = list(both.manager().records())
    assert [record["seq"] for record in records] == sorted({record["seq"] for record in records})
    assert [record["turn"] for record in records] == [1, 1, 1, 1]
    assert [record["intent"] for record in records] == ["search"] * 4
    assert [r["message"]["role"] for r in records] == ["user", "assistant", "user", "assistant"]
    assert records[1]["message"]["content"][0]["toolUse"]["input"] == {"title": "x"}
    assert records[2]["message"]["content"][0]["toolResult"]["status"] == "success"
    for record in records[1::2]:
        assert record["message"]["metadata"]["usage"]["cacheReadInputTokens"] == 96
        assert record["message"]["metadata"]["metrics"]["latencyMs"] == 1
    assert all(record["at"] > 1_700_000_000 for record in records)


def test_what_cannot_be_logged_or_counted_is_refused(both: Stores) -> None:
    manager = both.manager()
    with pytest.raises(ValueError, match="messages must have a role and a list of content blocks"):
        manager.log([user("hello"), {"role": "user", "content": "hello"}], "logged")
    with pytest.raises(ValueError, match=r"^keep must be a whole number of 0 or more, got -1$"):
        manager.log([user("hello")], "logged", keep=-1)
    assert list(manager.history("logged")) == []
    with pytest.raises(ValueError, match=r"^last must be a whole number .* or None, got -1$"):
        list(manager.records(last=-1))


def test_messages_of_a_generator_are_logged(both: Stores) -> None:
    """They are checked first, which must not use them up."""
    both.manager().log((user(text) for text in ("one", "two")), "logged")
    assert texts(both.manager().history("logged")) == ["one", "two"]


def test_history_over_many_segments_and_its_end(stores: Stores) -> None:
    live = stores.agent(flush_every=2, conversation_manager=SlidingWindowConversationManager(4))
    for number in range(30):
        live(f"question {number}")
    expected = [text for number in range(30) for text in (f"question {number}", "ok")]
    for manager in (live._session_manager, stores.manager()):
        assert texts(manager.history()) == expected
        records = list(manager.records())
        assert [r["turn"] for r in records] == [number for number in range(1, 31) for _ in range(2)]
        assert [record["seq"] for record in records] == list(range(1, 61))
        for last in (0, 1, 7, 59, 60, 1000):
            assert list(manager.records(last=last)) == records[60 - min(last, 60) :]
    assert next(live._session_manager.history())["content"][0]["text"] == "question 0"


def test_history_has_what_is_not_saved_yet(both: Stores) -> None:
    live = both.agent(tools=[find])
    live("hello")
    live.tool.find(title="x")
    assert len(list(live._session_manager.history())) == 6
    assert live._session_manager.stats()["unsaved_messages"] == 4
    live._session_manager.flush()
    assert len(list(live._session_manager.history())) == 6
    assert live._session_manager.stats()["unsaved_messages"] == 0


def test_stats(both: Stores) -> None:
    clock = FakeClock()
    live = both.agent(clock=clock, conversation_manager=SlidingWindowConversationManager(2))
    live("one")
    clock.advance(60)
    live("two")
    clock.advance(5)
    stats = live._session_manager.stats()
    assert stats == {
        "turns": 2, "messages": 4, "window_messages": 2, "left_messages": 2, "unsaved_messages": 0,
        "dropped_messages": 0, "possible_loss": False, "hot": "up", "hot_error": "",
        "durable": "up", "durable_error": "", "tokens": None, "budget": None, "left": None,
        "age": 65.0, "oldest_turn_age": 5.0,
    }  # fmt: skip
    assert both.manager(clock=clock).stats() == stats


def test_looking_creates_nothing(stores: Stores) -> None:
    manager = stores.manager()
    assert not manager.exists()
    assert list(manager.history()) == []
    assert manager.stats()["messages"] == 0
    assert manager.metadata()["turn_count"] == 0
    unused = agent(manager)
    manager.flush()
    manager.close()
    assert not manager.exists()
    assert not stores.manager().exists()
    assert unused.messages == []
    unused("hello")
    assert stores.manager().exists()


def test_close_and_go_on(stores: Stores) -> None:
    live = stores.agent()
    live("one")
    live._session_manager.close()
    live("two")
    check_restored(stores, live)
    live._session_manager.close()
    if stores.durable is not None:
        cold = stores.only_durable().agent()
        assert same(cold.messages, live.messages)
        assert not cold._session_manager.stats()["possible_loss"]


def test_loss_is_reported_if_and_only_if_the_hot_tier_may_have_been_ahead(both: Stores) -> None:
    live = both.agent(flush_every=100)
    live("one")
    live._session_manager.close()
    both.lose_hot()
    restored = both.agent(flush_every=100)
    assert not restored._session_manager.stats()["possible_loss"]
    restored("two")
    restored("three")
    quiet(restored)
    both.lose_hot()
    after = both.agent(flush_every=100)
    assert after._session_manager.stats()["possible_loss"]
    assert texts(after.messages)[:2] == ["one", "ok"]


def test_a_conversation_is_saved_a_second_after_its_first_message(both: Stores) -> None:
    """However many messages follow within less than a second of one another."""
    live = both.agent(tools=[find])
    writer = live._session_manager._tiers.writer
    delays: list[float] = []
    later = writer.later
    writer.later = lambda key, delay, work: (delays.append(delay), later(key, delay, work))
    live.tool.find(title="x")
    live.tool.find(title="y")
    assert delays == [1.0]
    live("hello")
    assert delays == [1.0, 1.0]
    wait_until(lambda: len(both.agent().messages) == 10, "the save")
    live.tool.find(title="z")
    wait_until(lambda: len(both.agent().messages) == 14, "the save a second later")


def test_messages_and_states_are_not_shared_with_the_agent(both: Stores) -> None:
    live = both.agent(state=AgentState({"basket": []}))
    live("one")
    live.messages[0]["content"][0]["text"] = "edited"
    live.state.get()["basket"].append("not mine")
    live("two")
    assert texts(live._session_manager.history()) == ["one", "ok", "two", "ok"]
    restored = check_restored(both, live)
    assert texts(restored.messages) == ["edited", "ok", "two", "ok"]
    assert restored.state.get() == {"basket": []}


def test_a_result_that_is_no_json_is_saved_as_text(both: Stores) -> None:
    class Odd:
        def __str__(self) -> str:
            return "odd"

    odd = stub_tool(
        "odd", lambda: {"status": "success", "content": [{"json": {"odd": Odd(), "set": {1}}}]}
    )
    live = both.agent(ScriptedModel([[tool_use("o", "odd")], "done"]), tools=[odd])
    live("go")
    live._session_manager.flush()
    restored = both.agent(tools=[odd])
    assert restored.messages[2]["content"][0]["toolResult"]["content"][0]["json"]["odd"] == "odd"
    assert len(restored.messages) == 4


def test_in_process_hot_tier_beside_a_durable_one_is_not_waited_for(both: Stores) -> None:
    from strands_manga_memory import InMemoryHotStore

    live = both.agent()
    live._session_manager.close()
    manager = TieredSessionManager(
        both.session, hot=InMemoryHotStore(), durable=both.durable, **PATIENT
    )
    live = agent(manager)
    live("hello")
    assert manager.stats()["hot"] == "none"
    assert texts(
        agent(TieredSessionManager(both.session, durable=both.durable, **PATIENT)).messages
    ) == ["hello", "ok"]


def test_unsaved_messages_are_bounded(both: Stores) -> None:
    from strands_manga_memory import StoreUnavailableError
    from tests.faulty_stores import FaultyHotStore, FaultyTable

    both.hot, both.durable = FaultyHotStore(both.hot), FaultyTable(both.durable)
    live = both.agent(max_unsaved=4)
    live("one")
    live._session_manager.flush()
    both.hot.down = both.durable.down = True
    live("two")
    live("three")
    with pytest.raises(StoreUnavailableError, match="4 messages could not be saved"):
        live("four")
    assert live._session_manager.stats()["unsaved_messages"] == 4
    both.hot.down = both.durable.down = False


def test_seeds_of_a_restored_agent_give_way(both: Stores, caplog: pytest.LogCaptureFixture) -> None:
    live = both.agent()
    live("hello")
    with caplog.at_level(logging.WARNING):
        restored = both.agent(messages=[user("seed"), assistant("seeded")])
    assert texts(restored.messages) == ["hello", "ok"]
    assert "give way" in caplog.text
