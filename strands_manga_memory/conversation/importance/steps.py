"""The low mark to which a full history is trimmed, so that it only grows at its end until it is full again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice

from strands.types.content import Message

from strands_manga_memory.messages import is_turn_start

_MOST = 3
"""At most one part in so many of a history is given up for the turns to come."""

_LARGE = 8
"""Results of a turn that is over which take one part in so many of a history are shortened before it is full: until the next
step they would keep others from staying, and the request after them seldom finds room."""


@dataclass(frozen=True, slots=True)
class Steps:
    """The low mark of a history: so many tokens, or what leaves room for so many turns.

    Attributes:
        high: Tokens at which the history is full.
        low: Tokens to which it is then brought.
        turns: How many turns there shall be room for, of the size of the last ones; None: ``low`` alone counts.
    """

    high: int
    low: int
    turns: int | None

    def __bool__(self) -> bool:
        """Whether there are steps: else a full history is trimmed in every turn."""
        return self.turns is not None or self.low < self.high

    @property
    def lowest(self) -> int:
        """The lowest that the low mark may be."""
        return self.low if self.turns is None else min(self.low, self.high - self.high // _MOST)

    @property
    def large(self) -> int:
        """From how many tokens on the results of a turn that is over are a reason to trim."""
        return self.high // _LARGE

    def mark(self, messages: Sequence[Message], total: Callable[[Sequence[Message]], int]) -> int:
        """Return the tokens to which a history is to be brought, given what was said of late, each message whole."""
        if self.turns is None:
            return self.low
        starts = (at for at in reversed(range(len(messages))) if is_turn_start(messages[at]))
        since = min(islice(starts, self.turns), default=0)
        return min(self.low, max(self.lowest, self.high - total(messages[since:])))
