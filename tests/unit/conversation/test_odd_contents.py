"""A history stays within its budget with blocks of any shape."""

import logging
import math
from collections.abc import AsyncGenerator
from typing import Any

import pytest
from strands import Agent
from strands.types.tools import AgentTool

from strands_manga_memory.conversation import (
    HistoryRecall,
    ImportanceWeightedConversationManager,
    SummaryTrigger,
    TieredCompactionConversationManager,
    VerifiedSummarizingConversationManager,
)
from strands_manga_memory.state import StateCoordinator
from strands_manga_memory.testing import ScriptedModel
from tests.support import tool_results
from tests.unit.conversation.messages import Silent

LONG = "long " * 3_000


def nested(levels: int) -> Any:
    value: Any = LONG
    for level in range(levels):
        value = [value] if level % 2 else {"in": value}
    return value


CONTENTS: list[Any] = [
    LONG,
    None,
    7,
    {"text": LONG},
    ["a", LONG, None],
    [{"text": None}, {"text": 42}, {"text": [LONG]}],
    [{"json": nested(300)}],
    [{"json": {"set": {1}, 5: LONG, "nan": math.nan, "bytes": b"\x00" * 9_000}}],
    [
        {"json": {"long": 10**5_000, "silent": Silent(), "set": {Silent(), Silent()}}},
        {"text": LONG},
    ],
    [{"text": "\ud800" * 9_000}],
    [{"image": None}, {"document": {}}, {"image": {"source": None}}, {"video": 5}, {"text": LONG}],
    [{"x": LONG}, {}, {"text": LONG, "json": 2}],
]
"""Contents of a tool result: texts, values, blocks of unknown kinds, none."""


class AnyTool(AgentTool):
    """Returns each of the contents in turn."""

    tool_name = property(lambda self: "any")
    tool_type = property(lambda self: "any")
    tool_spec = property(
        lambda self: {"name": "any", "description": "Any.", "inputSchema": {"json": {}}}
    )

    def __init__(self) -> None:
        super().__init__()
        self.left = list(CONTENTS)

    async def stream(
        self, tool_use: Any, invocation_state: Any, **kwargs: Any
    ) -> AsyncGenerator[Any, None]:
        yield {"toolUseId": tool_use["toolUseId"], "status": "success", "content": self.left.pop(0)}


def reply(messages: Any) -> Any:
    last = messages[-1]["content"][0]
    if last.get("text") == "use it":
        return [{"toolUse": {"toolUseId": f"t{len(messages)}", "name": "any", "input": {}}}]
    return "I see. " * 30


MANAGERS = {
    "importance": lambda: ImportanceWeightedConversationManager(600),
    "summarize": lambda: VerifiedSummarizingConversationManager(
        SummaryTrigger(tokens=500, turns=3)
    ),
    "compaction": TieredCompactionConversationManager,
}


@pytest.mark.parametrize("manager", MANAGERS)
def test_contents_of_any_shape_are_trimmed(manager: str, caplog: pytest.LogCaptureFixture) -> None:
    model = ScriptedModel(reply, usage=lambda _: 0)
    model.config["context_window_limit"] = 8_000
    plugins = [HistoryRecall(), StateCoordinator()]
    agent = Agent(
        model=model, tools=[AnyTool()], conversation_manager=MANAGERS[manager](), plugins=plugins
    )
    with caplog.at_level(logging.WARNING):
        for number in range(len(CONTENTS)):
            agent("use it")
            agent(f"and number {number}? " * 20)
        agent.conversation_manager.reduce_context(agent)
    failed = [
        record.message
        for record in caplog.records
        if "error=<" in record.message or "failed" in record.message
    ]
    assert failed == []
    assert all(result["status"] == "success" for result in tool_results(agent.messages))


class Wrapper:
    """Streams what a model says, and has nothing else of one."""

    stateful = False

    def __init__(self) -> None:
        self._model = ScriptedModel(reply)

    def stream(self, *arguments: Any, **named: Any) -> Any:
        return self._model.stream(*arguments, **named)


class Silenced(ScriptedModel):
    """Does not say how it is configured."""

    def get_config(self) -> Any:
        raise RuntimeError("no configuration")


@pytest.mark.parametrize(
    "model", [Wrapper, lambda: Silenced(reply)], ids=["no configuration", "one that raises"]
)
@pytest.mark.parametrize("manager", MANAGERS)
def test_a_model_that_does_not_say_how_it_is_configured_is_worked_with(
    manager: str, model: Any, caplog: pytest.LogCaptureFixture
) -> None:
    agent = Agent(model=model(), conversation_manager=MANAGERS[manager]())
    with caplog.at_level(logging.WARNING):
        for number in range(6):
            agent(f"and number {number}? " * 20)
        agent.conversation_manager.reduce_context(agent)
    assert [
        record.message
        for record in caplog.records
        if "error=<" in record.message or "failed" in record.message
    ] == []
