"""What a message is worth keeping: from 0, nothing, to 1, above all else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from enum import IntEnum
from typing import Protocol

from strands.types.content import Message

from strands_manga_memory.conversation.history.gist import without_idle_texts
from strands_manga_memory.language import dialogue_act
from strands_manga_memory.messages.injection import message_text


class ImportanceScorer(Protocol):
    """Says what a message is worth. It is asked once for each content of a message, so it may be slow, but not wait for I/O.

    One that finds out more later has a whole number ``revision`` as well, and changes it then: everything is asked again.
    """

    def score(self, message: Message, context: Sequence[Message] = ()) -> float:
        """Return the worth of ``message``, 0 to 1; ``context`` is the history it is part of."""


class Band(IntEnum):
    """What happens to a message when the budget is short."""

    LOW = 0
    """First out."""

    MIDDLE = 1
    """Kept if within the budget."""

    HIGH = 2
    """Kept as long as anything else can go."""


LOW, MIDDLE, HIGH = Band
"""Names of their own: a band is asked for of every message, and an enumeration finds its own slowly."""


@dataclass(frozen=True, kw_only=True)
class Bands:
    """Where the bands begin.

    Raises:
        ValueError: They are not in the order 0 <= ``middle`` <= ``high`` <= 1.
    """

    high: float = 0.8
    middle: float = 0.5

    def __post_init__(self) -> None:
        if not 0 <= self.middle <= self.high <= 1:
            raise ValueError(
                f"bands must satisfy 0 <= middle <= high <= 1, got middle={self.middle!r:.80} high={self.high!r:.80}"
            )

    def of(self, score: float) -> Band:
        """Return the band of a score."""
        return HIGH if score >= self.high else MIDDLE if score >= self.middle else LOW


@dataclass(frozen=True, kw_only=True)
class ImportanceWeights:
    """The scores of the kinds of message.

    Raises:
        ValueError: A score is not between 0 and 1.
    """

    instruction: float = 0.95
    preference: float = 0.9
    correction: float = 0.85
    fact: float = 0.8
    constraint: float = 0.75
    decision: float = 0.6
    recommendation: float = 0.6
    unmatched: float = 0.5
    tool_use: float = 0.4
    tool_result: float = 0.4
    acknowledgement: float = 0.2
    greeting: float = 0.1
    farewell: float = 0.1

    def __post_init__(self) -> None:
        for weight in fields(self):
            value = getattr(self, weight.name)
            if not isinstance(value, int | float) or not 0 <= value <= 1:
                raise ValueError(f"{weight.name} must be between 0 and 1, got {value!r:.80}")


WEIGHTS = ImportanceWeights()
"""Those that are meant where nobody gives any."""


class RuleScorer:
    """Scores a message by what it does in the conversation, by rules and without a model; under 50 microseconds a message.

    Args:
        weights: The score of each kind of message.
    """

    __slots__ = ("weights",)

    def __init__(self, weights: ImportanceWeights | None = None) -> None:
        self.weights = weights or WEIGHTS

    def score(self, message: Message, context: Sequence[Message] = ()) -> float:
        """Return the score of ``message``'s act."""
        return self.score_of_act(message_act(message))

    def score_of_act(self, act: str) -> float:
        """Return the score of an act: a dialogue act, ``"tool_use"`` or ``"tool_result"``."""
        return float(getattr(self.weights, act))


def message_act(message: Message) -> str:
    """Return what a message does: ``"tool_use"``, ``"tool_result"`` or the value of a ``DialogueAct``."""
    kinds = {kind for block in message["content"] for kind in block}
    if "toolResult" in kinds:
        return "tool_result"
    if "toolUse" in kinds:
        return "tool_use"
    return dialogue_act(message_text(without_idle_texts(message)), message["role"]).value
