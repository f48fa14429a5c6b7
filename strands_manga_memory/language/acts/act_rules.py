"""The dialogue acts, and the form of a rule that tells one."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

from strands_manga_memory.language.text_forms import word_set


class DialogueAct(StrEnum):
    """What a message does."""

    INSTRUCTION = "instruction"
    PREFERENCE = "preference"
    CORRECTION = "correction"
    CONSTRAINT = "constraint"
    DECISION = "decision"
    FACT = "fact"
    RECOMMENDATION = "recommendation"
    ACKNOWLEDGEMENT = "acknowledgement"
    GREETING = "greeting"
    FAREWELL = "farewell"
    UNMATCHED = "unmatched"


@dataclass(frozen=True)
class Rule:
    """One act, who performs it, and words it is known by.

    Attributes:
        act: The act.
        role: ``"user"`` or ``"assistant"``.
        cues: At least one of them must be in the text (as a word in English, anywhere in Japanese) before ``pattern`` is
            tried. They only save time.
        pattern: Searched in the text in lower case.
        also: If given, one of these words must be in an English text as well; ``0`` stands for any digit. To save time too.
    """

    act: DialogueAct
    role: str
    cues: frozenset[str]
    pattern: re.Pattern[str]
    also: frozenset[str] = frozenset()


def rules(act: DialogueAct, role: str, *rows: tuple[str, ...]) -> tuple[Rule, ...]:
    """Return the rules of one act: each row has the cues, separated by spaces, the pattern, perhaps the words of ``also``."""
    return tuple(Rule(act, role, word_set(cues), re.compile(pattern), word_set(*also)) for cues, pattern, *also in rows)
