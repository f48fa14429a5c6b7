"""Guarded tools, whose failures never make the agent fail, and the function ``guard_tool``."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from typing import Any, Protocol, cast

from strands.middleware import ToolResultEvent
from strands.tools import ToolProvider
from strands.tools.decorator import DecoratedFunctionTool
from strands.tools.mcp import MCPAgentTool
from strands.tools.registry import ToolRegistry
from strands.types.tools import AgentTool, ToolGenerator, ToolSpec, ToolUse

from strands_manga_memory.arguments import Clock, PositiveSeconds, checked, with_repr
from strands_manga_memory.call_state import CallState
from strands_manga_memory.circuit_breaker import BreakerEvent, CircuitBreaker
from strands_manga_memory.mcp.answers import Key, ResultCache, fallback_result, stale_result
from strands_manga_memory.mcp.call import Call, known_user, result_event, user_of_call
from strands_manga_memory.mcp.classify import OK, UNKNOWN_TOOL
from strands_manga_memory.mcp.client import progress_callback_of
from strands_manga_memory.mcp.guard import BreakerPolicy, Guard, ToolStatus, canonical_json


class ToolOwner(Protocol):
    """Receiver of notifications about calls of guarded tools, such as their provider."""

    def on_call(self, invocation_state: Mapping[str, Any]) -> None:
        """Handle the start of a guarded tool's call.

        ``invocation_state`` contains the calling agent.
        """

    def on_unknown_tool(self) -> None:
        """Handle the error that the MCP server does not have a called tool any more."""


@with_repr("tool_name", "fallbacks")
class GuardedTool(AgentTool):
    """Tool with a circuit breaker and a deadline, created by ``guard_tool`` or ``GuardedMCPTools``.

    While the tool is unavailable, the model gets a substitute result. By default, a call takes at
    most 2.25 seconds: the ``timeout`` of the tool's policy and 0.25 seconds. To restore a lost
    connection first may take the ``timeout`` once more. Only a tool that blocks the event loop
    takes longer.

    Args:
        tool: The wrapped tool.
        guard: Circuit breaker, argument schema and call statistics of the tool.
        cache: Cache of earlier results, for a read-only tool; None for no cache.
        owner: Object that is notified of calls of the tool, or None.
    """

    def __init__(
        self,
        tool: AgentTool,
        guard: Guard,
        *,
        cache: ResultCache | None = None,
        owner: ToolOwner | None = None,
    ) -> None:
        super().__init__()
        self.tool = tool
        self.guard = guard
        self.fallbacks: tuple[GuardedTool, ...] = ()
        self._cache = cache if guard.read_only else None
        self.owner = owner
        # A decorated function checks its arguments itself, and accepts more than its schema ("5"
        # for 5).
        self._checks_arguments = not isinstance(tool, DecoratedFunctionTool)
        # A subclass with its own stream keeps it, without progress.
        is_mcp = isinstance(tool, MCPAgentTool)
        self._calls_server = is_mcp and type(tool).stream is MCPAgentTool.stream

    def set_fallbacks(self, tools: Sequence[GuardedTool]) -> None:
        """Set the tools that replace this tool while it is unavailable, in order of preference.

        The fallback tools get the same arguments. Fallbacks of fallback tools are not used.
        """
        self.fallbacks = tuple(tools)
        self.guard.alternatives = tuple(other.tool_name for other in tools)

    @property
    def breaker(self) -> CircuitBreaker:
        """Circuit breaker of the tool. ``reset`` closes the breaker at once."""
        return self.guard.breaker

    def status(self) -> ToolStatus:
        """Return the health, breaker state and call statistics of the tool."""
        return self.guard.status()

    # --- as the tool itself -----------------------------------------------------------------------

    @property
    def tool_name(self) -> str:
        """Name of the wrapped tool."""
        return self.tool.tool_name

    @property
    def tool_spec(self) -> ToolSpec:
        """Specification of the wrapped tool."""
        return self.tool.tool_spec

    @property
    def tool_type(self) -> str:
        """Type of the wrapped tool, as Strands names it."""
        return self.tool.tool_type

    @property
    def supports_hot_reload(self) -> bool:
        """Whether Strands can reload the wrapped tool while an agent runs."""
        return self.tool.supports_hot_reload

    def get_display_properties(self) -> dict[str, str]:
        """Return the display properties of the wrapped tool."""
        return self.tool.get_display_properties()

    # --- a call -----------------------------------------------------------------------------------

    async def stream(
        self, tool_use: ToolUse, invocation_state: dict[str, Any], **kwargs: Any
    ) -> ToolGenerator:
        """Call the tool and stream its events. The last event is the tool's result.

        While the tool is unavailable, the last event is the result of a fallback tool, an earlier
        result, or an error result.
        """
        invocation_state = CallState(invocation_state)  # before the first await
        if self.owner is not None:
            self.owner.on_call(invocation_state)
        call, events = self._begin(tool_use, invocation_state, kwargs)
        async with aclosing(events):
            async for event in events:
                yield event
        key = self._key(tool_use, invocation_state)
        for other in self.fallbacks if call.replaceable_failure is not None else ():
            replaced: ToolUse = {**tool_use, "name": other.tool_name}
            instead, events = other._begin(replaced, invocation_state, kwargs)  # noqa: SLF001
            async with aclosing(events):
                async for event in events:
                    yield event
            if instead.result is None:
                return  # the tool interrupted the agent
            if instead.verdict == OK and call.replaceable_failure is not None:
                self.guard.log.count_substitute(stale=False)
                answer, used = instead.result.tool_result, other.tool_name
                yield result_event(
                    fallback_result(answer, call.replaceable_failure, tool_name=used)
                )
                return
        if (result := self._cache_or_replace_result(call, key)) is not None:
            yield result

    def _begin(
        self, tool_use: ToolUse, invocation_state: dict[str, Any], kwargs: dict[str, Any]
    ) -> tuple[Call, AsyncGenerator[Any, None]]:
        agent, user = invocation_state.get("agent"), known_user(user_of_call(invocation_state))
        call = Call(self.guard, tool_use["toolUseId"], tool_use["input"], agent, user=user)

        def start() -> ToolGenerator:
            if self._calls_server:
                return _call_server(cast("MCPAgentTool", self.tool), tool_use, call)
            return self.tool.stream(tool_use, invocation_state, **kwargs)

        return call, call.events(start, check_arguments=self._checks_arguments)

    def _cache_or_replace_result(self, call: Call, key: Key | None) -> ToolResultEvent | None:
        if call.verdict == UNKNOWN_TOOL and self.owner is not None:
            self.owner.on_unknown_tool()
        cache, result = self._cache, call.result
        if cache is None or key is None or result is None:
            return result
        if call.verdict == OK:
            cache.keep(key, result.tool_result)
        elif call.replaceable_failure is not None and (good := cache.find(key)) is not None:
            self.guard.log.count_substitute(stale=True)
            return result_event(stale_result(call.replaceable_failure, good))
        return result

    def _key(self, tool_use: ToolUse, invocation_state: Mapping[str, Any]) -> Key | None:
        if self._cache is None:
            return None
        try:
            return (
                *user_of_call(invocation_state),
                self.guard.server_name or "",
                self.guard.remote_name,
                canonical_json(tool_use["input"]),
            )
        except (TypeError, ValueError, RecursionError):
            return None  # a direct call may pass anything


async def _call_server(tool: MCPAgentTool, tool_use: ToolUse, call: Call) -> ToolGenerator:
    theirs = progress_callback_of(tool.mcp_client)

    async def progressed(progress: float, total: float | None, message: str | None) -> None:
        call.record_progress(progress, total, message)
        if theirs is not None:
            await theirs(progress, total, message)

    result = await tool.mcp_client.call_tool_async(
        tool_use_id=tool_use["toolUseId"],
        name=tool.mcp_tool.name,
        arguments=tool_use["input"],
        read_timeout_seconds=tool.timeout,
        progress_callback=progressed,
        cancel_signal=call.cancel_signal,
    )
    yield ToolResultEvent(result)


@checked
def guard_tool(
    tool: Any,
    policy: BreakerPolicy | None = None,
    *,
    fallbacks: Sequence[Any] = (),
    stale_ttl: PositiveSeconds | None = None,
    clock: Clock = time.monotonic,
    on_event: Callable[[BreakerEvent], None] | None = None,
) -> Any:
    """Add a circuit breaker and a deadline to a tool.

    Args:
        tool: Any value that ``Agent(tools=[...])`` accepts: a function decorated with ``@tool``, a
            module tool, its import path or file, an ``MCPAgentTool``, an agent, a list of them, or
            a provider of tools. For an ``MCPClient`` prefer ``GuardedMCPTools``: it also connects
            to a server that is down at first, and updates changed tools.
        policy: Policy of the breaker. Default: ``BreakerPolicy()``.
        fallbacks: Tools to call with the same arguments, in this order, while ``tool`` is
            unavailable. They are guarded, too.
        stale_ttl: Seconds for which an earlier result of a read-only tool may replace the result of
            an equal call of the same user, while the tool is unavailable. None (default): no
            earlier result is used.
        clock: Function that returns monotonic seconds.
        on_event: Function that is called with a ``BreakerEvent`` at each change of a breaker's
            state.

    Returns:
        A ``GuardedTool``; for a list, or for a module or file with several tools, a list of these;
        for a provider, a provider of these. ``Agent(tools=[...])`` accepts each.

    Raises:
        ValueError: ``tool`` is not a tool or is guarded already, or ``stale_ttl`` is not over 0.
    """
    policy = policy or BreakerPolicy()
    cache = None if stale_ttl is None else ResultCache(stale_ttl, clock=clock)
    settings: dict[str, Any] = {"clock": clock, "on_event": on_event}
    tools = [other for each in fallbacks for other in _tools_of(each)]
    others = [guard_unless_guarded(other, policy, **settings) for other in tools]

    def guard(one: AgentTool) -> GuardedTool:
        if isinstance(one, GuardedTool):
            raise ValueError(
                "tool must not be guarded already, or its failures count twice; got"
                f" {one.tool_name!r:.80}"
            )
        guarded = GuardedTool(one, Guard.for_tool(one, policy, **settings), cache=cache)
        guarded.set_fallbacks(others)
        return guarded

    if isinstance(tool, ToolProvider):
        return GuardedToolProvider(tool, guard)
    if isinstance(tool, Iterable) and not isinstance(tool, str | Mapping | AgentTool):
        settings |= {"fallbacks": others, "stale_ttl": stale_ttl}
        each = [guard_tool(one, policy, **settings) for one in tool]
        return [one for found in each for one in (found if isinstance(found, list) else [found])]
    found = [guard(one) for one in _tools_of(tool)]
    return found[0] if len(found) == 1 else found


def guard_unless_guarded(tool: AgentTool, policy: BreakerPolicy, **settings: Any) -> GuardedTool:
    """Add a circuit breaker to a tool, unless the tool has one already."""
    if isinstance(tool, GuardedTool):
        return tool
    return GuardedTool(tool, Guard.for_tool(tool, policy, **settings))


class GuardedToolProvider(ToolProvider):
    """Provider that loads the tools of another provider and adds a circuit breaker to each tool.

    ``guard_tool`` creates such a provider.

    Args:
        guard: Function that adds a circuit breaker to a tool.
    """

    def __init__(self, provider: ToolProvider, guard: Callable[[AgentTool], GuardedTool]) -> None:
        self.provider = provider
        self._guard = guard
        self._tools: list[GuardedTool] = []

    async def load_tools(self, **kwargs: Any) -> Sequence[AgentTool]:
        """Load the tools of the wrapped provider, and return them with circuit breakers.

        A tool that was loaded before keeps its breaker.

        Raises:
            ValueError: The provider guards its tools already.
        """
        loaded = await self.provider.load_tools(**kwargs)
        known = {id(tool.tool): tool for tool in self._tools}  # a tool may be unhashable
        self._tools = list(
            {tool.tool_name: known.get(id(tool)) or self._guard(tool) for tool in loaded}.values()
        )
        return list(self._tools)

    def add_consumer(self, consumer_id: Any, **kwargs: Any) -> None:
        """Register a consumer of the tools, such as an agent, with the wrapped provider."""
        self.provider.add_consumer(consumer_id, **kwargs)

    def remove_consumer(self, consumer_id: Any, **kwargs: Any) -> None:
        """Remove a consumer of the tools, such as an agent, from the wrapped provider."""
        self.provider.remove_consumer(consumer_id, **kwargs)


def _tools_of(tool: Any) -> list[AgentTool]:
    if isinstance(tool, AgentTool):
        return [tool]
    registry = ToolRegistry()
    names = registry.process_tools([tool])
    if not names:
        raise ValueError(
            "tool must be a value that Agent(tools=[...]) accepts, such as a function with @tool"
            f" or a module with a TOOL_SPEC, got {type(tool).__name__}: {tool!r:.80}"
        )
    return [registry.registry[name] for name in names]
