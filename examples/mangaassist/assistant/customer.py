"""CustomerTool: a tool of a server that must know who asks, which the model neither sees nor says."""

from __future__ import annotations

import copy
from typing import Any

from strands.types.tools import AgentTool, ToolGenerator, ToolSpec, ToolUse

_ARGUMENT = "customer"


class CustomerTool(AgentTool):
    """Passes the user on that ``SessionStrandsAgent`` puts into the invocation state; what a model says is replaced."""

    def __init__(self, tool: AgentTool) -> None:
        super().__init__()
        self._tool = tool
        self._spec = copy.deepcopy(tool.tool_spec)
        schema = self._spec["inputSchema"]["json"]
        del schema["properties"][_ARGUMENT]
        schema["required"] = [name for name in schema["required"] if name != _ARGUMENT]

    @property
    def tool_name(self) -> str:
        """The tool's name."""
        return self._tool.tool_name

    @property
    def tool_spec(self) -> ToolSpec:
        """The tool's specification, without the customer."""
        return self._spec

    @property
    def tool_type(self) -> str:
        """The tool's type."""
        return self._tool.tool_type

    async def stream(self, tool_use: ToolUse, invocation_state: dict[str, Any], **kwargs: Any) -> ToolGenerator:
        """Call the tool for the user whose turn it is."""
        arguments = {**tool_use["input"], _ARGUMENT: invocation_state["user_id"]}
        use: ToolUse = {**tool_use, "input": arguments}
        async for event in self._tool.stream(use, invocation_state, **kwargs):
            yield event
