"""Tool of a server that needs the customer's id, which the model can neither see nor choose."""

from __future__ import annotations

import copy
from typing import Any

from strands.types.tools import AgentTool, ToolGenerator, ToolSpec, ToolUse

_ARGUMENT = "customer"


class CustomerTool(AgentTool):
    """Tool that gets its customer from ``SessionStrandsAgent``, never from the model."""

    def __init__(self, tool: AgentTool) -> None:
        super().__init__()
        self._tool = tool
        self._spec = copy.deepcopy(tool.tool_spec)
        schema = self._spec["inputSchema"]["json"]
        del schema["properties"][_ARGUMENT]
        schema["required"] = [name for name in schema["required"] if name != _ARGUMENT]

    @property
    def tool_name(self) -> str:
        """Name of the tool."""
        return self._tool.tool_name

    @property
    def tool_spec(self) -> ToolSpec:
        """Specification of the tool, without the customer."""
        return self._spec

    @property
    def tool_type(self) -> str:
        """Type of the tool."""
        return self._tool.tool_type

    async def stream(
        self, tool_use: ToolUse, invocation_state: dict[str, Any], **kwargs: Any
    ) -> ToolGenerator:
        """Call the tool for the user of the current turn."""
        arguments = {**tool_use["input"], _ARGUMENT: invocation_state["user_id"]}
        use: ToolUse = {**tool_use, "input": arguments}
        async for event in self._tool.stream(use, invocation_state, **kwargs):
            yield event
