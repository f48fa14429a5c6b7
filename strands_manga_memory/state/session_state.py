"""State of a session that its agents share through the hot store."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from typing import Any, NamedTuple

from strands_manga_memory import telemetry
from strands_manga_memory.exceptions import CorruptRecordError, MangaMemoryError
from strands_manga_memory.scope import ConversationScope
from strands_manga_memory.state.state_store import StateStore
from strands_manga_memory.stores.codec import Codec, trusted
from strands_manga_memory.stores.hot import HotStore
from strands_manga_memory.stores.writer import TierHealth, Writer, shared_writer

logger = logging.getLogger(__name__)

SHARED_TTL = 86_400.0
"""Seconds that shared state and published changes are stored. Sessions should not live longer."""


class BackgroundRead:
    """Runner of a repeated read, such as that of the environment, on a background thread.

    The caller of ``run`` waits for the end of the read, at most until a deadline. A read that misses the deadline continues in
    the background, and the next read begins after its end.

    Args:
        read: Function that reads and keeps the data. It may block.
        name: Name of the read in telemetry.
        deadline: Seconds that ``run`` waits.
        writer: Background threads that run the read.
        key: Key of the read in ``writer``, which runs all work with the same key in order.
    """

    def __init__(self, read: Callable[[], None], *, name: str, deadline: float, writer: Writer, key: Hashable) -> None:
        self._read, self._name, self._deadline = read, name, deadline
        self._writer, self._key = writer, key
        self._running: Future[Any] | None = None

    async def run(self) -> None:
        """Run the read on a background thread, and wait for its end, at most until the deadline.

        If an earlier read is still running, wait for its end first. The event loop is not blocked.
        """
        try:
            async with asyncio.timeout(self._deadline):
                if self._running is not None and not self._running.done():
                    await asyncio.wait([asyncio.wrap_future(self._running)])
                self._running = self._writer.submit(self._key, self._read)
                await asyncio.wait([asyncio.wrap_future(self._running)])
        except TimeoutError:
            telemetry.missed(self._name)


class _SharedLayers(NamedTuple):
    """State that the agents of a session share, as stored in the hot store.

    It contains the text of each part of the state (such as the goals), a revision number, and the ids of the agents that wrote
    the state.
    """

    layers: dict[str, str]
    revision: int
    agents: frozenset[str]


class SessionState:
    """State (dialogue, entities and goals) that the agents of a session share through the hot store.

    An agent reads the shared state before each turn. After the turn, the agent merges its own changes into the shared state,
    key by key. Each agent keeps a copy in its ``agent.state``. If the hot store loses the shared state, the next agent stores
    its copy there. If two agents in two processes end a turn within milliseconds, one may overwrite the changes of the other.

    Args:
        hot: The hot store.
        scope: Scope of the session.
        store: Store of this agent's state.
        codec: Codec of the shared data.
        is_stored: Function that takes an agent id and returns whether the session still has the agent's conversation. If this
            is False for all agents that wrote the shared state, a new agent ignores the shared state. None: no check.
        deadline: Seconds that a turn waits for the shared state. Default 1.
    """

    def __init__(
        self,
        hot: HotStore,
        scope: ConversationScope,
        store: StateStore,
        *,
        codec: Codec | None = None,
        is_stored: Callable[[str], bool] | None = None,
        deadline: float = 1.0,
    ) -> None:
        self._hot, self._store = hot, store
        self._name = self.name_of(scope)
        self._codec = codec or Codec()
        self._is_stored = is_stored
        self._writer = shared_writer(hot, None)
        self._health = TierHealth(clock=store.clock)
        self._last = b"", _SharedLayers({}, 0, frozenset())
        self._abandoned = 0
        self._reading = BackgroundRead(self._pull, name="state", deadline=deadline, writer=self._writer, key=self._name)

    @staticmethod
    def name_of(scope: ConversationScope) -> str:
        """Return the key of a session's shared state in the hot store."""
        return f"state/{scope.storage_session_id}"

    async def refresh(self) -> None:
        """Merge the changes of the session's other agents into this agent's state, without blocking the event loop.

        Changes that do not arrive within the deadline are not merged.
        """
        if self._hot.survives_process:
            await self._reading.run()
        else:
            self._pull()  # the memory of this process does not block

    def publish(self) -> None:
        """Share the changes of this agent's state with the session's other agents, in the background."""
        if self._store.has_changed():
            self._writer.submit(self._name, self._push) if self._hot.survives_process else self._push()

    def _pull(self) -> None:
        shared = self._health.tried(self._read)
        if shared is not None:
            self._merge(shared)

    def _push(self) -> None:
        self._health.tried(self._write)

    def _write(self) -> None:
        shared = self._read()
        if shared is None or not self._merge(shared):
            shared = _SharedLayers({}, 0 if shared is None else shared.revision, frozenset())
        with self._store.lock:
            texts, values = self._store.share(shared.layers)
            revision = 1 + max(self._store.revision, shared.revision)
        # The agent itself may be gone: its last turn is shared in the background.
        agents = shared.agents if self._is_stored is None else shared.agents | {self._store.agent_id}
        rows = {"layers": texts, "revision": revision, "agents": sorted(agents)}
        value = self._codec.encode(rows, self._name)
        self._hot.put_value(self._name, value, ttl=SHARED_TTL)
        self._last = value, _SharedLayers(texts, revision, agents)
        self._store.note_shared(values, revision)

    def _read(self) -> _SharedLayers | None:
        value = self._hot.get_value(self._name)
        if not value:
            return None
        if value == self._last[0]:
            return self._last[1]
        try:
            rows = self._codec.decode(value, self._name)
            with trusted(self._name):
                layers = {str(key): str(text) for key, text in rows["layers"].items()}
                self._last = value, _SharedLayers(layers, int(rows["revision"]), frozenset(map(str, rows["agents"])))
                return self._last[1]
        except CorruptRecordError as error:
            logger.warning("error=<%s> | the shared state of a session cannot be read", type(error).__name__)
            return None

    def _merge(self, shared: _SharedLayers) -> bool:
        """Merge the session's shared state into this agent's state, unless the agent has merged this revision already.

        Return False if the shared state is ignored because it belongs to a deleted session; otherwise return True.
        """
        if shared.revision == self._abandoned:
            return False
        if shared.revision != self._store.revision:
            if self._store.is_new and not self._is_alive(shared):
                self._abandoned = shared.revision
                return False
            self._store.merge(shared.layers, shared.revision)
        return True

    def _is_alive(self, shared: _SharedLayers) -> bool:
        if self._is_stored is None or not shared.agents:
            return True
        try:
            return any(map(self._is_stored, sorted(shared.agents)))
        except MangaMemoryError:
            return False
