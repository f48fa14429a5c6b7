"""ConversationTurns: the requests of one conversation have their turns one after the other."""

from __future__ import annotations

import asyncio
import logging
import random
import threading
import uuid
from collections import deque
from collections.abc import AsyncIterator
from concurrent.futures import Future
from contextlib import AsyncExitStack, asynccontextmanager, suppress

from strands_manga_memory import telemetry
from strands_manga_memory.exceptions import StoreError
from strands_manga_memory.scope import ConversationScope
from strands_manga_memory.session.basis.place import Place
from strands_manga_memory.squad.waits import CircularWaitError, Key, Waits
from strands_manga_memory.stores import HotStore
from strands_manga_memory.telemetry import STUCK_WAIT

logger = logging.getLogger(__name__)

_FIRST_PAUSE, _LONGEST_PAUSE = 0.02, 0.25


_waits = Waits()


class BusyError(Exception):
    """Earlier requests of the conversation took too long, or wait for this one."""


class ConversationTurns:
    """First come, first served, for each conversation, on any event loop and thread of this process.

    With a hot store the turn is also leased there, so that other processes wait for it. The lease is advisory: a store that is
    down keeps nobody from his turn, and what two processes save is merged then.

    Args:
        hot: Where turns are leased; None: they are kept apart in this process only.
        lease: Seconds after which the lease of a process that died ends. It is prolonged three times as often while the turn
            lasts. Default 2.

    Raises:
        ValueError: ``lease`` is not above 0.
    """

    def __init__(self, hot: HotStore | None = None, *, lease: float = 2.0) -> None:
        if not lease > 0:
            raise ValueError(f"lease must be more than 0 seconds, got {lease!r:.80}")
        self._hot = hot
        self._lease = lease
        self._lock = threading.Lock()
        self._queues: dict[tuple[str, str], deque[Future[None]]] = {}

    @asynccontextmanager
    async def hold(self, scope: ConversationScope, *, wait: float) -> AsyncIterator[None]:
        """Wait up to ``wait`` seconds for the turn of a request, and have it until the block ends.

        Raises:
            BusyError: It did not come in time, or never would: whoever has it waits for a turn that is held here.
        """
        key = (scope.storage_session_id, scope.agent_id)
        async with AsyncExitStack() as held:
            try:
                with _waits.waiting(key):
                    async with asyncio.timeout(wait):
                        await self._first_in_line(key, held)
                        await self._leased(scope, held)
            except (TimeoutError, CircularWaitError) as error:
                reason = "timeout" if isinstance(error, TimeoutError) else "circular"
                telemetry.note(STUCK_WAIT, attributes={"reason": reason}, counts={"waits": 1})
                logger.warning("agent=<%s>, reason=<%s> | a request waits for others in vain", scope.agent_id, reason)
                raise BusyError from error
            with _waits.holding(key):
                yield

    async def _first_in_line(self, key: Key, held: AsyncExitStack) -> None:
        mine = Future[None]()
        mine.set_running_or_notify_cancel()  # whoever goes away leaves the queue himself, and cancels nothing
        self._enter(key, mine)
        held.callback(self._leave, key, mine)
        if not mine.done():
            await asyncio.wrap_future(mine)

    def _enter(self, key: tuple[str, str], mine: Future[None]) -> None:
        with self._lock:
            queue = self._queues.setdefault(key, deque())
            queue.append(mine)
            if queue[0] is mine:
                mine.set_result(None)

    def _leave(self, key: tuple[str, str], mine: Future[None]) -> None:
        with self._lock:
            queue = self._queues[key]
            queue.remove(mine)
            if not queue:
                del self._queues[key]
            elif not queue[0].done():
                queue[0].set_result(None)

    async def _leased(self, scope: ConversationScope, held: AsyncExitStack) -> None:
        if self._hot is None:
            return
        # The same lease as that of ``TieredSessionManager.lease``.
        name, owner = Place.of(scope.storage_session_id, "A", scope.agent_id).conversation, uuid.uuid4().hex
        held.push_async_callback(self._give_back, self._hot, name, owner)
        pause = _FIRST_PAUSE
        try:
            while not await self._take(self._hot, name, owner):
                await asyncio.sleep(pause * random.uniform(0.5, 1.0))  # noqa: S311 - no secret
                pause = min(2 * pause, _LONGEST_PAUSE)
        except StoreError as error:
            logger.warning("error=<%s> | no lease, other processes are not kept waiting", type(error).__name__)
            return
        renewal = asyncio.create_task(self._renew(self._hot, name, owner))
        held.push_async_callback(self._stop, renewal)

    async def _take(self, hot: HotStore, name: str, owner: str) -> bool:
        taking = asyncio.ensure_future(asyncio.to_thread(hot.acquire_lease, name, owner=owner, ttl=self._lease))
        try:
            return await asyncio.shield(taking)
        except asyncio.CancelledError:
            with suppress(StoreError):
                await taking  # or it would be taken after it was given back
            raise

    async def _renew(self, hot: HotStore, name: str, owner: str) -> None:
        while True:
            await asyncio.sleep(self._lease / 3)
            with suppress(StoreError):
                await self._take(hot, name, owner)

    async def _stop(self, renewal: asyncio.Task[None]) -> None:
        renewal.cancel()
        await asyncio.wait({renewal})  # one that is under way must not come after the lease is given back

    async def _give_back(self, hot: HotStore, name: str, owner: str) -> None:
        with suppress(StoreError):
            await asyncio.to_thread(hot.release_lease, name, owner=owner)
