"""Opening: reading a conversation from both tiers side by side, and judging whether that is enough."""

from __future__ import annotations

import logging
from concurrent.futures import Future
from dataclasses import dataclass

from strands_manga_memory.exceptions import StoreUnavailableError
from strands_manga_memory.session.durable_tier import DurableTier
from strands_manga_memory.session.hot_tier import HotTier
from strands_manga_memory.session.records import Place, Stored
from strands_manga_memory.session.tiers import Tiers
from strands_manga_memory.stores.hot import DELETED

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Opened:
    """What the tiers have of a conversation (the durable one without its window), and whether the hot one did not answer."""

    hot: Stored | None
    durable: Stored | None
    hot_is_unread: bool = False

    @property
    def possible_loss(self) -> bool:
        """Whether the hot tier, which could not be read, may have more."""
        return self.hot_is_unread and (self.durable is None or self.durable.ahead)

    @property
    def latest(self) -> Stored | None:
        """The later of the two; the hot one if they are the same, the durable one if they went apart."""
        copies = [stored for stored in (self.hot, self.durable) if stored is not None]
        if len(copies) == 2 and _are_of_one_life(*copies):
            hot, durable = copies
            return hot if hot.includes(durable.made_by) else durable
        return max(copies, key=lambda stored: (stored.epoch, stored.version), default=None)

    @property
    def went_apart(self) -> bool:
        """Whether each has something the other one lacks: a tier was cut off from a writer, or rolled back."""
        hot, durable = self.hot, self.durable
        if hot is None or durable is None or not _are_of_one_life(hot, durable):
            return False
        return not (hot.includes(durable.made_by) or durable.includes(hot.made_by))


def read_tiers(place: Place, tiers: Tiers, hot: HotTier | None, durable: DurableTier | None, *, touch: bool) -> Opened:
    """Read both tiers in parallel.

    Raises:
        StoreUnavailableError: What could be read is not enough: a conversation that may exist is never taken for a new one.
    """
    hot_future = tiers.writer.submit((place, "hot"), lambda: hot.load(touch=touch)) if hot else None
    durable_future = tiers.writer.submit((place, "durable"), lambda: durable.load(window=False)) if durable else None
    hot_copy, hot_error = _outcome(hot_future)
    durable_copy, durable_error = _outcome(durable_future)
    for error, health in ((hot_error, tiers.hot_health), (durable_error, tiers.durable_health)):
        if error is not None:
            health.failed()
    error = hot_error or durable_error
    if error is None:
        return Opened(hot_copy, durable_copy)
    only_tier_failed = durable is None or (durable_error is not None and hot_copy is None)
    if only_tier_failed or tiers.on_store_error == "raise" or (hot_error and durable_error):
        raise StoreUnavailableError(f"the conversation could not be read: {error}") from error
    logger.warning("error=<%s> | a tier could not be read, the other one is used", type(error).__name__)
    return Opened(hot_copy, durable_copy, hot_is_unread=hot_error is not None)


def _are_of_one_life(one: Stored, other: Stored) -> bool:
    return DELETED not in (one.state, other.state) and one.head.since == other.head.since


def _outcome(future: Future[Stored | None] | None) -> tuple[Stored | None, StoreUnavailableError | None]:
    try:
        return (future.result() if future else None), None
    except StoreUnavailableError as error:
        return None, error
