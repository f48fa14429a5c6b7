"""Queue that runs the requests of one conversation one after another."""

from __future__ import annotations

import asyncio
import logging
import random
import threading
import uuid
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import Future
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from contextvars import ContextVar
from functools import partial

from strands_manga_memory import telemetry
from strands_manga_memory.exceptions import StoreError
from strands_manga_memory.scope import ConversationScope
from strands_manga_memory.session.tiers import Place
from strands_manga_memory.stores import HotStore
from strands_manga_memory.telemetry import STUCK_WAIT

logger = logging.getLogger(__name__)

_FIRST_PAUSE, _LONGEST_PAUSE = 0.02, 0.25

Key = tuple[str, str]
"""Storage session id and agent id, which identify a conversation."""


class CircularWaitError(Exception):
    """Raised if two requests would wait for each other, directly or through other requests."""


class WaitGraph:
    """Graph of the conversations whose requests wait for each other in this process, to detect circular waits.

    Each edge leads from a conversation in which a request runs to the conversation for which the request waits. Tasks and
    threads that run in the request's context count as the same request.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._edges: dict[Key, list[Key]] = {}
        self._held: ContextVar[tuple[Key, ...]] = ContextVar("held", default=())

    @contextmanager
    def waiting(self, key: Key) -> Iterator[None]:
        """Record during a ``with`` block that the caller's request waits for the running request of conversation ``key``.

        Raises:
            CircularWaitError: The running request waits for the caller's request, directly or through other requests.
        """
        held = self._held.get()
        with self._lock:
            if not set(held).isdisjoint(self._reachable(key)):
                raise CircularWaitError
            for each in held:
                self._edges.setdefault(each, []).append(key)
        try:
            yield
        finally:
            with self._lock:
                for each in held:
                    self._edges[each].remove(key)
                    if not self._edges[each]:
                        del self._edges[each]

    @contextmanager
    def holding(self, key: Key) -> Iterator[None]:
        """Record during a ``with`` block that the caller's request is the running request of conversation ``key``."""
        before = self._held.get()
        self._held.set((*before, key))
        try:
            yield
        finally:
            self._held.set(before)

    def _reachable(self, key: Key) -> set[Key]:
        reachable, ahead = {key}, [key]
        while ahead:
            for each in self._edges.get(ahead.pop(), ()):
                if each not in reachable:
                    reachable.add(each)
                    ahead.append(each)
        return reachable


class BusyError(Exception):
    """Raised if a request waits too long for its turn, or if it and an earlier request would wait for each other."""


_waits = WaitGraph()


class ConversationTurns:
    """Queue that runs the requests of a conversation in the order of arrival.

    The queue works on any event loop and thread of this process. With a hot store, a running request also holds a lease (lock
    with an expiry), so that other processes wait. If the store fails, requests run without a lease. Session managers then merge
    the turns that two processes save at the same time.

    Args:
        hot: Hot store of the leases; None for requests of this process only.
        lease: Seconds until the lease of a dead process expires. A running request renews its lease each third of this time.
            Default 2.

    Raises:
        ValueError: ``lease`` is not above 0.
    """

    def __init__(self, hot: HotStore | None = None, *, lease: float = 2.0) -> None:
        if not lease > 0:
            raise ValueError(f"lease must be more than 0 seconds, got {lease!r:.80}")
        self._hot = hot
        self._lease = lease
        self._lock = threading.Lock()
        self._queues: dict[Key, deque[Future[None]]] = {}

    @asynccontextmanager
    async def hold(self, scope: ConversationScope, *, wait: float) -> AsyncIterator[None]:
        """Wait until the earlier requests of a conversation have ended. Later requests wait for the end of the ``with`` block.

        Args:
            scope: Scope of the conversation.
            wait: Seconds to wait at most.

        Raises:
            BusyError: Earlier requests took too long, or this request and an earlier one would wait for each other.
        """
        key = (scope.storage_session_id, scope.agent_id)
        async with AsyncExitStack() as held:
            try:
                with _waits.waiting(key):
                    async with asyncio.timeout(wait):
                        await held.enter_async_context(self._first_in_queue(key))
                        if self._hot is not None:
                            await held.enter_async_context(self._holding_lease(self._hot, scope))
            except (TimeoutError, CircularWaitError) as error:
                reason = "timeout" if isinstance(error, TimeoutError) else "circular"
                telemetry.note(STUCK_WAIT, attributes={"reason": reason}, counts={"waits": 1})
                logger.warning("agent=<%s>, reason=<%s> | a request stopped waiting for its turn", scope.agent_id, reason)
                raise BusyError from error
            with _waits.holding(key):
                yield

    @asynccontextmanager
    async def _first_in_queue(self, key: Key) -> AsyncIterator[None]:
        """Wait until all earlier requests of a conversation have ended.

        The end of the ``with`` block admits the next request.
        """
        mine = Future[None]()
        mine.set_running_or_notify_cancel()  # so that the cancellation of a waiting request does not cancel the future
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
        """Wait for the lease of a conversation, and hold the lease during a ``with`` block.

        If the store fails, the block runs without a lease.
        """
        # ``TieredSessionManager.lease`` uses the same lease.
        name, owner = Place.of(scope.storage_session_id, "A", scope.agent_id).conversation, uuid.uuid4().hex
        acquire = partial(hot.acquire_lease, name, owner=owner, ttl=self._lease)
        renewal: asyncio.Task[None] | None = None
        try:
            try:
                pause = _FIRST_PAUSE
                while not await _in_thread_to_its_end(acquire):
                    await asyncio.sleep(pause * random.uniform(0.5, 1.0))  # noqa: S311 - no secret
                    pause = min(2 * pause, _LONGEST_PAUSE)
                renewal = asyncio.create_task(self._renew(acquire))
            except StoreError as error:
                logger.warning("error=<%s> | failed to acquire a lease, other processes do not wait", type(error).__name__)
            yield
        finally:
            if renewal is not None:
                renewal.cancel()
                await asyncio.wait({renewal})  # a running renewal must not follow the release
            with suppress(StoreError):
                await asyncio.to_thread(hot.release_lease, name, owner=owner)

    async def _renew(self, acquire: Callable[[], bool]) -> None:
        while True:
            await asyncio.sleep(self._lease / 3)
            with suppress(StoreError):
                await _in_thread_to_its_end(acquire)


async def _in_thread_to_its_end(acquire: Callable[[], bool]) -> bool:
    """Call ``acquire``, which acquires a lease, in a thread, and return its result.

    If the caller is cancelled, wait for the end of the call first. Otherwise the lease could be acquired after the caller has
    released it.
    """
    acquiring = asyncio.ensure_future(asyncio.to_thread(acquire))
    try:
        return await asyncio.shield(acquiring)
    except asyncio.CancelledError:
        with suppress(StoreError):
            await acquiring
        raise
