"""Circuit breakers for an agent's tools, added by ``ExecuteToolStage`` middleware."""

from __future__ import annotations

import threading
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import replace
from typing import Any

from strands.middleware import ExecuteToolContext
from strands.tools.mcp import MCPAgentTool
from strands.types.tools import AgentTool

from strands_manga_memory.arguments import Clock, checked, with_repr
from strands_manga_memory.call_state import with_own_state
from strands_manga_memory.circuit_breaker import BreakerEvent
from strands_manga_memory.mcp.guard import BreakerPolicy, Guard, ToolStatus
from strands_manga_memory.mcp.guarded_tools import GuardedTool


@with_repr("_policy", "_overrides")
class BreakerMiddleware:
    """Middleware that guards every tool of an agent with a circuit breaker.

    Add it with ``agent.add_middleware(ExecuteToolStage, BreakerMiddleware())``. Use it for tools
    that cannot be wrapped, such as tools of plugins, dynamic tools, or the tools of a plain
    ``MCPClient``. Each tool has a breaker of its own. A tool that is guarded already keeps its
    breaker. Agents may share one ``BreakerMiddleware`` and its breakers.

    Unlike ``guard_tool`` and ``GuardedMCPTools``, this middleware has no fallbacks and no cached
    results, and does not follow changes of a server's tools. It cannot be removed from an agent.

    Middleware that is added later gets a ``GuardedTool``, whose attribute ``tool`` is the agent's
    tool. The call's deadline does not include the time of such middleware.

    Args:
        policy: Policy of tools without an override. Default: ``BreakerPolicy()``.
        overrides: Policies of single tools, keyed by tool name.
        clock: Function that returns monotonic seconds.
        on_event: Function that is called with a ``BreakerEvent`` at each change of a breaker's
            state.
    """

    @checked
    def __init__(
        self,
        policy: BreakerPolicy | None = None,
        *,
        overrides: Mapping[str, BreakerPolicy] | None = None,
        clock: Clock = time.monotonic,
        on_event: Callable[[BreakerEvent], None] | None = None,
    ) -> None:
        self._policy = policy or BreakerPolicy()
        self._overrides = dict(overrides or {})
        self._settings: dict[str, Any] = {"clock": clock, "on_event": on_event}
        self._lock = threading.Lock()
        self._guards: dict[tuple[int, str], Guard] = {}

    async def __call__(
        self, context: ExecuteToolContext, next_fn: Callable[[Any], AsyncGenerator[Any, None]]
    ) -> AsyncGenerator[Any, None]:
        """Run one call of a tool, or reject it while the tool's circuit breaker is open."""
        context = with_own_state(context)
        if context.tool is not None and not isinstance(context.tool, GuardedTool):
            context = replace(context, tool=GuardedTool(context.tool, self._guard(context.tool)))
        async for event in next_fn(context):
            yield event

    def status(self) -> dict[str, ToolStatus]:
        """Return health, breaker state and statistics of each called tool, keyed by tool name."""
        return {guard.tool_name: guard.status() for guard in list(self._guards.values())}

    def _guard(self, tool: AgentTool) -> Guard:
        key = (id(tool.mcp_client) if isinstance(tool, MCPAgentTool) else 0, tool.tool_name)
        with self._lock:
            if key not in self._guards:
                policy = self._overrides.get(tool.tool_name) or self._policy
                self._guards[key] = Guard.for_tool(tool, policy, **self._settings)
            return self._guards[key]
