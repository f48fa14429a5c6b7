"""MCP server of either SDK line: ``python sdk.py stdio`` or ``python sdk.py http PORT``.

It runs by itself, so that an interpreter with mcp 1.x, and nothing of ours, can run it.
"""

import asyncio
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

try:  # mcp 2.x
    from mcp.server import MCPServer as Server
    from mcp.server.mcpserver import Context
    from mcp.server.mcpserver.exceptions import ToolError
except ImportError:  # mcp 1.x
    from mcp.server.fastmcp import Context
    from mcp.server.fastmcp import FastMCP as Server
    from mcp.server.fastmcp.exceptions import ToolError

from mcp.types import ToolAnnotations

TRANSPORT = sys.argv[1] if len(sys.argv) > 1 else "stdio"
PORT = int(sys.argv[2]) if len(sys.argv) > 2 else 0
IS_1 = Server.__name__ == "FastMCP"
ADDRESS = {"host": "127.0.0.1", "port": PORT} if TRANSPORT == "http" else {}

server = Server("sick", log_level="CRITICAL", **(ADDRESS if IS_1 else {}))
broken = {"flaky": True}


@server.tool(structured_output=False, annotations=ToolAnnotations(readOnlyHint=True))
async def ok(n: int = 1) -> str:
    """Always answers."""
    return f"ok {n}"


@server.tool(structured_output=False)
async def boom() -> str:
    """Always raises."""
    raise RuntimeError("cannot connect to postgres://shop:hunter2@db/orders")


@server.tool(structured_output=False)
async def reports() -> str:
    """Always reports an error of its own."""
    raise ToolError("no such order: ORD-1")


@server.tool(structured_output=False)
async def hang(seconds: float = 60.0) -> str:
    """Does not answer for long."""
    await asyncio.sleep(seconds)
    return "late"


@server.tool(structured_output=False)
async def blocks(folder: str) -> str:
    """Keeps the whole server busy until a file ``released`` is in the folder."""
    _block(Path(folder))
    return "late"


def _block(folder: Path) -> None:
    (folder / "blocked").touch()
    while not (folder / "released").exists():
        time.sleep(0.01)


@server.tool(structured_output=False)
async def crawls(context: Context, steps: int = 3) -> str:
    """Reports progress, then hangs."""
    for step in range(steps):
        await context.report_progress(step + 1, 10, f"step {step + 1}")
    await asyncio.sleep(60)
    return "late"


@server.tool(structured_output=False)
async def floods(
    context: Context, messages: int = 1_000, letters: int = 2_000, seconds: float = 0.07
) -> str:
    """Reports progress without end while it works."""
    end = time.monotonic() + seconds
    for number in range(messages):
        await context.report_progress(number + 1, messages, "x" * letters)
    await asyncio.sleep(end - time.monotonic())
    return "flooded"


@server.tool(structured_output=False)
async def dies() -> str:
    """Takes the server with it."""
    os._exit(1)


@server.tool(structured_output=False, annotations=ToolAnnotations(readOnlyHint=True))
async def flaky(n: int = 1) -> str:
    """Fails until it is repaired."""
    if broken["flaky"]:
        raise RuntimeError("broken")
    return f"flaky {n}"


@server.tool(structured_output=False)
async def repair(works: bool = True) -> str:
    """Repair or break the flaky tool."""
    broken["flaky"] = not works
    return "done"


@server.tool(structured_output=False)
async def grow(context: Context, name: str = "grown") -> str:
    """Offer one more tool, and say so."""

    async def grown() -> str:
        return "grown"

    server.add_tool(grown, name=name, description="A new tool.")
    await _tell(context)
    return "done"


@server.tool(structured_output=False)
async def shrink(context: Context, name: str = "grown") -> str:
    """Offer one tool less, and say so."""
    server.remove_tool(name)
    await _tell(context)
    return "done"


@server.tool(structured_output=False)
async def pid() -> str:
    """Tell which process this is."""
    return json.dumps(os.getpid())


async def _tell(context: Any) -> None:
    if hasattr(context, "notify_tools_changed"):
        await context.notify_tools_changed()
    await context.session.send_tool_list_changed()


if __name__ == "__main__":
    if TRANSPORT == "stdio":
        server.run("stdio")
    elif IS_1:
        server.run("streamable-http")
    else:
        server.run("streamable-http", **ADDRESS)
