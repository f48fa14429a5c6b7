"""Committing: a conversation's saves and flushes on the writer, when each tier may be tried, and what a turn waits for."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import Literal

from strands_manga_memory.exceptions import ConflictError, CorruptRecordError, OvertakenError, StoreError, StoreUnavailableError
from strands_manga_memory.session.basis.facts import facts_of
from strands_manga_memory.session.basis.place import Place
from strands_manga_memory.session.basis.tiers import Tiers
from strands_manga_memory.session.sync.pair import Pair
from strands_manga_memory.session.sync.saving import Saving
from strands_manga_memory.session.sync.watch import SILENT_SECONDS
from strands_manga_memory.stores.health import TierHealth, cause_of
from strands_manga_memory.telemetry import carried

logger = logging.getLogger(__name__)


class Committing:
    """Saves and flushes a conversation on the writer, in order; only a flush may run beside the next turn's save.

    What is asked for may come from any thread.

    Attributes:
        error: What ``check`` raises: someone else's change cannot be merged, or what is stored is damaged.
        asked_at: When the tier that a turn waits for was asked, in monotonic seconds; None while it has not been.
        hot_health: Whether the hot tier takes this conversation.
        durable_health: Whether the durable tier does.
    """

    __slots__ = (
        "_asks_both",
        "_flushed_at",
        "_flushing",
        "_is_due",
        "_own",
        "_pair",
        "_place",
        "_requested_at",
        "_saving",
        "_tiers",
        "asked_at",
        "durable_health",
        "error",
        "hot_health",
    )

    def __init__(self, place: Place, tiers: Tiers, saving: Saving, pair: Pair) -> None:
        self._place, self._tiers, self._saving, self._pair, self._own = place, tiers, saving, pair, pair.own
        self.hot_health = TierHealth(tier="hot", whole=tiers.hot_health)
        self.durable_health = TierHealth(tier="durable", whole=tiers.durable_health)
        self.error: StoreError | None = None
        self.asked_at: float | None = None
        self._is_due = False
        self._flushing: Future[None] | None = None
        self._asks_both = False
        self._requested_at = self._flushed_at = tiers.clock()

    # What is asked for

    def check(self) -> None:
        """Raise what keeps the conversation from being used any more: an error that no further try can mend."""
        if self.error is not None:
            raise self.error

    def request(self, *, flush: bool = False) -> Future[None]:
        """Save what is new, and flush if it is time or ``flush``; the future ends when the first tier has it.

        After a long pause it ends when the durable tier has been asked, too: whoever ends a life by age puts its grave there,
        and one of the two sees the other.
        """
        self.asked_at = None
        if self._is_due:
            self._is_due = False
            self._tiers.writer.cancel_later((self, "soon"))
        self._asks_both = self._may_be_ending()
        if self._asks_both:
            return self._tiers.writer.submit(self._place, carried(self._commit_both), slow=True, is_needed=self._is_unsaved)
        return self._tiers.writer.submit(self._place, carried(lambda: self._commit(flush=flush)), is_needed=self._is_unsaved)

    def request_flush(self) -> Future[None]:
        """Save and flush; the future ends when the durable tier (without one, the hot tier) has everything."""
        return self._tiers.writer.submit(self._place, self.commit_all, slow=self._pair.durable is not None)

    def request_redaction(self) -> Future[None]:
        """Save and flush as :meth:`request_flush` does, but have the hot tier not wait until the durable one can be asked."""
        self.request()
        return self.request_flush()

    def request_soon(self, delay: float) -> None:
        """Save ``delay`` seconds after the first thing that is new since the last save."""
        if not self._is_due:
            self._is_due = True
            self._tiers.writer.later((self, "soon"), delay, self.request)

    def request_refresh(self) -> Future[None]:
        """Look what someone else saved, and merge it; the future ends when that is done."""
        self.asked_at = None
        return self._tiers.writer.submit(self._place, self._refresh)

    # What a turn waits for

    @property
    def waits_for(self) -> Literal["hot", "durable", "nothing"]:
        """The tier whose answer a turn waits for: none while that tier is known to be down."""
        if self._pair.hot is not None and not (self._asks_both and self.durable_health.is_up):
            return "hot" if self.hot_health.is_up else "nothing"
        return "durable" if self.durable_health.is_up else "nothing"

    def overdue(self, deadline: float) -> bool:
        """Whether the tier that a turn waits for was asked more than ``deadline`` seconds ago, or is known to be down."""
        return self.waits_for == "nothing" or self.left(deadline) == 0.0

    def left(self, deadline: float) -> float:
        """Seconds of ``deadline`` that are left to the tier; all of it while it has not been asked."""
        asked_at = self.asked_at
        return deadline if asked_at is None else max(0.0, asked_at + deadline - time.monotonic())

    # On the writer

    def _refresh(self) -> None:
        self.asked_at = time.monotonic()
        pair = self._pair
        pair.wake()
        found = pair.look(pair.hot)
        if found is None or not found.has_begun or not found.vector.at_least(pair.copy.vector):
            pair.look(pair.durable)

    def _commit(self, *, flush: bool) -> None:
        self.check()
        is_dirty = self._own.is_dirty
        if self._pair.hot is not None:
            self._commit_hot(is_dirty=is_dirty, flush=flush)
        elif is_dirty or flush:
            self.asked_at = time.monotonic()
            self._attempt(self._flush if flush else self._saving.save, self.durable_health)

    def _commit_both(self) -> None:
        self._commit(flush=False)
        self.asked_at = time.monotonic()
        self._flush_quietly()

    def _commit_hot(self, *, is_dirty: bool, flush: bool) -> None:
        try:
            if is_dirty:
                self.asked_at = time.monotonic()
                self._attempt(self._saving.save, self.hot_health)
        except StoreUnavailableError:
            if self._pair.durable is not None:
                self._tiers.writer.submit(self._place, self._flush_quietly, slow=True)
            raise
        if self._pair.durable is not None and (flush or self._flush_is_due):
            # A flush runs beside the next turn's save, so that no turn waits for the durable tier.
            self._saving.is_turn_to_flush = False
            flushed = partial(self._flush_quietly, offers=False)
            self._flushing = self._tiers.writer.submit((self._place, "flush"), flushed, slow=True)

    def commit_all(self) -> None:
        """Save and flush everything; on the writer. What a tier does not take now is tried again."""
        try:
            self._commit(flush=False)
        except StoreUnavailableError:
            if self._pair.durable is None:
                raise
        if self._pair.durable is not None and not self._is_flushed:
            self._guarded(self._flush, self.durable_health)
            with suppress(StoreUnavailableError):
                self._commit(flush=False)  # what the durable tier knows to be over goes from the hot one, too

    def _flush(self, *, offers: bool = True) -> None:
        self._saving.flush(offers=offers)
        self._flushed_at = self._tiers.clock()

    def _may_be_ending(self) -> bool:
        """Whether it was not used for so long that somebody may be ending its life by age just now."""
        if self._pair.hot is None or self._pair.durable is None:
            return False
        with self._pair.lock:
            saved = self._pair.copy.vector.tally
        before, self._requested_at = self._requested_at, self._tiers.clock()
        ttl = self._tiers.ttl
        lives = ttl.session if self._tiers.resume_cold else min(ttl.session, ttl.ttl(saved.turns))
        return min(before, saved.at or before) <= self._requested_at - lives / 2

    def _is_unsaved(self) -> bool:
        """Return whether the tier that lasts lacks a change, or the hot tier a deletion or a redaction."""
        pair = self._pair
        with pair.lock:
            if self._own.is_unflushed or pair.over:
                return True
            copy, hot = pair.copy, pair.copy if pair.hot is None else pair.hot.copy
            return not copy.graves <= hot.graves or copy.redactions != hot.redactions

    @property
    def _is_flushed(self) -> bool:
        """Whether there is nothing to flush: nothing was ever said here, or stored."""
        with self._pair.lock:
            return not (self._pair.copy.has_begun or self._own.is_dirty or self._pair.over)

    @property
    def _flush_is_due(self) -> bool:
        if self._pair.durable is None:
            return False
        name = self._place.conversation
        with self._pair.lock:
            copy, stored = self._pair.copy, self._pair.durable.copy
            is_writing = self._is_flushing and not self._pair.durable.is_known  # until it answers, nothing is known of it
            if not is_writing:
                if not facts_of(stored, name).is_ahead or copy.redactions != stored.redactions:
                    return copy.has_begun
                if not stored.vector.at_least(copy.vector) and self._tiers.clock() - self._flushed_at >= SILENT_SECONDS:
                    return True
            if self._own.in_turn:
                return False
            # A writer among others cannot tell what they have flushed: the one whose turn begins a period flushes.
            if is_writing or self._saving.others_are_ahead:
                return self._saving.is_turn_to_flush
            return self._saving.unflushed_turns >= self._tiers.flush_every

    @property
    def _is_flushing(self) -> bool:
        return self._flushing is not None and not self._flushing.done()

    def _flush_quietly(self, *, offers: bool = True) -> None:
        if self._is_flushed:
            return
        was_gone = self._pair.author.is_gone
        try:
            self._attempt(partial(self._flush, offers=offers), self.durable_health)
        except StoreError as error:
            logger.debug("error=<%s> | flush failed, it is tried again", cause_of(error))
            return
        if self._pair.author.is_gone and not was_gone:  # what the durable tier knows to be over goes from the hot one, too
            self.request()

    def _attempt(self, work: Callable[[], None], health: TierHealth) -> None:
        if not health.may_try():
            self._retry(health)
            raise StoreUnavailableError(f"the tier is down and tried again soon: {health.error}")
        self._guarded(work, health)

    def _guarded(self, work: Callable[[], None], health: TierHealth) -> None:
        """Do work on a tier, and take note of how that went."""
        try:
            work()
        except OvertakenError:
            health.overtaken()
            self._retry(health)
            raise
        except (ConflictError, CorruptRecordError) as error:
            self.error = error
            raise
        except StoreError as error:
            health.failed(error)
            self._retry(health)
            if isinstance(error, StoreUnavailableError):
                raise
            raise StoreUnavailableError(f"the tier does not take it: {cause_of(error)}") from error
        health.succeeded()

    def _retry(self, health: TierHealth) -> None:
        # Not keyed by the place: another agent of the conversation in this process has a retry of its own.
        self._tiers.writer.later((self, "retry"), health.wait + 0.01, lambda: self.request(flush=True))
