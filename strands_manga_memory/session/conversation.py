"""Conversation: one conversation of a session, opened once and saved, flushed and merged on the writer from then on."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, Literal

from strands.types.content import Message

from strands_manga_memory.exceptions import ConflictError, CorruptRecordError, StoreError, StoreUnavailableError
from strands_manga_memory.session.contention import ContendedError, OvertakenError, tries
from strands_manga_memory.session.copies import Copies
from strands_manga_memory.session.durable_tier import SEQ_STEP_AFTER_DELETE
from strands_manga_memory.session.flushing import Flusher
from strands_manga_memory.session.gathering import gathered
from strands_manga_memory.session.history import history, with_unsaved
from strands_manga_memory.session.merging import Merger
from strands_manga_memory.session.model import Model
from strands_manga_memory.session.opening import Opening
from strands_manga_memory.session.records import Place
from strands_manga_memory.session.saving import Saver
from strands_manga_memory.session.tiers import Tiers
from strands_manga_memory.session.window import Logged, mended
from strands_manga_memory.stores.health import TierHealth
from strands_manga_memory.stores.hot import DELETED
from strands_manga_memory.telemetry import RESTORE, carried, measured

logger = logging.getLogger(__name__)


class Conversation:
    """One conversation: what its agent and its users ask for, and when that is done.

    All I/O after ``open`` runs on the writer, in order; only a flush may run beside the next turn's save.

    Attributes:
        place: Where it is kept.
        tiers: What it shares with the other conversations of its manager.
        error: What ``check`` raises: someone else's change cannot be merged, or what is stored is damaged.
        possible_loss: Whether the hot tier may have had turns that were gone when it was opened.
    """

    def __init__(self, place: Place, tiers: Tiers, *, base: Mapping[str, Any], keeps_window: bool = True) -> None:
        self.place = place
        self.tiers = tiers
        self._copies = Copies(place, tiers, base=base, keeps_window=keeps_window)
        self._merger = Merger(self._copies)
        self._saver = Saver(self._copies, self._merger)
        self._flusher = Flusher(self._copies, self._merger, self._saver)
        self._is_due = False
        self.error: StoreError | None = None
        self.possible_loss = False

    @property
    def model(self) -> Model:
        """The conversation as this process wants it stored; guarded by ``lock``."""
        return self._copies.model

    @property
    def lock(self) -> threading.RLock:
        """Guards ``model``; never held during I/O."""
        return self._copies.lock

    @property
    def is_dirty(self) -> bool:
        """Whether there is something that no tier has confirmed."""
        return self._copies.is_dirty

    def open(self, *, inspect: bool = False) -> list[Message] | None:
        """Read the conversation from both tiers and take over the later copy; return its messages, or None if it is new.

        Args:
            inspect: Only look: its time to live is not touched, and nothing is written.

        Raises:
            StoreUnavailableError: What is stored cannot be read.
            CorruptRecordError: What is stored cannot be trusted.
        """
        opening = Opening(self._copies, self._merger, self._flusher)
        if inspect:
            messages = opening.open(inspect=True)
        else:
            with measured(RESTORE, conversation=self.place.conversation) as noted:
                messages = opening.open(inspect=False)
                noted.attributes["outcome"] = "new" if messages is None else "restored"
        self.possible_loss = opening.possible_loss
        return messages

    def check(self) -> None:
        """Raise what keeps it from being used any more: an error that no further try can mend."""
        if self.error is not None:
            raise self.error

    # Requests: from any thread

    def request(self, *, flush: bool = False) -> Future[None]:
        """Save on the writer what is new, and flush if it is time or ``flush``; the future ends when the first tier has it."""
        self._copies.asked_at = None
        if self._is_due:
            self._is_due = False
            self.tiers.writer.cancel_later((self.place, "soon"))
        return self.tiers.writer.submit(self.place, carried(lambda: self._commit(flush=flush)))

    def request_flush(self) -> Future[None]:
        """Save and flush; the future ends when the durable tier (without one, the hot tier) has everything."""

        def work() -> None:
            try:
                self._commit(flush=False)
            except StoreUnavailableError:
                if self._copies.durable is None:
                    raise
            if self._copies.durable is not None:
                self._flush()
                if self.model.closing:
                    self._delete_buried()

        return self.tiers.writer.submit(self.place, work)

    def request_soon(self, delay: float) -> None:
        """Save ``delay`` seconds after the first thing that is new since the last save."""
        if not self._is_due:
            self._is_due = True
            self.tiers.writer.later((self.place, "soon"), delay, self.request)

    def request_refresh(self) -> Future[None]:
        """Read on the writer what someone else saved, and merge it."""
        return self.tiers.writer.submit(self.place, self.refresh)

    # Waiting for them

    @property
    def waits_for(self) -> Literal["hot", "durable", "nothing"]:
        """The tier whose answer a turn waits for: none while that tier is known to be down."""
        if self._copies.hot is not None:
            return "hot" if self.tiers.hot_health.is_up else "nothing"
        return "durable" if self.tiers.durable_health.is_up else "nothing"

    @property
    def asked_at(self) -> float | None:
        """When the tier that a turn waits for was asked, in monotonic seconds; None while it has not been."""
        return self._copies.asked_at

    def overdue(self, deadline: float) -> bool:
        """Whether the tier that a turn waits for was asked more than ``deadline`` seconds ago, or is known to be down."""
        return self.waits_for == "nothing" or self.left(deadline) == 0.0

    def left(self, deadline: float) -> float:
        """Seconds of ``deadline`` that are left to the tier; all of it while it has not been asked."""
        asked_at = self.asked_at
        return deadline if asked_at is None else max(0.0, asked_at + deadline - time.monotonic())

    # On the writer

    def _commit(self, *, flush: bool) -> None:
        self.check()
        if self._copies.hot is not None:
            self._commit_hot(flush=flush)
        elif self.is_dirty or flush:
            self._copies.asked_at = time.monotonic()
            self._attempt("durable", self._flusher.flush, self.tiers.durable_health)

    def _commit_hot(self, *, flush: bool) -> None:
        has_durable = self._copies.durable is not None
        try:
            if self.is_dirty:
                self._attempt("hot", self._saver.save, self.tiers.hot_health)
        except StoreUnavailableError:
            if has_durable:
                self.tiers.writer.submit(self.place, self._flush_quietly)
            raise
        if has_durable and (flush or self._copies.flush_is_due):
            # With the hot tier's consent a flush runs beside the next turn's save, so that no turn waits for the durable tier.
            self.tiers.writer.submit((self.place, "flush"), self._flush_beside)

    def _flush(self) -> None:
        with self._copies.durable_lock:  # a flush that is under way may be all it takes
            if not (self._copies.is_blank or self._copies.is_flushed):
                self._guarded(self._flusher.flush, self.tiers.durable_health)

    def _delete_buried(self) -> None:
        try:
            self._flusher.delete_buried()
        except StoreUnavailableError as error:
            logger.debug("error=<%s> | what came late of a deleted conversation is left to the sweeper", type(error).__name__)

    def _flush_quietly(self) -> None:
        health = self.tiers.durable_health
        if self._copies.is_flushed:  # while the hot tier is down, every try to reach it comes here
            return
        if not health.may_try():
            self._retry(health)
            return
        try:
            self._guarded(self._flusher.flush, health)
        except StoreError as error:
            logger.warning("error=<%s> | flush failed, it is tried again", type(error).__name__)

    def _flush_beside(self) -> None:
        """Flush what the hot tier has confirmed, beside the saves; whatever is not plain sailing is left to one among them."""
        with self._copies.durable_lock:
            if self._copies.is_flushed:
                return
            try:
                if self.tiers.durable_health.is_up and self._flusher.flush_confirmed():
                    return
            except StoreError as error:
                logger.debug("error=<%s> | flush beside the saves failed", type(error).__name__)
        self.tiers.writer.submit(self.place, self._flush_quietly)

    def _attempt(self, tier: str, work: Callable[[], None], health: TierHealth) -> None:
        if not health.may_try():
            self._retry(health)
            raise StoreUnavailableError(f"the {tier} tier is down; it is tried again soon")
        self._guarded(work, health)

    def _guarded(self, work: Callable[[], None], health: TierHealth) -> None:
        """Do work on a tier, and take note of how that went."""
        try:
            work()
        except ContendedError:
            self._retry(health)
            raise
        except StoreUnavailableError:
            health.failed()
            self._retry(health)
            raise
        except (ConflictError, CorruptRecordError) as error:
            self.error = error
            raise
        health.succeeded()

    def _retry(self, health: TierHealth) -> None:
        self.tiers.writer.later((self.place, "retry"), health.wait + 0.01, lambda: self.request(flush=True))

    def refresh(self) -> None:
        """Read the hot (else the durable) tier and merge what someone else saved there; runs on the writer."""
        for _ in tries("the conversation"):
            with suppress(OvertakenError):
                self._refresh()
                return

    def _refresh(self) -> None:
        copies = self._copies
        with copies.comparing():
            stored = copies.load_hot(touch=self.tiers.ttl.refreshed_by_reads)
            if stored is None and copies.durable is not None:
                stored = copies.durable.load()
            if stored is not None and (stored.state == DELETED or not stored.is_part_of(self.model.writers)):
                self._merger.reconcile(stored, only_looking=not self.is_dirty)
            elif stored is not None and copies.hot is not None and copies.durable is not None and self.model.is_beyond(stored):
                # It has gone back to what it was before; what others have flushed is in the other one.
                self._merger.reconcile_with_durable(copies.durable.load(), only_looking=not self.is_dirty)

    def bury(self) -> None:
        """Leave a tombstone in both tiers and delete everything else; runs on the writer.

        With the first tombstone the conversation is deleted, although the other tier may not answer and has to be asked again.
        """
        copies = self._copies
        epoch, next_seq, is_buried = self.model.epoch + 1, 1, False
        try:
            with copies.durable_lock:
                if copies.durable is not None:
                    epoch = copies.durable.bury(epoch=epoch)
                    is_buried = True
                    if stored := copies.durable.load(window=False):
                        next_seq = stored.head.next
                if copies.hot is not None:
                    ttl, buried = self.tiers.ttl, epoch
                    epoch = copies.hot.bury(epoch=epoch, ttl=ttl.session + ttl.grace)
                    if is_buried and epoch > buried:  # someone had begun another life behind the first tombstone
                        next_seq += SEQ_STEP_AFTER_DELETE
                    is_buried = True
        finally:
            if is_buried:
                with self.lock:
                    copies.restart(epoch=epoch + 1, next_seq=next_seq, buried=epoch)
                    self.model.deleted, self.error = True, None

    # From any thread

    def take_over(self, live: Sequence[Message]) -> list[Message] | None:
        """Return the window if others have saved or deleted something since the agent had it, with unfinished turns closed.

        Args:
            live: The agent's history; messages that are unchanged are returned as the same objects.
        """
        with self.lock:
            model = self.model
            if not (model.deleted or model.stale):
                return None
            model.deleted = model.stale = False
            messages = mended(model.messages(live), cut=model.cut_ids())
            model.show(messages)
            return messages

    def history(self, *, after: int = 0, unsaved: Iterable[Logged] = ()) -> Iterator[Logged]:
        """Yield the log turn by turn: what the durable tier has, what only the hot one or this process has, and ``unsaved``."""
        return gathered(with_unsaved(history(self._copies, after=after), unsaved, after=after))

    def flush_claimed(self) -> None:
        """Flush what the hot tier has of a conversation that a sweeper claimed, just as it is.

        Raises:
            ConflictError: The durable tier's copy went another way; the next turn of the conversation will merge the two.
        """
        stored = self._copies.hot.load(touch=False) if self._copies.hot is not None else None
        if stored is not None and stored.state != DELETED:
            self._flusher.flush_as_stored(stored)

    def renew_after_fork(self) -> None:
        """Become a writer of one's own in the child of a fork: unsaved messages are the parent's to save."""
        self._is_due = False
        self._copies.renew_after_fork()
