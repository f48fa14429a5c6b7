"""Copying and ordering of the tool results of an agent.

A tool may return the same dict for two calls. Strands writes the id of the call into that dict, so both results would have the
id of the second call. Results of calls with the same id can only be distinguished by their order.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any, cast

from strands.hooks import AfterToolCallEvent, AfterToolsEvent, HookRegistry
from strands.types.tools import ToolResult


class ToolResultSeparator:
    """Hook callbacks that give each tool call its own copy of its result.

    If several calls of a message have the same id, their results are put in the order of the calls.
    """

    __slots__ = ("_calls",)

    def __init__(self) -> None:
        self._calls: list[tuple[ToolResult, int]] = []

    def register(self, registry: HookRegistry, order: float) -> None:
        """Register the callbacks that copy and order the results of tool calls.

        Args:
            registry: Hook registry of the agent.
            order: Order of the callback that copies results. It must run after callbacks that may replace a result.
        """
        registry.add_callback(AfterToolCallEvent, self._copy_result, order=order)
        registry.add_callback(AfterToolsEvent, self._order_results)

    def _copy_result(self, event: AfterToolCallEvent[Any]) -> None:
        id_ = str(event.tool_use["toolUseId"])
        content = copy.deepcopy(event.result["content"])
        event.result = cast("ToolResult", {**event.result, "toolUseId": id_, "content": content})
        alike = _calls_alike(event.agent, event.tool_use)
        if len(alike) > 1:
            self._calls.append((event.result, _position(alike, event.tool_use)))

    def _order_results(self, event: AfterToolsEvent) -> None:
        calls, self._calls = self._calls, []
        if not calls:
            return
        blocks = [block for block in event.message["content"] if "toolResult" in block]
        known = {id(result): position for result, position in calls}
        shared = [block for block in blocks if id(block["toolResult"]) in known]
        ordered = iter(sorted(shared, key=lambda block: known[id(block["toolResult"])]))
        content = event.message["content"]
        content[:] = [next(ordered) if id(block.get("toolResult")) in known else block for block in content]


def call_key(agent: Any, tool_use: Mapping[str, Any]) -> str:
    """Return a key of a tool call that is unique within its message: its id, with a suffix if the id is repeated."""
    id_ = str(tool_use["toolUseId"])
    position = _position(_calls_alike(agent, tool_use), tool_use)
    return f"{id_}#{position + 1}" if position else id_


def _calls_alike(agent: Any, tool_use: Mapping[str, Any]) -> list[Any]:
    """Return the tool calls in the agent's last message that have the same id as ``tool_use``, with ``tool_use`` among them."""
    messages = agent.messages
    content = messages[-1]["content"] if messages and messages[-1]["role"] == "assistant" else ()
    uses = [block["toolUse"] for block in content if "toolUse" in block]
    return [use for use in uses if str(use.get("toolUseId")) == str(tool_use["toolUseId"])]


def _position(calls: Sequence[Any], tool_use: Mapping[str, Any]) -> int:
    """Return the position of the tool call ``tool_use`` in a list of calls. 0 if the list has no equal call."""
    same = (at for at, call in enumerate(calls) if call is tool_use)
    equal = (at for at, call in enumerate(calls) if call == tool_use)
    return next(same, next(equal, 0))
