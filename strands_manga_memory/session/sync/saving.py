"""Saving: what a process says and changes goes to the replicas of its conversation."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from contextlib import nullcontext, suppress

from strands_manga_memory.exceptions import StoreUnavailableError
from strands_manga_memory.session.author.offer import Offer
from strands_manga_memory.session.core.merge import Copy
from strands_manga_memory.session.core.records import Message
from strands_manga_memory.session.core.vector import Entry
from strands_manga_memory.session.replicas.durable import MOST_CARRIED, DurableReplica
from strands_manga_memory.session.replicas.hot import HotReplica
from strands_manga_memory.session.sync.ending import clear_what_is_over
from strands_manga_memory.session.sync.pair import Pair, Replica
from strands_manga_memory.telemetry import FLUSH, note


class Saving:
    """Saves and flushes a conversation. Thread-safe: a save and a flush of what was saved may go on side by side.

    Args:
        pair: Its replicas.
        flush_every: Turns between flushes. With a durable tier alone the head carries so many turns before they move to a
            segment.

    Attributes:
        is_turn_to_flush: Whether a save of this process began a new period of ``flush_every`` turns, counted over all writers,
            or the conversation was restored with so many turns that the durable tier lacks. The start of a flush resets it.
    """

    __slots__ = ("_flush_every", "_offering", "_pair", "_period", "is_turn_to_flush")

    def __init__(self, pair: Pair, *, flush_every: int) -> None:
        self._pair, self._flush_every = pair, flush_every
        self._offering = threading.RLock()
        self._period: int | None = None
        self.is_turn_to_flush = False

    @property
    def others_are_ahead(self) -> bool:
        """Whether other writers saved something that the durable tier did not have when it last answered."""
        pair = self._pair
        known = {} if pair.durable is None else pair.durable.copy.vector.last
        with pair.lock:
            last, mine = pair.author.copy.vector.last, pair.author.outbox.writer
            return any(writer != mine and _is_ahead(entry, known.get(writer)) for writer, entry in last.items())

    @property
    def unflushed_turns(self) -> int:
        """Turns that the durable tier did not have when it last answered."""
        pair = self._pair
        known = 0 if pair.durable is None else pair.durable.copy.vector.tally.turns
        return pair.copy.vector.tally.turns - known

    def save(self) -> None:
        """Store what was said and changed: in the hot replica, or in the durable one if there is no other.

        After ``StoreUnavailableError`` everything is kept for the next save.
        """
        self._pair.wake()
        hot, durable = self._pair.hot, self._pair.durable
        if hot is not None:
            self._until_written(hot, lambda: self._save_once(hot))
        elif durable is not None:
            self._put(durable, inline=True)

    def flush(self, *, offers: bool = True) -> None:
        """Store everything in the durable replica, as :meth:`save` does. Without a durable tier it is a save.

        Unless it ``offers``, only what the hot replica was offered, and has answered for.
        """
        durable = self._pair.durable
        if durable is None:
            self.save()
        else:
            self._pair.wake()
            self._put(durable, inline=False, offers=offers)

    def _until_written(self, replica: Replica, attempt: Callable[[], bool], *, offers: bool = True) -> None:
        with self._offering if offers else nullcontext():
            self._pair.until_written(replica, attempt, look=lambda: self._look(replica))

    def _look(self, replica: Replica) -> None:
        self._pair.look(replica)
        with suppress(StoreUnavailableError):  # a view with placeholders is stored as well as one without
            self._pair.complete()

    def _save_once(self, hot: HotReplica) -> bool:
        pair = self._pair
        if hot is pair.last:
            with pair.lock:
                pair.author.compact()
                pair.author.shorten()
        period = self._begin_period(hot)
        offer = self._offered()
        if not self._tried(offer, lambda: hot.write(offer.copy)):
            return False
        pair.confirm(offer, hot)
        # A save is a compare-and-set, so one of several writers begins a period.
        self.is_turn_to_flush |= self._period_of(offer.copy) > period
        if hot is pair.last:
            with pair.lock:
                pair.author.forget(hot.copy)
        return True

    def _begin_period(self, hot: HotReplica) -> int:
        """Return the period of the turns in the hot replica; a flush follows the first turn of each period.

        When others may have flushed since the last save, this process's next message begins another segment, as a flush puts a
        new segment with one request and changes an existing one with three.
        """
        period = self._period_of(hot.copy)
        if self._period not in (None, period) and self.others_are_ahead:
            with self._pair.lock:
                self._pair.author.outbox.cut_segment()
        self._period = period
        return period

    def _period_of(self, copy: Copy) -> int:
        return (copy.vector.tally.turns - 1) // self._flush_every

    def _tried(self, offer: Offer, write: Callable[[], bool]) -> bool:
        """Write; what may have been stored without an answer counts as stored."""
        try:
            return write()
        except BaseException:
            self._accept(offer)
            raise

    def _accept(self, offer: Offer) -> None:
        with self._pair.lock:
            self._pair.author.accept(offer)

    def _put(self, durable: DurableReplica, *, inline: bool, offers: bool = True) -> None:
        is_current = not durable.is_known  # else what it lacks is read first, below

        def put() -> bool:
            nonlocal is_current
            if not is_current and self.others_are_ahead:  # and may have flushed
                self._look(durable)
            is_current = True
            self._make_room(durable, inline=inline)
            offer = self._offered() if offers else self._answered()
            is_done = self._put_once(durable, offer, inline=inline)
            if is_done:
                clear_what_is_over(self._pair)
            return is_done

        self._until_written(durable, put, offers=offers)

    def _make_room(self, durable: DurableReplica, *, inline: bool) -> None:
        """Move what the head has carried along to its segments, when it is much, or when everything is to go there."""
        carried, author = durable.carried(self._pair.copy), self._pair.author
        if inline and len({message.turn for message in carried}) < self._flush_every:
            return
        durable.store(carried)
        with self._pair.lock:
            author.outbox.cut_segment()
            copy, floor = author.copy, author.compact()
        if floor > copy.vector.floor:
            unlisted = durable.segments.between(copy.lives, copy.vector.floor, floor)
            with self._pair.lock:
                author.shorten(unlisted)

    def _offered(self) -> Offer:
        with self._pair.lock:
            return self._pair.own.offer()

    def _answered(self) -> Offer:
        """Return what the hot replica has answered for."""
        pair, author = self._pair, self._pair.author
        with pair.io[pair.first], pair.lock:
            author.outbox.cut_segment()
            return author.outbox.settled(author.copy)

    def _put_once(self, durable: DurableReplica, offer: Offer, *, inline: bool) -> bool:
        durable.enter(offer.copy)
        new = durable.pending(offer.copy)
        pending = {message.name: message for message in [*durable.carried(offer.copy), *new]}.values()
        is_carried = inline and self._fits(pending)
        if not is_carried or self._pair.hot is not None:
            self._accept(offer)  # else the head is the one thing that is written, and may refuse it
        if not is_carried:
            with self._pair.lock:
                self._pair.author.outbox.cut_segment()
            self._pair.put |= {message.name for message in new}
            durable.store(pending)
        if not self._tried(offer, lambda: durable.write(offer.copy, carried=new if is_carried else ())):
            return False
        self._pair.confirm(offer, durable)
        if new:
            note(FLUSH, max(0.0, self._pair.own.clock() - min(message.at for message in new)))
        graves = durable.graves_behind_the_first_head()
        if not graves <= offer.copy.graves:
            self._pair.absorb(Copy(graves=graves))
            return False  # it is over; the head has to say so
        with self._pair.lock:
            self._pair.author.forget(durable.copy, keep=[message.name for message in durable.carried(offer.copy)])
        return True

    def _fits(self, messages: Collection[Message]) -> bool:
        turns = {message.turn for message in messages}
        return len(turns) <= self._flush_every and sum(len(one.record) for one in messages) <= MOST_CARRIED


def _is_ahead(entry: Entry, known: Entry | None) -> bool:
    return not entry.is_logged if known is None else (entry.number, entry.saves) != (known.number, known.saves)
