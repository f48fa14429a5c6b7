"""What a message is likely to be worth later: independent signals, weighed and added up.

The sum of a message's weighted signals is the logarithm of its odds to be needed, up to a constant. The weights were fitted by
logistic regression on task dialogues and long chats and rounded; they are data, and any can be set to 0 to switch its signal
off.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

from strands_manga_memory.conversation.importance.weighing.note import Note
from strands_manga_memory.language import DialogueAct

_NEUTRAL = 0.5
"""The score of a message of which a scorer knows nothing."""


@dataclass(frozen=True, kw_only=True)
class SignalWeights:
    """How much each signal counts, in logarithms of odds; 0 switches it off.

    Attributes:
        act: The scorer's score, per unit above 0.5: dialogue acts with ``RuleScorer``.
        instruction: A user says how all answers are to be: it is needed in every turn, though it names nothing.
        constraint: A user sets a condition: how many, when, where, at what price.
        service: An assistant that serves; less so the more it tells of itself, as a companion does.
        answers: The message before it asked a question.
        number: It holds a figure.
        names: Names in it; the logarithm of their number.
        time: It speaks of a day, a date or a time.
        wants: The speaker says what it wants.
        asks: It asks a question.
        tells: The speaker tells of itself.
        new: Words the conversation had not seen before; the logarithm of their number.
        referenced: Its words that the next eight messages take up; the logarithm of their number.
        recency: How fresh it is: 1 in the last exchange, halved every ``half_life`` exchanges.
        fresh_service: The same for what an assistant that serves said.
        tool: A tool call with its result, compared with a text of the user.
        fresh_tool: Recency of a tool call with its result.
        whole_result: What its result says beyond its gist, compared with the gist.
        size: The logarithm of its tokens, beside the tokens it costs.
        half_life: Exchanges in which recency halves, above 0.

    Raises:
        ValueError: A weight is not finite, or ``half_life`` is not above 0.
    """

    act: float = 6.0
    instruction: float = 3.0
    constraint: float = 1.5
    service: float = -7.0
    answers: float = 1.2
    number: float = 1.1
    names: float = 0.9
    time: float = 0.85
    wants: float = 0.8
    asks: float = -0.2
    tells: float = 0.35
    new: float = 0.6
    referenced: float = 0.3
    recency: float = 1.0
    fresh_service: float = 6.5
    tool: float = -2.5
    fresh_tool: float = 7.0
    whole_result: float = -1.0
    size: float = -1.0
    half_life: float = 3.0

    def __post_init__(self) -> None:
        for weight in fields(self):
            value = getattr(self, weight.name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
                raise ValueError(f"{weight.name} must be a finite number, got {value!r:.80}")
        if self.half_life <= 0:
            raise ValueError(f"half_life must be above 0, got {self.half_life!r:.80}")


def text_signals(note: Note, *, is_service: float, age: float, weights: SignalWeights) -> dict[str, float]:
    """Return the weighted signals of a message that is no tool call and no result, those that count for nothing left out.

    ``is_service`` is 0 for the user, and for an assistant how far it serves, 0 to 1; ``age`` how many exchanges began after
    its own.
    """
    found = fixed_signals(note, weights)
    if note.referenced:
        found["referenced"] = weights.referenced * math.log1p(note.referenced)
    fresh = 0.5 ** (age / weights.half_life)
    found["recency"] = weights.recency * fresh
    if is_service:
        found["service"] = weights.service * is_service
        found["fresh_service"] = weights.fresh_service * is_service * fresh
    return {name: value for name, value in found.items() if value}


def fixed_signals(note: Note, weights: SignalWeights) -> dict[str, float]:
    """Return the weighted signals that do not change while the conversation goes on."""
    traits = note.traits
    return {
        "act": weights.act * (note.score - _NEUTRAL),
        "instruction": weights.instruction * (note.act == DialogueAct.INSTRUCTION),
        "constraint": weights.constraint * (note.act == DialogueAct.CONSTRAINT),
        "answers": weights.answers * note.answers,
        "number": weights.number * traits.number,
        "names": weights.names * math.log1p(traits.names),
        "time": weights.time * traits.time,
        "wants": weights.wants * traits.wants,
        "asks": weights.asks * traits.asks,
        "tells": weights.tells * traits.tells,
        "new": weights.new * math.log1p(note.new),
        "size": weights.size * math.log(note.tokens + 2),
    }


def tool_signals(note: Note, *, age: float, weights: SignalWeights) -> dict[str, float]:
    """Return the weighted signals of a tool call or result."""
    found = {
        "act": weights.act * (note.score - _NEUTRAL),
        "tool": weights.tool,
        "fresh_tool": weights.fresh_tool * 0.5 ** (age / weights.half_life),
    }
    return {name: value for name, value in found.items() if value}


def priority(worth: float, tokens: int) -> float:
    """Return the logarithm of worth per token."""
    return worth - math.log(tokens + 1)
