"""Changes of subject: "forget that, show me something else", in English and Japanese. Pure."""

from __future__ import annotations

import re

_THAT = r"(?:that|this|it|those|them|the (?:\w+ )?(?:ones?|order|book|series))"
_ENGLISH = re.compile(
    rf"(?<!don't )(?<!do not )(?<!never )(?<!not )\bforget (?:about )?{_THAT}\b(?! (?:i|we|you|he|she|they)\b)"
    r"|\bnever ?mind\b(?! (?:the|what|that) \w+)|\bscratch that\b"
    r"|\b(?:let's|let us|can we|could we) (?:talk about|change|move on|discuss|switch to)\b"
    r"|\b(?:change|changing|switch|switching) (?:of )?(?:the )?(?:subject|topic)s?\b"
    r"|\b(?:show|find|give|tell|get) me (?:something|anything) (?:\w+ )?(?:else|different)\b"
    r"|\ba (?:completely |totally )?(?:different|separate) (?:note|topic|subject|question|matter)\b"
    r"|\bon another (?:note|topic)\b",
)
_JAPANESE = re.compile(
    r"(?:それ|これ|あれ|(?:さっき|今)の\w{0,6}?)(?:は|のことは|のこと)?(?:もう)?"
    r"(?:忘れて|なしで|なしに|やめて|いいので|いいや|いいです|結構です)"
    r"|もう(?:それは|これは)?いい(?:ので|から|です)"
    r"|(?:話|話題)を変え|話は変わ|ところで"
    r"|(?:別|他|違う)の?(?:話|件|質問|作品|シリーズ|漫画|マンガ|本|もの)(?:を|は|に|が)"
)
_FIRST = 160
"""A change of subject stands at the beginning, or in a short message."""


_CUES = (
    "forget",
    "never",
    "scratch",
    "let",
    "could we",
    "can we",
    "chang",
    "switch",
    "thing",
    "different",
    "separate",
    "another",
)
"""One of these is in every English change of subject; they only save time."""


def changes_subject(text: str) -> bool:
    """Tell whether a user's message leaves what the conversation was about."""
    head = text[:_FIRST].lower().replace("\u2019", "'")
    if any(cue in head for cue in _CUES) and _ENGLISH.search(head):
        return True
    return not head.isascii() and _JAPANESE.search(head) is not None
