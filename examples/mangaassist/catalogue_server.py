"""MCP server of the shop: the catalogue as tools, over stdio.

``worker.py`` starts it as a child process. ``python examples/mangaassist/catalogue_server.py`` runs
it alone.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

try:  # mcp 2.x
    from mcp.server import MCPServer as Server
    from mcp.server.mcpserver.exceptions import ToolError
except ImportError:  # mcp 1.x
    from mcp.server.fastmcp import FastMCP as Server  # type: ignore[attr-defined, no-redef]
    from mcp.server.fastmcp.exceptions import ToolError  # type: ignore[import-not-found, no-redef]

sys.path.insert(0, str(Path(__file__).parents[1]))  # so that this file also runs as a script

from mangaassist import catalogue

server = Server("manga-catalogue", log_level="WARNING")


@server.tool(structured_output=False)
def search_manga(
    query: str = "", genre: str | None = None, max_price_yen: int | None = None, limit: int = 5
) -> str:
    """Find manga by words of title, author or story, by genre, and by price of one volume."""
    return _answer(catalogue.search, query, genre=genre, max_price_yen=max_price_yen, limit=limit)


@server.tool(structured_output=False)
def get_manga(asin: str) -> str:
    """Everything the shop knows about one series."""
    return _answer(catalogue.find, asin)


@server.tool(structured_output=False)
def list_volumes(asin: str) -> str:
    """Every volume of a series, in a long answer: release date, chapters, pages, price, stock."""
    return _answer(catalogue.volumes, asin)


@server.tool(structured_output=False)
def get_stock(asin: str, volume: int) -> str:
    """Copies of one volume in the warehouse, and when one can leave."""
    return _answer(catalogue.stock, asin, volume)


@server.tool(structured_output=False)
def order_status(order_id: str) -> str:
    """Where an order is. Order ids look like ORD-48213."""
    return _answer(catalogue.order, order_id)


def _answer(look_up: Callable[..., Any], *arguments: Any, **options: Any) -> str:
    """Return the result of a look-up as JSON, or an error for the model if nothing is found."""
    try:
        return json.dumps(look_up(*arguments, **options), ensure_ascii=False, default=vars)
    except LookupError as error:
        raise ToolError(str(error)) from error


if __name__ == "__main__":
    try:
        server.run("stdio")
    except* BrokenPipeError:  # who had started it was killed
        pass
