"""Offer: what a process has said and changed, under the names that it is to get once a store has it. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from strands_manga_memory.session.author.history import Draft
from strands_manga_memory.session.author.layers import Layers
from strands_manga_memory.session.core.identity import Name, OpenSegment, Segment, Stamp
from strands_manga_memory.session.core.merge import Copy
from strands_manga_memory.session.core.records import Body, Message
from strands_manga_memory.session.core.registers import Path, Register
from strands_manga_memory.session.core.vector import Entry, Vector
from strands_manga_memory.session.core.window import Slot, Window, without_redacted

MOST_IN_SEGMENT = 100
"""Messages of a segment, so that a restore need not read what its window does not show."""


@dataclass(frozen=True, kw_only=True)
class Offer:
    """A copy that a store is to have.

    Args:
        base: The copy that it was made of.
        copy: The copy; the very ``base`` if there is nothing new.
        writer: Whose it is.
        entry: What the writer has told with it.
        first: The number of the first message of its last turn.
        segment: Where its last message went; None if what it says next goes to another segment.
        names: The names of what was said.
        registers: What was changed of the states.
        turns: So many turns without messages are counted in it.
        moves: How often the history had moved.
        changes: How often anything had changed; 0 if nothing is offered but what was accepted before.
    """

    base: Copy
    copy: Copy
    writer: str
    entry: Entry
    first: int
    segment: OpenSegment | None
    names: Mapping[Draft, Name] = field(default_factory=dict)
    registers: Mapping[Path, Register] = field(default_factory=dict)
    turns: int = 0
    moves: int = 0
    changes: int = 0

    @property
    def has_window(self) -> bool:
        """Whether it has a window of its own."""
        return self.copy.window is not self.base.window


class Offering:
    """Makes an offer of what a writer says who has told ``last`` before, ``at`` seconds since 1970 (0: nothing was used)."""

    def __init__(
        self,
        base: Copy,
        writer: str,
        last: Entry,
        segment: OpenSegment | None,
        *,
        first: int,
        at: float,
        tag: Callable[[], str],
    ) -> None:
        self._base, self._writer, self._last, self._segment, self._at, self._tag = base, writer, last, segment, at, tag
        self._copy, self._clock = base, base.clock
        self._number, self._turn, self._first, self._turns = last.number, last.clock, first, last.turns
        self.names: dict[Draft, Name] = {}
        self._registers: dict[Path, Register] = {}
        self._counted = 0

    def say(self, drafts: Sequence[Draft], *, turns: int = 0) -> None:
        """Give drafts their names, and count turns that have none."""
        self._counted = turns
        if not drafts:
            return
        self._begin()
        messages = [self._named(draft) for draft in drafts]
        self._copy = replace(
            self._copy, clock=self._clock, messages={**self._copy.messages, **{one.name: one for one in messages}}
        )

    def _begin(self) -> None:
        if not self._copy.has_begun:
            self._copy = replace(self._copy, lives=frozenset({self._tag()}))

    def _named(self, draft: Draft) -> Message:
        if draft.begins or not self._number:
            self._turn = self._clock = self._clock + 1
            self._first = self._number + 1
            self._turns += draft.begins
        self._number += 1
        if self._segment is None or self._number - self._segment.first >= MOST_IN_SEGMENT:
            own = Segment(min(self._copy.lives), self._turn, self._writer, self._number)
            self._segment = OpenSegment(own, self._number)
        segment = self._segment.segment
        message = Message(segment, self._number, self._turn, draft.at, draft.record, about=draft.about, writer=self._writer)
        self.names[draft] = message.name
        return message

    def show(self, slots: Sequence[Slot], bodies: Mapping[str, Body], *, seen: Vector) -> None:
        """Write a window; ``seen`` is what the history was decided upon.

        What was said last is left out at its end: the view shows that anyway, in its place among what others said meanwhile.
        """
        self._begin()
        number = self._number
        while slots and number > self._last.number and slots[-1] == Name(self._writer, number):
            slots, number = slots[:-1], number - 1
        if number > self._last.number:  # what was said before the rest was decided upon, too
            slots = [*slots, *(Name(self._writer, one) for one in range(number + 1, self._number + 1))]
            number = self._number
        if number > self._last.number:
            seen = seen.including(self._writer, Entry(number, self._turn))
        stamp = self._stamp()
        reached = Vector({writer: Entry(*entry[:2]) for writer, entry in seen.last.items()}, seen.floor)
        window = without_redacted(Window(stamp, tuple(slots), reached, bodies), self._copy.redactions)
        self._copy = replace(self._copy, clock=stamp.clock, window=window)
        self._clock = stamp.clock

    def change(self, layers: Layers, *, with_window: bool) -> None:
        """Take what was changed of the states."""
        stamp = self._stamp()
        self._registers = layers.registers(self._copy.states, stamp, with_window=with_window)
        if self._registers:
            self._begin()
            self._copy = replace(self._copy, clock=stamp.clock, states={**self._copy.states, **self._registers})
            self._clock = stamp.clock

    def made(self, *, in_turn: bool, created: float, moves: int) -> Offer:
        """Return the offer; for the arguments see ``Author.offer``."""
        entry, last = self._entry(in_turn=in_turn), self._last
        is_new = self._copy is not self._base or entry.turns != last.turns or entry.opened != last.opened
        if is_new:
            self._begin()
            clock, vector = max(self._copy.clock, entry.clock), self._copy.vector.including(self._writer, entry)
            self._copy = replace(self._copy, clock=clock, created=self._copy.created or created, vector=vector)
        return Offer(
            base=self._base,
            copy=self._copy,
            writer=self._writer,
            entry=entry if is_new else last,
            first=self._first,
            segment=self._segment,
            names=self.names,
            registers=self._registers,
            turns=self._counted if is_new else 0,
            moves=moves,
        )

    def _entry(self, *, in_turn: bool) -> Entry:
        opened = self._first if in_turn and self._number else 0
        clock = self._turn or self._clock + 1  # an entry has a clock even if its writer has said nothing
        at = max(self._last.at, round(self._at, 3))
        return Entry(self._number, clock, self._last.saves + 1, self._turns + self._counted, at, opened)

    def _stamp(self) -> Stamp:
        return Stamp(self._clock + 1, self._writer)
