"""Our session manager does what Strands and other packages expect of one."""

import asyncio
import copy
import itertools
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from pydantic import BaseModel
from strands import Agent, tool
from strands.agent.conversation_manager import (
    ConversationManager,
    NullConversationManager,
    SlidingWindowConversationManager,
    SummarizingConversationManager,
)
from strands.agent.conversation_manager.compression.pin_message import pin_message
from strands.multiagent import GraphBuilder
from strands.storage import InMemoryStorage
from strands.types.exceptions import ContextWindowOverflowException
from strands.vended_plugins.context_offloader import ContextOffloader

from strands_manga_memory import (
    ConversationScope,
    ImportanceWeightedConversationManager,
    InMemoryHotStore,
    TieredSessionManager,
)
from strands_manga_memory.testing import ScriptedModel
from tests.support import CUT_TEXT, PLACEHOLDER, WatchedStore, stub_tool, tool_results
from tests.unit.session.support import (
    Stores,
    agent,
    assistant,
    check_restored,
    find,
    open_stores,
    quiet,
    same,
    texts,
    tool_result,
    tool_turns,
    tool_use,
    user,
)

# Strands' methods, called by others between turns


def test_sync_agent_saves_the_agent_as_it_is(both: Stores) -> None:
    live = both.agent()
    live("hello")
    live.state.set("resume", {"call": "c1"})
    live.messages[-1]["content"] = [{"text": "corrected"}]
    live._session_manager.sync_agent(live)
    other = both.agent()
    assert other.state.get("resume") == {"call": "c1"}
    assert same(other.messages, live.messages)


def test_sync_agent_saves_on_an_event_loop_too(both: Stores) -> None:
    both.settings["hot_deadline"] = 10.0

    async def go() -> None:
        live = both.agent()
        await live.invoke_async("hello")
        live.state.set("resume", "c1")
        live._session_manager.sync_agent(live)
        assert both.agent().state.get("resume") == "c1"

    asyncio.run(go())


def test_sync_agent_writes_nothing_where_nothing_changed(both: Stores) -> None:
    both.hot, both.durable = WatchedStore(both.hot), WatchedStore(both.durable)
    live = both.agent()
    live("hello")
    quiet(live)
    before = both.hot.calls[:], both.durable.calls[:]
    live._session_manager.sync_agent(live)
    assert (both.hot.calls, both.durable.calls) == before


def test_append_message_saves_what_is_said_between_turns(stores: Stores) -> None:
    live = stores.agent()
    live("hello")
    for message in (user("by hand", tracking_id="h1"), assistant("noted", tracking_id="h2")):
        live.messages.append(message)
        live._session_manager.append_message(message, live)
    assert same(stores.agent().messages, live.messages)
    assert texts(stores.manager().history()) == ["hello", "ok", "by hand", "noted"]
    live("and on")
    assert same(stores.agent().messages, live.messages)


def test_redact_latest_message_replaces_it_at_once(stores: Stores) -> None:
    live = stores.agent()
    live("hello")
    live.messages[-1]["content"] = [{"text": "redacted"}]
    live._session_manager.redact_latest_message(live.messages[-1], live)
    assert texts(stores.agent().messages) == ["hello", "redacted"]
    assert texts(stores.manager().history()) == ["hello", "redacted"]


UNKNOWN: dict[str, Callable[[Any, Agent], object]] = {
    "append_message": lambda manager, live: manager.append_message(user("hello"), live),
    "redact_latest_message": lambda manager, live: manager.redact_latest_message(
        user("hello"), live
    ),
    "sync_agent": lambda manager, live: manager.sync_agent(live),
}


@pytest.mark.parametrize("call", UNKNOWN.values(), ids=UNKNOWN)
def test_unknown_agent_is_refused_by_name(
    call: Callable[[Any, Agent], object], both: Stores
) -> None:
    stranger = agent(None, agent_id="stranger")
    manager = both.manager()
    with pytest.raises(
        ValueError,
        match=r"agent_id 'stranger' is not known to this session manager.*initialize\(agent\)",
    ):
        call(manager, stranger)
    manager.initialize(stranger)
    call(manager, stranger)


def test_an_orchestrator_that_was_not_initialized_is_refused_by_name(both: Stores) -> None:
    builder = GraphBuilder()
    builder.add_node(agent(None), "one")
    builder.set_graph_id("g1")
    builder.set_max_node_executions(1)
    graph, manager = builder.build(), both.manager()
    with pytest.raises(ValueError, match="id 'g1' is not known to this session manager"):
        manager.sync_multi_agent(graph)
    manager.initialize_multi_agent(graph)
    manager.sync_multi_agent(graph)


# What a constructor is given


def test_seeds_that_repeat_an_object_or_an_id_all_come_back(both: Stores) -> None:
    question, answer = user("again"), assistant("yes")
    named = [user("named", tracking_id="n"), assistant("indeed", tracking_id="n")]
    live = both.agent(messages=[question, answer, question, answer, *named])
    live("hello")
    expected = ["again", "yes", "again", "yes", "named", "indeed", "hello", "ok"]
    assert texts(live.messages) == expected
    assert same(both.agent().messages, live.messages)
    live._session_manager.close()
    assert same(both.agent().messages, live.messages)
    assert texts(both.manager().history()) == expected


def test_a_message_that_is_said_again_within_a_tick_of_the_clock_comes_back(both: Stores) -> None:
    live = both.agent(clock=lambda: 1000.0)
    prompt = [user("again")]
    live(prompt)
    live(prompt)
    assert same(both.agent(clock=lambda: 1000.0).messages, live.messages)
    assert texts(both.manager(clock=lambda: 1000.0).history()) == ["again", "ok"] * 2


# Metadata


@pytest.mark.parametrize("name", ["turn_count", "created", "last_activity"])
def test_metadata_by_the_name_of_a_counter_is_refused(name: str, both: Stores) -> None:
    manager = both.manager()
    with pytest.raises(ValueError, match=f"{name} is counted here and cannot be set"):
        manager.set_metadata(**{"locale": "ja", name: 7})
    assert "locale" not in manager.metadata()


# Storage ids, which are no ids of a session


@pytest.mark.parametrize("tenant", [None, "t1"])
def test_a_storage_id_given_as_a_session_id_is_refused(tenant: str | None, both: Stores) -> None:
    scope = ConversationScope("u1", "s1", tenant=tenant)
    with pytest.raises(
        ValueError, match="is the id under which stores keep it; pass the ConversationScope itself"
    ):
        both.manager(scope.storage_session_id)
    with pytest.raises(ValueError, match="pass the ConversationScope itself"):
        both.manager(both.manager(scope).session_id)
    with pytest.raises(ValueError, match="pass the ConversationScope itself"):
        ConversationScope("u1", scope.storage_session_id, tenant=tenant)
    with pytest.raises(ValueError, match="pass the ConversationScope itself"):
        ConversationScope(scope.storage_user_id, "s1", tenant=tenant)
    restored = json.loads(json.dumps(ConversationScope("u1", "s1").storage_session_id))
    with pytest.raises(ValueError, match=r"pass the ConversationScope itself, got ':u1:s1'"):
        both.manager(restored)


@pytest.mark.parametrize("session", ["chat:2024:01", "::", ":emoji:", "a:b", "u1:s1:", ":a:b:c"])
def test_a_session_id_with_colons_is_like_any_other(session: str) -> None:
    hot = InMemoryHotStore()
    agent(TieredSessionManager(session, hot=hot))("hello")
    assert texts(agent(TieredSessionManager(session, hot=hot)).messages) == ["hello", "ok"]
    assert agent(TieredSessionManager(ConversationScope("u1", ":u1:s1"), hot=hot)).messages == []


# Turns that end in a tool result


class Volume(BaseModel):
    """A volume of a series."""

    title: str


@tool
def slow(title: str) -> str:
    """Find a volume, slowly."""
    raise SystemExit(title)


def structured(stores: Stores, *replies: Any) -> Agent:
    live = stores.agent(
        ScriptedModel([[tool_use("v", "Volume", title="Akira")], *replies]), tools=[slow]
    )
    assert live("which", structured_output_model=Volume).structured_output == Volume(title="Akira")
    return live


def test_a_finished_structured_output_turn_is_not_cut_where_a_later_one_was(both: Stores) -> None:
    live = structured(both, [tool_use("s", "slow", title="Blame")])
    with pytest.raises(SystemExit):
        live("look for Blame")
    restored = both.agent()
    assert same(restored.messages[:4], live.messages[:4])
    assert texts(restored.messages[4:]) == ["toolUse"]
    restored("and now")
    roles = [message["role"] for message in restored.model.requests[-1].messages]
    assert roles == ["user", "assistant"] * (len(roles) // 2) + ["user"]


@tool(context=True)
def ask(question: str, tool_context: Any) -> str:
    """Ask a human."""
    return str(tool_context.interrupt("question", reason=question))


def test_a_finished_structured_output_turn_is_not_cut_where_a_later_one_waits(both: Stores) -> None:
    script = [[tool_use("v", "Volume", title="Akira")], [tool_use("a", "ask", question="sure?")]]
    live = both.agent(ScriptedModel(script), tools=[ask])
    live("which", structured_output_model=Volume)
    assert live("delete it").stop_reason == "interrupt"
    assert same(both.agent(tools=[ask]).messages, live.messages)
    live._session_manager.close()
    assert same(both.agent(tools=[ask]).messages, live.messages)


# Checkpoints: Strands' integration tests of them, with a scripted model


class Reader(ScriptedModel):
    """A model that calls each tool once, then says what they returned."""

    def __init__(self, *names: str) -> None:
        def reply(messages: Any) -> Any:
            called = [
                block["toolUse"]["name"]
                for m in messages
                for block in m["content"]
                if "toolUse" in block
            ]
            results = [result["content"][0]["text"] for result in tool_results(messages)]
            wanted = [name for name in names if name not in called]
            return [tool_use(f"use-{wanted[0]}", wanted[0])] if wanted else f"they said {results}"

        super().__init__(reply)


def driven(stores: Stores, tools: list[Any], prompt: str) -> tuple[Agent, list[Any]]:
    """Run a prompt to its end, each part between two checkpoints in a new agent."""

    def built() -> Agent:
        return stores.agent(
            Reader(*(one.tool_name for one in tools)), tools=tools, checkpointing=True
        )

    live = built()
    result, checkpoints = live(prompt), []
    while result.stop_reason == "checkpoint":
        checkpoints.append(result.checkpoint)
        kept, before = json.loads(json.dumps(result.checkpoint.to_dict())), live
        live = built()
        assert same(live.messages, before.messages)
        result = live({"checkpointResume": {"checkpoint": kept}})
        assert len(checkpoints) < 20
    assert result.stop_reason == "end_turn"
    return live, checkpoints


def test_a_checkpoint_is_resumed_by_a_new_agent_and_no_tool_runs_twice(stores: Stores) -> None:
    calls: list[str] = []

    @tool
    def get_time() -> str:
        """Return the time."""
        calls.append("time")
        return "12:01"

    @tool
    def get_day() -> str:
        """Return the day."""
        calls.append("day")
        return "monday"

    live, checkpoints = driven(stores, [get_time, get_day], "What is the time, and the day?")
    assert [one.position for one in checkpoints] == ["after_model", "after_tools"] * 2
    assert calls == ["time", "day"]
    assert texts(live.messages)[0] == "What is the time, and the day?"
    assert texts(live.messages)[-1] == "they said ['12:01', 'monday']"
    assert CUT_TEXT not in str(live.messages)
    assert texts(stores.manager().history()) == texts(live.messages)


def test_a_checkpoint_is_kept_where_the_process_dies_after_it(both: Stores) -> None:
    get_time = stub_tool("get_time", "12:01")
    live = both.agent(Reader("get_time"), tools=[get_time], checkpointing=True)
    result = live("What is the time?")
    quiet(live)
    both.lose_hot()
    restored = both.agent(Reader("get_time"), tools=[get_time], checkpointing=True)
    assert same(restored.messages, live.messages)
    kept = result.checkpoint.to_dict()
    assert restored({"checkpointResume": {"checkpoint": kept}}).stop_reason == "checkpoint"
    assert texts(restored.messages)[-1] == "toolResult"


def test_a_prompt_after_a_checkpoint_leaves_its_call_without_a_result(both: Stores) -> None:
    get_time = stub_tool("get_time", "12:01")
    both.agent(Reader("get_time"), tools=[get_time], checkpointing=True)("What is the time?")
    restored = both.agent(tools=[get_time])
    restored("never mind")
    assert texts(restored.messages) == ["What is the time?", "toolUse", "never mind", "ok"]


# What Strands' own context manager put aside


catalogue = stub_tool(
    "catalogue",
    lambda: "\n".join(
        f"row {number}: volume {number} of Akira, in stock" for number in range(1500)
    ),
)


def retrieved(live: Agent, reference: str) -> str:
    return str(
        live.tool.retrieve_context(
            reference=reference, pattern="row 777:", record_direct_tool_call=False
        )
    )


@pytest.mark.parametrize("turns", [0, 2])
def test_what_the_context_manager_stored_is_found_later(both: Stores, turns: int) -> None:
    live = both.agent(
        ScriptedModel([[tool_use("c1", "catalogue")], "read"]),
        tools=[catalogue],
        context_manager="auto",
    )
    live("read the catalogue")
    live("and now")
    assert "row 777:" not in str(live.messages)
    assert "row 777: volume 777" in retrieved(live, "c1_0")
    live._session_manager.flush()
    restored = both.agent(tools=[catalogue], context_manager="auto")
    for number in range(turns):
        restored(f"go on {number}")
    assert "row 777: volume 777" in retrieved(restored, "c1_0")


def test_nothing_is_read_if_nothing_is_there(both: Stores) -> None:
    both.agent()("hello")
    watched = WatchedStore(both.durable)
    restored = replace(both, durable=watched).agent(context_manager="auto")
    assert texts(restored.messages) == ["hello", "ok"]
    assert "query" not in watched.calls


def test_what_was_put_aside_is_redacted_too(both: Stores) -> None:
    live = both.agent(context_manager="auto")
    live("hello")
    said = live.messages[-1]["tracking_id"]
    live.messages[-1]["content"] = [{"text": "redacted"}]
    live._session_manager.redact_latest_message(live.messages[-1], live)
    assert asyncio.run(live.context_manager.stash.retrieve(f"{said}_0")) == {"text": "redacted"}


# Results that answer nothing


def answer_of(id_: str) -> dict[str, Any]:
    return tool_result(id_, f"result of {id_}")


ORPHANS = {
    "at the beginning": [user(answer_of("gone")), assistant("so it is")],
    "after an answer": [user("one"), assistant("two"), user(answer_of("gone")), assistant("three")],
    "beside a text": [user("one"), assistant("two"), user(answer_of("gone"), "and more"),
        assistant("three")],
    "beside a result": [user("one"), assistant(tool_use("c1", "find")),
        user(answer_of("c1"), answer_of("gone")), assistant("x")],
}  # fmt: skip


@pytest.mark.parametrize("messages", ORPHANS.values(), ids=ORPHANS)
def test_results_of_missing_calls_are_in_no_request(messages: list[Any], both: Stores) -> None:
    live = both.agent()
    live("hello")
    # As a manager or hook that trims without looking at pairs leaves it.
    live.messages[:] = copy.deepcopy(messages)
    live._session_manager.flush()
    restored = both.agent()
    assert same(restored.messages, live.messages)
    restored("and on")
    sent = restored.model.requests[-1].messages
    assert "gone" not in str(sent)
    expected = [block for m in messages for block in m["content"] if "gone" not in str(block)]
    fillers = ({"text": PLACEHOLDER}, {"text": "[conversation start]"})
    assert [block for m in sent[:-1] for block in m["content"] if block not in fillers] == expected
    assert all(one["role"] != other["role"] for one, other in itertools.pairwise(sent))
    assert same(both.agent().messages, restored.messages)


MANAGERS: dict[str, Callable[[], ConversationManager]] = {
    "ours": lambda: ImportanceWeightedConversationManager(120),
    "sliding every second call": lambda: SlidingWindowConversationManager(
        window_size=5, per_turn=2
    ),
    "sliding ahead of time": lambda: SlidingWindowConversationManager(
        window_size=6, proactive_compression=True
    ),
    "none": NullConversationManager,
    "sliding": lambda: SlidingWindowConversationManager(6),
    "sliding, first pinned": lambda: SlidingWindowConversationManager(6, pin_first=2),
    "sliding in turn": lambda: SlidingWindowConversationManager(5, per_turn=True),
    "sliding, empty": lambda: SlidingWindowConversationManager(0),
    "summarizing": lambda: SummarizingConversationManager(
        summary_ratio=0.5, preserve_recent_messages=2
    ),
    "summarizing, first pinned": lambda: SummarizingConversationManager(
        summary_ratio=0.5, preserve_recent_messages=2, pin_first=1
    ),
}


VARIANTS = {
    "sliding, first pinned",
    "sliding, empty",
    "sliding in turn",
    "summarizing, first pinned",
}
"""Managers that differ in one setting from another of the suite: they are long."""


@pytest.mark.parametrize(
    ("shape", "name"),
    [
        *(
            pytest.param("valkey+sqlite", name, marks=pytest.mark.long if name in VARIANTS else ())
            for name in MANAGERS
        ),
        ("valkey", "ours"),
        ("sqlite", "sliding"),
    ],
)
def test_managers_restore_exactly(request: pytest.FixtureRequest, shape: str, name: str) -> None:
    stores = open_stores(shape, request)
    script = tool_turns()
    if name.startswith("summarizing"):
        script = _overflowing(script, every=7)
    live = stores.agent(script, tools=[find], conversation_manager=MANAGERS[name]())
    for number in range(12):
        live(f"question {number}")
        restored = check_restored(stores, live, build=MANAGERS[name])
        assert restored.conversation_manager.get_state() == live.conversation_manager.get_state()
        if number % 4 == 3:  # go on as a new process
            live = stores.agent(script, tools=[find], conversation_manager=MANAGERS[name]())
    log = texts(live._session_manager.history())
    assert [t for t in log if t.startswith("question")] == [f"question {n}" for n in range(12)]
    assert len(log) == 12 * 2 + 4 * 2


def _overflowing(script: ScriptedModel, *, every: int) -> ScriptedModel:
    calls = 0

    def reply(messages: Any) -> Any:
        nonlocal calls
        if "summarize" in str(messages[-1]).lower():
            return f"summary number {calls}"
        calls += 1
        if calls % every == 0:
            return ContextWindowOverflowException("too long")
        return script._reply(messages)

    return ScriptedModel(reply)


def test_pins_in_the_middle_and_their_flags(both: Stores) -> None:
    live = both.agent(conversation_manager=SlidingWindowConversationManager(4))
    for number in range(6):
        live(f"question {number}")
        if number == 1:
            pin_message(live.messages, 3)
            live._session_manager.flush()
        check_restored(both, live, build=lambda: SlidingWindowConversationManager(4))
    assert "ok" in texts(live.messages)[:1]
    assert live.messages[0]["metadata"]["custom"]["pinned"] is True


large_catalogue = stub_tool("catalogue", "one volume after another, " * 2000)


@pytest.mark.filterwarnings("ignore:.*experimental.*")
@pytest.mark.filterwarnings("ignore:.*context_manager.*")
@pytest.mark.parametrize(
    ("settings", "again", "is_logged_whole"),
    [
        ({"context_manager": "auto"}, {"context_manager": "auto"}, True),
        ({"plugins": [ContextOffloader(storage=InMemoryStorage())]}, {}, False),
    ],
    ids=["context manager", "offloader"],
)
def test_results_that_strands_puts_aside_are_restored_as_they_are_shown(
    both: Stores, settings: dict[str, Any], again: dict[str, Any], is_logged_whole: bool
) -> None:
    def reply(messages: Any) -> Any:
        is_answered = "toolResult" in messages[-1]["content"][0]
        return "done" if is_answered else [tool_use(f"c{len(messages)}", "catalogue")]

    live = both.agent(ScriptedModel(reply), tools=[large_catalogue], **settings)
    live("all of them")
    live("again")
    restored = both.agent(tools=[large_catalogue], **again)
    assert len(str(live.messages)) < 60_000
    assert (len(str(list(live._session_manager.history()))) > 60_000) is is_logged_whole
    assert same(restored.messages, live.messages)
