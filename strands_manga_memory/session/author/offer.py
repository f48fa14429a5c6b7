"""Offer: what a process has said and changed, under the names that it is to get once a store has it. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from strands_manga_memory.session.author.layers import Layers
from strands_manga_memory.session.author.places import Draft
from strands_manga_memory.session.core.identity import Name, OpenSegment, Segment, Stamp
from strands_manga_memory.session.core.merge import Copy
from strands_manga_memory.session.core.records import Body, Message
from strands_manga_memory.session.core.registers import Path, Register
from strands_manga_memory.session.core.vector import Entry, Vector
from strands_manga_memory.session.core.window import Slot, Window, without_redacted

MOST_IN_SEGMENT = 100
"""Messages of a segment, so that a restore need not read what its window does not show."""


class Offer:
    """A copy that a store is to have. Made step by step, in the order of its methods; a value from then on.

    Args:
        base: The copy that it is made of.
        writer: Whose it is.
        told: What the writer has told before.
        first: The number of the first message of the turn told last.
        segment: Where the message told last went; None if what is said next goes to another segment.
        tag: Makes random tags.

    Attributes:
        copy: The copy; the very ``base`` if there is nothing new.
        entry: What the writer has told with it.
        names: The names of what was said, by those of the drafts.
        registers: What was changed of the states.
        turns: So many turns without messages are counted in it.
        moves: How often the history had moved.
        changes: How often anything had changed; 0 if nothing is offered but what was accepted before.
    """

    def __init__(
        self, base: Copy, writer: str, told: Entry, *, first: int, segment: OpenSegment | None, tag: Callable[[], str]
    ) -> None:
        self.base, self.writer, self.first, self.segment = base, writer, first, segment
        self._told, self._tag, self._clock = told, tag, base.clock
        self.copy, self.entry = base, told
        self.names: dict[Name, Name] = {}
        self.registers: Mapping[Path, Register] = {}
        self.turns = self.moves = self.changes = 0

    def say(self, drafts: Sequence[Draft], *, turns: int) -> Offer:
        """Give drafts their names, and count turns that have none."""
        self.turns = turns
        if drafts:
            self._begin()
            messages = {message.name: message for message in map(self._named, drafts)}
            self.copy = replace(self.copy, clock=self._clock, messages={**self.copy.messages, **messages})
        return self

    def _begin(self) -> None:
        if not self.copy.has_begun:
            self.copy = replace(self.copy, lives=frozenset({self._tag()}))

    def _named(self, draft: Draft) -> Message:
        last, number = self.entry, self.entry.number + 1
        if draft.begins or not last.number:
            self._clock, self.first = self._clock + 1, number
            last = last._replace(clock=self._clock, turns=last.turns + draft.begins)
        self.entry = last._replace(number=number)
        if self.segment is None or number - self.segment.first >= MOST_IN_SEGMENT:
            self.segment = OpenSegment(Segment(min(self.copy.lives), last.clock, self.writer, number), number)
        segment = self.segment.segment
        name = self.names[draft.name] = Name(self.writer, number)
        return Message(segment, name, last.clock, draft.at, draft.record, about=draft.about)

    def show(self, slots: Sequence[Slot], bodies: Mapping[str, Body], *, seen: Vector) -> None:
        """Write a window; ``seen`` is what the history was decided upon.

        What was said last is left out at its end: the view shows that anyway, in its place among what others said meanwhile.
        """
        self._begin()
        number = self.entry.number
        while slots and number > self._told.number and slots[-1] == Name(self.writer, number):
            slots, number = slots[:-1], number - 1
        if number > self._told.number:  # what was said before the rest was decided upon, too
            slots = [*slots, *(Name(self.writer, one) for one in range(number + 1, self.entry.number + 1))]
            number = self.entry.number
        if number > self._told.number:
            seen = seen.including(self.writer, Entry(number, self.entry.clock))
        stamp = self._stamp()
        reached = Vector({writer: Entry(*entry[:2]) for writer, entry in seen.last.items()}, seen.floor)
        window = without_redacted(Window(stamp, tuple(slots), reached, bodies), self.copy.redactions)
        self.copy = replace(self.copy, clock=stamp.clock, window=window)
        self._clock = stamp.clock

    def change(self, layers: Layers, *, with_window: bool) -> None:
        """Take what was changed of the states."""
        stamp = self._stamp()
        self.registers = layers.registers(self.copy.states, stamp, with_window=with_window)
        if self.registers:
            self._begin()
            self.copy = replace(self.copy, clock=stamp.clock, states={**self.copy.states, **self.registers})
            self._clock = stamp.clock

    def made(self, *, at: float = 0.0, in_turn: bool = False, created: float = 0.0, moves: int = 0) -> Offer:
        """Tell what goes with what is new, and return it; for the arguments see ``Author.offer``."""
        told, entry, self.moves = self._told, self.entry, moves
        opened = self.first if in_turn and entry.number else 0
        if self.copy is self.base and not self.turns and opened == told.opened:
            return self
        self._begin()
        clock = entry.clock or self._clock + 1  # an entry has a clock even if its writer has said nothing
        at = max(told.at, round(at, 3))
        self.entry = Entry(entry.number, clock, told.saves + 1, entry.turns + self.turns, at, opened)
        clock, vector = max(self.copy.clock, clock), self.copy.vector.including(self.writer, self.entry)
        self.copy = replace(self.copy, clock=clock, created=self.copy.created or created, vector=vector)
        return self

    def _stamp(self) -> Stamp:
        return Stamp(self._clock + 1, self.writer)
