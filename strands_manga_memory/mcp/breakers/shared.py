"""SharedBreakers: lets the processes that call the same tools share what they find out, through a hot store."""

from __future__ import annotations

import asyncio
import logging
import math
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from strands_manga_memory.exceptions import StoreError
from strands_manga_memory.lazy import expression
from strands_manga_memory.mcp.breakers.breaker import CircuitBreaker
from strands_manga_memory.mcp.breakers.breaker_states import State
from strands_manga_memory.mcp.breakers.classify import Outcome, Verdict
from strands_manga_memory.scope import checked_id, encoded_id
from strands_manga_memory.stores import HotStore
from strands_manga_memory.stores.opened import hot_store_of

logger = logging.getLogger(__name__)

_T = TypeVar("_T")

_BLOCK = 1_000_000
"""A success begins the next block of this many numbers; what is beyond the block's first is the number of failures."""

_UNTIL = expression(r"\d{1,12}\.\d{3}")

_NO_STORE_FOR = 5.0
"""Seconds a store that failed is left alone."""


@dataclass(frozen=True)
class SharedState:
    """What processes that share a breaker know of it together.

    Attributes:
        state: ``closed``, ``open``, or ``half_open`` once the open time is over and the next call is the probe.
        failures: Failures in a row.
        retry_after: Seconds until a call may be let through; 0 if it would be now.
    """

    state: State = State.CLOSED
    failures: int = 0
    retry_after: float = 0.0


class SharedBreakers:
    """Breaker state in a hot store, so that twenty workers do not each find out for themselves that a service is dead.

    Every failure of any process counts; at ``policy.failures`` the breaker opens in all of them, at the latest ``refresh``
    seconds later, before their next call. In each open time one process sends one probe. Only durations are exchanged, and
    their end is decided by the store's clock, so no process has to agree with another on the time. While the
    store does not answer, each process decides alone.

    A server goes by the ``application_name`` of its client: give each client one of its own, the same in every process.

    Args:
        hot: The store, or its URL. It keeps one small tombstone and one lease a tool, which no sweeper touches.
        namespace: Processes that share a namespace share their breakers.
        refresh: Seconds for which what was read is believed.
        clock: Monotonic seconds.
        wall_clock: Seconds since 1970, for what is shown to inspectors; no breaker goes by it.
    """

    def __init__(
        self,
        hot: HotStore | str,
        *,
        namespace: str = "default",
        refresh: float = 1.0,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        if not refresh > 0:
            raise ValueError(f"refresh must be a number of seconds over 0, got {refresh!r:.80}")
        self._hot = hot_store_of(hot)
        self._namespace = encoded_id(checked_id("namespace", namespace))
        self._refresh = refresh
        self._clock = clock
        self._wall_clock = wall_clock
        self._owner = uuid.uuid4().hex
        self._skip_until = -1.0

    def of(self, key: str, breaker: CircuitBreaker) -> SharedBreaker:
        """Return the shared side of one breaker; ``key`` names the tool, in every process alike."""
        return SharedBreaker(self, self._name(key), breaker, refresh=self._refresh, clock=self._clock)

    def failures(self, key: str) -> int:
        """Return how many failures in a row the processes have counted of a tool; for inspection, it blocks.

        Raises:
            StoreUnavailableError: The store does not answer.
        """
        record = self._hot.load(self._name(key), (), touch=False)
        return 0 if record is None else record.epoch % _BLOCK

    def state(self, key: str) -> SharedState:
        """Return what the processes know of a tool's breaker; for inspection, it blocks.

        Raises:
            StoreUnavailableError: The store does not answer.
        """
        name = self._name(key)
        record = self._hot.load(name, (), touch=False)
        failures = 0 if record is None else record.epoch % _BLOCK
        if record is None or not failures:
            return SharedState()
        block, _, until = (self._hot.get_value(name) or b"").decode("ascii", "replace").partition(" ")
        if block != str(record.epoch // _BLOCK) or not _UNTIL.fullmatch(until):
            return SharedState(failures=failures)
        left = max(0.0, float(until) - self._wall_clock())
        return SharedState(State.OPEN if left else State.HALF_OPEN, failures, left)

    def until(self, seconds: float) -> str:
        """Return when a time that begins now is over, as ``state`` reads it."""
        return f"{self._wall_clock() + seconds:.3f}"

    def _name(self, key: str) -> str:
        return f"breaker:{self._namespace}:{encoded_id(key)}"

    async def ask(self, what: Callable[[HotStore], _T], default: _T) -> _T:
        """Return what the store says, asked off the event loop; ``default`` while it does not answer."""
        if self._clock() < self._skip_until:
            return default
        try:
            return await asyncio.to_thread(what, self._hot)
        except StoreError as error:
            self._skip_until = self._clock() + _NO_STORE_FOR
            logger.debug("error=<%s> | no shared breaker state, deciding alone", type(error).__name__)
            return default

    @property
    def owner(self) -> str:
        """This process, as a holder of leases."""
        return self._owner


class SharedBreaker:
    """The shared side of one breaker; made by ``SharedBreakers.of``.

    The failures are the epoch of a tombstone: ``bury`` raises it by one, atomically, or to the first number of the next block.
    """

    def __init__(
        self, store: SharedBreakers, name: str, breaker: CircuitBreaker, *, refresh: float, clock: Callable[[], float]
    ) -> None:
        self._store = store
        self._name = name
        self._breaker = breaker
        self._refresh = refresh
        self._clock = clock
        self._read_at = float("-inf")
        self._epoch = 0

    async def refresh(self) -> None:
        """Open or close the breaker as the other processes found.

        That is looked up once a second, and before each call that would be made while there is trouble.
        """
        now = self._clock()
        trouble = self._epoch % _BLOCK and self._breaker.state is State.CLOSED
        if not trouble and now - self._read_at < self._refresh:
            return
        self._read_at = now
        record = await self._store.ask(lambda hot: hot.load(self._name, (), touch=False), None)
        self._follow(record.epoch if record is not None else 0)

    async def may_probe(self) -> bool:
        """Tell whether this process sends the probe of this open time."""
        policy = self._breaker.policy
        ttl = max(policy.lease, policy.reset_after)
        return await self._store.ask(lambda hot: hot.acquire_lease(self._name, owner=self._store.owner, ttl=ttl), default=True)

    async def record(self, verdict: Verdict, *, was_probe: bool, concerns_all: bool = True) -> None:
        """Tell the others what a call said; what concerns one user alone leaves their breakers one failure short of opening."""
        policy = self._breaker.policy
        ttl = policy.max_reset_after + policy.lease
        if verdict.outcome is Outcome.TOOL_FAILURE:
            if not concerns_all and self._epoch % _BLOCK + 1 >= policy.failures:
                return
            first = self._epoch - self._epoch % _BLOCK
            self._follow(await self._store.ask(lambda hot: hot.bury(self._name, epoch=first + 1, ttl=ttl), self._epoch))
        elif verdict.outcome is Outcome.SUCCESS and self._epoch % _BLOCK:
            block = self._epoch - self._epoch % _BLOCK + _BLOCK
            self._follow(await self._store.ask(lambda hot: hot.bury(self._name, epoch=block, ttl=ttl), block))
        if self._epoch % _BLOCK >= policy.failures and math.isfinite(left := self._breaker.retry_after) and left:
            seen = f"{self._epoch // _BLOCK} {self._store.until(left)}".encode()
            await self._store.ask(lambda hot: hot.put_value(self._name, seen, ttl=ttl), None)
        if was_probe and verdict.outcome is not Outcome.TOOL_FAILURE:
            await self._store.ask(lambda hot: hot.release_lease(self._name, owner=self._store.owner), default=True)

    def _follow(self, epoch: int) -> None:
        self._epoch = epoch
        failures, breaker = epoch % _BLOCK, self._breaker
        if failures >= breaker.policy.failures and breaker.state is State.CLOSED:
            breaker.open(breaker.policy.reset_after, reason="shared")
        elif failures == 0 and breaker.reason == "shared":
            breaker.close(reason="shared")
