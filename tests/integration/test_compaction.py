"""TieredCompactionConversationManager in a real agent, and its stages one by one."""

import json
from pathlib import Path
from typing import Any

import pytest
from strands import Agent
from strands.agent.conversation_manager.compression.pin_message import pin_message
from strands.session import FileSessionManager
from strands.types.exceptions import ContextWindowOverflowException

from strands_manga_memory import TieredCompactionConversationManager
from strands_manga_memory.conversation import (
    MicroCompaction,
    OverflowReduction,
    SummarySchedule,
    ToolResultCap,
    TurnEviction,
    VerifiedSummary,
    default_counter,
)
from strands_manga_memory.testing import ScriptedModel
from tests.histories import problems
from tests.support import stub_tool
from tests.unit.conversation.messages import assistant, calls, results, user

Manager = TieredCompactionConversationManager


def plain(messages: list[Any]) -> Any:
    return json.loads(json.dumps(messages, default=lambda data: data.hex()))


def tokens(messages: list[Any]) -> int:
    return sum(map(default_counter().count, messages))


def made(
    stages: Any = None,
    *,
    messages: Any = None,
    model: Any = None,
    window: int = 8_192,
    agent: Any = None,
    **more: Any,
) -> Agent:
    return Agent(
        model=model or ScriptedModel(usage=lambda _: 0),
        messages=messages,
        conversation_manager=Manager(stages, window=window, **more),
        retry_strategy=None,
        **(agent or {}),
    )


def tool_turn(number: int, *sizes: int) -> list[Any]:
    ids = [f"call-{number}-{index}" for index in range(len(sizes))]
    found = results(*ids)
    for block, size in zip(found["content"], sizes, strict=True):
        block["toolResult"]["content"] = [
            {"text": f"begin{number} " + "result " * (size // 7) + f"end{number}"}
        ]
    return [user(f"question {number}"), calls(*ids), found, assistant("It is on the shelf.")]


def chat(turns: int, words: str = "about the tower ") -> list[Any]:
    return [
        message
        for number in range(turns)
        for message in (user(f"q{number} {words * 8}"), assistant(f"a{number} {words * 24}"))
    ]


def compacted(stage: Any, messages: list[Any], **more: Any) -> Agent:
    agent = made([stage], messages=messages, **more)
    agent.conversation_manager.apply_management(agent)
    assert problems(agent.messages) == []
    return agent


def test_results_of_a_message_share_the_cap_and_can_be_read_in_full() -> None:
    messages = [*tool_turn(1, 30_000, 600, 14_000), *chat(30)]
    agent = compacted(ToolResultCap(), list(messages))
    texts = [block["toolResult"]["content"][0]["text"] for block in agent.messages[2]["content"]]
    assert sum(map(len, texts)) <= 10_000
    assert texts[1] == messages[2]["content"][1]["toolResult"]["content"][0]["text"]
    assert texts[0].startswith("begin1 ")
    assert "end1" in texts[0]
    name = texts[0].partition("read_cut_message('")[2].partition("'")[0]
    assert agent.messages[2]["tracking_id"].startswith(name)
    read = ""
    while True:
        page = agent.tool.read_cut_message(
            name=name, offset=len(read), record_direct_tool_call=False
        )
        read += page["content"][0]["text"].split("\n[characters")[0]
        if "\n[characters" not in page["content"][0]["text"]:
            break
    assert read == "\n".join(b["toolResult"]["content"][0]["text"] for b in messages[2]["content"])
    nothing = agent.tool.read_cut_message(name="none", record_direct_tool_call=False)
    assert "There is no message" in nothing["content"][0]["text"]


def test_results_below_the_cap_share_it_too() -> None:
    agent = compacted(ToolResultCap(), [*tool_turn(1, 9_000, 9_000), *chat(60)])
    found = sum(
        len(block["toolResult"]["content"][0]["text"]) for block in agent.messages[2]["content"]
    )
    assert found <= 10_000


def test_a_long_text_beside_results_does_not_count_for_their_cap() -> None:
    turn = tool_turn(1, 700)
    turn[2]["content"].append({"text": "Read this, too. " * 60})
    assert compacted(ToolResultCap(1_000), [*turn, *chat(60)]).messages[2] == turn[2]


def test_snip_drops_the_oldest_of_low_importance_and_nothing_else() -> None:
    low = [
        message
        for number in range(40)
        for message in (user("Hello! " * 15), assistant("You're welcome! " * 7))
    ]
    important = [
        user("I prefer horror manga. " * 10),
        assistant("Noted, you like horror manga. " * 10),
    ]
    messages = [
        user("first question"),
        assistant("first answer"),
        *low[:20],
        *important,
        *low[20:],
        *chat(5),
    ]
    agent = compacted(TurnEviction(), list(messages), window=2_048)
    assert agent.messages[:2] == messages[:2]
    assert important[0] in agent.messages
    assert agent.messages[-10:] == messages[-10:]
    assert tokens(agent.messages) < tokens(messages)


def test_micro_compaction_compresses_oldest_results_until_it_is_enough() -> None:
    messages = [*(m for number in range(12) for m in tool_turn(number, 5_000)), *chat(5)]
    agent = compacted(MicroCompaction(), list(messages))
    cut = [
        "read_cut_message(" in json.dumps(message)
        for message in agent.messages
        if "toolResult" in message["content"][0]
    ]
    assert cut == sorted(cut, reverse=True)
    assert True in cut
    assert False in cut
    goal = agent.conversation_manager.thresholds(agent).target
    assert tokens(agent.messages) <= goal


@pytest.mark.parametrize("stage", [TurnEviction(), MicroCompaction()])
def test_the_latest_ten_and_pinned_messages_are_not_touched(stage: Any) -> None:
    messages = [
        *chat(28),
        *tool_turn(1, 12_000),
        *tool_turn(2, 12_000),
        user("Hello!"),
        assistant("Hello!"),
    ]
    agent = made([stage], messages=list(messages))
    at = next(at for at, message in enumerate(messages) if "toolResult" in message["content"][0])
    pin_message(agent.messages, at)
    before = plain(agent.messages)
    agent.conversation_manager._manage(agent)
    assert agent.conversation_manager.stats().compactions == 1
    assert plain(agent.messages)[-10:] == before[-10:]
    assert before[at] in plain(agent.messages)


def test_later_stages_run_only_if_needed() -> None:
    few = [*tool_turn(1, 40_000), *chat(12)]
    agent = made(messages=few)
    agent.conversation_manager.apply_management(agent)
    stats = agent.conversation_manager.stats()
    assert {name: stage.runs for name, stage in stats.stages.items()} == {
        "tool-result cap": 1,
        "turn eviction": 0,
        "micro-compaction": 0,
        "summary": 0,
        "overflow reduction": 0,
    }
    assert stats.stages["tool-result cap"].enough == 1
    assert stats.stages["tool-result cap"].freed > 4_000


def test_the_summary_comes_last_and_in_the_background() -> None:
    summary = VerifiedSummary(model=lambda _: "They talked about the tower.")
    agent = made(
        [ToolResultCap(), TurnEviction(), MicroCompaction(), summary, OverflowReduction()],
        model=ScriptedModel(lambda _: "word " * 150, usage=lambda _: 0),
    )
    for number in range(40):
        agent(f"question {number} for my friend Name{number}x " + "tell me " * 20)
        summary.manager.finish(agent)
    stats = agent.conversation_manager.stats()
    assert summary.manager.stats().swapped >= 1
    assert stats.stages["summary"].freed > 0
    assert "They talked about the tower." in json.dumps(agent.messages)
    assert all(f"Name{number}x" in json.dumps(agent.messages) for number in range(40))
    assert all(problems(request.messages) == [] for request in agent.model.requests)
    assert max(tokens(request.messages) for request in agent.model.requests) < 8_192


def test_stages_can_be_listed_in_any_order_and_be_ones_own() -> None:
    class Mine:
        name = "mine"

        def apply(self, compaction: Any) -> Any:
            return compaction.messages[-4:]

    agent = made([Mine(), ToolResultCap()], messages=chat(60))
    agent.conversation_manager.apply_management(agent)
    assert len(agent.messages) == 4
    assert agent.conversation_manager.stats().stages["mine"].enough == 1


def test_messages_that_were_removed_meanwhile_do_not_return() -> None:
    class Late:
        name = "late"

        def apply(self, compaction: Any) -> Any:
            del compaction.agent.messages[-2:]  # as a redaction in another thread does
            return compaction.messages[2:]

    messages = chat(60)
    agent = made([Late()], messages=messages)
    removed = [message["content"] for message in messages[-2:]]
    agent.conversation_manager.apply_management(agent)
    assert [message["content"] for message in agent.messages if message["content"] in removed] == []


class Failing:
    """A stage that raises, or replaces messages without making the history smaller."""

    name = "failing"

    def __init__(self, error: Exception | None) -> None:
        self.error = error

    def apply(self, compaction: Any) -> Any:
        if self.error is not None:
            raise self.error
        return [dict(message) for message in compaction.messages]


@pytest.mark.parametrize("error", [OSError("the disk is full"), None])
def test_three_failures_stop_it(error: Exception | None, caplog: pytest.LogCaptureFixture) -> None:
    """Compaction stops after three failures in a row, and logs a warning."""
    agent = made([Failing(error)], messages=chat(60), window=8_192)
    for number in range(5):
        agent.messages += [user(f"and {number}"), assistant("yes")]
        agent.conversation_manager._manage(agent)
    stats = agent.conversation_manager.stats()
    assert stats.stopped
    assert stats.compactions == 3
    assert "compaction failed too often and stops" in caplog.text


def test_a_real_overflow_is_answered_and_a_hopeless_one_raised() -> None:
    script: list[Any] = [ContextWindowOverflowException("full"), "fine"]
    agent = made(messages=chat(30), model=ScriptedModel(script, usage=lambda _: 0), window=200_000)
    agent("now")
    found = tokens(agent.model.requests[-1].messages)
    assert found <= tokens(agent.model.requests[0].messages) // 2
    assert problems(agent.model.requests[-1].messages) == []

    hopeless = made(model=ScriptedModel(lambda _: ContextWindowOverflowException("full")))
    with pytest.raises(ContextWindowOverflowException):
        hopeless("hello")
    assert len(hopeless.model.requests) < 10


def test_a_huge_result_in_the_middle_of_a_turn_fits_the_window() -> None:
    search = stub_tool("search", "found " * 40_000)
    replies = [
        *[[{"toolUse": {"toolUseId": f"t{at}", "name": "search", "input": {}}}] for at in range(3)],
        "done",
    ]
    agent = made(model=ScriptedModel(replies, usage=lambda _: 0), agent={"tools": [search]})
    agent("look it up")
    assert max(tokens(request.messages) for request in agent.model.requests) < 8_192
    assert all(problems(request.messages) == [] for request in agent.model.requests)


def test_a_restart_restores_exactly(tmp_path: Path) -> None:
    def agent() -> Agent:
        stages = [
            ToolResultCap(),
            TurnEviction(),
            MicroCompaction(),
            VerifiedSummary(
                model=lambda _: "They talked.", schedule=SummarySchedule(strategy="inline")
            ),
            OverflowReduction(),
        ]
        session = FileSessionManager("s", storage_dir=str(tmp_path))
        return made(
            stages,
            model=ScriptedModel(lambda _: "word " * 150, usage=lambda _: 0),
            agent={"session_manager": session},
        )

    live = agent()
    for number in range(40):
        live(f"question {number} " + "tell me " * 40)
    assert "They talked." in json.dumps(live.messages)
    assert plain(agent().messages) == plain(live.messages)
