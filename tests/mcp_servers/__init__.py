"""Real MCP servers as child processes, and clients of them.

``KINDS`` are (line, transport): ``sdk`` is the installed SDK, ``legacy`` an earlier protocol by
hand. ``sdk1`` is there too if ``MCP_1_PYTHON`` names an interpreter that has mcp 1.x
(``uv venv build/mcp1 && uv pip install --python build/mcp1 'mcp<2'``).
"""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from mcp import StdioServerParameters, stdio_client
from strands.tools.mcp import MCPClient

from strands_manga_memory.mcp.client import stop
from tests import servers

HERE = Path(__file__).parent
MCP_1_PYTHON = os.environ.get("MCP_1_PYTHON")
LINES = ["sdk", "legacy", *(["sdk1"] if MCP_1_PYTHON else [])]
KINDS = [(line, transport) for line in LINES for transport in ("stdio", "http")]


def command(line: str) -> list[str]:
    """Return how a server is started."""
    python = MCP_1_PYTHON if line == "sdk1" else sys.executable
    return [str(python), str(HERE / ("legacy.py" if line == "legacy" else "sdk.py"))]


class HttpServer(servers.Server):
    """An MCP server over streamable HTTP, on the same port each time it is started."""

    def __init__(self, line: str) -> None:
        super().__init__(lambda port: [*command(line), "http", str(port)])

    @property
    def url(self) -> str:
        """Where it answers."""
        return f"http://{self.host}:{self.port}/mcp"

    def misbehave(self, fault: str) -> None:
        """Let calls of tools end like this from now on; see ``legacy.py``."""
        import urllib.request

        with urllib.request.urlopen(
            f"http://{self.host}:{self.port}/fault", data=fault.encode(), timeout=5
        ) as answer:
            answer.read()


def stdio(line: str, **settings: Any) -> MCPClient:
    """Return a client that starts a server of its own."""
    parameters = StdioServerParameters(command=command(line)[0], args=[*command(line)[1:], "stdio"])
    transport: Callable[[], Any] = lambda: stdio_client(parameters, errlog=_quiet)  # noqa: E731
    # A busy machine may need longer than Strands' 30 s to start Python and import the SDK.
    return MCPClient(transport, **{"startup_timeout": 90, **settings})


_quiet = open(os.devnull, "w")  # noqa: SIM115 - as long as the process


@contextmanager
def http(line: str) -> Iterator[HttpServer]:
    """Run a server over HTTP."""
    server = HttpServer(line)
    server.start()
    try:
        yield server
    finally:
        server.kill()


@contextmanager
def client_of(line: str, transport: str, **settings: Any) -> Iterator[MCPClient]:
    """Return a client, not started, of a server of this kind; stop both in the end."""
    with mortal(line, transport, **settings) as (client, _):
        yield client


@contextmanager
def mortal(
    line: str, transport: str, **settings: Any
) -> Iterator[tuple[MCPClient, HttpServer | None]]:
    """Return a client, and its server that may be killed (None: a child of the client)."""
    if transport == "stdio":
        client = stdio(line, **settings)
        try:
            yield client, None
        finally:
            stop(client)
        return
    with http(line) as server:
        client = MCPClient(url=server.url, **{"startup_timeout": 90, **settings})
        try:
            yield client, server
        finally:
            stop(client)
