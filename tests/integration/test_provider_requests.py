"""Requests of agents are valid for every provider, whatever the history."""

import asyncio
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from strands import Agent, tool
from strands.hooks import BeforeToolCallEvent, BeforeToolsEvent
from strands.vended_plugins.context_injector import ContextInjector

from strands_manga_memory import MangaMemory
from strands_manga_memory.conversation import (
    ImportanceWeightedConversationManager,
    SummaryTrigger,
    TieredCompactionConversationManager,
    VerifiedSummarizingConversationManager,
)
from strands_manga_memory.state import StateCoordinator
from strands_manga_memory.testing import ScriptedModel
from tests.histories import histories
from tests.provider_formats import PROVIDERS, problems, rules
from tests.support import stub_tool, tool_results
from tests.unit.session.support import tool_use

LONG = "volume after volume stands on the shelf " * 60


find = stub_tool("find", lambda title: f"{title} is here")


def call(id_: str, name: str = "find", **given: Any) -> dict[str, Any]:
    return tool_use(id_, name, **given)


def check(model: ScriptedModel, providers: tuple[str, ...] = PROVIDERS) -> None:
    """Check every request with every validator."""
    assert model.requests
    for request in model.requests:
        for provider in providers:
            assert problems(request.messages, provider) == []


def texts(messages: Any) -> list[str]:
    return [item.get("text", "") for result in tool_results(messages) for item in result["content"]]


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Callable[..., tuple[Agent, ScriptedModel]]]:
    """Return a function that opens the same session of a user like another process."""
    memories: list[MangaMemory] = []

    def open_agent(model: ScriptedModel, **options: Any) -> tuple[Agent, ScriptedModel]:
        while memories:
            memories.pop().close()
        memories.append(MangaMemory.open(durable=f"sqlite:///{tmp_path}/sessions.sqlite3"))
        kwargs = memories[0].agent_kwargs(user_id="u1", session_id="s1", **options)
        return Agent(model=model, **kwargs), model

    yield open_agent
    while memories:
        memories.pop().close()


# --- Removed media --------------------------------------------------------------------------------

MEDIA: dict[str, Any] = {
    "image": {"image": {"format": "png", "source": {"bytes": bytes(48_000)}}},
    "document": {
        "document": {"format": "pdf", "name": "terms", "source": {"bytes": bytes(48_000)}}
    },
}


@pytest.mark.parametrize("kind", MEDIA)
@pytest.mark.parametrize("said", [[], [{"text": "a chart"}]], ids=["alone", "with text"])
def test_a_condensed_result_notes_its_medium(kind: str, said: list[Any], opened: Any) -> None:
    """The note is in the history, in later requests and in the restored session."""

    chart = stub_tool("chart", lambda: {"status": "success", "content": [*said, MEDIA[kind]]})

    def reply(messages: Any) -> Any:
        if "toolResult" in messages[-1]["content"][0]:
            return "here it is " * 30
        return [call(f"c{len(messages)}", "chart")]

    agent, model = opened(ScriptedModel(reply), tools=[chart], max_tokens=4_096)
    for number in range(6):
        agent(f"the chart of year {number}, please")
    name = ' "terms"' if kind == "document" else ""
    expected = [*(block["text"] for block in said), f"[{kind}{name}, 48 KB, not kept]"]
    assert [item.get("text") for item in tool_results(agent.messages)[0]["content"]] == expected
    check(model, ("bedrock-claude", "bedrock-llama", "anthropic", "gemini"))
    restored, later = opened(ScriptedModel(), tools=[chart], max_tokens=4_096)
    restored("thanks")
    found = [item.get("text") for item in tool_results(later.requests[0].messages)[0]["content"]]
    assert found == expected
    check(later, ("bedrock-claude", "bedrock-llama", "anthropic", "gemini"))


# --- Repeated ids ---------------------------------------------------------------------------------


def test_parallel_calls_of_one_id_keep_their_results_in_the_order_of_the_calls() -> None:
    """Results come as tools finish, and with one id only their order tells whose they are."""

    @tool
    async def look(title: str) -> str:
        """Look for a book."""
        await asyncio.sleep(0.05 if title == "A" else 0)
        return f"{title} is here"

    model = ScriptedModel(
        [[call("call_0", "look", title="A"), call("call_0", "look", title="B")], "both"]
    )
    coordinator = StateCoordinator()
    manager = ImportanceWeightedConversationManager()
    Agent(model=model, tools=[look], plugins=[coordinator], conversation_manager=manager)("look")
    last = model.requests[-1].messages
    calls = [block["toolUse"] for m in last for block in m["content"] if "toolUse" in block]
    assert [(one["toolUseId"], one["input"]["title"]) for one in calls] == [
        ("call_0", "A"),
        ("call_0_2", "B"),
    ]
    assert [result["toolUseId"] for result in tool_results(last)] == ["call_0", "call_0_2"]
    assert texts(last) == ["A is here", "B is here"]
    assert [
        (step.parameters["title"], str(step.status)) for step in coordinator.task.steps.values()
    ] == [("A", "completed"), ("B", "completed")]
    check(model)


def test_a_shortened_result_of_a_repeated_id_is_read_back_under_a_key_of_its_own() -> None:
    list_books = stub_tool("list_books", lambda author: f"books of {author}: {LONG}")

    def reply(messages: Any) -> Any:
        last = messages[-1]["content"][-1]
        return (
            "done" if "toolResult" in last else [call("call_0", "list_books", author=last["text"])]
        )

    manager = TieredCompactionConversationManager(window=6_000, untouched=2)
    agent = Agent(model=ScriptedModel(reply), tools=[list_books], conversation_manager=manager)
    authors = [f"author {number}" for number in range(8)]
    for author in authors:
        agent(author)
    marker = "read_cut_message('"
    notes = [
        text.rpartition(marker)[2].partition("'")[0]
        for text in texts(agent.messages)
        if marker in text
    ]
    assert len(notes) >= 2
    assert len(set(notes)) == len(notes)
    for key in notes:
        result = agent.tool.read_cut_message(name=key, record_direct_tool_call=False)
        shown = next(text for text in texts(agent.messages) if repr(key) in text)
        assert result["content"][0]["text"].startswith(shown[:20])


# --- Results --------------------------------------------------------------------------------------


@pytest.mark.parametrize("restarts", [False, True], ids=["same process", "after a restart"])
def test_the_last_result_counts_after_a_cancelled_resume(opened: Any, *, restarts: bool) -> None:
    """The history has the cancelled resume's result, then the tool's."""

    pay = stub_tool("pay", lambda order: f"paid {order}")

    agent, model = opened(
        ScriptedModel([[call("c1", "pay", order="17")], "done", "again"]), tools=[pay]
    )
    cancels = [True]

    def approve(event: BeforeToolCallEvent) -> None:
        if event.interrupt("approval", reason="pay?") != "yes":
            event.cancel_tool = "denied"

    def cancel_once(event: BeforeToolsEvent) -> None:
        if answers and cancels:
            cancels.pop()
            event.agent.cancel()

    answers: list[Any] = []
    agent.add_hook(approve, BeforeToolCallEvent)
    agent.add_hook(cancel_once, BeforeToolsEvent)
    interrupted = agent("pay 17")
    answers = [
        {"interruptResponse": {"interruptId": interrupted.interrupts[0].id, "response": "yes"}}
    ]
    assert agent(answers).stop_reason == "cancelled"
    assert agent(answers).stop_reason == "end_turn"
    if restarts:
        agent, model = opened(ScriptedModel(), tools=[pay])
    agent("and now?")
    assert texts(model.requests[-1].messages) == ["paid 17"]
    check(model)


@pytest.mark.parametrize("together", [True, False], ids=["parallel", "one after another"])
def test_a_tool_returning_one_object_twice_has_two_results(opened: Any, *, together: bool) -> None:
    """Strands writes the id of each call into the object that the tool returned."""
    shared = {"status": "success", "content": [{"text": "in stock"}]}

    stock = stub_tool("stock", lambda title: shared)

    calls = [call("a", "stock", title="A"), call("b", "stock", title="B")]
    agent, model = opened(
        ScriptedModel([calls, "yes"] if together else [[calls[0]], [calls[1]], "yes"]),
        tools=[stock],
    )
    agent("are they here?")
    shared["content"].append({"text": "changed later"})
    assert [
        (result["toolUseId"], len(result["content"])) for result in tool_results(agent.messages)
    ] == [("a", 1), ("b", 1)]
    check(model)
    restored, later = opened(ScriptedModel(), tools=[stock])
    restored("sure?")
    assert texts(later.requests[-1].messages) == ["in stock", "in stock"]
    check(later)


# --- Injected text --------------------------------------------------------------------------------


def test_nothing_stands_beside_tool_results_with_all_parts_on(tmp_path: Path) -> None:
    """Injected text stands before the user's words, the same in the tool loop."""
    memory = MangaMemory.open(
        durable=f"sqlite:///{tmp_path}/s.db", memories=f"sqlite:///{tmp_path}/m.db"
    )
    user = memory.user("u1")
    user.prefer("genre", "horror")
    user.remember("Has a dog called Momo, who likes the shelf of horror books")

    def reply(messages: Any) -> Any:
        opening = next(
            m for m in reversed(messages) if m["role"] == "user" and "text" in m["content"][-1]
        )
        done = len(tool_results(messages[messages.index(opening) :]))
        is_asked = "shelf are" in opening["content"][-1]["text"] and done < 3
        return [call(f"t{len(messages)}", title=f"Uzumaki {done}")] if is_asked else "ok " * 20

    model = ScriptedModel(reply)
    kwargs = memory.agent_kwargs(
        user_id="u1", session_id="s1", task_state=True, recall=True, max_tokens=600
    )
    agent = Agent(model=model, tools=[find], **kwargs)
    agent("My dog Momo sleeps near the door of the library in Kyoto.")
    for number in range(25):
        agent(f"question {number} about something else entirely, as it comes to my mind")
    before = len(model.requests)
    agent("On which shelf are horror books for my dog Momo, as in ORD-12345?")
    loop = [request.messages for request in model.requests[before:]]
    assert len(loop) == 4
    openings = [
        next(m for m in messages if "shelf are horror" in str(m["content"][-1]))
        for messages in loop
    ]
    injected = "".join(block["text"] for block in openings[0]["content"][:-1])
    assert all(tag in injected for tag in ("<conversation_state>", "<user_memory>"))
    found = openings[0]["content"][-1]
    assert found == {"text": "On which shelf are horror books for my dog Momo, as in ORD-12345?"}
    assert all(opening == openings[0] for opening in openings)
    for messages in loop[1:]:
        assert {kind for block in messages[-1]["content"] for kind in block} == {"toolResult"}
    check(model)
    memory.close()


def test_text_that_another_plugin_adds_beside_results_moves_before_the_users_words() -> None:
    model = ScriptedModel([[call("t1", title="Akira")], "here"])
    agent = Agent(
        model=model,
        tools=[find],
        plugins=[ContextInjector(lambda context: "It is raining.", trigger="everyTurn")],
        conversation_manager=ImportanceWeightedConversationManager(),
    )
    agent("Is it here?")
    assert [block["text"].strip() for block in model.requests[1].messages[0]["content"]] == [
        "It is raining.",
        "Is it here?",
    ]
    check(model)


# --- Random histories -----------------------------------------------------------------------------

MANAGERS: dict[str, Callable[[], Any]] = {
    "importance": lambda: ImportanceWeightedConversationManager(300),
    "summarizing": lambda: VerifiedSummarizingConversationManager(
        SummaryTrigger(tokens=200, turns=2, keep_recent_turns=1),
        trimmer=ImportanceWeightedConversationManager(300),
    ),
    "compaction": lambda: TieredCompactionConversationManager(window=3_000),
}
LEFT_TO_STRANDS = {"formatter raises", "block in a message of the wrong role", "cache points"}
"""Rules that a request may break if bare Strands breaks them with the same history."""


@pytest.mark.parametrize("name", MANAGERS)
@given(history=histories, then=st.sampled_from(["and now?", "find it"]))
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_any_history_gives_valid_requests(name: str, history: list[Any], then: str) -> None:
    def reply(messages: Any) -> Any:
        if messages[-1]["content"][-1].get("text") == "find it":
            return [call("call_0", title="x"), call("call_0", title="y")]
        return "ok"

    bare = ScriptedModel(reply)
    ours = ScriptedModel(reply)
    state = StateCoordinator()
    state.goals.set("find a gift")
    agents = [
        Agent(model=bare, messages=history, tools=[find]),
        Agent(model=ours, messages=history, tools=[find], plugins=[state],
            conversation_manager=MANAGERS[name]()),
    ]  # fmt: skip
    for agent in agents:
        agent(then)
    for request in ours.requests:
        for provider in PROVIDERS:
            found = problems(request.messages, provider)
            assert rules(found) <= LEFT_TO_STRANDS, found
            assert not found or any(problems(each.messages, provider) for each in bare.requests), (
                found
            )


def test_equal_ids_of_answers_stay_apart_in_requests_and_after_a_restart(opened: Any) -> None:
    """Servers such as llama.cpp number the calls of each answer from 0."""

    def reply(messages: Any) -> Any:
        last = messages[-1]["content"][-1]
        if "toolResult" in last:
            return "It stands where I said."
        return [call("call_0", title=last["text"])]

    agent, model = opened(ScriptedModel(reply), tools=[find])
    for title in ("Akira", "Berserk", "Claymore"):
        agent(title)
    assert texts(model.requests[-1].messages) == [
        "Akira is here",
        "Berserk is here",
        "Claymore is here",
    ]
    check(model)
    restored, later = opened(ScriptedModel(), tools=[find])
    restored("thanks")
    assert texts(later.requests[-1].messages) == [
        "Akira is here",
        "Berserk is here",
        "Claymore is here",
    ]
    check(later)


def test_media_that_pile_up_give_way_so_that_later_requests_are_taken() -> None:
    picture = {"image": {"format": "png", "source": {"bytes": bytes(3_200_000)}}}
    paper = {"document": {"format": "pdf", "name": "見積書.pdf", "source": {"bytes": bytes(3_000)}}}
    manager = ImportanceWeightedConversationManager(200_000)
    model = ScriptedModel()
    agent = Agent(model=model, conversation_manager=manager, callback_handler=None)
    for number in range(8):
        agent([{"text": f"look at this, number {number}"}, picture, picture, picture, paper])
    check(model)
    sent = json.dumps(model.requests[-1].messages, default=lambda data: "bytes")
    assert "[image, 3.2 MB, not kept]" in sent
    assert '[document \\"\\u898b\\u7a4d\\u66f8.pdf\\", 3 KB, not kept]' in sent
    assert "not kept" not in json.dumps(agent.messages, default=lambda data: "bytes")
