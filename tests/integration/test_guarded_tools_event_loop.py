"""Long texts of guarded tools do not hold up the event loop."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from strands import Agent, tool
from strands.middleware.stages import ExecuteToolStage

from strands_manga_memory import guard_tool
from strands_manga_memory.mcp import BreakerMiddleware
from strands_manga_memory.testing import ScriptedModel
from tests import clocks
from tests.support import tool_results
from tests.unit.session.support import tool_use

_MEGABYTES = 20
_UNITS = ["Connection ", "could not ", "x", "session not ", "password=", "eyJaaaaaaaa."]
_CALL = tool_use("t1", "report")


async def _longest_pause(agent: Agent) -> float:
    """Run a turn, and return the longest time in which nothing else ran on the event loop."""
    async with clocks.Loop() as loop:
        await agent.invoke_async("Go on.")
    return loop.longest


def _said(agent: Agent) -> str:
    return str(tool_results(agent.messages)[0])


@pytest.mark.parametrize("unit", _UNITS)
@pytest.mark.parametrize(("is_raised", "middleware"), [(True, False), (True, True), (False, False)])
async def test_huge_error_text_blocks_no_loop(unit: str, is_raised: bool, middleware: bool) -> None:
    """The rules read only the beginning of an error text."""
    text = "Tool execution failed: " + unit * (_MEGABYTES * 1_000_000 // len(unit))

    @tool
    def report() -> dict[str, Any]:
        """Fail with a long text."""
        if is_raised:
            raise RuntimeError(text)
        return {"status": "error", "content": [{"text": text}]}

    agent = Agent(model=ScriptedModel([[_CALL], "done"]), tools=[report])
    if middleware:
        agent.add_middleware(ExecuteToolStage, BreakerMiddleware())
    else:
        agent = Agent(model=ScriptedModel([[_CALL], "done"]), tools=[guard_tool(report)])
    assert await _longest_pause(agent) < 0.5
    assert len(_said(agent)) < 5_000


async def test_a_partial_result_of_megabytes_does_not_block_the_event_loop() -> None:
    """Only the quoted part of a streamed result is encoded."""
    chunks: list[Any] = ["y" * 30_000_000, *[{"data": [["z" * 10] * 3000] * 3000}] * 2]

    @tool
    async def report() -> AsyncIterator[Any]:
        """Stream a lot, then fail."""
        for chunk in chunks:
            yield chunk
        raise RuntimeError("the source went away")

    agent = Agent(model=ScriptedModel([[_CALL], "done"]), tools=[guard_tool(report)])
    assert await _longest_pause(agent) < 0.3
    assert "yyyy" in _said(agent)
    assert "zzzz" in _said(agent)
    assert len(_said(agent)) < 10_000
