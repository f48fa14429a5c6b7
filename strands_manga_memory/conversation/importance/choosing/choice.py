"""The choice: what it has to keep to, and its outcome. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from strands.types.content import Message

from strands_manga_memory.conversation.history.stubs import condensed
from strands_manga_memory.conversation.importance.weighing.scoring import Bands
from strands_manga_memory.conversation.importance.weighing.signals import SignalWeights

FIRST_TURN = "first turn"
CURRENT_TURN = "current turn"
PINNED = "pinned, or in the exchange of a pinned message"
NO_ROOM = "no room in the budget"
TOO_MANY_TURNS = "over the cap in turns"


@dataclass(frozen=True)
class Limits:
    """What the choice has to keep to.

    Attributes:
        tokens: The budget.
        turns: Most exchanges to keep; None: as many as fit. What must stay is not bound by it.
        bands: Where the bands begin.
        may_shorten: Whether what must stay may be shortened if it is too large.
        weights: What the signals count.
        service: How far the assistant is one that serves, 0 to 1.
        fill_to: Tokens up to which what need not stay is kept; None: the budget. What must stay may take all of the budget.
        headroom: Of ``tokens``, those that are there only for what the user says in the current turn.
        spares_request: Whether that stays whole.
        lasts: How many exchanges the choice is to last: what counts is how fresh a message will be at their end.
    """

    tokens: int
    turns: int | None = None
    bands: Bands = field(default_factory=Bands)
    may_shorten: bool = True
    weights: SignalWeights = field(default_factory=SignalWeights)
    service: float = 0.0
    fill_to: int | None = None
    headroom: int = 0
    spares_request: bool = False
    lasts: int = 0


@dataclass(frozen=True)
class Choice:
    """The outcome.

    Attributes:
        kept: The messages that stay, by position, in order; shortened ones in their new form.
        shortened: Positions of those that were shortened.
        why: For every position, why it stays or goes.
        tokens: The tokens of what stays.
        tokens_before: The tokens of the history.
        budget: What they had to keep to.
        runs: Where it was made a history: positions of what is one message of it each; of marks that it does without in none.
    """

    kept: dict[int, Message]
    shortened: frozenset[int]
    why: dict[int, str]
    tokens: int
    tokens_before: int
    budget: int = 0
    runs: Sequence[Sequence[int]] = ()

    def as_history(self, until: int) -> Choice:
        """Return it with what stays of the messages before a position made a history."""
        shown = [at for at in self.kept if at < until]
        runs = condensed([self.kept[at] for at in shown])
        return replace(self, runs=[[shown[at] for at in run] for run in runs])

    @property
    def messages(self) -> list[Message]:
        """What stays, in order."""
        return list(self.kept.values())
