"""MCP server of the shop for stock, over stdio, which fails on demand.

``set_fault`` is for the operator of the shop; the agents do not get it. A process that exited
restarts without a fault.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path

from mcp.types import ToolAnnotations

try:  # mcp 2.x
    from mcp.server import MCPServer as Server
    from mcp.server.mcpserver.exceptions import ToolError
except ImportError:  # mcp 1.x
    from mcp.server.fastmcp import FastMCP as Server  # type: ignore[attr-defined, no-redef]
    from mcp.server.fastmcp.exceptions import ToolError  # type: ignore[import-not-found, no-redef]

sys.path.insert(0, str(Path(__file__).parents[1]))  # so that this file also runs as a script

from mangaassist import catalogue

FAULTS = ("none", "error", "hang", "exit")
"""No fault; every look-up fails; every look-up hangs; the next look-up ends the process."""

server = Server("manga-stock", log_level="CRITICAL")
fault = "none"


@server.tool(structured_output=False, annotations=ToolAnnotations(readOnlyHint=True))  # type: ignore[call-arg]
async def get_stock(asin: str, volume: int) -> str:
    """Copies of one volume in the warehouse, and when one can leave."""
    if fault == "error":
        raise ConnectionError("cannot connect to postgres://shop:hunter2@warehouse/stock")
    if fault == "hang":
        await asyncio.Event().wait()
    if fault == "exit":
        os._exit(1)
    try:
        return json.dumps(catalogue.stock(asin, volume), ensure_ascii=False)
    except LookupError as error:  # an answer, too: nothing is wrong with the warehouse
        return json.dumps(
            {"asin": asin, "volume": volume, "copies": 0, "note": str(error)}, ensure_ascii=False
        )


@server.tool(structured_output=False)
async def set_fault(kind: str) -> str:
    """Choose what is wrong with this server."""
    global fault
    if kind not in FAULTS:
        raise ToolError(f"kind must be one of {', '.join(FAULTS)}; got {kind!r}")
    fault = kind
    return "done"


if __name__ == "__main__":
    try:
        server.run("stdio")
    except* BrokenPipeError:  # who had started it was killed
        pass
