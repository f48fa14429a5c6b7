"""Parallel nodes of a Graph share one invocation state; each tool gets its own agent."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from typing import Any

import pytest
from strands import Agent, ToolContext, tool
from strands.middleware import ExecuteToolContext, ExecuteToolStage, ToolResultEvent
from strands.multiagent import GraphBuilder
from strands.multiagent.base import Status
from strands.multiagent.graph import Graph
from strands.types.tools import AgentTool, ToolGenerator, ToolSpec, ToolUse

from strands_manga_memory import BreakerPolicy, guard_tool
from strands_manga_memory.mcp import BreakerMiddleware
from strands_manga_memory.testing import ScriptedModel
from tests.support import tool_results
from tests.unit.session.support import tool_use

NODES = tuple(f"node{number}" for number in range(6))
PATIENT = BreakerPolicy(timeout=60.0)


@tool(context=True)
def mark(tool_context: ToolContext, mine: str) -> str:
    """Write into the state of the agent, in a thread."""
    return _marked(tool_context, mine)


@tool(context=True)
async def mark_async(tool_context: ToolContext, mine: str) -> str:
    """Write into the state of the agent, on the loop, before and after a pause."""
    _marked(tool_context, mine)
    await asyncio.sleep(0.02)
    assert tool_context.invocation_state["messages"] is tool_context.agent.messages
    return _marked(tool_context, mine)


@tool(context=True)
def ask(tool_context: ToolContext, mine: str) -> str:
    """Ask the user."""
    return str(tool_context.interrupt("sure", reason=mine))


def _marked(context: ToolContext, mine: str) -> str:
    agent: Any = context.agent
    agent.state.set("marks", [*(agent.state.get("marks") or []), mine])
    seen = context.invocation_state["agent"], context.invocation_state["model"]
    assert seen == (agent, agent.model)
    context.invocation_state.setdefault("marked", []).append(mine)
    return mine


class Undecorated(AgentTool):
    """A tool that reads the invocation state itself, as MCP tools and agents used as tools do."""

    @property
    def tool_name(self) -> str:
        return "undecorated"

    @property
    def tool_type(self) -> str:
        return "python"

    @property
    def tool_spec(self) -> ToolSpec:
        schema = {"type": "object", "properties": {"mine": {"type": "string"}}}
        return {"name": "undecorated", "description": "Mark.", "inputSchema": {"json": schema}}

    async def stream(
        self, tool_use: ToolUse, invocation_state: dict[str, Any], **kwargs: Any
    ) -> ToolGenerator:
        await asyncio.sleep(0.01)
        agent = invocation_state["agent"]
        agent.state.set("marks", [tool_use["input"]["mine"]])
        yield ToolResultEvent(
            {
                "toolUseId": tool_use["toolUseId"],
                "status": "success",
                "content": [{"text": agent.agent_id}],
            }
        )


async def pausing(
    context: ExecuteToolContext, next_fn: Callable[[Any], AsyncGenerator[Any, None]]
) -> AsyncGenerator[Any, None]:
    """Middleware that waits for something before the tool may run."""
    await asyncio.sleep(0.01)
    async for event in next_fn(context):
        yield event


def _guard(used: AgentTool) -> dict[str, Any]:
    return {"tools": [guard_tool(used, PATIENT)]}


def _middleware(used: AgentTool) -> dict[str, Any]:
    return {"tools": [used], "inner": [BreakerMiddleware(PATIENT)]}


def _middleware_then_pause(used: AgentTool) -> dict[str, Any]:
    return {"tools": [used], "inner": [BreakerMiddleware(PATIENT), pausing]}


WAYS = [_guard, _middleware, _middleware_then_pause]


def _graph(way: Callable[[AgentTool], dict[str, Any]], used: AgentTool) -> Graph:
    """Nodes that all begin at once, each with an agent that uses the tool and says its own name."""
    builder = GraphBuilder()
    for name in NODES:
        settings = way(used)
        inner = settings.pop("inner", [])
        use = tool_use(f"use-{name}", used.tool_name, mine=name)
        node = Agent(model=ScriptedModel([[use], "done"]), agent_id=name, name=name, **settings)
        for middleware in inner:
            node.add_middleware(ExecuteToolStage, middleware)
        builder.add_node(node, name)
        builder.set_entry_point(name)
    builder.set_execution_timeout(60)
    return builder.build()


def _agent(graph: Graph, name: str) -> Any:
    return graph.nodes[name].executor


def _said(agent: Agent) -> list[str]:
    return [text["text"] for each in tool_results(agent.messages) for text in each["content"]]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("used", [mark, mark_async, Undecorated()], ids=lambda used: used.tool_name)
def test_tool_has_its_own_agent(
    way: Callable[[AgentTool], dict[str, Any]], used: AgentTool
) -> None:
    graph = _graph(way, used)
    shared: dict[str, Any] = {}
    assert graph("go", shared).status == Status.COMPLETED
    agents = {name: _agent(graph, name) for name in NODES}
    found = {name: set(agent.state.get("marks") or []) for name, agent in agents.items()}
    assert found == {name: {name} for name in NODES}
    assert {name: _said(a) for name, a in agents.items()} == {name: [name] for name in NODES}


@pytest.mark.parametrize("way", WAYS)
def test_all_see_the_invocation_state(way: Callable[[AgentTool], dict[str, Any]]) -> None:
    shared: dict[str, Any] = {}
    _graph(way, mark)("go", shared)
    assert sorted(shared["marked"]) == sorted(NODES)


@pytest.mark.parametrize("way", WAYS)
def test_each_node_asks_its_user_once(way: Callable[[AgentTool], dict[str, Any]]) -> None:
    graph = _graph(way, ask)
    result = graph("go")
    assert result.status == Status.INTERRUPTED
    assert sorted(interrupt.reason for interrupt in result.interrupts) == sorted(NODES)
    answers: Any = [
        {"interruptResponse": {"interruptId": interrupt.id, "response": f"yes, {interrupt.reason}"}}
        for interrupt in result.interrupts
    ]
    assert graph(answers).status == Status.COMPLETED
    assert {n: _said(_agent(graph, n)) for n in NODES} == {n: [f"yes, {n}"] for n in NODES}
