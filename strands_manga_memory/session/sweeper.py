"""SessionSweeper: finalizes conversations whose time in the hot tier is over."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Protocol

from strands_manga_memory.session.conversation import Conversation
from strands_manga_memory.session.records import Place
from strands_manga_memory.session.tiers import Tiers
from strands_manga_memory.session.ttl import TtlPolicy
from strands_manga_memory.stores.codec import Codec
from strands_manga_memory.stores.hot import HotStore
from strands_manga_memory.stores.table import Table
from strands_manga_memory.stores.writer import Writer, shared_writer

logger = logging.getLogger(__name__)


class Finalizer(Protocol):
    """What is done with a conversation that ended, between its last flush and the end of its hot copy."""

    def __call__(self, conversation: Conversation) -> None:
        """Do it; may be called again for the same conversation if a sweeper died in the middle."""


class SessionSweeper:
    """Flushes expired conversations to the durable tier and drops their hot copies.

    Any number of sweepers may run: each conversation is claimed first, atomically, and only if it is still expired. A turn
    that comes in meanwhile wins: it begins a new epoch, and the sweeper leaves the conversation alone. Sweeping never touches
    a time to live (mission A2).

    Args:
        hot: The hot tier.
        durable: The durable tier; None drops what expired.
        finalizer: Called after the flush; if it raises, the conversation stays claimed and is tried again after 60 s.
        ttl: The policy the session managers use.
        codec: The codec the session managers use.
        clock: Seconds since 1970.
    """

    def __init__(
        self,
        *,
        hot: HotStore,
        durable: Table | None,
        finalizer: Finalizer | None = None,
        ttl: TtlPolicy | None = None,
        codec: Codec | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._hot = hot
        self._finalizer = finalizer
        self._writer: Writer = shared_writer(hot, durable)
        self._tiers = Tiers(
            hot=hot,
            durable=durable,
            writer=self._writer,
            codec=codec or Codec(),
            clock=clock,
            ttl=ttl or TtlPolicy(),
            on_store_error="raise",
            hot_health=self._writer.hot_health,
            durable_health=self._writer.durable_health,
        )

    def run_once(self, *, limit: int = 100) -> int:
        """Sweep up to ``limit`` expired conversations; return how many were finished.

        Raises:
            StoreUnavailableError: The hot tier does not answer.
        """
        return sum(self._sweep(name) for name in list(self._hot.expired(limit=limit)))

    def _sweep(self, name: str) -> bool:
        claimed = self._hot.claim(name)
        if claimed is None:
            return False
        try:
            conversation = Conversation(Place.named(name), self._tiers, base={})
            conversation.flush_claimed()
            if self._finalizer is not None:
                self._finalizer(conversation)
        except Exception as error:  # noqa: BLE001 - a finalizer may raise anything; the others must be swept all the same
            logger.warning("error=<%s> | an expired conversation was not finished, it is tried again", type(error).__name__)
            return False
        return self._hot.drop(name, expect=(claimed.epoch, claimed.version))
