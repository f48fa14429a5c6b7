"""Recognition of statements of a user that are about another person, or about one occasion only.

Such statements say nothing about the user's own lasting preferences.
"""

from __future__ import annotations

from collections.abc import Sequence

from strands_manga_memory.language.dialogue_acts import without_questions_about_oneself
from strands_manga_memory.language.packs import ANY, EN, JA
from strands_manga_memory.language.preference_slots import (
    ALLERGY,
    DISLIKES,
    FACTS,
    KNOWN_SLOTS,
    STYLE,
    TASTES,
)
from strands_manga_memory.language.text_features import has_question_mark, split_sentences
from strands_manga_memory.messages.texts import head_and_tail

AT_THE_BEGINNING = 12
"""Number of characters at the beginning of a clause in which its subject is expected."""


_LASTING = frozenset(
    (*TASTES, DISLIKES, STYLE, "language", "contact", "working hours", "budget", "")
)
"""Slots of preferences that a wish for one occasion does not change."""
_PERMANENT = frozenset(("name", "hometown", "health", "size", ALLERGY))
"""Slots of facts that last even if their sentence has an end: "I'm Ken, and away until Friday"."""
_OF_A_PERSON = _LASTING | {*FACTS} | KNOWN_SLOTS | {"time of day"}
"""Slots of preferences that belong to the person whom a sentence is about.
Other slots, such as "sister's birthday", name the person.
"""


def split_clauses(sentence: str) -> list[str]:
    """Split a sentence into clauses, such as "I like horror" and "my son prefers comedy".

    A word between the clauses, such as "but", is left out.
    """
    parts = (
        (clause, EN.clauses.instead.match(clause)) for clause in ANY.clauses.next.split(sentence)
    )
    return [
        part
        for clause, match in parts
        for part in (match.groups() if match else (clause,))
        if part.strip()
    ]


def lasting_text(text: str) -> str:
    """Remove sentences that are true only for a time ("until Friday") from a text."""
    return "\n".join(each for each in split_sentences(text) if not ANY.subjects.until.search(each))


class SubjectTracker:
    """Tracker of the person that each sentence of a message is about: the user or another person.

    Sentences are read in order, because "she prefers horror" may follow "I have a sister".

    Args:
        before: Texts of the user's earlier messages. If they mention a gift, its recipient may be
            the person whom the next sentences are about.
    """

    def __init__(self, before: Sequence[str] = ()) -> None:
        self._is_other = self._ends_with_other = self._names_other = self._has_other_budget = False
        self._has_end = False
        self._excluded: set[str] = set()
        self._person = ""
        for text in before:
            for sentence in split_sentences(head_and_tail(text)):
                self.own_part(sentence)
        self._ends_with_other = (
            self._ends_with_other and ANY.subjects.gift.search(" ".join(before)) is not None
        )
        self._names_other = False

    def own_part(self, sentence: str) -> str:
        """Read the next sentence of a message, and return the part to search for preferences.

        Call this method for all sentences of a message in order, and then ``is_own`` for each
        preference in the part.

        If a sentence about another person has clauses about the user, the part is these clauses.
        Otherwise, the part is the sentence, with the other person named: after "My sister is ten",
        "She likes horror" becomes "My sister likes horror".
        """
        subjects, clauses = ANY.subjects, split_clauses(sentence)
        asks = len(clauses) > 1 and has_question_mark(sentence)
        stated = without_questions_about_oneself(
            sentence.removesuffix(clauses[-1]) if asks else sentence
        )
        match = subjects.other.search(sentence)
        is_gift = subjects.gift.search(sentence) is not None
        is_own = subjects.own.search(sentence) is not None
        self._has_end = subjects.until.search(sentence) is not None
        is_about_other = match is not None and match.start() < AT_THE_BEGINNING
        self._has_other_budget |= bool(
            is_gift or is_about_other or subjects.undertaking.search(sentence)
        )
        self._names_other = bool(
            subjects.named.search(sentence) or (self._names_other and not is_own)
        )
        self._excluded = set(_LASTING) if subjects.occasion.search(stated) else set()
        if (self._has_other_budget or match) and not subjects.own_budget.search(sentence):
            self._excluded.add("budget")
        if self._names_other:
            self._excluded.add("name")
        if match is None:
            self._is_other = self._ends_with_other = self._ends_with_other and not is_own
            return self._with_person(sentence)
        if is_about_other:
            self._excluded.update((STYLE, "spoilers"))
        others = [subjects.other.search(clause) is not None for clause in clauses]
        first = 0 if self._ends_with_other or is_gift or not any(others) else others.index(True)
        own = [
            clause
            for at, (clause, is_other) in enumerate(zip(clauses, others, strict=True))
            if not is_other and (at < first or subjects.own.search(clause))
        ]
        self._is_other, self._ends_with_other = not own, not own or others[-1]
        return ", ".join(own) if own else self._with_person(sentence)

    def _with_person(self, sentence: str) -> str:
        named = ANY.subjects.relative.search(sentence)
        self._person = named[0] if named else self._person
        if not self._is_other or not self._person:
            return sentence
        if self._person.isascii():
            return EN.subjects.pronoun.sub(rf"\1{self._person}", sentence)
        return sentence if named else f"{self._person}は{JA.subjects.pronoun.sub('', sentence)}"

    def is_own(self, slot: str) -> bool:
        """Return whether to store a preference in a slot, such as ``genre``, as the user's own.

        First call ``own_part`` with the sentence of the preference. The budget for a gift, the name
        of a pet, and a wish for today or until Friday are not stored. A taste of another person is
        stored only in a slot that names the person, such as "sister's likes".
        """
        if self._has_end and slot not in _PERMANENT and ALLERGY not in slot:
            return False
        return slot not in self._excluded and not (self._is_other and slot in _OF_A_PERSON)
