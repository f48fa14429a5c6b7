"""Checks of a draft of a summary for problems and for missing facts.

A draft with a problem, such as an invented price, is not used. A draft that only lacks facts can be
completed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from strands_manga_memory.language.entities import SHOP, Entity, EntityTypes
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
    """Text, such as a summary, that is searched for statements and for values.

    A value is also found if the text spells it differently.

    Args:
        text: Text to search.
        types: Entity types whose values are recognized in the text and in statements.
    """

    def __init__(self, text: str, types: EntityTypes = SHOP) -> None:
        self.types = types
        self.entities: list[Entity] = []
        self._words: set[str] = set()
        forms = []
        for piece in with_pauses(split_pieces(text)):
            forms.append(normalized(piece))
            self.entities += types.find(piece)
            self._words.update(words(piece))
        self.form = "\n".join(forms)
        self._values = set(map(_comparable, self.entities))
        self._stems = {word[:_STEM] for word in self._words}
        self._has_negation = any(map(_is_negative, self._words))

    def mentions_value(self, entity: Entity) -> bool:
        """Return whether the searched text contains a value, such as a date, in any spelling."""
        return _comparable(entity) in self._values or (
            bool(form := normalized(entity.text)) and form in self.form
        )

    def mentions(self, statement: str) -> bool:
        """Return whether the searched text contains a statement, possibly in other words.

        It must contain all entities and numbers of the statement, and most of its other words.
        """
        if normalized(statement) in self.form:
            return True
        plain = without_leading_no(statement)
        for entity in self.types.find(statement):
            if not self.mentions_value(entity):
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


def _comparable(entity: Entity) -> tuple[str, str]:
    return entity.type, entity.value[-5:] if entity.type == "date" else entity.value


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
        """Whether the draft has no problems. A usable draft may still lack facts."""
        return not self.problems


def strip_chatter(draft: str) -> str:
    """Remove words that address the reader, such as "Sure!", from a draft of a summary."""
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
    tokens, patterns = count(draft), ANY.verification
    checks = {
        "it refuses": patterns.refusal.search(draft) or patterns.refusal_anywhere.search(draft),
        "it gives instructions": patterns.instruction.search(draft),
        "it is JSON": is_mostly_json(find_json(draft)[1], draft),
        f"it has {tokens} tokens, {max_tokens} are allowed": tokens > max_tokens,
        "it is not shorter than the conversation": tokens >= source_tokens,
    }
    text = SearchableText(draft, source.types)
    problems = [problem for problem, is_found in checks.items() if is_found]
    problems += [
        f"it invents {entity.type} {entity.text}"
        for entity in text.entities
        if not source.mentions_value(entity)
    ]
    return DraftCheck(
        tuple(problems), tuple(fact for fact in required if not text.mentions(fact.text))
    )


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
