"""Waits: how long a turn waits for its save, on an event loop and off it."""

from __future__ import annotations

import asyncio
import logging
import time
from concurrent.futures import Future

from strands_manga_memory.exceptions import StoreUnavailableError
from strands_manga_memory.session.basis.tiers import Tiers
from strands_manga_memory.session.live.agent_conversation import AgentConversation
from strands_manga_memory.stores.health import cause_of
from strands_manga_memory.telemetry import missed

logger = logging.getLogger(__name__)

_SLICE_SECONDS = 0.01  # that are waited at a time, so that it is seen when this takes longer
_MOST_SECONDS = 5.0  # that a turn waits while the tier answers, but other writers keep overtaking it


async def saved(conversation: AgentConversation, future: Future[None]) -> None:
    """Wait until the first tier has it, within its deadline. A cancelled caller cancels nothing.

    Raises:
        StoreUnavailableError: It was not saved in time, and that is not to be put up with.
        ConflictError: Someone else's change cannot be merged with it.
    """
    tiers, saver = conversation.tiers, conversation.saver
    tier = saver.waits_for
    if tier == "nothing" and tiers.on_store_error == "degrade":
        return
    deadline = _deadline(tiers, tier)
    waiter = awaitable(future)
    try:
        # A busy machine is no dead tier: the deadline counts from when the tier was asked, not from when we wished to, and not
        # while the whole process was held up, as by a collection of its garbage: then the tier may have answered long ago.
        end, held_up = time.monotonic() + max(deadline, _MOST_SECONDS), 0.0
        while not (waiter.done() or saver.overdue(deadline + held_up) or time.monotonic() > end):
            asked, wait = time.monotonic(), min(_SLICE_SECONDS, max(0.001, saver.left(deadline + held_up)))
            await asyncio.wait([waiter], timeout=wait)
            held_up += max(0.0, time.monotonic() - asked - wait)
        if not waiter.done():
            if saver.overdue(deadline + held_up):
                health = tiers.durable_health if tier == "durable" else tiers.hot_health
                health.failed(since=saver.asked_at)
            if tier != "nothing":
                missed(tier)
            raise StoreUnavailableError(f"the {tier} tier did not answer within {deadline} s")
        waiter.result()
    except StoreUnavailableError as error:
        health = saver.durable_health if tier == "durable" else saver.hot_health
        logger.warning("tier=<%s>, error=<%s> | the turn is not saved yet", tier, health.error or type(error).__name__)
        if tiers.on_store_error == "raise":
            raise StoreUnavailableError(
                f"the turn could not be saved in time; it is kept and saved later: {cause_of(error)}"
            ) from error
    finally:
        del waiter, future  # else an error, its traceback, this frame and the future would hold one another


def wait_for(future: Future[None], tiers: Tiers, *, tier: str = "durable", must: bool = False) -> None:
    """Wait off an event loop until it is stored, within the deadline of a ``tier``.

    Raises:
        StoreUnavailableError: It was not stored in time, and it ``must`` be, or that is not to be put up with.
        ConflictError: Someone else's change cannot be merged with it.
    """
    try:
        future.result(_deadline(tiers, tier))
    except (TimeoutError, StoreUnavailableError) as error:
        _report_late(error, tiers, tier=tier, must=must)
    finally:
        del future  # as above


async def settled(future: Future[None], tiers: Tiers) -> None:
    """Wait on an event loop as ``wait_for`` does off it. A cancelled caller cancels nothing."""
    waiter = awaitable(future)
    try:
        await asyncio.wait([waiter], timeout=tiers.durable_deadline)
        if not waiter.done():
            raise TimeoutError
        waiter.result()
    except (TimeoutError, StoreUnavailableError) as error:
        _report_late(error, tiers, tier="durable")
    finally:
        del waiter, future  # as above


def _report_late(error: Exception, tiers: Tiers, *, tier: str, must: bool = False) -> None:
    """Log that something is not stored yet, or raise ``StoreUnavailableError``."""
    if isinstance(error, TimeoutError):
        missed(tier)
    if must or tiers.on_store_error == "raise":
        reason = f"no answer within {_deadline(tiers, tier)} s" if isinstance(error, TimeoutError) else cause_of(error)
        raise StoreUnavailableError(f"no tier took it in time; it is kept and saved later: {reason}") from error
    logger.warning("error=<%s> | not stored yet, it is tried again", type(error).__name__)


def is_on_event_loop() -> bool:
    """Return whether this thread runs an event loop."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def wait_anywhere(future: Future[None], tiers: Tiers) -> None:
    """Wait as ``wait_for`` does, but on an event loop no longer than for the hot tier."""
    wait_for(future, tiers, tier="hot" if is_on_event_loop() else "durable")


def _deadline(tiers: Tiers, tier: str) -> float:
    return tiers.durable_deadline if tier == "durable" else tiers.hot_deadline


def awaitable(future: Future[None]) -> asyncio.Future[None]:
    """Return an awaitable for ``future`` that does not mind when its loop is closed first."""
    loop = asyncio.get_running_loop()
    waiter: asyncio.Future[None] = loop.create_future()

    def settle(ended: Future[None]) -> None:
        if waiter.done():
            return
        error = ended.exception()
        if error is not None:
            waiter.set_exception(error)
            waiter.exception()  # a caller who was cancelled never looks at it
        else:
            waiter.set_result(None)

    def done(ended: Future[None]) -> None:
        if not loop.is_closed():
            try:
                loop.call_soon_threadsafe(settle, ended)
            except RuntimeError:
                logger.debug("event loop closed before the save ended")

    future.add_done_callback(done)
    return waiter
