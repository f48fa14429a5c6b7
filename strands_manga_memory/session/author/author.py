"""Author: one process's copy of a conversation: what its agent says and changes, and what it takes in from others. No I/O."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from strands_manga_memory.session.author.history import History, begun_after
from strands_manga_memory.session.author.layers import Layers
from strands_manga_memory.session.author.offer import Offer
from strands_manga_memory.session.author.outbox import Outbox
from strands_manga_memory.session.author.places import Draft, each_part, held_of, place_of, places_of, revision_of
from strands_manga_memory.session.author.showing import Piece, closed, shown_messages
from strands_manga_memory.session.core.identity import Name, Stamp, is_end_by_age, new_tag
from strands_manga_memory.session.core.merge import EMPTY, Copy, is_logged, merge, with_messages
from strands_manga_memory.session.core.records import Message, has_id, in_order, name_of
from strands_manga_memory.session.core.vector import MOST_KNOWN, MOST_WRITERS, NOTHING, Entry, Vector
from strands_manga_memory.session.core.window import Window, slots_of
from strands_manga_memory.stores.encoding.codec import dump, load

MOST_OPEN = 32
"""Open turns of other writers that may go on, however many others speak meanwhile; older ones are closed."""


class Author:
    """A process's hold on a conversation. Not thread-safe: whoever has it holds a lock.

    What its agent says and changes is kept apart until a store is offered it; ``tag`` makes random tags.

    Attributes:
        copy: What it knows; stores may have all of it.
        outbox: What was said and is not stored.
        history: What the live agent has in front of it.
        layers: What the live agent's states are.
        is_gone: Whether the life that the live agent shows is over, and it was not told.
        skips: Whether the rest of a turn is left out, as its beginning went with a life that was deleted.
        dropped: Messages that went with a deleted life before a store had them.
        moved: What was said in a life that ended by age, and is said again in the next one.
    """

    def __init__(self, *, tag: Callable[[], str] = new_tag) -> None:
        self._tag = tag
        self.is_gone = self.skips = self._is_flushed = False
        self.dropped, self.moved = 0, list[Message]()
        self._begin_life(EMPTY)

    def _begin_life(self, copy: Copy, drafts: Sequence[Draft] = ()) -> None:
        """Begin with what others have of a life, and with what is still to be said in it."""
        self.copy = copy
        self.outbox = Outbox(self._tag, drafts)
        self.history, self.layers = History([place_of({}, draft.name) for draft in drafts]), Layers()
        self._seen, self._moves = NOTHING, 0
        self._based_on: Stamp | None = None

    # What the agent says and changes

    def say(self, message: Mapping[str, Any], *, at: float, begins: bool, about: str = "") -> None:
        """Take a message of the live agent; for the arguments see :class:`Draft`."""
        self.skips = self.skips and not begins
        if self.skips:
            self.dropped += 1
            return
        draft = Draft(at, dump(message), begins, about)
        self.outbox.drafts.append(draft)
        self.history.places.append(place_of(message, draft.name))

    def capture(self, messages: Sequence[Mapping[str, Any]]) -> None:
        """Take the live agent's history as it is now; nothing, if it is that of a life that is over."""
        if not self.is_gone:
            self.history.capture(messages)

    def keep(self, layer: str, value: Mapping[str, Any], *, depth: int = 1) -> None:
        """Take a layer of state; nothing, if it is that of a life that is over. See :meth:`Layers.keep`."""
        if not self.is_gone:
            self.layers.keep(layer, value, self.copy.states, depth=depth)

    def layer(self, name: str) -> dict[str, Any]:
        """Return a layer of state, with what others have changed; raise ``CorruptRecordError`` if it cannot be read."""
        return self.layers.value(name, self.copy.states)

    def knows(self, tracking_id: str, *, after: int = 0) -> int:
        """Return how many messages of the history have this id; without a history, of those said after number ``after``."""
        if self.history.places:
            return self.history.count(tracking_id)
        mine = (one for one in self.copy.messages.values() if one.name.writer == self.outbox.writer and one.number > after)
        said = [*(one.has_id(tracking_id) for one in mine), *(has_id(one.record, tracking_id) for one in self.outbox.drafts)]
        return sum(said)

    @property
    def has_changed(self) -> bool:
        """Whether something was said, or the history changed otherwise, that no store was offered."""
        return bool(self.outbox.drafts) or self.history.moves != self._moves

    def redact(self, name: Name, message: Mapping[str, Any]) -> bool:
        """Put another content in place of a message that is at hand; False if it is not."""
        found = self.copy.messages.get(name)
        if found is None:
            return False
        revision = found.revision + 1
        revised = {name: replace(found, kept=dump(message), revision=revision)}
        self.copy = merge(self.copy, replace(self.copy, messages=revised, redactions={name: revision}))
        self.history.revised(name, message, revision)
        return True

    def revise(self, message: Mapping[str, Any], *, every: bool = False) -> bool:
        """Put a message in place of the latest one that has its ``tracking_id``, or of every one; False if none is at hand."""
        same = message.get("tracking_id") or ""
        messages = in_order(self.copy.messages.values())
        found: list[Name | Draft] = [one.name for one in messages if one.has_id(same)]
        found += [draft for draft in self.outbox.drafts if has_id(draft.record, same)]
        for one in found if every else found[-1:]:
            if isinstance(one, Draft):
                one.record = dump(message)
                self.history.revised(one.name, message)
            else:
                self.redact(one, message)
        return bool(found)

    # What stores are offered

    def offer(self, *, at: float, in_turn: bool = False, created: float = 0.0) -> Offer:
        """Return what was said and changed since, under the names that it is to get. Nothing changes until it is accepted.

        Args:
            at: When it was used, in seconds since 1970; 0 if it was not.
            in_turn: Whether the agent is in the middle of a turn.
            created: When the conversation began, if it begins with this; default: when it was used.
        """
        offer = self.outbox.offer(self.copy)
        # Below a higher floor others may have said what the agent has not seen: their window stands, and the agent gets that.
        has_moved = self.history.moves != self._moves and self._seen.floor >= self.copy.vector.floor
        if has_moved:
            offer.show(*self.history.slots(offer.names), seen=self._seen)
        offer.change(self.layers, with_window=has_moved or self._window_stamp == self._based_on)
        return offer.made(at=at, in_turn=in_turn, created=created or at, moves=self.history.moves)

    def accept(self, offer: Offer) -> None:
        """Take an offer for what this process has: a store has it, or may have it."""
        if offer.copy is offer.base or offer.copy.graves != self.copy.graves:
            return
        self.copy = offer.copy if self.copy is offer.base else merge(self.copy, offer.copy)
        self.history.renamed(offer.names)
        self.layers.offered(offer.registers)
        if offer.copy.window is not offer.base.window:
            self._moves, self._based_on = offer.moves, self._window_stamp
        if offer.names:
            self._seen = self._seen.including(offer.writer, offer.entry)
        for name, record in self.outbox.accept(offer).items():
            self.redact(name, load(record))

    @property
    def _window_stamp(self) -> Stamp | None:
        return None if self.copy.window is None else self.copy.window.stamp

    def note_logged(self, numbers: Mapping[str, int]) -> None:
        """Take note of what is in the log: the number, by writer, of the last message."""
        vector = self.copy.vector.with_logged(numbers)
        if vector is not self.copy.vector:
            self.copy = replace(self.copy, vector=vector)

    def compact(self) -> int:
        """Count writers together that have been silent for long; return the floor to which others may leave the vector."""
        vector = self.copy.vector
        if sum(entry.clock > vector.counted for entry in vector.last.values()) > MOST_WRITERS:
            self.copy = replace(self.copy, vector=vector.compacted(to=MOST_WRITERS // 2))
        return self._shorter.floor

    @property
    def _shorter(self) -> Vector:
        vector = self.copy.vector
        if vector.above <= MOST_KNOWN:
            return vector
        keep = {self.outbox.writer, *(turn.writer for turn in sorted(self._open_turns)[-MOST_OPEN:])}
        return vector.shortened(self._seen, keep=keep, to=MOST_KNOWN * 3 // 4)

    def shorten(self, unlisted: Iterable[Message] = ()) -> None:
        """Let the longest silent writers leave the vector if it names too many, and the agent has seen their messages.

        What is shown of them stands in a window from then on, with the notes that close what they left open.

        Args:
            unlisted: Messages of the log below the floor that is to be: a flush that ended early left some in no head.
        """
        self._include(unlisted)
        vector, shorter = self.copy.vector, self._shorter
        if shorter is vector:
            return
        is_mine, stamp = self._window_stamp == self._based_on, Stamp(self.copy.clock + 1, self.outbox.writer)
        leaving = {turn: first for turn, first in self._open_turns.items() if turn.writer not in shorter.last}
        slots, bodies = slots_of(closed(self.copy.view, leaving) if leaving else self.copy.view)
        self.history.close({load(body.record)["tracking_id"]: body for body in bodies.values() if body.closes in leaving})
        seen = {writer: entry for writer, entry in self._seen.last.items() if writer in shorter.last}
        self._seen = Vector(seen, shorter.floor)
        self.copy = replace(self.copy, vector=shorter, clock=stamp.clock, window=Window(stamp, slots, shorter, bodies))
        self._based_on = stamp if is_mine else self._based_on

    def _include(self, messages: Iterable[Message]) -> None:
        vector = self.copy.vector
        new = [message for message in in_order(messages) if not vector.includes(message.name, message.clock)]
        for message in new:
            entry = vector.last.get(message.writer, Entry(0, 0))
            opened = entry.opened if entry.clock == message.clock else message.number  # its end may be nowhere
            later = Entry(message.number, message.clock, entry.saves, opened=opened, logged=message.number, left=entry.left)
            vector = vector.including(message.writer, later)
        if new:
            self.copy = with_messages(replace(self.copy, vector=vector), new)

    # What others have

    def absorb(self, other: Copy) -> None:
        """Take in a copy that a store has.

        If it knows of a grave that this one does not, the life is over: what was said in it is dropped if it was deleted; if it
        ended by age, turns that go on, or are not kept for good, go on whole in the next one.
        """
        before, joined = self.copy, merge(self.copy, other)
        if before.graves >= joined.graves:
            self.copy = joined
            self._come_back(before, other)
            return
        ended_by_age = all(map(is_end_by_age, joined.graves - before.graves))
        said = self.outbox.unfinished_of(before) if ended_by_age else self.outbox.unstored_of(before)
        drafts = self.outbox.again(said)
        self.is_gone = self.is_gone or bool(self.history.places) or before.has_begun
        self._begin_life(joined, drafts if ended_by_age else ())
        self.moved += said if ended_by_age else ()
        if not ended_by_age:
            self.dropped, self.skips = self.dropped + len(drafts), True

    def let_go(self, *, since: float, was_stored: bool) -> None:
        """Forget the life, as it is in no store and nothing says that it was not deleted.

        Args:
            since: Turns begun later (seconds since 1970), of which no store has had anything, stay: there is no grave of them.
            was_stored: Whether a store has had the life; else what it was offered stays, too.
        """
        said = self.outbox.unstored_of(self.copy)
        drafts = self.outbox.again(said)
        kept = begun_after(since, drafts[len(said) + self.outbox.rest if was_stored else 0 :])
        self.skips = drafts[-1:] != kept[-1:] or not drafts
        self.dropped += len(drafts) - len(kept)
        self.is_gone = True
        self._begin_life(Copy(clock=self.copy.clock), kept)

    def forget_graves(self, known: frozenset[str]) -> None:
        """Forget graves that no store has any more, of a life that no store ever had."""
        self.copy = replace(self.copy, graves=self.copy.graves & known)

    def _come_back(self, before: Copy, other: Copy) -> None:
        """Stay in the vector with what no store has, if this writer has left another copy's with what the log has of it."""
        outbox, vector, floor = self.outbox, self.copy.vector, other.vector.floor
        entry, stored = vector.last.get(outbox.writer), outbox.stored
        if entry is None or outbox.writer in other.vector.last or before.vector.floor >= floor:
            return
        if 0 < stored.clock <= floor and entry.logged >= stored.number and entry.number > stored.number:
            self.copy = replace(self.copy, vector=vector.including(outbox.writer, entry._replace(left=stored.number)))

    def become_another(self) -> None:
        """Go on as another writer, and leave what no store has to the one who said it: the history shows it as one's own."""
        outbox = self.outbox
        unstored = {message.name for message in outbox.unstored_of(self.copy)}
        if unstored or outbox.drafts:
            self.history.release(unstored)
            messages = {name: message for name, message in self.copy.messages.items() if name not in unstored}
            last = {writer: entry for writer, entry in self.copy.vector.last.items() if writer != outbox.writer}
            if outbox.stored.clock > self.copy.vector.floor:
                known = self.copy.vector.last.get(outbox.writer, outbox.stored)
                last[outbox.writer] = outbox.stored._replace(logged=min(known.logged, outbox.stored.number))
            self.copy = replace(self.copy, messages=messages, vector=replace(self.copy.vector, last=last))
        outbox.discard()

    # What the agent gets

    @property
    def is_stale(self) -> bool:
        """Whether the live agent's history is other than the view."""
        if self.is_gone or self.history.known != [(held_of(one), revision_of(one)) for one in self.copy.view]:
            return True
        if not (self._open_turns or self.history.notes):
            return False
        notes = [piece for piece in self._pieces()[0] if not piece.shown]
        return self.history.notes != [place.print for place in places_of(notes)]

    @property
    def _open_turns(self) -> dict[Stamp, int]:
        entries, mine = self.copy.vector.last.items(), self.outbox.writer
        return {Stamp(one.clock, writer): one.opened for writer, one in entries if one.opened and writer != mine}

    def _pieces(self) -> tuple[list[Piece], dict[Name, Name]]:
        """Return the view with what was said where it comes once a store has it, and drafts by the names they are to get."""
        if not self.outbox.drafts:
            return shown_messages(self.copy.view, self._open_turns), {}
        offer = self.outbox.offer(self.copy).made()
        return shown_messages(offer.copy.view, self._open_turns), {name: draft for draft, name in offer.names.items()}

    def take_over(self) -> list[dict[str, Any]]:
        """Return the history that the agent is to go on with, and take it for what it has."""
        pieces, drafts = self._pieces()
        # Of a turn that was evicted while it went on the view shows less than all that no window was decided upon.
        evicts = not self.copy.needed <= {name_of(shown) for shown in self.copy.view}
        self.history = History(places_of(pieces), moves=self._moves + evicts)
        self.history.renamed(drafts)
        self._seen, self._based_on = self.copy.vector, self._window_stamp
        self.is_gone = False
        self.layers.give(self.copy.states)
        return [piece.message for piece in pieces]

    def forget(self, durable: Copy, keep: Collection[Name] = ()) -> None:
        """Drop messages that the durable replica has and the view does not show, but for those to ``keep``.

        Of those that it has and the agent too, what both have is kept once, unless this is the agent's first flush: many
        live for one message.
        """
        turn = self.outbox.turn  # which may be redacted, or go on
        shown = {part.held: part.message for part in each_part(self.history.places) if isinstance(part.held, Name)}
        kept = self.copy.needed | shown.keys() | set(keep)
        messages = {
            name: message
            for name, message in self.copy.messages.items()
            if name in kept or message.turn == turn or not is_logged(message, self.copy, durable)
        }
        if len(messages) < len(self.copy.messages):
            self.copy = replace(self.copy, messages=messages)
        shares, self._is_flushed = self._is_flushed, True
        for name in (shown.keys() & messages.keys()).difference(keep) if shares else ():
            if durable.has(messages[name]):
                messages[name].share(shown[name])
