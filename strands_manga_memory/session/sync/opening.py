"""Opening: what both tiers have of a conversation, read side by side, and whether its time is over."""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import wait
from dataclasses import dataclass

from strands_manga_memory.exceptions import StoreUnavailableError
from strands_manga_memory.session.basis.facts import facts_of
from strands_manga_memory.session.basis.place import Place
from strands_manga_memory.session.basis.tiers import Tiers
from strands_manga_memory.session.core.merge import EMPTY, Copy
from strands_manga_memory.session.sync.committing import Committing
from strands_manga_memory.session.sync.pair import Pair
from strands_manga_memory.telemetry import within

logger = logging.getLogger(__name__)

_HEAD_START_SECONDS = 0.002


@dataclass(frozen=True, kw_only=True)
class Opened:
    """What was read.

    Args:
        hot: The hot replica's copy; None if there is no such tier, or it did not answer.
        durable: The durable replica's copy; likewise.
        hot_expires_in: Seconds that the hot replica has to live; None if it is not there.
        hot_is_unread: Whether the hot tier did not answer.
        record: What the conversation is called in errors.
    """

    hot: Copy | None
    durable: Copy | None
    hot_expires_in: float | None
    hot_is_unread: bool
    record: str

    @property
    def _is_hot(self) -> bool:
        return self.hot is not None and self.hot.has_begun

    @property
    def possible_loss(self) -> bool:
        """Whether the hot tier may have had more, and is not there or did not answer."""
        if self.durable is None or not self.durable.has_begun:
            return self.hot_is_unread
        return not self._is_hot and facts_of(self.durable, self.record).is_ahead

    def is_over(self, copy: Copy, tiers: Tiers) -> bool:
        """Tell whether the session is over, by what both copies make together."""
        hot_has_expired = self.hot_expires_in is not None and self.hot_expires_in <= 0
        if tiers.durable is None:
            return hot_has_expired
        if self._is_hot and not hot_has_expired:
            return False
        active = facts_of(copy, self.record).active  # what was never flushed outlives the hot tier's time to live, too
        return bool(active) and active + tiers.ttl.session <= tiers.clock()

    def is_cold(self, copy: Copy, tiers: Tiers) -> bool:
        """Tell whether it has left the hot tier; without one, whether it would have."""
        if tiers.hot is not None:
            return not self._is_hot or (self.hot_expires_in or 0.0) <= 0
        facts = facts_of(copy, self.record)
        since = facts.created if tiers.ttl.mode == "fixed" else facts.active
        return since + tiers.ttl.ttl(facts.turns) <= tiers.clock()


def read_tiers(pair: Pair, commits: Committing, place: Place, tiers: Tiers, *, touch: bool) -> Opened:
    """Read both tiers side by side, the hot one with a head start, and take in what they have.

    Two clients that work at once in one interpreter hold each other up: the hot tier's .3 ms would be 2 ms. So the durable tier
    is asked when the hot one has answered, or is slow.

    Raises:
        StoreUnavailableError: What could be read is not enough: a conversation that may exist is never taken for a new one.
        CorruptRecordError: A head cannot be read.
    """
    future = None
    if tiers.hot is not None:
        future = tiers.writer.submit(
            (place, "hot"), within("hot", tiers.hot_deadline)(lambda: pair.look(pair.hot, touch=touch))
        )
        if tiers.durable is not None:
            wait([future], timeout=_HEAD_START_SECONDS)
    durable, durable_error = _outcome(within("durable", tiers.durable_deadline)(lambda: pair.look(pair.durable)))
    hot, hot_error = _outcome(future.result) if future is not None else (None, None)
    for health, failure in ((commits.hot_health, hot_error), (commits.durable_health, durable_error)):
        if failure is not None:
            health.failed(failure)
    error = hot_error or durable_error
    if error is not None:
        nothing_found = (hot or EMPTY) == EMPTY and (durable or EMPTY) == EMPTY
        if nothing_found and not (hot_error is not None and durable is not None and durable_error is None):
            raise StoreUnavailableError(f"the conversation could not be read: {error}") from error
        if tiers.on_store_error == "raise" or (hot_error is not None and durable is None):
            raise StoreUnavailableError(f"the conversation could not be read: {error}") from error
        logger.warning("error=<%s> | a tier could not be read, the other one is used", type(error).__name__)
    return Opened(
        hot=hot,
        durable=durable,
        hot_expires_in=None if pair.hot is None else pair.hot.expires_in,
        hot_is_unread=hot_error is not None,
        record=place.conversation,
    )


def _outcome(result: Callable[[], Copy | None]) -> tuple[Copy | None, StoreUnavailableError | None]:
    try:
        return result(), None
    except StoreUnavailableError as error:
        return None, error
