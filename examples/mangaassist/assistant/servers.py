"""Three MCP servers of the shop as child processes, with a circuit breaker for each tool."""

from __future__ import annotations

import asyncio
import os
import sys
import uuid
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, cast

from mcp import StdioServerParameters, stdio_client
from strands.tools.mcp import MCPClient
from strands.types.exceptions import MCPClientInitializationError

from mangaassist.assistant.customer import CustomerTool
from strands_manga_memory import BreakerPolicy, MangaMemory

if TYPE_CHECKING:
    from strands.tools.mcp.mcp_types import MCPTransport
    from strands.types.tools import AgentTool

FOLDER = Path(__file__).parents[1]
SHOWN = (
    "server",
    "server_state",
    "state",
    "health",
    "failures_in_a_row",
    "calls",
    "rejected",
    "stale",
    "retry_after_s",
)
"""Fields of a tool's status that users may see. None contains data of a call."""

_LOOK_UP = BreakerPolicy(
    timeout=5.0, tool_errors="ignore"
)  # "no such order" is a finding, not a failure
_STOCK = BreakerPolicy(failures=3, reset_after=5.0, timeout=1.0, users=1)
_STALE_TTL = 600.0


class Servers:
    """Servers for catalogue, orders and stock. The stock server fails on demand."""

    def __init__(self, memory: MangaMemory) -> None:
        self._catalogue = _client(
            "catalogue_server.py", "search_manga", "get_manga", "list_volumes"
        )
        self._orders = _client("orders_server.py", "my_orders", "order_status")
        self._stock = _client("stock_server.py", "get_stock")
        self.catalogue = memory.guard(self._catalogue, _LOOK_UP)
        self.orders = memory.guard(self._orders, _LOOK_UP)
        self.stock = memory.guard(self._stock, _STOCK, stale_ttl=_STALE_TTL)
        self.order_tools: list[AgentTool] = []
        self.fault = "none"

    def __enter__(self) -> Servers:
        """Start all three at once. Raise ``MCPClientInitializationError`` if one does not start."""
        try:
            with ThreadPoolExecutor() as pool:
                list(pool.map(MCPClient.start, self._clients))
            for guarded in self._guards:
                asyncio.run(guarded.load_tools())
        except BaseException:
            self.__exit__(None, None, None)
            raise
        self.order_tools = [CustomerTool(tool) for tool in self.orders.tools]
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Stop the servers."""
        for client in self._clients:
            client.stop(None, None, None)

    def status(self) -> dict[str, dict[str, Any]]:
        """Return the status of each tool, keyed by name."""
        known: dict[str, Mapping[str, Any]] = {}
        for guarded in self._guards:
            known.update(guarded.status())
        return {name: {field: status[field] for field in SHOWN} for name, status in known.items()}

    def set_fault(self, kind: str) -> bool:
        """Let the stock server work (``none``), fail (``error``), ``hang`` or ``exit`` in look-ups.

        ``fault`` has the current value. After an exit it is ``none``.

        Returns:
            False if the server is down already. The supervisor restarts it, without a fault, at the
            next look-up.
        """
        try:
            result = self._stock.call_tool_sync(
                f"fault-{uuid.uuid4().hex}", "set_fault", {"kind": kind}
            )
        except MCPClientInitializationError:
            return False
        if result["status"] != "success":
            return False
        self.fault = "none" if kind == "exit" else kind
        return True

    @property
    def _clients(self) -> list[MCPClient]:
        return [self._catalogue, self._orders, self._stock]

    @property
    def _guards(self) -> list[Any]:
        return [self.catalogue, self.orders, self.stock]


def _client(script: str, *offered: str) -> MCPClient:
    parameters = StdioServerParameters(
        command=sys.executable, args=[str(FOLDER / script)], cwd=os.getcwd()
    )
    return MCPClient(
        lambda: cast("MCPTransport", stdio_client(parameters)),
        application_name=script.removesuffix("_server.py"),
        tool_filters={"allowed": list(offered)},
    )
