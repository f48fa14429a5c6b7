"""Queue that runs the requests of one conversation one after another."""

from __future__ import annotations

import asyncio
import logging
import random
import threading
import uuid
from collections import deque
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial

from strands_manga_memory import telemetry
from strands_manga_memory.arguments import PositiveSeconds, checked, with_repr
from strands_manga_memory.exceptions import BusyError, StoreError
from strands_manga_memory.scope import ConversationScope
from strands_manga_memory.session.tiers import ConversationKey
from strands_manga_memory.stores import HotStore
from strands_manga_memory.stores.hot import acquire_lease, release_lease
from strands_manga_memory.telemetry import STUCK_WAIT

logger = logging.getLogger(__name__)

_FIRST_PAUSE, _LONGEST_PAUSE = 0.02, 0.25

Key = tuple[str, str]
"""Storage session id and agent id, which identify a conversation."""


@with_repr("_hot", "_lease")
class ConversationTurns:
    """Queue that runs the requests of a conversation in the order of arrival.

    The queue works on any event loop and thread of this process. With a hot store, a running
    request also holds a lease (lock with an expiry), so that other processes wait. If the store
    fails, requests run without a lease. Session managers then merge the turns that two processes
    save at the same time.

    Args:
        hot: Hot store of the leases; None for requests of this process only.
        lease: Seconds until the lease of a dead process expires. Default 2. A running request
            renews its lease whenever a third of this time has passed.

    Raises:
        ValueError: ``lease`` is not above 0.
    """

    @checked
    def __init__(self, hot: HotStore | None = None, *, lease: PositiveSeconds = 2.0) -> None:
        self._hot = hot
        self._lease = lease
        self._lock = threading.Lock()
        self._queues: dict[Key, deque[Future[None]]] = {}

    @asynccontextmanager
    async def wait_for_turn(self, scope: ConversationScope, *, wait: float) -> AsyncIterator[None]:
        """Run a ``with`` block after the earlier requests of a conversation have ended.

        Later requests of the conversation wait for the end of the block.

        Args:
            scope: Ids of the conversation.
            wait: Longest wait in seconds.

        Raises:
            BusyError: Earlier requests took longer than ``wait``, for example because two requests
                wait for each other.
        """
        key = (scope.storage_session_id, scope.agent_id)
        async with AsyncExitStack() as held:
            try:
                async with asyncio.timeout(wait):
                    await held.enter_async_context(self._first_in_queue(key))
                    if self._hot is not None:
                        await held.enter_async_context(self._holding_lease(self._hot, scope))
            except TimeoutError as error:
                telemetry.record_event(STUCK_WAIT, counts={"waits": 1})
                logger.warning(
                    "agent=<%s>, seconds=<%s> | a request stopped waiting for its turn",
                    scope.agent_id,
                    wait,
                )
                raise BusyError(
                    f"agent {scope.agent_id!r:.80} still answers earlier requests of the"
                    f" conversation after {wait:g} s: repeat the request later, or raise wait"
                ) from error
            yield

    @asynccontextmanager
    async def _first_in_queue(self, key: Key) -> AsyncIterator[None]:
        mine = Future[None]()
        # so that the cancellation of a waiting request does not cancel the future
        mine.set_running_or_notify_cancel()
        with self._lock:
            queue = self._queues.setdefault(key, deque())
            queue.append(mine)
            if queue[0] is mine:
                mine.set_result(None)
        try:
            if not mine.done():
                await asyncio.wrap_future(mine)
            yield
        finally:
            with self._lock:
                queue.remove(mine)
                if not queue:
                    del self._queues[key]
                elif not queue[0].done():
                    queue[0].set_result(None)

    @asynccontextmanager
    async def _holding_lease(self, hot: HotStore, scope: ConversationScope) -> AsyncIterator[None]:
        # ``TieredSessionManager.lease`` uses the same lease.
        name, owner = (
            ConversationKey.of(scope.storage_session_id, "A", scope.agent_id).name,
            uuid.uuid4().hex,
        )
        acquire = partial(acquire_lease, hot, name, owner=owner, ttl=self._lease)
        renewal: asyncio.Task[None] | None = None
        try:
            try:
                pause = _FIRST_PAUSE
                while not await _acquire_in_thread(acquire):
                    await asyncio.sleep(pause * random.uniform(0.5, 1.0))  # noqa: S311 - no secret
                    pause = min(2 * pause, _LONGEST_PAUSE)
                renewal = asyncio.create_task(self._renew(acquire))
            except StoreError as error:
                logger.warning(
                    "error=<%s> | failed to acquire a lease, other processes do not wait",
                    type(error).__name__,
                )
            yield
        finally:
            if renewal is not None:
                renewal.cancel()
                await asyncio.wait({renewal})  # a running renewal must not follow the release
            with suppress(StoreError):
                await asyncio.to_thread(release_lease, hot, name, owner=owner)

    async def _renew(self, acquire: Callable[[], bool]) -> None:
        while True:
            await asyncio.sleep(self._lease / 3)
            with suppress(StoreError):
                await _acquire_in_thread(acquire)


async def _acquire_in_thread(acquire: Callable[[], bool]) -> bool:
    acquiring = asyncio.ensure_future(asyncio.to_thread(acquire))
    try:
        # A cancelled task could otherwise release the lease before the thread acquires it.
        return await asyncio.shield(acquiring)
    except asyncio.CancelledError:
        with suppress(StoreError):
            await acquiring
        raise
