"""MCP server for orders over stdio, which trusts the shop to name the customer."""

from __future__ import annotations

import json
import sys
from pathlib import Path

try:  # mcp 2.x
    from mcp.server import MCPServer as Server
    from mcp.server.mcpserver.exceptions import ToolError
except ImportError:  # mcp 1.x
    from mcp.server.fastmcp import FastMCP as Server  # type: ignore[attr-defined, no-redef]
    from mcp.server.fastmcp.exceptions import ToolError  # type: ignore[import-not-found, no-redef]

sys.path.insert(0, str(Path(__file__).parents[1]))  # so that this file also runs as a script

from mangaassist import orders

server = Server("manga-orders", log_level="WARNING")


@server.tool(structured_output=False)
def my_orders(customer: str) -> str:
    """The customer's orders: number, title, volumes, status, day of arrival."""
    return json.dumps(orders.orders_of(customer), ensure_ascii=False)


@server.tool(structured_output=False)
def order_status(order_id: str, customer: str) -> str:
    """Where one of the customer's orders is."""
    try:
        return json.dumps(orders.order_of(customer, order_id), ensure_ascii=False)
    except LookupError as error:
        raise ToolError(str(error)) from error


if __name__ == "__main__":
    try:
        server.run("stdio")
    except* BrokenPipeError:  # who had started it was killed
        pass
