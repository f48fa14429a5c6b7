"""Subject of a statement: whether a user speaks of their own tastes or of another person's. Pure."""

from __future__ import annotations

import re

from strands_manga_memory.language.preferences.clauses import clauses

_PERSON = (
    r"(?:sister|brother|sibling|mother|mom|mum|father|dad|parents?|wife|husband|girlfriend|boyfriend|partner|fianc[eé]e?|son"
    r"|daughter|kids?|child(?:ren)?|niece|nephew|cousin|aunt|uncle|grand(?:ma|pa|mother|father|son|daughter|child|children)"
    r"|(?:best )?friends?|roommate|flatmate|colleague|co-?worker|boss|teacher|neighbou?r|teammate|students?|mother-in-law)"
)
_PERSON_JAPANESE = (
    r"(?:妻|夫|娘|息子|母(?!国)|父|兄|弟|姉|妹|友達|友人|彼女|彼氏|子ども|子供|甥|姪|祖父|祖母|上司|同僚|先輩|後輩|旦那|主人(?!公)|いとこ|両親)"
    r"(?:さん|ちゃん|くん|君)?"
)
_OTHER = re.compile(
    rf"(?<!with )(?<!from )(?<!by )\b(?:my|our|a|his|her|their) (?:[\w-]+ )?{_PERSON}\b(?!ly)"
    r"|\b(?:she|he|her|his|him|hers)\b|\b(?:she|he)(?:'s|'d|'ll)\b"
    rf"|{_PERSON_JAPANESE}(?:は|が|も|の|へ|に(?!勧|すすめ|教)|用|向け|的)",
    re.IGNORECASE,
)
_GIFT = re.compile(
    rf"\b(?:gifts?|(?:a|the|this|birthday|christmas|as a|for a) present)\b|\bfor (?:my|our|a) (?:[\w-]+ )?{_PERSON}\b"
    r"|プレゼント|贈り物|ギフト|お祝い(?:用|に)",
    re.IGNORECASE,
)
_OWN = re.compile(
    rf"\bi(?:'m|'ve|'d|'ll)?\b|\b(?:my|our) (?!(?:[\w-]+ )?{_PERSON}\b)|\bfor myself\b|私|僕|俺|わたし|ぼく|自分",
    re.IGNORECASE,
)
_OF_A_PERSON = frozenset(("genre", "author", "format", "likes", "dislikes", "budget", "name", "home", ""))
"""Slots whose value belongs to the person spoken of; a key such as "sister's birthday" names its person itself."""


class SubjectTracker:
    """Follows, sentence by sentence of one message, the person that the user speaks of."""

    def __init__(self) -> None:
        self._is_other = False
        self._has_gift = False

    def own_part(self, sentence: str) -> str:
        """Read the next sentence and return its clauses without those about another person.

        A sentence about nobody in particular continues with the person of the sentence before it.
        """
        self._has_gift = self._has_gift or _GIFT.search(sentence) is not None
        if not _OTHER.search(sentence):
            if _OWN.search(sentence):
                self._is_other = False
            return sentence
        own = [clause for clause in clauses(sentence) if _OWN.search(clause) and not _OTHER.search(clause)]
        self._is_other = not own
        return ", ".join(own) if own else sentence

    def is_own(self, slot: str) -> bool:
        """Tell whether a preference of the sentence just read is the user's own. The budget of a gift is not."""
        if slot == "budget" and self._has_gift:
            return False
        return not self._is_other or slot not in _OF_A_PERSON
