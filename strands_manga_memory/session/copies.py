"""Copies: a conversation in memory, in the hot tier and in the durable one, and what this process knows of all three."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from strands_manga_memory.exceptions import StoreUnavailableError
from strands_manga_memory.session.durable_tier import DurableTier
from strands_manga_memory.session.hot_tier import HotTier
from strands_manga_memory.session.model import Model
from strands_manga_memory.session.records import Draft, Head, Place, Stored
from strands_manga_memory.session.tiers import Tiers
from strands_manga_memory.session.window import Logged
from strands_manga_memory.stores.hot import DELETED


@dataclass(frozen=True)
class LastFlush:
    """What is known of the durable tier's copy since this process last wrote or opened it.

    Args:
        made: Epoch and version of the copy; None if there was none.
        frontier: What is in the durable log below this number was there then; tiers can have gone apart only beyond it.
        says_ahead: Whether the durable head says that the hot tier may be ahead of it. Until it does, a turn must be flushed
            at once, or the loss of the hot tier would go unnoticed.
        writers: The saves whose messages the durable log has, all of them; the copy may include more, and lack their messages.
    """

    made: tuple[int, int] | None = None
    frontier: int = 1
    says_ahead: bool = False
    writers: Mapping[str, int] = field(default_factory=dict)


class Copies:
    """One conversation's copies. What is done with them is the business of others; this only keeps the facts together.

    ``model`` is guarded by ``lock``, which is never held during I/O. ``durable_lock`` is held while a tier's copy is read,
    compared and merged, and while the durable one is written; it is taken before ``lock``, never inside it.

    Attributes:
        confirmed: The draft that the hot tier (without one, the durable one) confirmed last; None once the model is another.
        last_flush: What is known of the durable tier's copy.
        saved_at: When the last draft was made that a tier has stored, in seconds since 1970.
        asked_at: When the tier that a turn waits for was asked, in monotonic seconds; None while it has not been.
        carries: Whether the model holds messages of others that were merged and not confirmed since.
    """

    def __init__(self, place: Place, tiers: Tiers, *, base: Mapping[str, Any], keeps_window: bool) -> None:
        self.place = place
        self.tiers = tiers
        self.base = dict(base)
        self.model = Model(base=base, now=tiers.clock(), keeps_window=keeps_window)
        self.hot: HotTier | None = None
        self.durable: DurableTier | None = None
        self._know_nothing()
        self.confirmed: Draft | None = None
        self.last_flush = LastFlush()
        self.saved_at = 0.0
        self.asked_at: float | None = None
        self.carries = False

    def _know_nothing(self) -> None:
        """Begin with locks that nobody holds, and with tiers of which nothing is known."""
        self.lock, self.durable_lock = threading.RLock(), threading.RLock()
        place, tiers, ttl = self.place, self.tiers, self.tiers.ttl
        if tiers.hot is not None:
            self.hot = HotTier(tiers.hot, place, tiers.codec, keeps_log=tiers.durable is None)
        if tiers.durable is not None:
            self.durable = DurableTier(
                tiers.durable, place, tiers.codec, clock=tiers.clock, session_ttl=ttl.session, grace=ttl.grace
            )

    def renew_after_fork(self) -> None:
        """Become a writer of one's own in the child of a fork: unsaved messages are the parent's to save.

        What is known of the tiers is the parent's too: its writer may have been in the middle of a write.
        """
        self._know_nothing()
        with self.lock:
            self.model.become_another_writer()

    # What is known

    @property
    def is_dirty(self) -> bool:
        """Whether there is something that no tier has confirmed."""
        with self.lock:
            return self.model.is_dirty

    @property
    def is_blank(self) -> bool:
        """Whether there is nothing that was ever saved or is to be saved."""
        with self.lock:
            return self.model.version == 0 and not self.model.is_dirty

    @property
    def is_flushed(self) -> bool:
        """Whether the durable tier has everything, and the hot one if it is up; at the end, whether the former knows that."""
        with self.lock:
            model = self.model
            lacks_some = model.is_behind or (model.is_dirty and self.hot_is_up)
            has_all = not lacks_some and self.last_flush.made == (model.epoch, model.version)
            return has_all and not (model.closing and self.last_flush.says_ahead and self.hot is not None)

    @property
    def flush_is_due(self) -> bool:
        """Whether the durable tier is to be written now, although nobody asked for it."""
        model = self.model
        turns = model.head.turns - model.head.flushed_turns
        is_behind = model.version > 0 and self.last_flush.made != (model.epoch, model.version)
        is_time = not self.last_flush.says_ahead or (turns >= self.tiers.flush_every and not model.in_turn)
        return bool(model.revised) or (is_behind and is_time)

    @property
    def hot_is_up(self) -> bool:
        """Whether there is a hot tier that answers: then it has the last word."""
        return self.hot is not None and self.tiers.hot_health.is_up

    def read_hot(self) -> Stored | None:
        """Return what the hot tier has, without touching its time to live; None if it has nothing, or does not answer."""
        return self.load_hot() if self.hot_is_up else None

    def load_hot(self, *, touch: bool = False) -> Stored | None:
        """Return what the hot tier has of this life: a replica may have no more than the tombstone of the one before."""
        stored = None if self.hot is None else self.hot.load(touch=touch)
        is_past = stored is not None and stored.state == DELETED and stored.epoch <= self.model.head.buried
        return None if is_past else stored

    # What is to be stored

    @property
    def ttl(self) -> float:
        """Seconds that the hot tier is to keep the conversation from now on."""
        policy, head = self.tiers.ttl, self.model.head
        seconds = policy.ttl(head.turns)
        return max(1.0, head.created + seconds - self.tiers.clock()) if policy.mode == "fixed" else seconds

    def draft(self) -> Draft:
        """Return what is to be stored now."""
        with self.lock:
            return self.model.draft(now=self.tiers.clock(), ttl=self.ttl, durable=self.durable is not None)

    def unconfirmed(self) -> Draft:
        """Return what is to be stored without a hot tier's consent: just what was read, if nothing is new."""
        with self.lock:
            return self.draft() if self.model.is_dirty else self.model.as_stored()

    # What becomes of it

    @contextmanager
    def sending(self, draft: Draft) -> Iterator[None]:
        """Send ``draft`` to a tier; if that fails, it may be stored all the same, and someone may have taken it over."""
        try:
            yield
        except StoreUnavailableError:
            with self.lock:
                self.model.sent_number = max(self.model.sent_number, draft.writers.get(self.model.writer, 0))
            raise

    def opened(self, stored: Stored, durable: Stored | None) -> None:
        """Take over ``stored``, the later of the two copies; ``durable`` is the one that the durable tier has."""
        with self.lock:
            self.model.adopt(stored, pending=self.durable is not None)
        self.last_flush = LastFlush()
        if durable is not None:
            writers = {} if durable.head.pending else durable.writers
            self.last_flush = LastFlush((durable.epoch, durable.version), durable.head.frontier, durable.ahead, writers)

    def saved(self, draft: Draft) -> None:
        """Take note that the hot tier has stored ``draft``."""
        with self.lock:
            self.saved_at = draft.head.active
            self.model.saved(draft, keep=self.durable is not None)
            self.confirmed, self.carries = draft, False

    def flushed(self, draft: Draft, head: Head, *, ahead: bool, revised: list[Logged]) -> None:
        """Take note that the durable tier has stored ``draft``, with ``head``, and what was ``revised``."""
        with self.lock:
            self.model.flushed(draft, head)
            self.model.revised = [slot for slot in self.model.revised if slot not in revised]
            writers = self.last_flush.writers if head.pending else draft.writers
            self.last_flush = LastFlush((draft.epoch, draft.version), draft.head.frontier, ahead, writers)
            self.saved_at = max(self.saved_at, draft.head.active)
            confirmed = self.confirmed
            if confirmed is not None and (confirmed.epoch, confirmed.version) < (draft.epoch, draft.version):
                self.confirmed = None  # it was stored without the hot tier's consent; what that had before must not replace it
            if self.hot is None:
                self.model.saved(draft, keep=True)
                self.confirmed = draft

    def restart(self, *, epoch: int, next_seq: int, buried: int) -> None:
        """Begin a new incarnation."""
        with self.lock:
            self.model.restart(epoch=epoch, next_seq=next_seq, now=self.tiers.clock(), buried=buried)
            self.begin_another_life()

    def begin_another_life(self) -> None:
        """Take note that the model is one of another incarnation than what the tiers confirmed."""
        self.confirmed = None
        self.last_flush = dataclasses.replace(self.last_flush, says_ahead=False)

    @contextmanager
    def comparing(self) -> Iterator[None]:
        """Read what a tier has and merge with it; forget it after a failure, or a write would pass for one that has merged."""
        with self.durable_lock:
            try:
                yield
            except BaseException:
                for tier in (self.hot, self.durable):
                    if tier is not None:
                        tier.forget()
                raise
