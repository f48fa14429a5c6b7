"""Tools of an MCP server with circuit breakers and automatic reconnection."""

from __future__ import annotations

import logging
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from strands import Agent
from strands.hooks import AgentInitializedEvent, BeforeInvocationEvent, HookProvider, HookRegistry
from strands.tools import ToolProvider
from strands.tools.mcp import MCPAgentTool, MCPClient
from strands.types.exceptions import MCPClientInitializationError, ToolProviderException
from strands.types.tools import AgentTool

from strands_manga_memory.arguments import Clock, PositiveSeconds, checked
from strands_manga_memory.circuit_breaker import BreakerEvent
from strands_manga_memory.html_tables import ReportDict
from strands_manga_memory.mcp.answers import ResultCache
from strands_manga_memory.mcp.client import stop
from strands_manga_memory.mcp.guard import BreakerPolicy, Guard, ToolStatus
from strands_manga_memory.mcp.guarded_tools import GuardedTool, guard_unless_guarded
from strands_manga_memory.mcp.supervisor import ServerSupervisor

logger = logging.getLogger(__name__)

Fallbacks = AgentTool | str | Sequence[AgentTool | str]
"""A tool, the name of another tool of the same server, or several of them in order."""

_REFRESH_AT_MOST_EVERY = 5.0
"""Minimum seconds from any read of the tool list to a read because of an unknown tool."""


class GuardedMCPTools(ToolProvider, HookProvider):
    """Tools of an MCP server with circuit breakers, for ``Agent(tools=[...])``.

    A failing tool or server never makes the agent fail. Each tool has a circuit breaker of its own.
    A lost connection to the server is restored.

    Any number of agents in any threads may share one object. Create one object per client, so that
    a breaker counts the failures of all agents. If the object has started the client, it stops the
    client after the last agent is gone.

    When the server adds, changes or removes tools, the tools of an agent are updated. By default,
    updates begin at the agent's first call of a tool of the server. To update an agent from its
    start, pass this object in ``hooks`` too: ``Agent(tools=[guarded], hooks=[guarded])``.

    Args:
        client: Client of the MCP server, started or not.
        policy: Policy of tools without an override. Default: 5 failures in a row open a breaker for
            30 s, and calls may take 2 s.
        overrides: Policies of single tools, keyed by the server's tool name or by the name with the
            client's prefix.
        fallbacks: Tools to call with the same arguments while a tool is unavailable, keyed by the
            name of that tool. Each value is a tool, the name of another tool of the server, or a
            list of these in the order of use.
        stale_ttl: Seconds for which an earlier result of a read-only tool may replace the result of
            an equal call of the same user, while the tool is unavailable. Such a result is marked
            as stale. None (default): no earlier result is used.
        clock: Function that returns monotonic seconds.
        on_event: Function that is called with a ``BreakerEvent`` at each change of a breaker's
            state.

    Raises:
        ValueError: ``client`` is not an ``MCPClient``, or a setting is invalid.
    """

    @checked
    def __init__(
        self,
        client: MCPClient,
        policy: BreakerPolicy | None = None,
        *,
        overrides: Mapping[str, BreakerPolicy] | None = None,
        fallbacks: Mapping[str, Fallbacks] | None = None,
        stale_ttl: PositiveSeconds | None = None,
        clock: Clock = time.monotonic,
        on_event: Callable[[BreakerEvent], None] | None = None,
    ) -> None:
        self.client = client
        self.supervisor = ServerSupervisor.of(client, clock=clock)
        self.policy = policy or BreakerPolicy()
        self._overrides = dict(overrides or {})
        self._fallbacks = {name: _listed(others) for name, others in (fallbacks or {}).items()}
        self._cache = None if stale_ttl is None else ResultCache(stale_ttl, clock=clock)
        self._settings: dict[str, Any] = {"clock": clock, "on_event": on_event}
        self._clock = clock
        # Reentrant: garbage collection of an agent may call remove_consumer at any moment.
        self._lock = threading.RLock()
        self._loading = threading.Lock()
        self._tools: dict[str, GuardedTool] = {}
        self._loaded = False
        self._removed: dict[str, GuardedTool] = {}
        self._others: dict[int, GuardedTool] = {}
        self._consumers: set[Any] = set()
        self._started_here = False
        self._agents: weakref.WeakSet[Agent] = weakref.WeakSet()
        self._refreshed_at = float("-inf")
        self.supervisor.add_listener(self)
        theirs, ours = client.on_tools_changed, weakref.ref(self)

        def changed(before: list[str], tools: list[MCPAgentTool]) -> None:
            if (provider := ours()) is not None:
                provider._update(tools)  # noqa: SLF001 - the same class
            if theirs is not None:  # the callback that the client already had
                theirs(before, tools)

        client.on_tools_changed = changed

    def __repr__(self) -> str:
        return f"GuardedMCPTools({self.policy!r}, tools={list(self._tools)})"

    @property
    def tools(self) -> list[GuardedTool]:
        """Guarded tools that were loaded from the MCP server; empty before the first load."""
        return list(self._tools.values())

    def status(self) -> dict[str, ToolStatus]:
        """Return health, breaker state and statistics of each tool, keyed by tool name."""
        return ReportDict({name: tool.status() for name, tool in self._tools.items()})

    # --- ToolProvider -----------------------------------------------------------------------------

    async def load_tools(self, **kwargs: Any) -> Sequence[AgentTool]:
        """Return the guarded tools of the MCP server.

        The first call connects to the server if necessary. This method blocks.

        Raises:
            ToolProviderException: The server cannot be reached. With the client's
                ``continue_on_error``, an empty list is returned instead.
        """
        with self._loading:
            if not self._loaded:
                try:
                    self._update(self._listed_tools())
                except Exception as error:
                    if not self.client.continue_on_error:
                        raise ToolProviderException(
                            f"cannot load the tools of {self.supervisor.name}: {error}"
                        ) from error
                    logger.warning(
                        "server=<%s> | no connection to the MCP server, continuing without its"
                        " tools",
                        self.supervisor.name,
                    )
                    return []
        return self.tools

    def add_consumer(self, consumer_id: Any, **kwargs: Any) -> None:
        """Register a consumer of the tools, such as an agent."""
        with self._lock:
            self._consumers.add(consumer_id)
            self.client.add_consumer(id(self))

    def remove_consumer(self, consumer_id: Any, **kwargs: Any) -> None:
        """Remove a consumer of the tools, such as an agent.

        If this provider started the client, the removal of the last consumer stops the client.
        """
        with self._lock:
            self._consumers.discard(consumer_id)
            if self._consumers:
                return
            started_here, self._started_here = self._started_here, False
            self._loaded = self._loaded and not started_here
        try:
            self.client.remove_consumer(id(self))
            if started_here:
                stop(self.client)
        except ToolProviderException as error:  # raised for a connection that was lost before
            logger.debug(
                "server=<%s>, error=<%s> | the connection was lost before",
                self.supervisor.name,
                error,
            )

    # --- changes of the server's tools ------------------------------------------------------------

    def register_hooks(self, registry: HookRegistry, **kwargs: Any) -> None:
        """Register hooks that update the tools of an agent before each invocation."""
        registry.add_callback(AgentInitializedEvent, lambda event: self._agents.add(event.agent))
        registry.add_callback(BeforeInvocationEvent, lambda event: self._update_agent(event.agent))

    def refresh(self) -> None:
        """Read the list of the server's tools again, and update the tools of the agents.

        This method blocks.

        Raises:
            MCPClientInitializationError: There is no connection to the server.
        """
        self._refreshed_at = self._clock()
        self._update(self._listed_tools(start=False))

    def on_reconnected(self) -> None:
        """Read the list of the server's tools again after a reconnection. Errors are ignored."""
        try:
            self.refresh()
        except Exception as error:  # noqa: BLE001 - the refresh is optional
            logger.debug(
                "server=<%s>, error=<%s> | the tools could not be listed",
                self.supervisor.name,
                type(error).__name__,
            )

    def _listed_tools(self, *, start: bool = True) -> list[MCPAgentTool]:
        try:
            page = self.client.list_tools_sync()
        except MCPClientInitializationError:
            if not start:
                raise
            self.supervisor.connect()
            self._started_here = True
            page = self.client.list_tools_sync()
        found = list(page)
        while page.pagination_token is not None:
            page = self.client.list_tools_sync(page.pagination_token)
            found.extend(page)
        return found

    def _update(self, tools: Sequence[MCPAgentTool]) -> None:
        with self._lock:
            before, known = self._tools, {**self._removed, **self._tools}
            now: dict[str, GuardedTool] = {}
            for tool in tools:
                found = known.get(tool.tool_name)
                # A tool with another specification is a new tool, with a new breaker.
                same = found is not None and found.tool_spec == tool.tool_spec
                now[tool.tool_name] = found if same and found is not None else self._guarded(tool)
            self._removed = {name: tool for name, tool in known.items() if name not in now}
            is_first, self._tools, self._loaded = not self._loaded, now, True
            for name, guarded in now.items():
                listed = self._fallbacks
                others = listed.get(guarded.guard.remote_name) or listed.get(name) or ()
                guarded.set_fallbacks([each for each in map(self._other, others) if each])
            agents = list(self._agents) if now != before else []
            if is_first:
                self._warn_of_unknown_names()
        for agent in agents:
            self._update_agent(agent)

    def _warn_of_unknown_names(self) -> None:
        tools = (*self._tools.values(), *self._others.values())
        known = {name for tool in tools for name in (tool.tool_name, tool.guard.remote_name)}
        for name in sorted({*self._overrides, *self._fallbacks} - known):
            logger.warning(
                "server=<%s>, tool=<%s> | overrides or fallbacks name a tool that does not exist",
                self.supervisor.name,
                name,
            )

    def _guarded(self, tool: MCPAgentTool) -> GuardedTool:
        listed = self._overrides
        policy = listed.get(tool.mcp_tool.name) or listed.get(tool.tool_name) or self.policy
        guard = Guard.for_tool(tool, policy, **self._settings)
        return GuardedTool(tool, guard, cache=self._cache, owner=self)

    def _other(self, other: AgentTool | str) -> GuardedTool | None:
        if isinstance(other, str):
            by_remote_name = {tool.guard.remote_name: tool for tool in self._tools.values()}
            found = self._tools.get(other) or by_remote_name.get(other)
            if found is None:
                logger.warning(
                    "server=<%s>, tool=<%s> | a fallback is not among the server's tools",
                    self.supervisor.name,
                    other,
                )
            return found
        if id(other) not in self._others:
            self._others[id(other)] = guard_unless_guarded(
                other, self._overrides.get(other.tool_name) or self.policy, **self._settings
            )
        return self._others[id(other)]

    # --- notifications of tools (ToolOwner)--------------------------------------------------------

    def on_call(self, invocation_state: Mapping[str, Any]) -> None:
        """Update an agent's tools at its first call of a tool of this provider.

        Later changes of the server's tools then update the agent, too.
        """
        agent = invocation_state.get("agent")
        if isinstance(agent, Agent) and agent not in self._agents:
            self._agents.add(agent)
            self._update_agent(agent)

    def on_unknown_tool(self) -> None:
        """Read the list of the server's tools again, because the server lacks a called tool.

        The list is read in a thread, at most every 5 seconds.
        """
        if self._clock() - self._refreshed_at < _REFRESH_AT_MOST_EVERY:
            return
        self._refreshed_at = self._clock()
        threading.Thread(target=self.on_reconnected, name="mcp-refresh", daemon=True).start()

    def _update_agent(self, agent: Agent) -> None:
        with self._lock:
            registry, tools = agent.tool_registry, self._tools
            changed: dict[str, AgentTool] = {}
            # Unchanged tools keep their positions, so that the request to the model stays the same.
            for name, tool in registry.registry.items():
                if not (isinstance(tool, GuardedTool) and tool.owner is self):
                    changed[name] = tool
                elif name in tools:
                    changed[name] = tools[name]
            changed.update({name: tool for name, tool in tools.items() if name not in changed})
            if list(changed.items()) != list(registry.registry.items()):
                # Replaced as a whole, because the agent may be reading the old one in another
                # thread.
                registry.registry = changed


def _listed(others: Fallbacks) -> list[AgentTool | str]:
    return [others] if isinstance(others, AgentTool | str) else list(others)
