"""ToolDeadline: ends tools that never do, as ``ExecuteToolStage`` middleware."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from typing import Any

from strands.middleware import ExecuteToolContext, ToolResultEvent

from strands_manga_memory.call_state import with_own_state
from strands_manga_memory.deadline import END, DeadlineError, Pump
from strands_manga_memory.messages.tool_results import call_key

_GRACE = 0.1
_AGENT = "agent"
"""Type of agents that are used as tools: they have a budget of their own."""


class ToolDeadline:
    """Stops a tool call that takes longer than it may, and gives the model an error result it can act on."""

    def __init__(self, timeout_ms: float, timed_out: Callable[[str], None]) -> None:
        self._timeout_ms = timeout_ms
        self._timed_out = timed_out

    async def __call__(
        self, context: ExecuteToolContext, next_fn: Callable[[Any], AsyncGenerator[Any, None]]
    ) -> AsyncGenerator[Any, None]:
        """Run one call of a tool."""
        context = with_own_state(context)
        in_background = type(context) is not ExecuteToolContext  # those may take as long as they need
        if in_background or context.tool is None or context.tool.tool_type == _AGENT:
            async for event in next_fn(context):
                yield event
            return
        pump = Pump(next_fn(context), timeout=self._timeout_ms / 1000, grace=_GRACE)
        answered = False
        try:
            while (event := await pump.next()) is not END:
                answered = answered or isinstance(event, ToolResultEvent)
                yield event
        except DeadlineError:
            if answered:  # what was too slow is not the tool, but middleware after it
                return
            id_ = str(context.tool_use["toolUseId"])
            self._timed_out(call_key(context.agent, context.tool_use))
            text = (
                f"{context.tool_use['name']} was stopped after {self._timeout_ms:.0f} ms without an answer; it may still have "
                "had an effect. Answer with what you have."
            )
            yield ToolResultEvent({"toolUseId": id_, "status": "error", "content": [{"text": text}]})
        finally:
            await pump.close()
