"""Vector: which messages a copy includes, by writer. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from strands_manga_memory.session.core.identity import Name

MOST_WRITERS = 16
"""Writers in a vector before the longest silent ones leave it."""


class Entry(NamedTuple):
    """What is included of a writer, and what it has told with that. Of two entries of a writer the greater is the later.

    Args:
        number: The number of its last message.
        clock: The clock of that message's turn.
        saves: How often it has told something.
        turns: How many turns it has begun.
        at: When it told this, in seconds since 1970.
        opened: The number of the first message of the turn that it is in the middle of; 0 if it is in none.
    """

    number: int
    clock: int
    saves: int = 0
    turns: int = 0
    at: float = 0.0
    opened: int = 0


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

    Args:
        last: The last included message of each writer; every earlier one of the writer is included, too.
        floor: A clock; every turn at or below it is included, whoever's it is.
        below: What is counted of the writers that left the vector.
    """

    last: Mapping[str, Entry] = field(default_factory=dict)
    floor: int = 0
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
        """Return what either includes."""
        floor, below = max((self.floor, self.below), (other.floor, other.below))
        last = {**self.last, **other.last}
        for writer in self.last.keys() & other.last.keys():
            last[writer] = max(self.last[writer], other.last[writer])
        return Vector({writer: entry for writer, entry in last.items() if entry.clock > floor}, floor, below)

    @property
    def tally(self) -> Tally:
        """What is counted of all that it includes."""
        entries = self.last.values()
        return Tally(
            self.below.messages + sum(entry.number for entry in entries),
            self.below.turns + sum(entry.turns for entry in entries),
            max([self.below.at, *(entry.at for entry in entries)]),
        )

    def at_least(self, other: Vector) -> bool:
        """Tell whether everything that ``other`` includes is included."""
        return self.joined(other) == self

    def shortened(self, stored: Vector, *, waiting: Iterable[int] = (), to: int = MOST_WRITERS // 2) -> Vector:
        """Return it with a floor so high that about ``to`` writers are left, the longest silent ones having left.

        Args:
            stored: What the durable replica includes. No writer leaves with messages that it lacks.
            waiting: Clocks of pending messages, which stay above the floor.
            to: So many writers are to stay.
        """
        barred = [entry.clock for writer, entry in self.last.items() if stored.number(writer) < entry.number]
        lowest = min([*barred, *waiting], default=None)
        clocks = sorted(entry.clock for entry in self.last.values())
        leaving = [clock for clock in clocks[: max(0, len(clocks) - to)] if lowest is None or clock < lowest]
        if not leaving:
            return self
        gone = Vector({writer: entry for writer, entry in self.last.items() if entry.clock <= leaving[-1]}, below=self.below)
        return self.joined(Vector(floor=leaving[-1], below=gone.tally))


NOTHING = Vector()
"""The vector that includes nothing."""
