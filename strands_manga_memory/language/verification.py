"""Checks of a draft of a summary for problems and for missing facts.

A draft with a problem, such as an invented price, is not used. A draft that only lacks facts can be
completed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from strands_manga_memory.language.entities import SHOP, EntityTypes
from strands_manga_memory.language.packs import ANY
from strands_manga_memory.language.summary_facts import (
    FILLER_WORDS,
    NEGATIVE_WORDS,
    ORDER_WORDS,
    Fact,
    without_leading_no,
)
from strands_manga_memory.language.text_features import normalized, with_pauses, words
from strands_manga_memory.messages.injection import escape_tags
from strands_manga_memory.messages.json_text import find_json, is_mostly_json
from strands_manga_memory.messages.texts import split_pieces

_SHARE_OF_WORDS = 0.75
_STEM = 5
_MOST_CHATTER = 3
_CHARACTERS_OF_A_TOKEN = 24
"""Number of characters that no token exceeds in any language."""


class SearchableText:
    """Text, such as a summary, in which facts can be searched.

    A value in a fact, such as a date, is found in any spelling.

    Args:
        text: Text to search.
        types: Entity types whose values are recognized in the text and in facts.
    """

    def __init__(self, text: str, types: EntityTypes = SHOP) -> None:
        pieces = list(split_pieces(text))
        self.form = "\n".join(map(normalized, with_pauses(pieces)))
        self.types = types
        self.entities = [entity for piece in with_pauses(pieces) for entity in types.find(piece)]
        self._values = {_comparable(entity.type, entity.value) for entity in self.entities}
        self._words = {word for piece in with_pauses(pieces) for word in words(piece)}
        self._stems = {word[:_STEM] for word in self._words}
        self._has_negation = any(map(_is_negative, self._words))

    def mentions_value(self, type_: str, value: str, text: str) -> bool:
        """Return whether the searched text contains a value, such as a date, in any spelling.

        Args:
            type_: Name of the value's entity type.
            value: Canonical form of the value.
            text: Text of the value as it was written.
        """
        return _comparable(type_, value) in self._values or (
            bool(form := normalized(text)) and form in self.form
        )

    def mentions(self, fact: Fact) -> bool:
        """Return whether the searched text states a fact, possibly in other words.

        The searched text must contain all entities and numbers of the fact, and most of its other
        words.
        """
        if normalized(fact.text) in self.form:
            return True
        plain = without_leading_no(fact.text)
        for entity in self.types.find(fact.text):
            if not self.mentions_value(entity.type, entity.value, entity.text):
                return False
            plain = plain.replace(entity.text, " ")
        left = [word for word in words(plain) if word not in FILLER_WORDS]
        if any(map(_is_negative, left)) and not self._has_negation:
            return False  # "I do not want horror" is missing in "wants horror"
        order = ORDER_WORDS.intersection(left)
        if order and order.isdisjoint(self._words) and not ORDER_WORDS.isdisjoint(self._words):
            return False  # "before 5 pm" is missing in "after 5 pm"
        left = [word for word in left if word not in ORDER_WORDS and not _is_negative(word)]
        spoken = [word for word in left if word.isalpha()]
        if any(word not in self.form for word in left if not word.isalpha()):
            return False
        known = sum(
            word[:_STEM] in self._stems if word.isascii() else word in self.form for word in spoken
        )
        return known >= _SHARE_OF_WORDS * len(spoken)


def _is_negative(word: str) -> bool:
    return word in NEGATIVE_WORDS or word.endswith("n't")


def _comparable(type_: str, value: str) -> tuple[str, str]:
    return (type_, value[-5:]) if type_ == "date" else (type_, value)


@dataclass(frozen=True)
class DraftCheck:
    """Result of checking a draft of a summary.

    Attributes:
        problems: Reasons why the draft cannot be used, one line for each reason. Empty if the draft
            can be used.
        missing: Required facts that the draft does not contain.
    """

    problems: tuple[str, ...]
    missing: tuple[Fact, ...]

    @property
    def is_usable(self) -> bool:
        """Whether the draft of a summary has no problems.

        A usable draft may still lack facts, which can be added to it.
        """
        return not self.problems


def strip_chatter(draft: str) -> str:
    """Remove words around a summary that address its reader, such as "Sure!", from a draft."""
    for _ in range(_MOST_CHATTER):
        draft = ANY.verification.chatter.sub("", draft.strip())
    return draft.strip()


def verify_draft(
    draft: str,
    *,
    source: SearchableText,
    source_tokens: int,
    required: Sequence[Fact],
    max_tokens: int,
    count: Callable[[str], int],
) -> DraftCheck:
    """Check whether a draft of a summary can be used, and which required facts the draft lacks.

    The draft must not be empty, JSON, a refusal or an instruction. It must have at most
    ``max_tokens`` tokens and be shorter than the conversation. It must not contain entities, such
    as prices, that the conversation does not contain.

    Args:
        draft: Text of the draft.
        source: Summarized turns and the earlier summary.
        source_tokens: Number of tokens of the summarized turns.
        required: Facts that the draft should contain.
        max_tokens: Maximum number of tokens of the draft.
        count: Function that counts the tokens of a text.
    """
    if not draft.strip():
        return DraftCheck(("it is empty",), tuple(required))
    if len(draft) > _CHARACTERS_OF_A_TOKEN * max_tokens:  # to read all of it takes long
        return DraftCheck(
            (f"it is far too long, {max_tokens} tokens are allowed",), tuple(required)
        )
    problems = []
    if ANY.verification.refusal.search(draft) or ANY.verification.refusal_anywhere.search(draft):
        problems.append("it refuses")
    if ANY.verification.instruction.search(draft):
        problems.append("it gives instructions")
    if is_mostly_json(find_json(draft)[1], draft):
        problems.append("it is JSON")
    tokens = count(draft)
    if tokens > max_tokens:
        problems.append(f"it has {tokens} tokens, {max_tokens} are allowed")
    if tokens >= source_tokens:
        problems.append("it is not shorter than the conversation")
    text = SearchableText(draft, source.types)
    problems += [
        f"it invents {entity.type} {entity.text}"
        for entity in text.entities
        if not source.mentions_value(entity.type, entity.value, entity.text)
    ]
    return DraftCheck(tuple(problems), tuple(fact for fact in required if not text.mentions(fact)))


def render_complaint(problems: Sequence[str], missing: Sequence[Fact]) -> str:
    """Write a request to a model to correct its summary of a conversation.

    Args:
        problems: Problems that make the summary unusable.
        missing: Facts that the summary lacks.
    """
    parts = []
    if problems:
        parts.append(f"Your last answer could not be used: {'; '.join(problems)}.")
    if missing:
        parts.append(
            "Your last answer left these out:\n"
            + "\n".join(f"- {escape_tags(fact.text)}" for fact in missing)
        )
    parts.append(
        "Write your draft again, with what it left out."
        if missing and not problems
        else "Write the summary again."
    )
    return "\n\n" + "\n".join(parts)
