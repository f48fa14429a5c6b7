"""ServerSupervisor: whether a server can be reached, and the one place that connects to it anew."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import random
import threading
import time
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from strands.tools.mcp import MCPClient

from strands_manga_memory.mcp.calls.client import restart

logger = logging.getLogger(__name__)

_DROPPED_TOGETHER = 0.5
"""Seconds within which streams that end without an answer are one event."""


class ServerState(StrEnum):
    """Whether a server can be reached."""

    UP = "up"
    DOWN = "down"
    RECONNECTING = "reconnecting"


class ServerSupervisor:
    """Connects to a server anew when its connection was lost: one attempt at a time, with backoff, off the event loop.

    Strands does not reconnect by itself. A lost connection is noticed by the call that meets it (``lost``). The first
    call after the backoff makes the attempt and waits for it; the others are rejected meanwhile. A call that merely took too
    long is no reason to reconnect: it would cut the calls of every other tool.

    Use ``of`` to share one among all that use the same client.

    Args:
        client: The connection.
        backoff: Seconds before the first attempt; doubled after each that failed. Up to half of it is left off at random.
        max_backoff: Most seconds between two attempts.
        clock: Monotonic seconds.
        connect: Stops and starts the client; blocking.
    """

    def __init__(
        self,
        client: MCPClient,
        *,
        backoff: float = 0.5,
        max_backoff: float = 30.0,
        clock: Callable[[], float] = time.monotonic,
        connect: Callable[[MCPClient], None] = restart,
    ) -> None:
        if not backoff > 0:
            raise ValueError(f"backoff must be a number of seconds over 0, got {backoff!r:.80}")
        if not max_backoff >= backoff:
            raise ValueError(f"max_backoff must be at least backoff={backoff}, got {max_backoff!r:.80}")
        self.client = client
        self._backoff = backoff
        self._max_backoff = max_backoff
        self._clock = clock
        self._connect = connect
        self._random = random.Random()  # noqa: S311 - jitter
        self._lock = threading.Lock()
        self._attempt: Future[Exception | None] | None = None
        self._failed_attempts = 0
        self._next_attempt: float | None = None  # None: up
        self._generation = 0
        self._reconnects = 0
        self._listeners: weakref.WeakSet[Any] = weakref.WeakSet()
        self._asked = 0
        self._dropped_at = float("-inf")
        self._unanswered: dict[int, _Unanswered] = {}

    @classmethod
    def of(cls, client: MCPClient, *, clock: Callable[[], float] = time.monotonic) -> ServerSupervisor:
        """Return the supervisor of a client: the same for all who ask as long as one of them lives."""
        with _shared_lock:
            # By identity: the supervisor keeps the client alive, so no other client can have its id meanwhile.
            found = _shared.get(id(client))
            if found is None:
                found = _shared[id(client)] = cls(client, clock=clock)
            return found

    # --- the connection ------------------------------------------------------------------------------------------------

    @property
    def generation(self) -> int:
        """Number of the connection; take it before a call, and give it to ``lost`` after."""
        return self._generation

    @property
    def reconnects(self) -> int:
        """Times the server was connected anew."""
        return self._reconnects

    @property
    def is_up(self) -> bool:
        """Whether the server can be reached, as far as is known."""
        return self._next_attempt is None

    @property
    def state(self) -> ServerState:
        """Whether the server can be reached."""
        if self._next_attempt is None:
            return ServerState.UP
        return ServerState.RECONNECTING if self._attempt is not None else ServerState.DOWN

    @property
    def retry_after(self) -> float:
        """Seconds until a call may make the next attempt; while one is under way, the first backoff."""
        with self._lock:
            if self._next_attempt is None:
                return 0.0
            return self._backoff if self._attempt is not None else max(0.0, self._next_attempt - self._clock())

    def lost(self, generation: int) -> None:
        """Note that a call found the connection of this generation lost; one that has been replaced since is no news."""
        with self._lock:
            if generation != self._generation or self._next_attempt is not None:
                return
            self._failed_attempts = 0
            self._postpone()
        logger.warning("server=<%s> | the connection to the MCP server was lost", name_of(self.client))

    async def ready(self, within: float) -> bool:
        """Tell whether a call can be made; connect anew first if it is time to.

        Args:
            within: Seconds to wait for the attempt, which goes on in its own thread if it takes longer.
        """
        if self._next_attempt is None:
            return True
        attempt = self._begin()
        if attempt is None:
            return self._next_attempt is None
        done = asyncio.wrap_future(attempt)
        try:
            await asyncio.wait({done}, timeout=within)
        finally:
            done.cancel()  # or the attempt would look for this loop when it is over, and the loop may be gone
        return self._next_attempt is None

    def connect(self) -> None:
        """Connect now, whatever the backoff; wait for the attempt under way if there is one. Blocks.

        Raises:
            MCPClientInitializationError: The server cannot be reached.
        """
        with self._lock:
            under_way = self._attempt
            attempt = self._attempt = under_way or _attempt()
        if under_way is None:
            self._run(attempt)
        error = attempt.result()
        if error is not None:
            raise error

    def _begin(self) -> Future[Exception | None] | None:
        """Start an attempt if it is time to and none is under way; None: it is not, or there is one."""
        with self._lock:
            if self._next_attempt is None or self._attempt is not None or self._clock() < self._next_attempt:
                return None
            attempt = self._attempt = _attempt()
        context = contextvars.copy_context()  # as start() does: what is set here is seen by the client's thread
        thread = threading.Thread(target=context.run, args=(self._run, attempt), name="mcp-reconnect", daemon=True)
        thread.start()
        return attempt

    def _run(self, attempt: Future[Exception | None]) -> None:
        """Make an attempt; its result is what went wrong, or None."""
        failed: Exception | None = None
        try:
            self._connect(self.client)
        except Exception as error:  # noqa: BLE001 - whatever it was: try again later
            failed = error
        with self._lock:
            was_down, self._attempt = self._next_attempt is not None, None
            if failed is None:
                self._next_attempt = None
                self._generation += 1
                self._reconnects += was_down
                self._unanswered = {}
            else:
                self._failed_attempts += 1
                self._postpone()
        server = name_of(self.client)
        if failed is not None:
            logger.warning("server=<%s>, error=<%s> | no connection to the MCP server", server, type(failed).__name__)
        elif was_down:
            logger.info("server=<%s> | connected to the MCP server anew", server)
        attempt.set_result(failed)
        if failed is None and was_down:
            self._tell()

    def _postpone(self) -> None:
        delay = min(self._max_backoff, self._backoff * 2 ** min(self._failed_attempts, 30))
        self._next_attempt = self._clock() + delay * self._random.uniform(0.5, 1.0)

    def listen(self, listener: Any) -> None:
        """Call ``listener.reconnected()`` after each reconnection, on the thread that made it, as long as it lives."""
        self._listeners.add(listener)

    def _tell(self) -> None:
        for listener in list(self._listeners):
            try:
                listener.reconnected()
            except Exception as error:
                logger.warning(
                    "server=<%s>, error=<%s> | what follows a reconnection failed", name_of(self.client), type(error).__name__
                )
                logger.debug("server=<%s> | what follows a reconnection failed", name_of(self.client), exc_info=True)

    # --- who is to blame for silence -----------------------------------------------------------------------------------

    def asked(self, tool: str) -> int:
        """Note that a call of a tool begins; return its number."""
        with self._lock:
            behind = any(call.tool != tool for call in self._unanswered.values())
            self._asked += 1
            self._unanswered[self._asked] = _Unanswered(tool, behind)
            return self._asked

    def answered(self) -> None:
        """Note that the server answered something: it is not blocked, whoever still waits."""
        with self._lock:
            self._unanswered = {}

    def dropped(self) -> bool:
        """Note that a stream ended without an answer; tell whether it is one of several, which say little about their tools.

        A server on the 1.x SDK that dies ends all its streams like this, and a proxy that closes a slow one ends just that.
        """
        with self._lock:
            now = self._clock()
            one_of_several = now - self._dropped_at < _DROPPED_TOGETHER
            self._dropped_at = now
            return one_of_several

    def withdrawn(self, number: int) -> None:
        """Note that nobody waits for a call any more, for reasons that are not the server's."""
        with self._lock:
            self._unanswered.pop(number, None)

    def blocked_by_another(self, number: int) -> bool:
        """Tell whether a call that timed out is the fault of another tool, which blocks the whole server.

        That is so if a call of another tool had no answer when this one began, and the server has answered nobody since.
        """
        with self._lock:
            call = self._unanswered.pop(number, None)
            return call is not None and call.behind


def _attempt() -> Future[Exception | None]:
    """Return the future of an attempt that nobody who waits for it can cancel."""
    attempt: Future[Exception | None] = Future()
    attempt.set_running_or_notify_cancel()
    return attempt


@dataclass(frozen=True)
class _Unanswered:
    """A call the server has not answered, and whether one of another tool had no answer when it began."""

    tool: str
    behind: bool


_shared: weakref.WeakValueDictionary[int, ServerSupervisor] = weakref.WeakValueDictionary()
_shared_lock = threading.Lock()


def name_of(client: MCPClient) -> str:
    """Return a name for a server: what the client calls itself, else one by its order of appearance."""
    if client.client_name:
        return client.client_name
    with _names_lock:
        return _names.setdefault(client, f"mcp-{len(_names) + 1}")


_names: weakref.WeakKeyDictionary[MCPClient, str] = weakref.WeakKeyDictionary()
_names_lock = threading.Lock()
