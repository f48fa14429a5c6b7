"""Supervision of the connection to an MCP server, and reconnection after a loss."""

from __future__ import annotations

import asyncio
import contextvars
import itertools
import logging
import random
import threading
import time
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from enum import StrEnum
from typing import Any

from strands.tools.mcp import MCPClient

from strands_manga_memory.arguments import Clock, with_repr
from strands_manga_memory.lifecycle import attachments
from strands_manga_memory.mcp.client import restart

logger = logging.getLogger(__name__)

_numbers = itertools.count(1)
_MOST_BACKOFF = 30.0
"""Longest pause between two attempts to connect, in seconds."""
_DROPPED_TOGETHER = 0.5
"""Seconds within which response streams that end without an answer count as one failure of the
server.
"""


class ServerState(StrEnum):
    """State of the connection to an MCP server: up, down or reconnecting."""

    UP = "up"
    DOWN = "down"
    RECONNECTING = "reconnecting"


@with_repr("name", "reconnects")
class ServerSupervisor:
    """Supervisor that restores the lost connection to an MCP server.

    A tool call that fails because of a lost connection calls ``report_loss``. A pause begins,
    during which tool calls are rejected. The first tool call after the pause starts a reconnection
    in a thread, and waits for its end; other calls are rejected meanwhile. If the reconnection
    fails, the next pause is longer.

    A timeout of a call causes no reconnection, which would end the calls of all other tools. Use
    ``of`` to share one supervisor per client.

    Args:
        client: Client whose connection is supervised.
        clock: Function that returns monotonic seconds.
        connect: Function that restarts the client; it blocks.

    Attributes:
        client: Client whose connection is supervised.
        name: Name of the server: the client's name, or ``mcp-1``, ``mcp-2``, ... in the order of
            creation.
        generation: Number of the current connection, incremented by each reconnection. Read the
            number before a call, and pass it to ``report_loss`` if the call fails.
        reconnects: Number of reconnections so far.
    """

    def __init__(
        self,
        client: MCPClient,
        *,
        clock: Clock = time.monotonic,
        connect: Callable[[MCPClient], None] = restart,
    ) -> None:
        self.client = client
        self.name = client.client_name or f"mcp-{next(_numbers)}"
        # seconds before the first attempt, doubled after each failure and reduced by up to half
        self._backoff = 0.5
        self._clock = clock
        self._connect = connect
        self._random = random.Random()  # noqa: S311 - jitter
        self._lock = threading.Lock()
        self._attempt: Future[Exception | None] | None = None
        self._failed_attempts = 0
        self._next_attempt: float | None = None  # None: up
        self.generation = 0
        self.reconnects = 0
        self._listeners: weakref.WeakSet[Any] = weakref.WeakSet()
        self._asked = 0
        self._dropped_at = float("-inf")
        self._unanswered: dict[int, tuple[str, bool]] = {}
        """Tool of each unanswered call, and whether an earlier call of another tool was unanswered
        when this call began.
        """

    @classmethod
    def of(cls, client: MCPClient, *, clock: Clock = time.monotonic) -> ServerSupervisor:
        """Return the supervisor of an MCP client. All agents and tools of the client share it."""
        attached = attachments(client)
        found: ServerSupervisor = attached.get("supervisor") or attached.setdefault(
            "supervisor", cls(client, clock=clock)
        )
        return found

    # --- the connection ---------------------------------------------------------------------------

    @property
    def is_up(self) -> bool:
        """Whether the MCP server was connected at the latest call or connection attempt."""
        return self._next_attempt is None

    @property
    def state(self) -> ServerState:
        """State of the connection to the MCP server."""
        if self._next_attempt is None:
            return ServerState.UP
        return ServerState.RECONNECTING if self._attempt is not None else ServerState.DOWN

    @property
    def retry_after(self) -> float:
        """Seconds until a tool call may try to reconnect to the MCP server.

        The value is 0 while there is a connection, and 0.5 while an attempt to connect runs.
        """
        with self._lock:
            if self._next_attempt is None:
                return 0.0
            return (
                self._backoff
                if self._attempt is not None
                else max(0.0, self._next_attempt - self._clock())
            )

    def report_loss(self, generation: int) -> None:
        """Report that a tool call failed because the connection to the MCP server was lost.

        ``generation`` is the number of the connection that the call used. Nothing happens if there
        has been a newer connection since.
        """
        with self._lock:
            if generation != self.generation or self._next_attempt is not None:
                return
            self._failed_attempts = 0
            self._postpone()
        logger.warning("server=<%s> | the connection to the MCP server was lost", self.name)

    async def ensure_connected(self, *, wait: float) -> bool:
        """Try to restore a lost connection, and return whether the MCP server is connected.

        No attempt is made during the pause after a loss or a failed attempt. An attempt that takes
        longer than ``wait`` seconds continues in its own thread.
        """
        if self._next_attempt is None:
            return True
        attempt = self._begin()
        if attempt is None:
            return self._next_attempt is None
        done = asyncio.wrap_future(attempt)
        try:
            await asyncio.wait({done}, timeout=wait)
        finally:
            # otherwise the attempt would call back into this loop, which may be closed by then
            done.cancel()
        return self._next_attempt is None

    def connect(self) -> None:
        """Connect to the MCP server now, even during a pause between attempts.

        This method blocks. If an attempt to connect is already running, its result is awaited.

        Raises:
            MCPClientInitializationError: The server cannot be reached.
        """
        with self._lock:
            under_way = self._attempt
            attempt = self._attempt = under_way or _attempt()
        if under_way is None:
            self._run_attempt(attempt)
        error = attempt.result()
        if error is not None:
            raise error

    def _begin(self) -> Future[Exception | None] | None:
        with self._lock:
            if (
                self._next_attempt is None
                or self._attempt is not None
                or self._clock() < self._next_attempt
            ):
                return None
            attempt = self._attempt = _attempt()
        # as start() does, so that the client's thread has the same context variables
        context = contextvars.copy_context()
        thread = threading.Thread(
            target=context.run, args=(self._run_attempt, attempt), name="mcp-reconnect", daemon=True
        )
        thread.start()
        return attempt

    def _run_attempt(self, attempt: Future[Exception | None]) -> None:
        failed: Exception | None = None
        try:
            self._connect(self.client)
        except Exception as error:  # noqa: BLE001 - any error is retried later
            failed = error
        with self._lock:
            was_down, self._attempt = self._next_attempt is not None, None
            if failed is None:
                self._next_attempt = None
                self.generation += 1
                self.reconnects += was_down
                self._unanswered = {}
            else:
                self._failed_attempts += 1
                self._postpone()
        if failed is not None:
            logger.warning(
                "server=<%s>, error=<%s> | no connection to the MCP server",
                self.name,
                type(failed).__name__,
            )
        elif was_down:
            logger.info("server=<%s> | reconnected to the MCP server", self.name)
        attempt.set_result(failed)
        for listener in list(self._listeners) if failed is None and was_down else ():
            listener.on_reconnected()

    def _postpone(self) -> None:
        delay = min(_MOST_BACKOFF, self._backoff * 2 ** min(self._failed_attempts, 30))
        self._next_attempt = self._clock() + delay * self._random.uniform(0.5, 1.0)

    def add_listener(self, listener: Any) -> None:
        """Register an object whose method ``on_reconnected()`` is called after each reconnection.

        The method runs in the thread that has reconnected, and must not raise errors. The
        supervisor has only a weak reference to the object.
        """
        self._listeners.add(listener)

    # --- causes of missing answers ----------------------------------------------------------------

    def record_call(self, tool: str) -> int:
        """Record the start of a tool call, and return a number that identifies the call."""
        with self._lock:
            self._asked += 1
            self._unanswered[self._asked] = (
                tool,
                any(other != tool for other, _ in self._unanswered.values()),
            )
            return self._asked

    def record_answer(self) -> None:
        """Record that the server answered a call, and is therefore not blocked.

        A later timeout of a call that is running now then no longer shows a blocked server.
        """
        with self._lock:
            self._unanswered = {}

    def record_lost_answer(self) -> bool:
        """Record that a response stream ended without answer, and return whether the server failed.

        The result is True if another stream ended so in the half second before: with version 1.x of
        the MCP SDK, a server that dies ends all calls at once. A proxy that cuts off a slow answer
        ends only one call.
        """
        with self._lock:
            now = self._clock()
            one_of_several = now - self._dropped_at < _DROPPED_TOGETHER
            self._dropped_at = now
            return one_of_several

    def remove_call(self, number: int) -> None:
        """Remove an ended call, such as a cancelled one, from the calls that wait for an answer."""
        with self._lock:
            self._unanswered.pop(number, None)

    def record_timeout(self, number: int) -> bool:
        """Record that a call timed out, and return whether another tool probably blocks the server.

        The result is True if another tool was running at the beginning of this call, and the server
        has answered nothing since then. ``number``, the result of ``record_call``, names this call.
        """
        with self._lock:
            return self._unanswered.pop(number, ("", False))[1]


def _attempt() -> Future[Exception | None]:
    attempt: Future[Exception | None] = Future()
    attempt.set_running_or_notify_cancel()
    return attempt
