"""Conversation: one conversation between memory and its tiers: opened, saved every turn, flushed, merged, deleted."""

from __future__ import annotations

import dataclasses
import itertools
import logging
import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any, Literal

from strands.types.content import Message

from strands_manga_memory.exceptions import ConflictError, CorruptRecordError, StoreError, StoreUnavailableError
from strands_manga_memory.session.durable_tier import DurableTier
from strands_manga_memory.session.hot_tier import HotTier
from strands_manga_memory.session.model import Model
from strands_manga_memory.session.opening import read_tiers
from strands_manga_memory.session.records import Draft, Head, Kind, Place, Stored, overlaps
from strands_manga_memory.session.tiers import Tiers
from strands_manga_memory.session.window import Identity, Logged, mended, parse_runs, shown_of
from strands_manga_memory.stores.codec import load
from strands_manga_memory.stores.health import TierHealth
from strands_manga_memory.stores.hot import CLOSING, DELETED, WriteStatus

logger = logging.getLogger(__name__)

_random = random.Random()  # noqa: S311 - jitter; of its own, so that nobody's seeded numbers change
_CONTENTION_SECONDS = 30.0
"""Seconds for which a save that others keep overtaking is tried again before it is put off."""


class _ContendedError(StoreUnavailableError):
    """Others keep changing the conversation. Its tier is well, so the save is put off, and nobody else's."""


def _tries(what: str) -> Iterator[int]:
    """Yield the numbers of tries; between them wait a random time that grows, so that every writer gets its turn."""
    end = time.monotonic() + _CONTENTION_SECONDS
    for number in itertools.count():
        yield number
        if time.monotonic() > end:
            raise _ContendedError(f"{what} keeps changing; the save is put off")
        time.sleep(_random.uniform(0.0, min(0.05, 0.0005 * 2**number)))


class Conversation:
    """One conversation, its model, and what is known of its tiers.

    ``model`` is guarded by ``lock``, which is never held during I/O. All I/O after ``open`` runs on the writer, in order.
    """

    def __init__(self, place: Place, tiers: Tiers, *, base: Mapping[str, Any], keeps_window: bool = True) -> None:
        self.place = place
        self._tiers = tiers
        self.lock = threading.RLock()
        self.model = Model(base=base, now=tiers.clock(), keeps_window=keeps_window)
        self._base = dict(base)
        self._hot = None
        if tiers.hot is not None:
            self._hot = HotTier(tiers.hot, place, tiers.codec, keeps_log=tiers.durable is None)
        self._durable = None
        if tiers.durable is not None:
            ttl = tiers.ttl
            self._durable = DurableTier(
                tiers.durable, place, tiers.codec, clock=tiers.clock, session_ttl=ttl.session, grace=ttl.grace
            )
        self._confirmed: Draft | None = None
        self._refused: Draft | None = None
        # First numbers of segments that were stored for a conversation that was deleted before they could be committed.
        self._orphans: list[int] = []
        # Held while the durable tier's copy is read, compared and written; taken before ``lock``, never inside it.
        self._durable_lock = threading.RLock()
        # What is in the durable log below this number was there at our last flush; tiers can have gone apart only beyond it.
        self._frontier = 1
        self._carries = False
        # Whether the durable head says that the hot tier may be ahead of it. Until it does, a turn must be flushed at once, or
        # the loss of the hot tier would go unnoticed.
        self._durable_knows = False
        self._flushed_at: tuple[int, int] | None = None
        self._is_due = False
        self._saved_at = 0.0
        self.closing = False
        self.error: StoreError | None = None
        self.asked_at: float | None = None
        self.possible_loss = False
        self.deleted = False
        self.dropped = 0

    # Opening

    def open(self, *, inspect: bool = False) -> list[Message] | None:
        """Read the conversation from both tiers and take over the later copy; return its messages, or None if it is new.

        Args:
            inspect: Only look: its time to live is not touched, and nothing is written.

        Raises:
            StoreUnavailableError: What is stored cannot be read.
            CorruptRecordError: What is stored cannot be trusted.
        """
        touch = self._tiers.ttl.refreshed_by_reads and not inspect
        opened = read_tiers(self.place, self._tiers, self._hot, self._durable, touch=touch)
        hot, durable, chosen = opened.hot, opened.durable, opened.latest
        self.possible_loss = opened.possible_loss
        if chosen is None:
            return None
        self._check_ids(chosen)
        from_durable = chosen is durable
        if chosen.state == DELETED or self._is_over(chosen, hot, durable):
            self._start_over(chosen, durable)
            return None
        if from_durable and self._durable is not None:
            self._read_window(chosen)
        is_behind = chosen.ahead or bool(chosen.head.pending)
        self.possible_loss = self.possible_loss or (from_durable and is_behind and not opened.went_apart)
        with self.lock:
            self.model.adopt(chosen, pending=self._durable is not None)
            self._durable_knows = durable is not None and durable.ahead
            self._flushed_at = None if durable is None else (durable.epoch, durable.version)
            self._frontier = 1 if durable is None else durable.head.frontier
            cut = self.model.cut_ids()
        if hot is not None and opened.went_apart:
            with self.lock:
                self.model.adopt(hot, pending=True)
                cut |= self.model.cut_ids()
            self._join(chosen, hot)
            self.model.stale, from_durable = False, False
        may_resume = self._tiers.resume_cold or inspect or opened.hot_is_unread
        if not may_resume and self._is_cold(chosen, from_durable=from_durable):
            self._start_afresh(chosen)
            return None
        with self.lock:
            interrupted = load(self.model.fields.get("state.interrupts", b"{}")).get("activated", False)
            self.model.head.open = {}
            messages = mended(self.model.messages(), cut=cut, keep_trailing_tool_use=bool(interrupted))
            self.model.show(messages)
            return messages

    def _check_ids(self, stored: Stored) -> None:
        if stored.base and any(stored.base.get(name) != value for name, value in self._base.items()):
            name = self.place.conversation
            raise CorruptRecordError(f"record={name!r} belongs to other ids than those asked for", record=name)

    def _is_over(self, chosen: Stored, hot: Stored | None, durable: Stored | None) -> bool:
        if self._durable is None:
            return chosen.expired
        return (durable is None or durable.expired) and (hot is None or hot.expired)

    def _is_cold(self, chosen: Stored, *, from_durable: bool) -> bool:
        """Tell whether the conversation has left the hot tier; without one, whether it would have."""
        if self._hot is not None:
            return from_durable or chosen.expired
        head, policy = chosen.head, self._tiers.ttl
        since = head.created if policy.mode == "fixed" else head.active
        return since + policy.ttl(head.turns) <= self._tiers.clock()

    def _start_over(self, ended: Stored, durable: Stored | None) -> None:
        """Begin a new incarnation after one that is deleted or over."""
        next_seq = max(ended.head.next, durable.head.next if durable else 1)
        with self.lock:
            buried = ended.epoch if ended.state == DELETED else ended.head.buried
            self.model.restart(epoch=ended.epoch + 1, next_seq=next_seq, now=self._tiers.clock(), buried=buried)
            self._durable_knows = False
            if self._hot is not None:
                self._hot.start_over()

    def _start_afresh(self, old: Stored) -> None:
        """Begin a new incarnation although the old one could go on, once the durable tier has all of it."""
        if self.model.pending:
            self._flush_as_stored(old)
        self._start_over(old, None)

    def _flush_as_stored(self, stored: Stored) -> None:
        """Flush what the hot tier has, just as it is.

        Raises:
            ConflictError: The durable tier's copy went another way.
        """
        hot, durable = self._hot, self._durable
        if hot is None or durable is None:
            return
        with self.lock:
            self.model.adopt(stored, pending=True)
            self.model.recent = hot.read_log(sorted(self.model.pending))
            draft = dataclasses.replace(self.model.as_stored(), epoch=stored.epoch)
        there = durable.load()
        same = there is not None and (there.epoch, there.version) == (stored.epoch, stored.version)
        if there is not None and (there.epoch > stored.epoch or (there.includes(stored.made_by) and not same)):
            return
        if there is not None and not stored.includes(there.made_by):
            self._join(there, stored)
            draft = dataclasses.replace(self._draft(), epoch=stored.epoch)
        status, _ = durable.write(draft, ahead=False)
        if status is not WriteStatus.OK:
            raise ConflictError("the durable tier's copy was changed by someone else meanwhile")

    def _read_window(self, stored: Stored) -> None:
        durable = self._durable
        assert durable is not None  # noqa: S101 - for the type checker; the caller has looked
        window = self._tiers.writer.submit((self.place, "durable"), lambda: durable.complete(stored))
        beyond = self._tiers.writer.submit((self.place, "log"), lambda: durable.log.beyond(stored.head.next))
        window.result()
        *garbage, after = beyond.result()
        if garbage:
            stored.head.next, stored.head.garbage = after, ",".join(map(str, garbage))
            self.possible_loss = True

    # Saving: on the writer

    def request(self, *, flush: bool = False) -> Future[None]:
        """Save on the writer what is new, and flush if it is time or ``flush``; the future ends when the first tier has it."""
        self.asked_at = None
        if self._is_due:
            self._is_due = False
            self._tiers.writer.cancel_later((self.place, "soon"))
        return self._tiers.writer.submit(self.place, lambda: self._commit(flush=flush))

    def request_flush(self) -> Future[None]:
        """Save and flush; the future ends when the durable tier (without one, the hot tier) has everything."""

        def work() -> None:
            try:
                self._commit(flush=False)
            except StoreUnavailableError:
                if self._durable is None:
                    raise
            if self._durable is not None:
                self._flush()

        return self._tiers.writer.submit(self.place, work)

    def request_soon(self, delay: float) -> None:
        """Save ``delay`` seconds after the first thing that is new since the last save."""
        if not self._is_due:
            self._is_due = True
            self._tiers.writer.later((self.place, "soon"), delay, self.request)

    @property
    def is_dirty(self) -> bool:
        """Whether there is something that no tier has confirmed."""
        with self.lock:
            return self.model.is_dirty

    @property
    def _is_blank(self) -> bool:
        """Whether there is nothing that was ever saved or is to be saved."""
        with self.lock:
            return self.model.version == 0 and not self.model.is_dirty

    @property
    def _is_flushed(self) -> bool:
        """Whether the durable tier has everything; at the end, whether it knows that it has."""
        with self.lock:
            model = self.model
            has_all = not (model.is_dirty or model.pending) and self._flushed_at == (model.epoch, model.version)
        return has_all and not (self.closing and self._durable_knows and self._hot is not None)

    @property
    def waits_for(self) -> Literal["hot", "durable", "nothing"]:
        """The tier whose answer a turn waits for: none while that tier is known to be down."""
        if self._hot is not None:
            return "hot" if self._tiers.hot_health.is_up else "nothing"
        return "durable" if self._tiers.durable_health.is_up else "nothing"

    def overdue(self, deadline: float) -> bool:
        """Whether the tier that a turn waits for was asked more than ``deadline`` seconds ago, or is known to be down."""
        return self.waits_for == "nothing" or self.left(deadline) == 0.0

    def left(self, deadline: float) -> float:
        """Seconds of ``deadline`` that are left to the tier; all of it while it has not been asked."""
        asked_at = self.asked_at
        return deadline if asked_at is None else max(0.0, asked_at + deadline - time.monotonic())

    def _commit(self, *, flush: bool) -> None:
        if self.error is not None:
            raise self.error
        if self._hot is None:
            if self.is_dirty or flush:
                self._commit_durable()
            return
        hot_error: StoreUnavailableError | None = None
        if self.is_dirty:
            if self._tiers.hot_health.may_try():
                try:
                    self._guarded(self._save_hot, self._tiers.hot_health)
                except StoreUnavailableError as error:
                    hot_error = error
            else:
                hot_error = StoreUnavailableError("the hot tier is down; it is tried again soon")
                self._retry(self._tiers.hot_health)
        if self._durable is not None and (flush or hot_error or self._flush_is_due()):
            # With the hot tier's consent a flush runs beside the next turn's save, so that no turn waits for the durable tier.
            key = self.place if hot_error else (self.place, "flush")
            self._tiers.writer.submit(key, self._flush_quietly if hot_error else self._flush_beside)
        if hot_error is not None:
            raise hot_error

    def _commit_durable(self) -> None:
        self.asked_at = time.monotonic()
        if not self._tiers.durable_health.may_try():
            self._retry(self._tiers.durable_health)
            raise StoreUnavailableError("the durable tier is down; it is tried again soon")
        self._guarded(self._flush_once, self._tiers.durable_health)

    def _flush_is_due(self) -> bool:
        model = self.model
        turns = model.head.turns - model.head.flushed_turns
        is_behind = model.version > 0 and self._flushed_at != (model.epoch, model.version)
        is_time = not self._durable_knows or (turns >= self._tiers.flush_every and not model.in_turn)
        return bool(model.revised) or (is_behind and is_time)

    def _flush(self) -> None:
        with self._durable_lock:  # a flush that is under way may be all it takes
            if not (self._is_blank or self._is_flushed):
                self._guarded(self._flush_once, self._tiers.durable_health)

    def _flush_quietly(self) -> None:
        if not self._tiers.durable_health.may_try():
            self._retry(self._tiers.durable_health)
            return
        try:
            self._guarded(self._flush_once, self._tiers.durable_health)
        except StoreError as error:
            logger.warning("error=<%s> | flush failed, it is tried again", type(error).__name__)

    def _flush_beside(self) -> None:
        """Flush what the hot tier has confirmed, beside the saves; whatever is not plain sailing is left to one among them."""
        with self._durable_lock:
            confirmed, durable = self._confirmed, self._durable
            if self._is_flushed:
                return
            if confirmed is not None and durable is not None and self._tiers.durable_health.is_up:
                try:
                    if self._flushed(durable, confirmed):
                        return
                except StoreError as error:
                    logger.debug("error=<%s> | flush beside the saves failed", type(error).__name__)
        self._tiers.writer.submit(self.place, self._flush_quietly)

    def _guarded(self, work: Callable[[], None], health: TierHealth) -> None:
        try:
            work()
        except _ContendedError:
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
        self._tiers.writer.later((self.place, "retry"), health.wait + 0.01, lambda: self.request(flush=True))

    def _ttl(self) -> float:
        policy, head = self._tiers.ttl, self.model.head
        seconds = policy.ttl(head.turns)
        return max(1.0, head.created + seconds - self._tiers.clock()) if policy.mode == "fixed" else seconds

    def _draft(self) -> Draft:
        with self.lock:
            return self.model.draft(now=self._tiers.clock(), ttl=self._ttl(), durable=self._durable is not None)

    def _unconfirmed(self) -> Draft:
        """Return what is to be stored without a hot tier's consent: just what was read, if nothing is new."""
        with self.lock:
            return self._draft() if self.model.is_dirty else self.model.as_stored()

    def _save_hot(self) -> None:
        hot = self._hot
        assert hot is not None  # noqa: S101
        for _ in _tries("the hot tier's copy"):
            draft = self._draft()
            self.asked_at = time.monotonic()
            result = hot.write(draft)
            if result.status in (WriteStatus.OK, WriteStatus.APPLIED):
                with self.lock:
                    self._saved_at = draft.head.active
                    self.model.saved(draft, keep=self._durable is not None)
                    self._confirmed, self._carries = draft, False
                return
            with self._comparing():
                stored = hot.load(touch=False)
                if stored is None and self._durable is not None:
                    # The hot tier lost the conversation; the durable tier knows whether it was deleted or went on without us.
                    stored = self._durable.load()
                    hot.forget()
                    self._reconcile(stored, from_durable=True)
                else:
                    self._reconcile(stored)
            if self.deleted:
                return

    @contextmanager
    def _comparing(self) -> Iterator[None]:
        """Read what a tier has and merge with it; forget it after a failure, or a write would pass for one that has merged."""
        with self._durable_lock:
            try:
                yield
            except BaseException:
                for tier in (self._hot, self._durable):
                    if tier is not None:
                        tier.forget()
                raise

    def _reconcile(self, stored: Stored | None, *, from_durable: bool = False, only_looking: bool = False) -> None:
        """Bring the model in line with what a tier turned out to have: the hot one, or the durable one."""
        with self.lock:
            model = self.model
            if stored is None:
                return
            if stored.state == DELETED or stored.head.buried >= model.epoch:
                if stored.epoch >= model.epoch:
                    self._drop(stored)
                return
            if stored.is_part_of(model.writers):
                before = model.epoch, model.version
                model.version = max(model.version, stored.version) if stored.epoch == model.epoch else model.version
                model.epoch = max(model.epoch, stored.epoch + (stored.state != "active"))
                # A save that says nothing new would be a conflict for everyone else.
                model.touched = model.touched or (model.epoch, model.version) != before
                return
            if self._tiers.on_conflict == "raise" and not only_looking:
                raise ConflictError("someone else saved the conversation; pass on_conflict='merge' to merge the two")
        logger.debug("epoch=<%d>, version=<%d> | merging with what someone else had saved", stored.epoch, stored.version)
        if self._is_of_a_later_life(stored):
            with self.lock:
                model.rebase(stored, logged=model.saved_identities())
                self._confirmed, self._durable_knows = None, False
            return
        if from_durable:
            hot = self._hot.load(touch=False) if self._hot is not None and self._tiers.hot_health.is_up else None
            if hot is not None and (hot.state == DELETED or hot.head.since > stored.head.since or hot.includes(stored.made_by)):
                self._reconcile(hot)
            else:
                self._join(stored, hot)
            return
        if self._durable is not None and not stored.includes(self._durable.made_by):
            durable = self._durable.load()
            if durable is not None and durable.head.since == stored.head.since and not stored.includes(durable.made_by):
                self._join(durable, stored)
                return
        with self.lock:
            self._carries = self._carries or model.is_doubtful(stored)
        # A save of ours that a tier had taken and lost since, or what we carry for others, may have been saved by someone else.
        there = self._logged(stored) if self._carries else set()
        with self.lock:
            model.rebase(stored, logged=there)
            self._confirmed = None

    def _is_of_a_later_life(self, stored: Stored) -> bool:
        """Tell whether our incarnation had ended when this one began: then only what we have not saved yet belongs to it."""
        model, ends = self.model, self._saved_at + (self._ttl() if self._durable is None else self._tiers.ttl.session)
        is_stranger = model.confirmed_number > 0 and not model.is_known_to(stored)
        return stored.head.since > model.epoch or (is_stranger and stored.head.created >= ends)

    def _logged(self, stored: Stored) -> set[Identity]:
        """Return what the hot copy ``stored`` and the durable log have that was not in the log at our last flush."""
        pending = parse_runs(stored.head.pending, record="head")
        first = min([self._frontier, *pending, *self.model.pending])
        seqs = pending if self._durable is not None else range(first, stored.head.next)
        hot = self._hot.read_log(seqs) if self._hot is not None else []
        durable = self._durable.history(first=first) if self._durable is not None else ()
        return {slot.identity for slot in (*stored.slots, *hot, *durable) if isinstance(slot, Logged)}

    def _join(self, durable: Stored, hot: Stored | None) -> None:
        """Merge two copies that went apart because a tier was cut off from a writer, or rolled back; our own turns come last.

        The numbers of the durable copy stand. What only the hot one has, or what we had taken over from it, gets new ones.
        """
        assert self._durable is not None  # noqa: S101
        model = self.model
        with self.lock:
            known = [slot for slot in [*model.slots, *model.recent] if isinstance(slot, Logged)]
            ours = {slot.identity for slot in known if slot.order > 0}
            window = list(hot.slots if hot else model.slots)
            loose = {slot.identity: slot for slot in known if not slot.order and slot.seq in model.pending}
        if hot is not None and self._hot is not None:
            loose |= {slot.identity: slot for slot in self._hot.read_log(parse_runs(hot.head.pending, record="head"))}
        self._carries = True
        first = min([self._frontier, *model.pending, *(slot.seq for slot in loose.values())])
        log = self._durable.log.history(first=first, committed=self._durable.committed)
        there = {slot.identity for slot in log}
        runs = {writer: set(parse_runs(text, record="head")) for writer, text in (hot.head.open if hot else {}).items()}
        with self.lock:
            next_, version, epoch = max(durable.head.next, model.head.next), max(durable.version, model.version), model.epoch
            if hot is not None:
                next_, version, epoch = max(next_, hot.head.next), max(version, hot.version), max(epoch, hot.epoch)
                epoch += hot.state == CLOSING and hot.epoch == epoch
            carried = sorted((loose[key] for key in loose.keys() - there - ours), key=lambda slot: (slot.seq, slot.at))
            turns = {slot.identity: slot.turn for slot in durable.slots if isinstance(slot, Logged)}
            base = dataclasses.replace(durable, version=version, head=dataclasses.replace(durable.head, next=next_))
            model.rebase(
                base,
                carried=carried,
                shown=shown_of(window, carried),
                continued={
                    slot.turn: turns[slot.identity] for slot in window if isinstance(slot, Logged) and slot.identity in turns
                },
                granted=durable.head.next,
                logged=there,
                seen=hot.writers if hot else {},
                open_elsewhere={
                    writer: {slot.identity for slot in carried if slot.seq in seqs}
                    for writer, seqs in runs.items()
                    if writer != model.writer and any(slot.seq in seqs for slot in carried)
                },
            )
            model.epoch, model.touched = max(model.epoch, epoch), True
            self._confirmed = None
        logger.warning("carried=<%d> | the tiers had gone apart, they were joined", len(carried))

    def _drop(self, stored: Stored) -> None:
        """The conversation was deleted meanwhile: nothing of it may come back, so what was not saved goes too."""
        model, unsaved = self.model, self.model.unsaved
        self.dropped += unsaved
        logger.warning("dropped=<%d> | the conversation was deleted, unsaved messages are dropped", unsaved)
        is_tombstone = stored.state == DELETED
        now, epoch = self._tiers.clock(), stored.epoch
        model.restart(epoch=epoch + is_tombstone, next_seq=stored.head.next, now=now, buried=epoch if is_tombstone else 0)
        if not is_tombstone:
            model.adopt(stored, pending=self._durable is not None)
        self.deleted = True
        self._confirmed, self._durable_knows = None, False
        if self._durable is not None:
            self._orphans += [segment.first for segment in self._durable.added]

    def _flush_once(self) -> None:
        with self._durable_lock:
            self._flush_until_done()

    def _flush_until_done(self) -> None:
        durable = self._durable
        assert durable is not None  # noqa: S101
        if self._orphans:
            durable.log.discard(self._orphans)
            self._orphans = []
        if self.deleted and not self.is_dirty:
            return
        if durable.expect is None:
            durable.enlist(self._base)
        for _ in _tries("the durable tier's copy"):
            if self._is_blank or self._is_flushed:  # deleted meanwhile, or never used: an empty conversation is not stored
                return
            hot_is_up = self._hot is not None and self._tiers.hot_health.is_up
            if hot_is_up and self._confirmed is None and self.is_dirty:
                self._save_hot()
            # While the hot tier is up it decides what the next message's number is, so only what it confirmed is flushed.
            draft = self._confirmed if hot_is_up and self._confirmed else self._unconfirmed()
            if self._flushed(durable, draft):
                return
            with self._comparing():
                self._settle(durable, self._refused or draft)
            if self.deleted:
                return

    def _flushed(self, durable: DurableTier, draft: Draft) -> bool:
        """Try to store ``draft`` in the durable tier; False if what is there is other than expected."""
        durable.collision = None  # that of an earlier try says nothing about this one
        if durable.expect is None and any(isinstance(slot, Logged) and slot not in draft.pending for slot in draft.slots):
            self._refused = draft  # it had the conversation's log, and now it has not even its head
            return False
        self._fetch_pending(draft)
        with self.lock:
            lacking = {slot.seq: slot for slot in self.model.recent if slot.seq in self.model.pending}
            known = {slot.seq for slot in draft.pending}
            wanted = set(parse_runs(draft.head.pending, record="head"))
            added = tuple(slot for seq, slot in sorted(lacking.items()) if seq in wanted and seq not in known)
            full = tuple(sorted((*draft.pending, *added), key=lambda slot: slot.seq))
            draft = dataclasses.replace(draft, pending=tuple(slot for slot in full if slot.seq in self.model.pending))
            revised = list(self.model.revised)
        ahead = self._hot is not None and self._hot_survives and not self.closing
        status, head = durable.write(draft, ahead=ahead)
        self._refused = None if status is WriteStatus.OK else draft
        if status is WriteStatus.OK:
            self._after_flush(durable, draft, head, revised)
            self._durable_knows = ahead
        return status is WriteStatus.OK

    @property
    def _hot_survives(self) -> bool:
        return self._tiers.hot is not None and self._tiers.hot.survives_process

    def _after_flush(self, durable: DurableTier, draft: Draft, head: Head, revised: list[Logged]) -> None:
        if revised:
            durable.log.rewrite(revised)
        firsts = [int(first) for first in draft.head.garbage.split(",") if first]
        garbage = [first for first in firsts if not any(first in run for run in durable.committed)]
        if garbage:
            durable.log.discard(garbage)
        with self.lock:
            self.model.flushed(draft, head)
            self.model.revised = [slot for slot in self.model.revised if slot not in revised]
            self._flushed_at, self._frontier = (draft.epoch, draft.version), draft.head.frontier
            if self._hot is None:
                self.model.saved(draft, keep=True)
                self._confirmed, self._saved_at = draft, draft.head.active

    def _settle(self, durable: DurableTier, draft: Draft) -> None:
        """After a refused flush: find out why, and make the next try succeed."""
        collision, durable.collision = durable.collision, None
        added, was_deleted = list(durable.added), self.deleted
        stored = durable.load()
        committed = list(durable.committed)
        known = stored is None or (stored.state != DELETED and stored.is_part_of(draft.writers))
        if collision is not None and known and self._moved_on():
            return
        if collision is not None and known:
            *_, beyond = durable.log.beyond(collision)
            with self.lock:
                self._carries = True
                self.model.resequence(garbage=[collision], beyond=beyond, first=collision)
        elif stored is None:
            *_, beyond = durable.log.beyond(1)
            with self.lock:
                self._carries = True
                self.model.log_anew(beyond=beyond)
        elif stored is not None and self._covers(stored, draft):
            with self.lock:
                self.model.flushed(draft, stored.head)
                self._confirmed = None if self._hot is None else self._confirmed
        held = {slot.identity: slot.seq for slot in draft.pending}
        self._reconcile(stored, from_durable=True)
        with self.lock:
            logged = [slot for slot in (*self.model.slots, *self.model.recent) if isinstance(slot, Logged)]
            renumbered = {held[slot.identity] for slot in logged if held.get(slot.identity, slot.seq) != slot.seq}
        # What was stored under a number that it lost since, twice, or for a conversation that was deleted, is garbage.
        committed += durable.committed
        is_garbage = [
            not any(segment.first in run for run in committed)
            and (
                (self.deleted and not was_deleted) or any(seq in segment for seq in renumbered) or overlaps(segment, committed)
            )
            for segment in added
        ]
        durable.log.discard([segment.first for segment, garbage in zip(added, is_garbage, strict=True) if garbage])
        if self.deleted:
            return
        if self._hot is not None and self._tiers.hot_health.is_up and self.is_dirty:
            self._save_hot()

    def _moved_on(self) -> bool:
        """Take over what others have saved in the hot tier meanwhile; what is stored under our numbers may be just that."""
        stored = self._hot.load(touch=False) if self._hot is not None and self._tiers.hot_health.is_up else None
        if stored is None or stored.is_part_of(self.model.writers):
            return False
        self._reconcile(stored)
        return True

    @staticmethod
    def _covers(stored: Stored, draft: Draft) -> bool:
        return all(stored.writers.get(writer, 0) >= number for writer, number in draft.writers.items())

    def _fetch_pending(self, draft: Draft) -> None:
        """Read from the hot tier what other processes left there for the durable one."""
        known = {slot.seq for slot in draft.pending} | {slot.seq for slot in self.model.recent}
        wanted = [seq for seq in parse_runs(draft.head.pending, record="head") if seq not in known]
        if wanted and self._hot is not None and self._tiers.hot_health.is_up:
            found = self._hot.read_log(wanted)
            with self.lock:
                self.model.recent += found

    # Other operations: called from any thread

    def merged(self, live: Sequence[Message]) -> list[Message]:
        """Return the window after a merge, with turns of other writers that are not finished closed."""
        messages = mended(self.model.messages(live), cut=self.model.cut_ids())
        self.model.show(messages)
        return messages

    @staticmethod
    def members(tiers: Tiers, session: str) -> Iterator[tuple[Kind, str]]:
        """Yield kind and id of the conversations that the durable tier has of a session."""
        if tiers.durable is None:
            return
        for row in tiers.durable.query(session, attributes=["member"]):
            if str(row["sk"]).endswith("#HEAD") and row.get("member"):
                yield ("M" if str(row["sk"]).startswith("M:") else "A"), str(row["member"])

    def refresh(self) -> None:
        """Read the hot (else the durable) tier and merge what someone else saved there; runs on the writer."""
        with self._comparing():
            stored = self._hot.load(touch=self._tiers.ttl.refreshed_by_reads) if self._hot else None
            if stored is None and self._durable is not None:
                stored = self._durable.load()
            if stored is not None and not stored.is_part_of(self.model.writers):
                self._reconcile(stored, only_looking=not self.is_dirty)

    def renew_after_fork(self) -> None:
        """Become a writer of one's own in the child of a fork: unsaved messages are the parent's to save."""
        self.lock, self._durable_lock, self._is_due = threading.RLock(), threading.RLock(), False
        with self.lock:
            self.model.new_writer()
            self.model.forget_unsaved()

    def history(self, *, after: int = 0) -> Iterator[Logged]:
        """Yield the log in order: what the durable tier has, then what only the hot one or this process has."""
        with self.lock:
            head, pending = self.model.head, sorted(self.model.pending)
            mine = {slot.seq: slot for slot in [*self.model.slots, *self.model.recent] if isinstance(slot, Logged) and slot.seq}
            first = max(after + 1, head.first)
            unplaced = [slot for slot in self.model.recent if slot.seq == 0 and slot.order < 0]
        if self._durable is None:
            yield from self._hot_history(first, head.next)
            return
        loose = {seq: mine[seq] for seq in pending if seq in mine and seq >= first}
        missing = [seq for seq in pending if seq not in mine and seq >= first]
        if missing and self._hot is not None:
            loose |= {slot.seq: slot for slot in self._hot.read_log(missing)}
        waiting = sorted(loose)
        for slot in self._durable.history(first=first):
            while waiting and waiting[0] <= slot.seq:
                seq = waiting.pop(0)
                if seq != slot.seq:
                    yield loose[seq]
            yield slot
        yield from (loose[seq] for seq in waiting)
        yield from unplaced

    def _hot_history(self, first: int, end: int) -> Iterator[Logged]:
        assert self._hot is not None  # noqa: S101
        for start in range(first, end, 500):
            yield from self._hot.read_log(range(start, min(end, start + 500)))

    def flush_claimed(self) -> None:
        """Flush what the hot tier has of a conversation that a sweeper claimed, just as it is.

        Raises:
            ConflictError: The durable tier's copy went another way; the next turn of the conversation will merge the two.
        """
        stored = self._hot.load(touch=False) if self._hot is not None else None
        if stored is not None and stored.state != DELETED:
            self._flush_as_stored(stored)

    def bury(self) -> None:
        """Leave a tombstone in both tiers and delete everything else; runs on the writer."""
        epoch = self.model.epoch + 1
        next_seq = 1
        with self._durable_lock:
            if self._durable is not None:
                epoch = self._durable.bury(epoch=epoch)
            if self._hot is not None:
                ttl = self._tiers.ttl.session + self._tiers.ttl.grace
                epoch = self._hot.bury(epoch=epoch, ttl=ttl)
            if self._durable is not None and (stored := self._durable.load(window=False)):
                next_seq = stored.head.next
        with self.lock:
            self.model.restart(epoch=epoch + 1, next_seq=next_seq, now=self._tiers.clock(), buried=epoch)
            self._confirmed, self.deleted, self.error, self._durable_knows = None, True, None, False
