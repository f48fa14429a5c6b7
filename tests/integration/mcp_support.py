"""What the tests of guarded tools share: a call of one tool, and what it answered."""

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from strands import Agent
from strands.types.tools import AgentTool

from strands_manga_memory import BreakerPolicy, GuardedMCPTools
from strands_manga_memory.mcp import GuardedTool
from strands_manga_memory.testing import ScriptedModel
from tests.support import tool_results
from tests.unit.session.support import tool_use


@dataclass
class Answer:
    """The result of a call, and the events before it."""

    result: Mapping[str, Any]
    events: list[Any] = field(default_factory=list)

    @property
    def status(self) -> str:
        return str(self.result["status"])

    @property
    def text(self) -> str:
        return "\n".join(block["text"] for block in self.result["content"] if "text" in block)

    @property
    def details(self) -> dict[str, Any]:
        """What the guard says of a failure; empty if there is none."""
        return dict(self.result.get("metadata", {}).get("guard", {}))

    @property
    def code(self) -> str | None:
        return self.details.get("code")


async def call(
    tool: AgentTool,
    arguments: Mapping[str, Any] | None = None,
    *,
    state: dict[str, Any] | None = None,
) -> Answer:
    """Call a tool as Strands does."""
    use = {
        "toolUseId": f"tooluse_{tool.tool_name}",
        "name": tool.tool_name,
        "input": dict(arguments or {}),
    }
    events = [event async for event in tool.stream(use, state if state is not None else {})]
    return Answer(events[-1].tool_result, events[:-1])


class Shop:
    """The guarded tools of a server, loaded, by name."""

    def __init__(self, guarded: GuardedMCPTools) -> None:
        self.guarded = guarded
        with ThreadPoolExecutor(1) as executor:  # a test may run a loop already
            executor.submit(lambda: asyncio.run(guarded.load_tools())).result()

    def __getitem__(self, name: str) -> GuardedTool:
        return {tool.guard.remote_name: tool for tool in self.guarded.tools}[name]

    async def call(self, name: str, **arguments: Any) -> Answer:
        return await call(self[name], arguments)

    def state(self, name: str) -> str:
        return str(self[name].breaker.state)


def policy(**settings: Any) -> BreakerPolicy:
    """Return a policy with times fit for tests."""
    return BreakerPolicy(**{"timeout": 10.0, "reset_after": 60.0, **settings})


def agent_of(
    *tools: Any, uses: list[tuple[str, dict[str, Any]]] | None = None, **settings: Any
) -> Agent:
    """Return an agent whose model uses all these tools at once, and then answers ``done``."""
    blocks = [tool_use(f"use-{number}", name, **a) for number, (name, a) in enumerate(uses or [])]
    replies: list[Any] = [blocks, "done"] if blocks else []
    return Agent(model=ScriptedModel(replies), tools=list(tools), **settings)


def results_of(agent: Agent) -> dict[str, Answer]:
    """Return the tool results an agent has, by the name of the tool."""
    names = {
        block["toolUse"]["toolUseId"]: block["toolUse"]["name"]
        for message in agent.messages
        for block in message["content"]
        if "toolUse" in block
    }
    return {names[each["toolUseId"]]: Answer(each) for each in tool_results(agent.messages)}


def pass_time(seconds: float) -> None:
    """Let the running event loop's clock go on by some seconds, so that its timers end earlier."""
    loop = asyncio.get_running_loop()
    time = loop.time
    loop.time = lambda: time() + seconds


async def until(ready: Callable[[], object]) -> None:
    """Wait until ``ready`` returns something true; the test's own timeout ends it otherwise."""
    while not ready():  # noqa: ASYNC110 - what is waited for knows of no event
        await asyncio.sleep(0.01)
