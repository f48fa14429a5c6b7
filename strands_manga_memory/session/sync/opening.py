"""Opening: what both tiers have of a conversation, read side by side, and whether its time is over."""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import wait

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


def read_tiers(pair: Pair, commits: Committing, place: Place, tiers: Tiers, *, touch: bool) -> None:
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
        # A durable tier that answers is enough: a conversation is flushed with its first turn. A hot one that is empty is not.
        is_enough = durable is not None or (hot or EMPTY) != EMPTY
        if tiers.on_store_error == "raise" or not is_enough:
            raise StoreUnavailableError(f"the conversation could not be read: {error}") from error
        cause = (commits.hot_health if hot_error else commits.durable_health).error
        logger.warning("error=<%s> | a tier could not be read, the other one is used", cause)


def possible_loss(pair: Pair, record: str) -> bool:
    """Tell whether the hot tier may have had more than was read, and is not there or did not answer."""
    durable = pair.durable.copy if pair.durable is not None else EMPTY
    if not durable.has_begun or durable.graves != pair.copy.graves:
        return pair.hot is not None and not pair.hot.is_known
    return not _is_hot(pair) and facts_of(durable, record).is_ahead


def is_over(pair: Pair, tiers: Tiers, record: str) -> bool:
    """Tell whether the session is over, by what both copies that were read make together."""
    has_expired = pair.hot is not None and pair.hot.expires_in is not None and pair.hot.expires_in <= 0
    if pair.durable is None:
        return has_expired
    if _is_hot(pair) and not has_expired:
        return False
    active = facts_of(pair.copy, record).active  # what was never flushed outlives the hot tier's time to live, too
    return bool(active) and active + tiers.ttl.session <= tiers.clock()


def is_cold(pair: Pair, tiers: Tiers, record: str) -> bool:
    """Tell whether it has left the hot tier; without one, whether it would have. Not, if that tier did not answer."""
    if pair.hot is not None:
        return pair.hot.is_known and (not _is_hot(pair) or (pair.hot.expires_in or 0.0) <= 0)
    facts = facts_of(pair.copy, record)
    since = facts.created if tiers.ttl.mode == "fixed" else facts.active
    return since + tiers.ttl.ttl(facts.turns) <= tiers.clock()


def _is_hot(pair: Pair) -> bool:
    return pair.hot is not None and pair.hot.copy.has_begun


def _outcome(result: Callable[[], Copy | None]) -> tuple[Copy | None, StoreUnavailableError | None]:
    try:
        return result(), None
    except StoreUnavailableError as error:
        return None, error
