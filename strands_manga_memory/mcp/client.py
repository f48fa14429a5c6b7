"""What has to be known of the inside of Strands' ``MCPClient``. Nothing else here touches a private name of it.

Each function does without when the name is not there; a test fails when one moves.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from strands.tools.mcp import MCPClient

_KEPT = ("_consumers", "_loaded_tools", "_tool_provider_started")
"""What ``stop()`` forgets, and consumers and other providers of the same client still need after ``start()``."""

_ERROR_HANDLER = "_handle_tool_execution_error"
_PROGRESS_CALLBACK = "_progress_callback"


class FailedResult(dict[str, Any]):
    """An error result of a call that has no answer from the server, with the exception behind it."""

    exception: Exception | None = None


def restart(client: MCPClient) -> None:
    """Stop and start a client, and put back what ``stop()`` forgets.

    Blocks; call it off the event loop, and not on the client's own thread.

    Raises:
        MCPClientInitializationError: The server cannot be reached.
    """
    kept = {name: getattr(client, name) for name in _KEPT if hasattr(client, name)}
    try:
        with suppress(RuntimeError):  # says why the connection had been lost; all is reset nevertheless
            client.stop(None, None, None)
        client.start()
    finally:
        for name, value in kept.items():
            setattr(client, name, value)


def keep_exceptions(client: MCPClient) -> None:
    """Make the error results of a client carry the exception they were made of (``FailedResult``).

    Strands puts no more than its text into the result, and the code of a JSON-RPC error is not in it.
    """
    handle = getattr(client, _ERROR_HANDLER, None)
    if handle is None or getattr(handle, "keeps_exceptions", False):
        return

    def handle_and_keep(tool_use_id: str, exception: Exception) -> Any:
        result = FailedResult(handle(tool_use_id, exception))
        result.exception = exception
        return result

    handle_and_keep.keeps_exceptions = True  # type: ignore[attr-defined]
    setattr(client, _ERROR_HANDLER, handle_and_keep)


def progress_callback_of(client: MCPClient) -> Any:
    """Return the progress callback a client was made with, or None. A callback given to a call takes its place."""
    return getattr(client, _PROGRESS_CALLBACK, None)
