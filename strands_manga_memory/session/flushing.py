"""Flushing: bringing to the durable tier what it lacks, and setting right whatever keeps it from taking that."""

from __future__ import annotations

import dataclasses
from contextlib import suppress

from strands_manga_memory.exceptions import ConflictError
from strands_manga_memory.session.contention import OvertakenError, tries
from strands_manga_memory.session.copies import Copies
from strands_manga_memory.session.durable_tier import DurableTier
from strands_manga_memory.session.merging import Merger
from strands_manga_memory.session.records import Draft, Stored, ended, goes_on_from, outside
from strands_manga_memory.session.saving import Saver
from strands_manga_memory.session.window import Logged, parse_runs
from strands_manga_memory.stores.hot import DELETED, WriteStatus


class Flusher:
    """Flushes one conversation to its durable tier. Nobody asks it to where there is none."""

    def __init__(self, copies: Copies, merger: Merger, saver: Saver) -> None:
        self._copies = copies
        self._merger = merger
        self._saver = saver

    @property
    def _durable(self) -> DurableTier:
        durable = self._copies.durable
        assert durable is not None  # noqa: S101 - for the type checker
        return durable

    def flush(self) -> None:
        """Flush until the durable tier has everything; merge and try again while someone else was first.

        Raises:
            StoreUnavailableError: A tier does not answer.
            ContendedError: Others kept being first.
            ConflictError: What someone else stored cannot be merged, or is not to be.
        """
        with self._copies.durable_lock:
            self._flush_until_done()

    def flush_confirmed(self) -> bool:
        """Try to flush what the hot tier has confirmed; False if it takes more than that."""
        with self._copies.durable_lock:
            confirmed = self._copies.confirmed
            return confirmed is not None and self._store(confirmed) is None

    def delete_buried(self) -> None:
        """Delete what came late of the conversation that was deleted before this one."""
        head = self._copies.model.head
        if head.buried:
            self._durable.log.delete_buried(head.buried, below=head.first)

    def flush_as_stored(self, stored: Stored) -> None:
        """Flush what the hot tier has, just as it is.

        Raises:
            ConflictError: The durable tier's copy went another way.
        """
        copies, durable, hot = self._copies, self._copies.durable, self._copies.hot
        if hot is None or durable is None:
            return
        with copies.lock:
            copies.model.adopt(stored, pending=True)
            shown = {slot.seq: slot for slot in copies.model.slots if isinstance(slot, Logged)}  # one object for one message
            held = hot.read_log(sorted(copies.model.pending), since=stored.head.since)
            copies.model.recent = [shown.get(slot.seq, slot) for slot in held]
            draft = dataclasses.replace(copies.model.as_stored(), epoch=stored.epoch)
        there = durable.load()
        same = there is not None and (there.epoch, there.version) == (stored.epoch, stored.version)
        if there is not None and (there.epoch > stored.epoch or (there.includes(stored.made_by) and not same)):
            return
        if there is not None and there.state == DELETED:
            if any(seq < there.head.next for seq in copies.model.pending):  # whoever buried it deletes all below
                with copies.lock:
                    copies.model.resequence(garbage=(), beyond=there.head.next)
                draft = dataclasses.replace(copies.draft(), epoch=stored.epoch)
        elif there is not None and not stored.includes_all(there):
            self._merger.join(there, stored)
            draft = dataclasses.replace(copies.draft(), epoch=stored.epoch)
        status, _ = durable.write(draft, ahead=False)
        if status is not WriteStatus.OK:
            raise ConflictError("the durable tier's copy was changed by someone else meanwhile")

    def _flush_until_done(self) -> None:
        copies, durable = self._copies, self._durable
        durable.discard_disowned()
        if copies.model.deleted and not copies.is_dirty:
            return
        if durable.expect is None:
            durable.enlist(copies.base)
        collisions: set[int] = set()
        for _ in tries("the durable tier's copy"):
            if copies.is_blank or copies.is_flushed:  # deleted meanwhile, or never used: an empty conversation is not stored
                return
            hot_is_up = copies.hot_is_up
            if hot_is_up and copies.confirmed is None and copies.is_dirty:
                self._saver.save()
            # While the hot tier is up it decides what the next message's number is, so only what it confirmed is flushed.
            draft = copies.confirmed if hot_is_up and copies.confirmed else copies.unconfirmed()
            refused = self._store(draft)
            if refused is None:
                return
            with suppress(OvertakenError), copies.comparing():
                self._settle(refused, collisions)
            if copies.model.deleted:
                return

    def _store(self, draft: Draft) -> Draft | None:
        """Store ``draft`` in the durable tier; return what was refused, because something else than expected is there."""
        copies, durable = self._copies, self._durable
        durable.collision = None  # that of an earlier try says nothing about this one
        if durable.expect is None and any(isinstance(slot, Logged) and slot not in draft.pending for slot in draft.slots):
            return draft  # the tier had the conversation's log, and now it has not even its head
        self._fetch_pending(draft)
        with copies.lock:
            draft = self._completed(draft)
            revised = list(copies.model.revised)
        # What someone else has stored meanwhile may be an earlier revision, by whatever number.
        flushed = [slot for slot in draft.pending if slot.revision]
        ahead = copies.tiers.hot_survives and not copies.model.closing
        # Whoever commits one of them after this will have claimed it anew.
        garbage = durable.log.revisions([int(first) for first in draft.head.garbage.split(",") if first])
        with copies.sending(draft):
            status, head = durable.write(draft, ahead=ahead)
        if status is not WriteStatus.OK:
            return draft
        if revised or flushed:
            durable.log.rewrite([*revised, *flushed])
        is_committed = {first for first in garbage if any(first in run for run in durable.committed)}
        durable.log.discard({first: revision for first, revision in garbage.items() if first not in is_committed})
        copies.flushed(draft, head, ahead=ahead, revised=revised)
        return None

    def _fetch_pending(self, draft: Draft) -> None:
        """Read from the hot tier what other processes left there for the durable one."""
        copies = self._copies
        known = {slot.seq for slot in draft.pending} | {slot.seq for slot in copies.model.recent}
        wanted = [seq for seq in parse_runs(draft.head.pending, record="head") if seq not in known]
        if wanted and copies.hot is not None and copies.hot_is_up:
            found = copies.hot.read_log(wanted, since=draft.head.since)
            with copies.lock:
                copies.model.recent += found

    def _completed(self, draft: Draft) -> Draft:
        """Return ``draft`` with all messages that are still pending, also those it only has the numbers of, and no others."""
        model = self._copies.model
        lacking = {slot.seq: slot for slot in model.recent if slot.seq in model.pending}
        known = {slot.seq for slot in draft.pending}
        wanted = set(parse_runs(draft.head.pending, record="head"))
        added = (slot for seq, slot in sorted(lacking.items()) if seq in wanted and seq not in known)
        full = sorted((*draft.pending, *added), key=lambda slot: slot.seq)
        return dataclasses.replace(draft, pending=tuple(slot for slot in full if slot.seq in model.pending))

    def _settle(self, draft: Draft, collisions: set[int]) -> None:
        """After a refused flush: find out why, and make the next try succeed; ``collisions`` are those of the tries before."""
        copies, durable, model = self._copies, self._durable, self._copies.model
        collision, added, was_deleted = durable.collision, durable.added, model.deleted
        stored = durable.load()
        committed = durable.committed
        held = {slot.identity: slot.seq for slot in draft.pending}
        if collision is not None and self._is_known(stored, draft):
            if self._moved_on():
                return
            # Not merged afterwards: the hot tier's copy is ours, and would bring back the numbers and what had to be let go.
            self._give_way(collision, stored)
        else:
            self._compare(draft, stored)
            self._merger.reconcile_with_durable(stored)
            if collision is not None and collision in collisions & model.pending:
                self._give_way(collision, stored)  # somebody awaits what came along by that number
        if collision is not None:
            collisions.add(collision)
        with copies.lock:
            logged = [slot for slot in (*model.slots, *model.recent) if isinstance(slot, Logged)]
            renumbered = {held[slot.identity] for slot in logged if held.get(slot.identity, slot.seq) != slot.seq}
            awaiting = model.pending - renumbered
        # What was stored under a number that it lost since, twice, or for a conversation that was deleted, is garbage.
        # That it was deleted may have been found out in the hot tier while this flush was under way.
        is_all_lost = (model.deleted and not was_deleted) or draft.head.since != model.head.since
        committed = [*committed, *durable.committed]
        awaiting = set(outside(awaiting, committed))
        lost = [
            segment.first
            for segment in added
            if (is_all_lost or not awaiting.issuperset(range(segment.first, segment.last + 1)))
            and not durable.log.is_committed(segment, committed)
        ]
        # Until the durable tier says that it was deleted, someone who has claimed it may commit it.
        is_over = stored is not None and draft.head.since <= ended(stored.state, stored.head)
        durable.log.discard(durable.log.revisions(lost) if is_all_lost and is_over else durable.log.own_revisions(lost))
        durable.added = []
        if copies.hot_is_up and copies.is_dirty and not model.deleted:
            self._saver.save()

    @staticmethod
    def _is_known(stored: Stored | None, draft: Draft) -> bool:
        """Tell whether ``draft`` was made on top of ``stored``; on top of a tombstone, if it begins another life."""
        if stored is not None and stored.state == DELETED:
            return stored.epoch < draft.epoch
        return stored is None or goes_on_from(stored, writers=draft.writers, head=draft.head)

    def _moved_on(self) -> bool:
        """Take over what others have saved in the hot tier meanwhile; what is stored under our numbers may be just that."""
        stored, before = self._copies.read_hot(), dict(self._copies.model.writers)
        if stored is None or stored.is_part_of(before):
            return False
        self._merger.reconcile(stored)
        return self._copies.model.writers != before  # not so if it is a replica of what was deleted

    def _give_way(self, collision: int, stored: Stored | None) -> None:
        """Leave the numbers from ``collision`` on to what someone else has stored there."""
        copies, durable = self._copies, self._durable
        is_of_this_life = stored is not None and stored.head.since == copies.model.head.since
        if stored is not None and is_of_this_life and any(collision in run for run in durable.committed):
            self._merger.join(stored, copies.read_hot())
            return
        *_, beyond = durable.log.beyond(collision)
        if stored is not None and stored.state == DELETED:
            beyond = max(beyond, stored.head.next)
        with copies.lock:
            below = [seq for seq in copies.model.pending if seq < collision]
            lacking = copies.model.lacks(below)
        if lacking and copies.hot is not None:  # what gets another number has to be at hand
            found = copies.hot.read_log(lacking, since=copies.model.head.since)
            with copies.lock:
                copies.model.recent += found
        with copies.lock:
            copies.model.let_go(held=below, writers=copies.last_flush.writers)
            copies.carries = True
            if is_of_this_life:
                copies.model.pending = set(outside(copies.model.pending, durable.committed))
            copies.model.resequence(garbage=[collision], beyond=beyond, first=collision)

    def _compare(self, draft: Draft, stored: Stored | None) -> None:
        """Take note of it if the durable tier has lost everything, or has the draft already."""
        copies = self._copies
        if stored is None:
            *_, beyond = self._durable.log.beyond(1)
            with copies.lock:
                copies.carries = True
                copies.model.log_anew(beyond=beyond)
        elif stored.covers(draft.writers):
            with copies.lock:
                copies.model.flushed(draft, stored.head)
                copies.confirmed = None if copies.hot is None else copies.confirmed
