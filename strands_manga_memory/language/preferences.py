"""What a user says he prefers, as key and value, by rules, in English and Japanese. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable

from strands_manga_memory.language.act_rules import DialogueAct
from strands_manga_memory.language.acts import dialogue_act
from strands_manga_memory.language.condense import sentences
from strands_manga_memory.language.tokens import shortened

_END = r"(?=[.,;!?。、！？]|\s+(?:and|but|so|because|please|thanks)\b|$)"
_RULES: tuple[tuple[str, re.Pattern[str]], ...] = tuple(
    (key, re.compile(pattern, re.IGNORECASE))
    for key, pattern in (
        (r"favorite \1", rf"\bmy (?:absolute )?favou?rite ([\w ]{{2,30}}?) (?:is|are|would be) (.{{2,80}}?){_END}"),
        (
            "language",
            r"\b(?:please )?(?:answer|reply|speak|write|talk)(?: to me)? (?:only )?in "
            r"()(japanese|english|french|german|spanish|chinese|korean)\b",
        ),
        ("language", r"()(日本語|英語|中国語|韓国語)で(?:お願い|答え|返事|話し|対応)"),
        ("budget", rf"\bmy (?:budget|limit) is ()(.{{2,40}}?){_END}"),
        ("budget", r"予算は()([^。、！？]{2,20}?)(?:です|だ|まで|以内|くらい|ぐらい|[。、]|$)"),
        ("spoilers", r"()(no spoilers|ネタバレ(?:は)?(?:なし|しない|禁止|嫌|NG))"),
        (
            "format",
            r"\b(?:i|we) (?:always |only |usually |really )?(?:prefer|want|read|buy|like) (?:the )?"
            r"()(digital(?: editions?)?|e-?books?|paperbacks?|hardcovers?|print(?: editions?)?)\b",
        ),
        (r"favorite \1", r"(?:一番|いちばん)?好きな([^\s、。は]{1,12})は([^。、！？]{1,40}?)(?:です|だ|かな|[。、！？]|$)"),
        ("format", r"()(電子書籍|電子版|紙の本|紙|単行本)(?:が|の方が|のほうが)(?:好き|いい|良い)"),
    )
)


def stated_preferences(texts: Iterable[str]) -> dict[str, str]:
    """Return what a user's texts say of his preferences: one value for each key, the last one said.

    What the rules have no key for, but is a preference, is kept whole under a key made of its first words.
    """
    found: dict[str, str] = {}
    for text in texts:
        for sentence in sentences(text):
            stated = preference_of(sentence)
            if stated is not None:
                found.pop(stated[0], None)
                found[stated[0]] = stated[1]
    return found


def preference_of(sentence: str) -> tuple[str, str] | None:
    """Return key and value of the preference a sentence states, or None."""
    for key, pattern in _RULES:
        match = pattern.search(sentence)
        if match is not None:
            name = " ".join(match.expand(key).lower().split())
            return shortened(name, 60), shortened(match[2].strip(), 120)
    if (
        len(sentence) <= 300
        and dialogue_act(sentence, "user") is DialogueAct.PREFERENCE
        and not sentence.rstrip().endswith(("?", "？"))
    ):
        return shortened(sentence.rstrip(".!。！").lower(), 40), shortened(sentence, 120)
    return None
