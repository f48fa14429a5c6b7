"""Waiting on an event loop for work that runs on a thread."""

from __future__ import annotations

import asyncio
import logging
from concurrent.futures import Future

logger = logging.getLogger(__name__)


def awaitable(future: Future[None]) -> asyncio.Future[None]:
    """Return an awaitable for ``future`` that does not mind when its loop is closed first."""
    loop = asyncio.get_running_loop()
    waiter: asyncio.Future[None] = loop.create_future()

    def settle() -> None:
        if waiter.done():
            return
        error = future.exception()
        if error is not None:
            waiter.set_exception(error)
            waiter.exception()  # a caller who was cancelled never looks at it
        else:
            waiter.set_result(None)

    def done(_: Future[None]) -> None:
        if not loop.is_closed():
            try:
                loop.call_soon_threadsafe(settle)
            except RuntimeError:
                logger.debug("event loop closed before the save ended")

    future.add_done_callback(done)
    return waiter
