"""Vector: which messages a copy includes, by writer. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from strands_manga_memory.session.core.identity import Name

MOST_WRITERS = 16
"""Writers that a vector describes in full before the longest silent ones are counted together."""

MOST_KNOWN = 64
"""Writers that a vector names before the longest silent ones leave it."""


MOST_LATE = 32
"""Writers below the floor whose turns were stored late, before the oldest of them leave."""


class Entry(NamedTuple):
    """What is included of a writer, and what it has told with that. Of two entries of a writer the greater is the later.

    Args:
        number: The number of its last message.
        clock: The clock of that message's turn.
        saves: How often it has told something.
        turns: How many turns it has begun; 0 once they are counted in ``Vector.below``.
        at: When it told this, in seconds since 1970; 0 once that is counted in ``Vector.below``.
        opened: The number of the first message of the turn that it is in the middle of; 0 if it is in none.
        logged: The number of its last message that is known to be in the log.
        left: The number of the last message with which it had left a vector before it came back.
    """

    number: int
    clock: int
    saves: int = 0
    turns: int = 0
    at: float = 0.0
    opened: int = 0
    logged: int = 0
    left: int = 0

    @property
    def is_logged(self) -> bool:
        """Whether all its messages are known to be in the log."""
        return self.logged >= self.number

    def joined(self, other: Entry) -> Entry:
        """Return the later of two entries of a writer, with what either knows of the log."""
        later, known = max(self, other), (max(self.logged, other.logged), max(self.left, other.left))
        return later if later[-2:] == known else later._replace(logged=known[0], left=known[1])


class Tally(NamedTuple):
    """What is counted: messages, turns, and when the last of them was saved, in seconds since 1970."""

    messages: int = 0
    turns: int = 0
    at: float = 0.0


_NONE = Entry(0, 0)
_UNCOUNTED = Tally()


@dataclass(frozen=True, slots=True)
class Vector:
    """A version vector with a floor.

    An entry below the floor is of a writer that has not left: it has an open turn, or one that was stored late.

    Args:
        last: The last included message of each writer; every earlier one of the writer is included, too.
        floor: A clock; every turn at or below it is included, whoever's it is.
        counted: A clock, not lower than the floor; what writers told at or below it is counted in ``below``.
        below: What is counted of the writers that were silent since ``counted``.
    """

    last: Mapping[str, Entry] = field(default_factory=dict)
    floor: int = 0
    counted: int = 0
    below: Tally = _UNCOUNTED

    def number(self, writer: str) -> int:
        """Return the number of the last included message of ``writer``; 0 if there is none, or it is below the floor."""
        return self.last.get(writer, _NONE).number

    def includes(self, name: Name, clock: int) -> bool:
        """Tell whether a message is included; ``clock`` is its turn's."""
        return clock <= self.floor or name.number <= self.number(name.writer)

    def including(self, writer: str, entry: Entry) -> Vector:
        """Return it with what is included of ``writer``."""
        return self.joined(Vector({writer: entry}))

    def joined(self, other: Vector) -> Vector:
        """Return what either includes.

        A writer that only one of them names, and whose turns are below the higher floor of the other one, has left that one if
        its turns are known to be in the log. Otherwise they were stored late, and the writer stays.
        """
        counted, below = max((self.counted, self.below), (other.counted, other.below))
        last: dict[str, Entry] = {}
        for mine, theirs in ((self, other), (other, self)):
            for writer, entry in mine.last.items():
                if writer in last:
                    continue
                if writer in theirs.last:
                    entry = entry.joined(theirs.last[writer])
                elif mine.may_have_left(entry, theirs.floor):
                    if entry.is_logged:
                        continue
                    entry = entry._replace(left=max(entry.left, entry.logged))
                is_counted = entry.clock <= counted and (entry.turns or entry.at)
                last[writer] = entry._replace(turns=0, at=0.0) if is_counted else entry
        return Vector(last, max(self.floor, other.floor), counted, below)

    def may_have_left(self, entry: Entry, floor: int) -> bool:
        """Tell whether an entry is below a floor, and was not below that of this vector already, as one stored late is."""
        return entry.clock <= floor and self.floor < floor and (entry.opened > 0 or entry.clock > self.floor)

    @property
    def tally(self) -> Tally:
        """What is counted of all that it includes."""
        entries = [entry for entry in self.last.values() if entry.clock > self.counted]
        return Tally(
            self.below.messages + sum(entry.number for entry in entries),
            self.below.turns + sum(entry.turns for entry in entries),
            max([self.below.at, *(entry.at for entry in entries)]),
        )

    def at_least(self, other: Vector) -> bool:
        """Tell whether everything that ``other`` includes is included, whatever is known of the log."""
        mine = self.as_logged()
        return mine.joined(other.as_logged()) == mine

    def is_unlogged(self, name: Name) -> bool:
        """Tell whether a message is included that is not known to be in the log."""
        entry = self.last.get(name.writer)
        return entry is not None and entry.logged < name.number <= entry.number

    def as_logged(self) -> Vector:
        """Return it as that of a replica that keeps the log."""
        if all(entry.is_logged for entry in self.last.values()):
            return self
        logged = {writer: entry._replace(logged=entry.number) for writer, entry in self.last.items()}
        return Vector(logged, self.floor, self.counted, self.below)

    def with_logged(self, numbers: Mapping[str, int]) -> Vector:
        """Return it with the number, by writer, of the last message that is in the log."""
        known = {writer: min(numbers.get(writer, 0), entry.number) for writer, entry in self.last.items()}
        if all(number <= self.last[writer].logged for writer, number in known.items()):
            return self
        last = {writer: entry._replace(logged=max(known[writer], entry.logged)) for writer, entry in self.last.items()}
        return Vector(last, self.floor, self.counted, self.below)

    def compacted(self, *, to: int = MOST_WRITERS // 2) -> Vector:
        """Return it with about ``to`` writers described in full, the longest silent others counted together.

        No writer with messages that are not known to be in the log is among those, nor one that spoke after it.
        """
        full = {writer: entry for writer, entry in self.last.items() if entry.clock > self.counted}
        unlogged = min((entry.clock for entry in full.values() if not entry.is_logged), default=None)
        clocks = sorted(entry.clock for entry in full.values())
        silent = [clock for clock in clocks[: max(0, len(clocks) - to)] if unlogged is None or clock < unlogged]
        if not silent:
            return self
        told = Vector({writer: entry for writer, entry in full.items() if entry.clock <= silent[-1]}, below=self.below)
        return self.joined(Vector(counted=silent[-1], below=told.tally))

    def shortened(self, seen: Vector, *, keep: Collection[str] = (), to: int = MOST_KNOWN * 3 // 4) -> Vector:
        """Return it with a floor so high that about ``to`` writers are left, the longest silent ones having left.

        No writer leaves that is described in full, or has messages that are not known to be in the log or that ``seen`` does
        not name; nor one that spoke after such a one. Those to ``keep`` stay, below the floor if they are as old, and so do the
        last ones whose turns were stored late: there may be a higher floor whose author has not seen them.
        """

        def is_done(writer: str, entry: Entry) -> bool:
            return entry.clock <= self.counted and entry.is_logged and seen.number(writer) >= entry.number

        done = {writer: is_done(writer, entry) for writer, entry in self.last.items()}
        above = sorted((entry.clock, writer) for writer, entry in self.last.items() if entry.clock > self.floor)
        lowest = min((clock for clock, writer in above if not done[writer]), default=self.counted + 1)
        leaving = [(clock, writer) for clock, writer in above[: max(0, len(above) - to)] if clock < lowest]
        if not leaving:
            return self
        late = sorted((entry.clock, writer) for writer, entry in self.last.items() if entry.clock <= self.floor)
        old = [writer for _, writer in late[:-MOST_LATE] if done[writer]]
        gone = {*old, *(writer for _, writer in leaving)}.difference(keep)
        last = {writer: entry for writer, entry in self.last.items() if writer not in gone}
        return Vector(last, leaving[-1][0], self.counted, self.below)

    @property
    def above(self) -> int:
        """Number of writers that it names above the floor."""
        return sum(entry.clock > self.floor for entry in self.last.values())


NOTHING = Vector()
"""The vector that includes nothing."""
