"""Outbox: what a process has said and no store has confirmed, and the tag under which it says it. No I/O."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from strands_manga_memory.session.author.history import draft_of
from strands_manga_memory.session.author.offer import Offer
from strands_manga_memory.session.author.places import Draft
from strands_manga_memory.session.core.identity import Name, OpenSegment, Segment, Stamp
from strands_manga_memory.session.core.merge import Copy
from strands_manga_memory.session.core.records import Message
from strands_manga_memory.session.core.vector import Entry, Vector

_NOTHING = Entry(0, 0)


class Outbox:
    """What one writer has said, from the draft to the confirmation; ``tag`` makes its tags. Not thread-safe.

    Attributes:
        writer: The tag under which its messages get their names.
        drafts: What was said and no store was offered for good, in order.
        told: What the writer has told with its last accepted offer.
        stored: What of that a store has confirmed.
        kept: The number of the last message that is stored for good.
    """

    __slots__ = ("_first", "_segment", "_tag", "_turns", "drafts", "kept", "stored", "told", "writer")

    def __init__(self, tag: Callable[[], str], drafts: Sequence[Draft] = ()) -> None:
        self._tag = tag
        self.drafts = list(drafts)
        self._turns = 0
        self.renew()

    def renew(self) -> None:
        """Go on as another writer."""
        self.writer = self._tag()
        self.told = self.stored = _NOTHING
        self.kept = self._first = 0
        self._segment: OpenSegment | None = None

    def count(self, *, turns: int) -> None:
        """Count turns that have no messages."""
        self._turns += turns

    def discard(self) -> None:
        """Say nothing of what was not stored, and go on as another writer."""
        self.drafts, self._turns = [], 0
        self.renew()

    def offer(self, base: Copy) -> Offer:
        """Begin an offer with what was said; ``base`` is what the process has."""
        if self._has_left(base.vector):
            self.renew()
        return self.settled(base).say(self.drafts, turns=self._turns)

    def _has_left(self, vector: Vector) -> bool:
        """Tell whether what is said next needs another writer: this one has left a vector, or is counted in it."""
        if self.writer not in vector.last:
            return 0 < self.told.clock <= vector.floor
        goes_on = not self.drafts[0].begins if self.drafts else self.told.opened > 0
        return 0 < self.told.clock <= vector.counted and self.told.number == self.stored.number and not goes_on

    def accept(self, offer: Offer) -> dict[Name, bytes]:
        """Take note that a store has an offer, or may have it; return what was revised while it was on its way."""
        named = {offer.names[draft.name]: draft.record for draft in self.drafts if draft.name in offer.names}
        self.drafts = [draft for draft in self.drafts if draft.name not in offer.names]
        if offer.writer == self.writer and offer.entry > self.told:  # else it was accepted already
            self.told, self._first, self._segment = offer.entry, offer.first, offer.segment
            self._turns -= offer.turns
        return {name: record for name, record in named.items() if record != offer.copy.messages[name].record}

    def confirm(self, offer: Offer, *, for_good: bool) -> None:
        """Take note that a store has an offer; ``for_good`` if that is the durable tier, or there is none."""
        if offer.writer == self.writer:
            self.stored = max(self.stored, offer.entry)
            self.kept = max(self.kept, offer.entry.number if for_good else 0)

    def settled(self, copy: Copy) -> Offer:
        """Return an offer of what was accepted already."""
        return Offer(copy, self.writer, self.told, first=self._first, segment=self._segment, tag=self._tag)

    def cut_segment(self) -> None:
        """Let what is said from now on go to another segment: a flush has begun."""
        self._segment = None

    def join(self, segment: Segment | None) -> None:
        """Let what is said first go to a segment that others have begun and nobody has stored, if there is one."""
        self._segment = None if segment is None else OpenSegment(segment, self.told.number + 1)

    @property
    def turns(self) -> int:
        """So many turns were begun and no store was offered."""
        return self._turns + sum(draft.begins for draft in self.drafts)

    def oldest(self, copy: Copy) -> float:
        """Return when the first of what no store has was said, in seconds since 1970; infinite if there is nothing."""
        return min([*(one.at for one in self.unstored_of(copy)), *(one.at for one in self.drafts)], default=math.inf)

    @property
    def turn(self) -> Stamp:
        """The key of the turn that was told last."""
        return Stamp(self.told.clock, self.writer)

    @property
    def rest(self) -> int:
        """So many drafts belong to the turn that was told last; what is behind them begins another one."""
        return next((at for at, draft in enumerate(self.drafts) if draft.begins), len(self.drafts))

    @property
    def unstored(self) -> int:
        """So many messages no store has confirmed."""
        return len(self.drafts) + self.told.number - self.stored.number

    def again(self, said: Sequence[Message]) -> list[Draft]:
        """Return what was said as drafts, with those that no store was offered behind it."""
        return [*(draft_of(message, said) for message in said), *self.drafts]

    def unstored_of(self, copy: Copy) -> list[Message]:
        """Return its messages that no store has confirmed."""
        return self._said(copy, after=self.stored.number)

    def unfinished_of(self, copy: Copy) -> list[Message]:
        """Return its turns that go on, or that are not stored for good from their beginning to their end."""
        turns = {message.turn for message in self._said(copy, after=self.kept)}
        turns |= {self.turn} if self.told.opened else set()
        return [message for message in self._said(copy, after=0) if message.turn in turns] if turns else []

    def _said(self, copy: Copy, *, after: int) -> list[Message]:
        names = (Name(self.writer, number) for number in range(after + 1, self.told.number + 1))
        return [copy.messages[name] for name in names if name in copy.messages]
