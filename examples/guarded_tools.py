"""A failing tool: the breaker opens, an earlier answer serves, a probe closes the breaker.

    uv run examples/guarded_tools.py                       # prints the story
    uv run examples/guarded_tools.py --plot timeline.png   # also draws it

In a notebook, from this folder: ``from guarded_tools import plot, story`` and ``plot(story())``.

The tools are on a real MCP server, a child process. The model follows a script, so no credentials
are needed.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

RESET_AFTER = 1.5
"""Seconds the breaker stays open in this example; 30 is the default."""

PAUSE = 0.1
"""Seconds between two calls, so that the picture shows each of them."""

COLOURS = {
    "success": "tab:green",
    "stale": "tab:orange",
    "tool_error": "tab:red",
    "circuit_open": "tab:gray",
}


@dataclass
class Story:
    """Calls as (second, tool, outcome), and states of the breaker as (second, state)."""

    calls: list[tuple[float, str, str]] = field(default_factory=list)
    states: list[tuple[float, str]] = field(default_factory=lambda: [(0.0, "closed")])
    results: list[str] = field(default_factory=list)
    status: dict[str, Any] = field(default_factory=dict)
    seconds: float = 0.0


# --- the server -----------------------------------------------------------------------------------


def serve() -> None:
    """Serve two tools over stdio, and a third one that breaks the first."""
    from mcp.types import ToolAnnotations

    try:  # mcp 2.x
        from mcp.server import MCPServer as Server
    except ImportError:  # mcp 1.x
        from mcp.server.fastmcp import FastMCP as Server  # type: ignore[attr-defined, no-redef]

    server = Server("shop", log_level="CRITICAL")
    warehouse = {"up": True}

    @server.tool(structured_output=False, annotations=ToolAnnotations(readOnlyHint=True))
    async def stock(title: str) -> str:
        """Copies of a manga in the warehouse."""
        if not warehouse["up"]:
            raise ConnectionError("cannot connect to postgres://shop:hunter2@warehouse/stock")
        return f"{len(title) * 7} copies of {title}"

    @server.tool(structured_output=False, annotations=ToolAnnotations(readOnlyHint=True))
    async def price(title: str) -> str:
        """Price of a manga."""
        return f"{title}: {len(title) * 100} yen"

    @server.tool(structured_output=False)
    async def set_warehouse(up: bool) -> str:
        """Break or repair the warehouse."""
        warehouse["up"] = up
        return "done"

    server.run("stdio")


# --- the story ------------------------------------------------------------------------------------


def story(*, talk: bool = True) -> Story:
    """Run the story, about 5 seconds, and return its events."""
    from strands import Agent

    from strands_manga_memory.testing import ScriptedModel

    events = Story()
    begin = 0.0

    def say(words: str) -> None:
        if talk:
            print(f"{time.monotonic() - begin:5.2f} s  {words}")
        time.sleep(PAUSE)

    def ask(tool: str, **arguments: Any) -> None:
        """Run one turn: the model calls a tool, reads its result, and answers."""
        use = {"toolUseId": f"use-{len(events.calls)}", "name": tool, "input": arguments}
        model = ScriptedModel([[{"toolUse": use}], "I see."])
        agent = Agent(model=model, tools=[guarded], callback_handler=None)
        agent("How many are there?", invocation_state={"user_id": "reader-1"})
        result = model.requests[-1].messages[-1]["content"][0]["toolResult"]
        details = next((block["json"] for block in result["content"] if "json" in block), {})
        came = (
            "stale"
            if details.get("stale")
            else details["code"]
            if result["status"] == "error"
            else "success"
        )
        events.calls.append((time.monotonic() - begin, tool, came))
        events.results.append(result["content"][0]["text"])
        say(f"{tool}: {came:<12} the model reads: {result['content'][0]['text']!r}")

    with _guarded_tools(
        lambda event: events.states.append((event.at - begin, str(event.after)))
    ) as guarded:
        keeper = Agent(model=ScriptedModel(), tools=[guarded], callback_handler=None)
        begin = time.monotonic()

        say("all is well")
        ask("stock", title="Akira")
        ask("price", title="Akira")

        say("the warehouse goes down: five failures open the breaker of stock, and of nothing else")
        keeper.tool.set_warehouse(up=False)
        for _ in range(5):
            ask("stock", title="Akira")

        say(
            "open: nothing is sent; the same question gets its last good answer, another one a"
            " reason and a time"
        )
        ask("stock", title="Akira")
        ask("stock", title="Monster")
        ask("price", title="Monster")

        say(
            f"after {RESET_AFTER} s one call is let through, a probe; it fails, and the breaker"
            " stays open"
        )
        time.sleep(RESET_AFTER)
        ask("stock", title="Monster")
        ask("stock", title="Monster")

        say("the warehouse is repaired: the next probe closes the breaker")
        keeper.tool.set_warehouse(up=True)
        time.sleep(RESET_AFTER)
        ask("stock", title="Monster")
        ask("stock", title="Akira")
        events.status = {name: dict(status) for name, status in guarded.status().items()}
    events.seconds = time.monotonic() - begin
    return events


@contextmanager
def _guarded_tools(on_event: Any) -> Iterator[Any]:
    from mcp import StdioServerParameters, stdio_client
    from strands.tools.mcp import MCPClient

    from strands_manga_memory import BreakerPolicy, GuardedMCPTools

    parameters = StdioServerParameters(
        command=sys.executable, args=[str(Path(__file__).resolve()), "--serve"]
    )
    client = MCPClient(lambda: stdio_client(parameters))  # type: ignore[arg-type, return-value]
    with client:
        policy = BreakerPolicy(reset_after=RESET_AFTER)
        guarded = GuardedMCPTools(client, policy, stale_ttl=600, on_event=on_event)
        yield guarded


def plot(events: Story) -> Figure:
    """Draw the outcome of every call, with the states of the breaker of ``stock``."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 3.2), layout="constrained")
    axes = figure.subplots()
    shades = {"closed": "tab:green", "open": "tab:red", "half_open": "tab:orange"}
    named: set[str] = set()
    ends = [at for at, _ in events.states[1:]] + [events.seconds]
    for (begin, state), end in zip(events.states, ends, strict=True):
        axes.axvspan(
            begin,
            end,
            color=shades[state],
            alpha=0.15,
            label=None if state in named else f"breaker {state}",
        )
        named.add(state)
    for came, colour in COLOURS.items():
        points = [(at, tool) for at, tool, what in events.calls if what == came]
        if points:
            axes.scatter(
                [at for at, _ in points],
                [tool for _, tool in points],
                color=colour,
                s=60,
                label=came,
                zorder=3,
            )
    axes.set(xlabel="seconds", title="A tool fails and comes back; the other one never notices")
    axes.margins(y=0.4)
    figure.legend(loc="outside right")
    return figure


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])  # type: ignore[union-attr]
    parser.add_argument("--plot", type=Path, metavar="PNG", help="write the timeline there")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve()
        return
    events = story()
    stock = events.status["stock"]
    print(
        f"\nstock: {stock['calls']} calls, {stock['rejected']} rejected, {stock['stale']} answered"
        " from before"
    )
    if options.plot:
        try:
            figure = plot(events)
        except ImportError:
            parser.exit(
                2, "--plot needs matplotlib: uv sync --group examples, or pip install matplotlib\n"
            )
        figure.savefig(options.plot, dpi=120)
        print(f"timeline: {options.plot}")


if __name__ == "__main__":
    main()
