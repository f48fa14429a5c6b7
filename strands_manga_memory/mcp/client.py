"""Functions that use private attributes of Strands' ``MCPClient``; no other module does.

If Strands removes an attribute, the functions work without it. A test detects the removal.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from strands.tools.mcp import MCPClient

_KEPT = ("_consumers", "_loaded_tools", "_tool_provider_started")
"""Attributes of an ``MCPClient`` that a restart must keep. ``stop()`` resets them, although
consumers and other providers of the client need them after ``start()``.
"""

_LOOP = "_background_thread_event_loop"
_ERROR_HANDLER = "_handle_tool_execution_error"


class FailedResult(dict[str, Any]):
    """Error result of an MCP tool, with the exception that the call raised."""

    exception: Exception | None = None


def restart(client: MCPClient) -> None:
    """Restart an MCP client that has lost its connection. Agents keep the client and its tools.

    The function blocks. Do not call it on the event loop or on the client's own thread.

    Raises:
        MCPClientInitializationError: The server cannot be reached.
    """
    kept = {name: getattr(client, name) for name in _KEPT if hasattr(client, name)}
    own_stop = client.stop
    # A failed start() calls it, too.
    client.stop = lambda *exit_details: _stop_without_warnings(client, own_stop, *exit_details)  # type: ignore[method-assign]
    try:
        stop(client)
        client.start()
    finally:
        del client.stop
        for name, value in kept.items():
            setattr(client, name, value)


def stop(client: MCPClient) -> None:
    """Stop an MCP client, even if it has lost its connection. This function blocks."""
    with suppress(RuntimeError):  # raised for a lost connection; the client is reset nevertheless
        _stop_without_warnings(client, client.stop, None, None, None)


def _stop_without_warnings(
    client: MCPClient, own_stop: Callable[..., None], *exit_details: Any
) -> None:
    thread, loop, started = (
        getattr(client, name, None) for name in ("_background_thread", _LOOP, "_init_future")
    )
    if (
        thread is not None
        and started is not None
        and started.done()
        and started.exception() is not None
    ):
        thread.join(timeout=1)
    if thread is not None and loop is not None and not thread.is_alive():
        # The client would pass a coroutine to this loop, which no longer runs, and Python would
        # warn.
        loop.close()
        setattr(client, _LOOP, None)
    own_stop(*exit_details)


def keep_exceptions(client: MCPClient) -> None:
    """Make an MCP client return the exception of each failed call, in a ``FailedResult``.

    Strands returns only the text of the exception, without the JSON-RPC code.
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
    """Return the progress callback that an MCP client got when it was created, or None.

    If a tool call has a callback of its own, Strands calls only that one. It must then call the
    client's callback.
    """
    return getattr(client, "_progress_callback", None)
