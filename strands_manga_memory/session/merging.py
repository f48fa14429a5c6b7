"""Merging: what becomes of the model when a tier turns out to have something else than expected."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace

from strands_manga_memory.exceptions import ConflictError
from strands_manga_memory.session.contention import OvertakenError
from strands_manga_memory.session.copies import Copies
from strands_manga_memory.session.hot_tier import HotTier
from strands_manga_memory.session.rebasing import Carried, in_turns
from strands_manga_memory.session.records import Stored
from strands_manga_memory.session.window import Identity, Logged, parse_runs
from strands_manga_memory.stores.hot import ACTIVE, CLOSING, DELETED

logger = logging.getLogger(__name__)


class Merger:
    """Brings the model of one conversation in line with what a tier has, whoever stored that.

    Where the tiers have gone apart, because one was cut off from a writer or rolled back, their copies are joined first.
    Whatever is merged, our own unsaved turns come last.
    """

    def __init__(self, copies: Copies) -> None:
        self._copies = copies

    def reconcile(self, stored: Stored | None, *, only_looking: bool = False) -> None:
        """Bring the model in line with ``stored``, the copy of the hot tier, or of the only tier.

        Args:
            stored: What is there, if anything.
            only_looking: Nothing is to be saved, so someone else's save is no conflict.

        Raises:
            ConflictError: The two cannot be merged, or are not to be.
        """
        if stored is None or not self._must_merge(stored, only_looking=only_looking):
            return
        durable = self._gone_apart_from(stored)
        if durable is not None:
            self.join(durable, stored)
        else:
            self._rebase(stored)

    def reconcile_with_durable(self, stored: Stored | None, *, only_looking: bool = False) -> None:
        """Bring the model in line with ``stored``, the copy of the durable tier, unless the hot one includes it.

        Args:
            stored: What is there, if anything.
            only_looking: Nothing is to be saved, so someone else's save is no conflict.

        Raises:
            ConflictError: The two cannot be merged, or are not to be.
        """
        if stored is None or not self._must_merge(stored, only_looking=only_looking):
            return
        hot = self._copies.read_hot()
        if hot is not None and hot.state == DELETED and hot.epoch < stored.epoch:
            hot = None  # a replica that has not heard of the life that began since
        if hot is not None and (hot.state == DELETED or hot.head.since > stored.head.since or hot.includes_all(stored)):
            self.reconcile(hot, only_looking=only_looking)
        else:
            self.join(stored, hot)

    def join_again(self, hot: Stored) -> None:
        """Join ``hot``, which has gone back to what it was before, with the durable tier's copy."""
        head = self._copies.model.head
        durable = self._copies.durable.load() if self._copies.durable is not None else None
        if durable is not None and (durable.state == DELETED or durable.head.since > head.since):
            self.reconcile_with_durable(durable)  # what the hot one has was deleted meanwhile
        elif durable is None or hot.state == DELETED or durable.epoch <= head.buried or durable.head.since < hot.head.since:
            self.reconcile(hot)
        else:
            self.join(durable, hot)

    def _must_merge(self, stored: Stored, *, only_looking: bool = False) -> bool:
        """Tell whether ``stored`` has to be merged with the model; settle what is simpler than that."""
        copies, model = self._copies, self._copies.model
        with copies.lock:
            if stored.state == DELETED or stored.head.buried >= model.epoch:
                if stored.epoch >= model.epoch:
                    self._drop(stored)
                return False
            if stored.epoch <= model.head.buried:  # a copy of what was deleted, which nobody has told yet: it is overwritten
                return False
            if stored.head.since < model.head.since and stored.head.active < model.head.created:
                return False  # what had ended when ours began, and nobody has gone on with since: it is overwritten
            if stored.is_part_of(model.writers):
                before = model.epoch, model.version
                model.version = max(model.version, stored.version) if stored.epoch == model.epoch else model.version
                model.epoch = max(model.epoch, stored.epoch + (stored.state != ACTIVE))
                # A save that says nothing new would be a conflict for everyone else.
                model.touched = model.touched or (model.epoch, model.version) != before
                return False
            if copies.tiers.on_conflict == "raise" and not only_looking:
                raise ConflictError("someone else saved the conversation; pass on_conflict='merge' to merge the two")
        logger.debug("epoch=<%d>, version=<%d> | merging with what someone else had saved", stored.epoch, stored.version)
        if self._is_of_a_later_life(stored):
            with copies.lock:
                model.leave_saved(until=stored.head.created)
                model.rebase(stored)
                copies.begin_another_life()
            return False
        return True

    def _drop(self, stored: Stored) -> None:
        """The conversation was deleted meanwhile: nothing of it may come back, so what was not saved goes too."""
        copies, model = self._copies, self._copies.model
        model.dropped += model.unsaved
        logger.warning("dropped=<%d> | the conversation was deleted, unsaved messages are dropped", model.unsaved)
        is_tombstone = stored.state == DELETED
        buried = stored.epoch if is_tombstone else 0
        next_seq = max(stored.head.next, model.head.next)
        copies.restart(epoch=stored.epoch + is_tombstone, next_seq=next_seq, buried=buried)
        if not is_tombstone:
            model.adopt(stored, pending=copies.durable is not None)
        model.deleted = True
        if copies.durable is not None:
            copies.durable.disown()

    def _is_of_a_later_life(self, stored: Stored) -> bool:
        """Tell whether our incarnation had ended when this one began: then only what we have not saved yet belongs to it."""
        copies, model = self._copies, self._copies.model
        ends = copies.saved_at + (copies.ttl if copies.durable is None else copies.tiers.ttl.session)
        is_stranger = model.confirmed_number > 0 and not model.is_known_to(stored)
        return stored.head.since > model.epoch or (is_stranger and stored.head.created >= ends)

    def _gone_apart_from(self, hot: Stored) -> Stored | None:
        """Return the durable tier's copy if it has something that the hot one lacks."""
        copies, durable = self._copies, self._copies.durable
        with copies.lock:
            is_doubtful = bool(copies.model.doubtful(hot))
        # What we know of the durable copy may be out of date, if the hot one has lost what it had confirmed to us.
        if durable is None or (hot.includes(durable.made_by) and not is_doubtful):
            return None
        stored = durable.load()
        has_more = stored is not None and stored.head.since == hot.head.since and not hot.includes_all(stored)
        return stored if has_more else None

    def _rebase(self, stored: Stored) -> None:
        copies, model = self._copies, self._copies.model
        with copies.lock:
            doubtful = model.doubtful(stored)
            copies.carries = copies.carries or bool(doubtful) or model.has_moved_in(stored)
        # A save of ours that a tier had taken and lost since, or what we carry for others, may have been saved by someone else.
        there = self._logged(stored, at=[slot.seq for slot in doubtful if slot.seq]) if copies.carries else None
        with copies.lock:
            model.rebase(stored, logged=there)
            if copies.carries:  # what said that a turn of theirs was cut stayed behind
                model.close_torn_turns()
            copies.confirmed = None

    def _logged(self, stored: Stored, *, at: Sequence[int]) -> dict[Identity, Logged]:
        """Return what the hot copy ``stored`` and the durable log have that was not there at our last flush, or is ``at``."""
        copies = self._copies
        pending = parse_runs(stored.head.pending, record="head")
        first = min([copies.last_flush.frontier, *at, *pending, *copies.model.pending])
        seqs = pending if copies.durable is not None else range(first, stored.head.next)
        hot = copies.hot.read_log(seqs, since=stored.head.since) if copies.hot is not None else []
        durable = copies.durable.history(first=first) if copies.durable is not None else ()
        return {slot.identity: slot for slot in (*durable, *hot, *stored.slots) if isinstance(slot, Logged)}

    @staticmethod
    def _check_is_there(hot: HotTier, stored: Stored) -> None:
        """Raise ``OvertakenError`` if the hot tier has another copy by now: its messages may have got other numbers."""
        there = hot.load(touch=False)
        if there is None or (there.epoch, there.version) != (stored.epoch, stored.version):
            raise OvertakenError("the hot tier's copy changed while it was read")

    def join(self, durable: Stored, hot: Stored | None) -> None:
        """Merge two copies that went apart because a tier was cut off from a writer, or rolled back; our own turns come last.

        The numbers of the durable copy stand. What only the hot one has, or what we had taken over from it, gets new ones.

        Raises:
            ConflictError: An interrupt is active in one of them.
            OvertakenError: The hot one is there no longer. Nothing has changed here.
        """
        copies, model = self._copies, self._copies.model
        assert copies.durable is not None  # noqa: S101
        # A rollback may have brought back what had ended or was deleted.
        if hot is not None and (copies.hot is None or hot.head.since != durable.head.since):
            hot = None
        if hot is None and copies.hot is not None:
            copies.hot.forget()  # it may have more than we took over: the next save there looks first
        with copies.lock:
            apart, doubtful = model.apart(), model.doubtful(durable)
        ours = {slot.identity for slot in apart.known if slot.order > 0}
        if hot is not None and copies.hot is not None:
            awaited = parse_runs(hot.head.pending, record="head")
            found = copies.hot.read_log(awaited, since=hot.head.since)
            if len(found) < len(awaited):
                self._check_is_there(copies.hot, hot)
            apart = apart.beside(hot, found)
        copies.carries = True
        loose = [slot.seq for slot in (*apart.loose.values(), *doubtful) if slot.seq]
        numbers = [copies.last_flush.frontier, *model.pending, *loose]
        flushed = copies.last_flush.writers
        if hot is not None and not (flushed and hot.covers(flushed)):
            # It was rolled back, and may have been gone on with under new numbers: its messages can be anywhere in the log.
            numbers.append(durable.head.first)
        log = copies.durable.log.history(first=min(numbers), committed=copies.durable.committed)
        there = {slot.identity: slot for slot in log}
        with copies.lock:
            next_, version, epoch = max(durable.head.next, model.head.next), max(durable.version, model.version), model.epoch
            if hot is not None:
                next_, version, epoch = max(next_, hot.head.next), max(version, hot.version), max(epoch, hot.epoch)
                epoch += hot.state == CLOSING and hot.epoch == epoch
            lacking = in_turns([apart.loose[key] for key in apart.loose.keys() - there.keys() - ours])
            carried = Carried.onto(durable, lacking, of=apart, log=there.values(), first=min(numbers))
            forgotten = max(durable.head.forgotten, apart.head.forgotten if apart.seen else 0)
            base = replace(durable, version=version, head=replace(durable.head, next=next_, forgotten=forgotten))
            model.rebase(base, carried=carried, logged=there)
            model.let_go(held=(), writers=copies.last_flush.writers)  # what its head awaits may be lost, or with its author
            model.close_torn_turns()
            model.epoch, model.touched = max(model.epoch, epoch), True
            copies.confirmed = None
        logger.warning("carried=<%d> | the tiers had gone apart, they were joined", len(lacking))
