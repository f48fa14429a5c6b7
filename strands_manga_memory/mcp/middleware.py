"""Circuit breakers for an agent's tools, added by ``ExecuteToolStage`` middleware."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from typing import Any

from strands.middleware import ExecuteToolContext
from strands.tools.decorator import DecoratedFunctionTool
from strands.tools.mcp import MCPAgentTool
from strands.types.tools import AgentTool

from strands_manga_memory.call_state import with_own_state
from strands_manga_memory.circuit_breaker import BreakerEvent
from strands_manga_memory.deadline import END, DeadlineError, leave_threads
from strands_manga_memory.mcp.breakers.breaker_policy import BreakerPolicy
from strands_manga_memory.mcp.breakers.tool_health import ToolStatus
from strands_manga_memory.mcp.calls.answers import redact_secrets
from strands_manga_memory.mcp.calls.call import Call, known_user, user_of_call
from strands_manga_memory.mcp.calls.guard import Guard
from strands_manga_memory.mcp.guarded_tools import GuardedTool

logger = logging.getLogger(__name__)


class BreakerMiddleware:
    """Middleware that guards every tool of an agent with a circuit breaker.

    Add it with ``agent.add_middleware(ExecuteToolStage, BreakerMiddleware())``. Use it for tools that cannot be wrapped, such
    as tools of plugins, dynamic tools, or the tools of a plain ``MCPClient``. Each tool has a breaker of its own. A tool that
    is guarded already keeps its breaker. Agents may share one ``BreakerMiddleware`` and its breakers.

    Unlike ``guard_tool`` and ``GuardedMCPTools``, this middleware cannot end a call whose tool ignores cancellation. It has no
    fallbacks and no cached results, does not keep the progress of an MCP call, and does not follow changes of a server's tools.
    It cannot be removed from an agent. Middleware that was added earlier, such as an approval, runs inside the deadline.

    Args:
        policy: Policy of tools without an override. Default: ``BreakerPolicy()``.
        overrides: Policies of single tools, keyed by tool name.
        redact: Function that removes secrets from error texts.
        clock: Monotonic seconds.
        on_event: Called with each ``BreakerEvent``.
    """

    def __init__(
        self,
        policy: BreakerPolicy | None = None,
        *,
        overrides: Mapping[str, BreakerPolicy] | None = None,
        redact: Callable[[str], str] = redact_secrets,
        clock: Callable[[], float] = time.monotonic,
        on_event: Callable[[BreakerEvent], None] | None = None,
    ) -> None:
        self._policy = policy or BreakerPolicy()
        self._overrides = dict(overrides or {})
        self._settings: dict[str, Any] = {"redact": redact, "clock": clock, "on_event": on_event}
        self._lock = threading.Lock()
        self._guards: dict[tuple[int, str], Guard] = {}

    async def __call__(
        self, context: ExecuteToolContext, next_fn: Callable[[Any], AsyncGenerator[Any, None]]
    ) -> AsyncGenerator[Any, None]:
        """Run one call of a tool, or reject it while the tool's breaker is open."""
        context = with_own_state(context)
        tool = context.tool
        if tool is None or isinstance(tool, GuardedTool):
            async for event in next_fn(context):
                yield event
            return
        guard = self._guard(tool)
        user = known_user(user_of_call(context.invocation_state))
        call = Call(guard, context.tool_use["toolUseId"], context.tool_use["input"], context.cancel_signal, user=user)
        timeout = guard.policy.timeout
        check = not isinstance(tool, DecoratedFunctionTool)
        started = call.events(lambda: Inline(next_fn(context), timeout=timeout), check=check, to_the_end=True)
        async with aclosing(started) as events:
            async for event in events:
                yield event
        if call.result is not None:
            yield call.result

    def status(self) -> dict[str, ToolStatus]:
        """Return the status of each tool that was called, keyed by tool name."""
        return {guard.tool_name: guard.status() for guard in list(self._guards.values())}

    def _guard(self, tool: AgentTool) -> Guard:
        key = (id(tool.mcp_client) if isinstance(tool, MCPAgentTool) else 0, tool.tool_name)
        with self._lock:
            if key not in self._guards:
                policy = self._overrides.get(tool.tool_name) or self._policy
                self._guards[key] = Guard.of(tool, policy, **self._settings)
            return self._guards[key]


class Inline:
    """Stream of a tool call's events with a deadline, read in the caller's task.

    A tool that ignores cancellation delays the caller.
    """

    def __init__(self, stream: AsyncGenerator[Any, None], *, timeout: float) -> None:
        self._stream = stream
        self._loop = asyncio.get_running_loop()
        self._given_at = self._loop.time()
        self._deadline = self._given_at + timeout

    async def next(self) -> Any:
        """Return the next event, or ``END`` after the last one. Raise ``DeadlineError`` once the deadline has passed."""
        self._deadline += self._loop.time() - self._given_at  # time in the consumer does not count
        deadline = asyncio.timeout_at(self._deadline)
        try:
            # Around each step, not around a yield, where the deadline would cancel the consumer's code.
            async with deadline:
                return await anext(self._stream, END)
        except TimeoutError as error:
            if deadline.expired():
                leave_threads(self._loop)
                raise DeadlineError from error
            raise
        finally:
            self._given_at = self._loop.time()

    async def close(self) -> None:
        """Stop the stream and ignore its errors."""
        try:
            await self._stream.aclose()
        except Exception as error:  # noqa: BLE001 - the call has its result
            logger.debug("error=<%s> | a stopped tool call raised an error", type(error).__name__)
