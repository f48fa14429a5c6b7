"""A restored agent has exactly the live one's messages, in all combinations."""

import asyncio
import copy
import itertools
import threading
from collections.abc import Callable
from typing import Any

import pytest
from strands import Agent
from strands.agent.conversation_manager import (
    NullConversationManager,
    SlidingWindowConversationManager,
)
from strands.hooks import AfterInvocationEvent, BeforeModelCallEvent, MessageAddedEvent

from strands_manga_memory.testing import ScriptedModel
from tests.support import WatchedStore
from tests.unit.session.support import (
    BLOCKS,
    KINDS,
    Stores,
    agent,
    assistant,
    check_restored,
    find,
    open_stores,
    same,
    texts,
    tool_turns,
    tool_use,
    user,
)

EDITS: dict[str, Callable[[Agent], Any]] = {
    "in place": lambda agent: agent.messages[1]["content"].append({"text": "edited"}),
    "deep in place": lambda agent: agent.messages[0]["content"][0].update(text="other words"),
    "replaced message": lambda agent: agent.messages.__setitem__(0, user("replaced")),
    "replaced list": lambda agent: setattr(agent, "messages", agent.messages[2:]),
    "removed in the middle": lambda agent: agent.messages.__delitem__(slice(2, 4)),
    "removed first": lambda agent: agent.messages.pop(0),
    "all removed": lambda agent: agent.messages.clear(),
    "reordered": lambda agent: agent.messages.reverse(),
    "rotated": lambda agent: agent.messages.append(agent.messages.pop(0)),
    "doubled": lambda agent: agent.messages.extend(copy.deepcopy(agent.messages[:2])),
    "the same object twice": lambda agent: agent.messages.append(agent.messages[0]),
    "synthesized": lambda agent: agent.messages.insert(
        2, assistant("[summary]", metadata={"custom": {"by": "hand"}})
    ),
    "without ids": lambda agent: [message.pop("tracking_id") for message in agent.messages],
    "same ids": lambda agent: [message.update(tracking_id="same") for message in agent.messages],
    "unknown keys": lambda agent: agent.messages[0].update(later={"version": [1, None, "x"]}),
    "two user messages": lambda agent: agent.messages.insert(0, user("one more")),
    "empty content": lambda agent: agent.messages[0].update(content=[]),
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_turn_is_restored_exactly(kind: str, request: pytest.FixtureRequest) -> None:
    stores = open_stores(kind, request)
    live = stores.agent()
    for number in range(12):
        live.state.set("count", number)
        live.state.set("of another type", (1, True, 1.0, float("nan"))[number % 4])
        live(f"question {number} and half of an emoji \ud83d")
        restored = check_restored(stores, live).state.get()
        assert sorted(map(repr, restored.items())) == sorted(map(repr, live.state.get().items()))
    assert live._session_manager.stats()["turns"] == 12
    assert live._session_manager.stats()["unsaved_messages"] == 0


@pytest.mark.parametrize("edit", EDITS)
def test_hand_edits_between_turns(both: Stores, edit: str) -> None:
    live = both.agent()
    for number in range(4):
        live(f"question {number}")
    EDITS[edit](live)
    live._session_manager.flush()
    check_restored(both, live)
    live("and now")
    check_restored(both, live)
    EDITS[edit](live)
    live("and again")
    check_restored(both, live)
    logged = texts(live._session_manager.history())
    assert logged == [text for n in range(4) for text in (f"question {n}", "ok")] + [
        "and now",
        "ok",
        "and again",
        "ok",
    ]


def test_hand_edits_inside_a_turn(stores: Stores) -> None:
    def shorten(event: BeforeModelCallEvent) -> None:
        for message in event.agent.messages[:-1]:
            for block in message["content"]:
                if "toolResult" in block:
                    block["toolResult"]["content"] = [{"text": "cut"}]

    def summarize(event: AfterInvocationEvent) -> None:
        messages = event.agent.messages
        if len(messages) > 8:  # whole turns: a result without its call is left out at a restore
            latest = max(
                at
                for at, each in enumerate(messages)
                if each["role"] == "user" and "text" in each["content"][0]
            )
            messages[:latest] = [user("summary of what was before"), assistant("understood")]

    live = stores.agent(tool_turns(), tools=[find])
    live.hooks.add_callback(BeforeModelCallEvent, shorten)
    live.hooks.add_callback(AfterInvocationEvent, summarize)
    for number in range(9):
        live(f"question {number}")
        check_restored(stores, live)


def test_an_edit_while_a_part_of_the_turn_is_being_saved(request: pytest.FixtureRequest) -> None:
    """The edited message keeps its place in the turn."""
    is_saving, is_edited = threading.Event(), threading.Event()
    stores = open_stores("sqlite", request)
    assert stores.durable is not None

    def held(name: str, *_: Any, **__: Any) -> None:
        if name == "put":
            is_saving.set()
            assert is_edited.wait(20)

    stores.durable = WatchedStore(stores.durable, held)
    model = ScriptedModel(
        [[tool_use("u1", "find", title="x")], [tool_use("u2", "find", title="y")], "found both"]
    )
    live = stores.agent(model, tools=[find], durable_deadline=0.01)

    async def shorten(event: BeforeModelCallEvent) -> None:
        if len(event.agent.messages) == 5:
            assert await asyncio.to_thread(is_saving.wait, 20)
            event.agent.messages[2]["content"][0]["toolResult"]["content"] = [{"text": "cut"}]

    live.hooks.add_callback(BeforeModelCallEvent, shorten)
    live("question")
    is_edited.set()
    live._session_manager.flush()
    check_restored(stores, live)


def test_edits_by_a_later_hook_of_the_same_message(both: Stores) -> None:
    def mark(event: MessageAddedEvent) -> None:
        event.message["content"].append({"text": "marked"})

    live = both.agent()
    live.hooks.add_callback(MessageAddedEvent, mark)
    for number in range(3):
        live(f"question {number}")
        check_restored(both, live)


def test_every_content_block_comes_back(stores: Stores) -> None:
    live = stores.agent()
    for name, block in BLOCKS.items():
        if name not in ("tool use", "tool result", "reasoning", "redacted"):
            live([copy.deepcopy(block), {"text": name}])
    live.messages += [
        user("use it"),
        assistant(*(copy.deepcopy(BLOCKS[name]) for name in ("reasoning", "redacted", "tool use"))),
        user(copy.deepcopy(BLOCKS["tool result"])),
        assistant("there"),
    ]
    live("and on")
    check_restored(stores, live)
    restored = stores.agent()
    kinds = {key for message in restored.messages for block in message["content"] for key in block}
    assert kinds >= {key for block in BLOCKS.values() for key in block}


def test_a_thousand_messages(both: Stores) -> None:
    messages = [message for n in range(500) for message in (user(f"question {n}"), assistant("ok"))]
    live = both.agent(messages=messages, conversation_manager=NullConversationManager())
    live("the last")
    check_restored(both, live)
    assert same(list(both.manager().history()), live.messages)


def test_seed_messages_get_an_id_and_are_kept_beside_metadata(both: Stores) -> None:
    manager = both.manager()
    manager.set_metadata(locale="ja")
    live = agent(manager, messages=[user("seed"), assistant("seeded")])
    live("hello")
    assert all(message["tracking_id"] for message in live.messages)
    restored = check_restored(both, live, messages=[user("other seed")])
    assert texts(restored.messages) == texts(manager.history()) == ["seed", "seeded", "hello", "ok"]
    assert both.manager().metadata()["locale"] == "ja"


@pytest.mark.parametrize("window", [2, 100], ids=["evicted", "kept"])
def test_the_same_list_three_times_is_three_turns(both: Stores, window: int) -> None:
    live = both.agent(conversation_manager=SlidingWindowConversationManager(window))
    prompt = [user("again")]
    for _ in range(3):
        live(prompt)
        live("something else")
        check_restored(both, live, lambda: SlidingWindowConversationManager(window))
    assert texts(live._session_manager.history()) == ["again", "ok", "something else", "ok"] * 3
    assert live._session_manager.stats()["turns"] == 6


def test_direct_tool_calls_are_saved_with_the_next_event_and_by_flush(both: Stores) -> None:
    live = both.agent(tools=[find])
    live.tool.find(title="Monster")
    live._session_manager.close()
    check_restored(both, live)
    live("hello")
    live.tool.find(title="Akira")
    live._session_manager.flush()
    check_restored(both, live)
    live.tool.find(title="Blame")
    live("what was that")
    check_restored(both, live)
    assert len(live.messages) == 16
    assert same(list(live._session_manager.history()), live.messages)


def test_a_failed_model_call_leaves_what_the_live_one_has(both: Stores) -> None:
    live = both.agent(ScriptedModel(["fine", RuntimeError("the model is down"), "back"]))
    live("one")
    with pytest.raises(RuntimeError, match="the model is down"):
        live("two")
    check_restored(both, live)
    assert texts(both.agent().messages) == ["one", "ok".replace("ok", "fine"), "two"]
    live("three")
    check_restored(both, live)
    assert texts(live._session_manager.history()) == ["one", "fine", "two", "three", "back"]


def test_an_unfinished_turn_is_restored_as_it_was(stores: Stores) -> None:
    live = stores.agent(
        ScriptedModel([[tool_use("t", "find", title="x")], "never"]), tools=[find], flush_every=1
    )
    seen: list[list[str]] = []

    def look(event: MessageAddedEvent) -> None:
        """See what a new process would restore if this one died now."""
        live._session_manager.flush()
        seen.append(texts(stores.agent().messages))

    live.hooks.add_callback(MessageAddedEvent, look, order=1000)
    live("start")
    assert seen == [
        ["start"],
        ["start", "toolUse"],
        ["start", "toolUse", "toolResult"],
        ["start", "toolUse", "toolResult", "never"],
    ]
    assert texts(stores.manager().history()) == ["start", "toolUse", "toolResult", "never"]
    check_restored(stores, live)


def test_a_trailing_tool_call_without_interrupt_is_answered(both: Stores) -> None:
    live = both.agent(messages=[user("use it"), assistant(tool_use("t", "find", title="x"))])
    live._session_manager.flush()
    restored = both.agent(tools=[find])
    assert texts(restored.messages) == ["use it", "toolUse"]
    # Strands answers the call before a prompt, with a message that is no part of the conversation.
    restored("go on")
    check_restored(both, restored)
    assert texts(both.manager().history()) == ["use it", "toolUse", "go on", "ok"]
    assert [message["role"] for message in restored.model.requests[-1].messages] == [
        "user",
        "assistant",
    ] * 2 + ["user"]


@pytest.mark.parametrize("late", [False, True], ids=["never", "too late"])
def test_a_tool_call_in_the_middle_is_answered_in_requests_alone(late: bool, both: Stores) -> None:
    result = user(
        {"toolResult": {"toolUseId": "t", "status": "success", "content": [{"text": "found"}]}}
    )
    seeds = [
        user("find it"),
        assistant(tool_use("t", "find", title="x")),
        user("no"),
        *([result] if late else []),
        assistant("b"),
    ]
    log = [*texts(seeds), "one", "ok"]
    live = both.agent(messages=seeds)
    live("one")
    live._session_manager.flush()
    restored = both.agent()
    assert texts(restored.messages) == log
    restored("two")
    check_restored(both, restored)
    assert texts(both.manager().history()) == [*log, "two", "ok"]
    sent = restored.model.requests[-1].messages
    answer = sent[2]["content"][0]["toolResult"]
    assert (answer["toolUseId"], answer["status"]) == ("t", "success" if late else "error")
    assert all(one["role"] != other["role"] for one, other in itertools.pairwise(sent))
