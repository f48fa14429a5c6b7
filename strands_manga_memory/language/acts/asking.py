"""What of a user's text asks, and so states nothing: "What is my favorite genre?" says of no genre that it is liked. Pure."""

from __future__ import annotations

import itertools
import re

_SENTENCE = re.compile(r"[^.!?。！？\n]*[.!?。！？\n]?")
_CLAUSE = re.compile(
    r"[,;、](?=\s|[^\x00-\x7f])|\s(?=(?:and|but|so|because|since|if)\s(?:i|my|we|our|i'm|i've|i'd|call|please)\b)"
    r"|(?<=けど)|(?<=ので)|(?<=ですが)|(?<=ますが)|(?<=から)(?=[^、。]{2})",
    re.IGNORECASE,
)
_OPENING = r"\A\W{0,4}(?:(?:so|and|but|hey|hi|hello|ok|okay|well|also|then|oh|um|now|please|sorry|by the way)\b\W{0,3}){0,4}"
_INVERTED = re.compile(
    _OPENING
    + r"(?:what|which|who|whom|whose|where|when|why|how|do|does|did|is|are|am|was|were|can|could|will|would|should|shall"
    r"|may|have|has|had|don't|doesn't|didn't|isn't|aren't|my [\w ']{1,40}\?\Z)"
    r"(?! you (?:please )?(?:remember that|note that|keep in mind|call me))",
    re.IGNORECASE,
)
_ASKED_FOR = re.compile(
    _OPENING + r"(?:(?:what|which|who|where|when|how)(?:'s| (?:\w+ ){0,2}(?:is|are|was|were|do|does|did|have))\b"
    r"|(?:can you |could you |would you )?(?:tell|remind) me (?:again )?(?:what|which|who|where|when|how|about my|of my|my)\b"
    r"|(?:do )?you (?:still )?(?:know|remember|recall) (?:what|which|who|where|when|how|my|me|if|whether)\b"
    r"|i (?:forgot|forget|wonder|(?:do not|don't|can't|cannot) (?:know|remember|recall))"
    r" (?:what|which|who|where|if|whether|my)\b)"
    r"|\b(?:is|are|was) (?:what|which|who|where)\W{0,4}\Z",
    re.IGNORECASE,
)
_WANTS_MORE = re.compile(
    r"\b(?:recommend|suggest|similar|based on|like my)|おすすめ|お勧め|オススメ|(?:あり|置いてい)ます", re.IGNORECASE
)
_JAPANESE_ASKS = re.compile(
    r"(?:何|なに|なん(?:です|だ)|どれ|どの|どんな|どこ|誰|だれ|いつ|いくつ|覚えて|知って|わか|分か|でした).{0,20}(?:[?？]|か[。]?|かな[。]?|っけ[。?？]?)\s*\Z"
    r"|(?:ます|です|ました|でした|ません)か[。?？]{0,2}\s*\Z"
    r"|は[?？]\s*\Z"
    r"|(?:覚えて(?:い)?る|何だった|なんだった|だっけ|でしたっけ)[。?？]?\s*\Z"
    r"|(?:を|は|って|か)(?:もう一度)?(?:教えて|言って|思い出して)(?:ください|くれ|もらえ|ほし|欲し|[。?？]|\Z)|知りたい"
)


def statements(text: str) -> str:
    """Return a text without the clauses that ask about the speaker; one that asks nothing as it is.

    A clause that asks for something to choose from stays: it says what the choice is to be like.
    """
    if not _CUE.search(text):
        return text
    return "".join(_stated(sentence) if _CUE.search(sentence) else sentence for sentence in _SENTENCE.findall(text))


_CUE = re.compile(
    r"[?？]|(?a:\b)(?:what|which|who|where|when|how|tell|remind|know|remember|forg|wonder|recall)|か|っけ|覚えて|教えて|知りたい",
    re.IGNORECASE,
)


def _stated(sentence: str) -> str:
    is_question = sentence.rstrip().endswith(("?", "？"))
    stated: list[str] = []
    for clause in reversed(_clauses(sentence)):
        is_asked_about = bool(stated) and not stated[-1] and _TOPIC.search(clause) is not None
        stated.append("" if is_asked_about or _asks(clause, is_question=is_question) else clause)
    return "".join(reversed(stated))


_TOPIC = re.compile(r"(?:[\u30a1-\u30fc\u3400-\u9fff](?<!苦手)(?<!無理)|[はも])、?\s*\Z")
"""The end of a clause that has no verb, and says what the next one asks about."""


def _clauses(sentence: str) -> list[str]:
    starts = [0, *(found.start() or found.end() for found in _CLAUSE.finditer(sentence)), len(sentence)]
    return [sentence[start:end] for start, end in itertools.pairwise(starts)]


def _asks(clause: str, *, is_question: bool) -> bool:
    if _WANTS_MORE.search(clause):
        return False
    if _ASKED_FOR.search(clause) or (is_question and _INVERTED.search(clause)):
        return True
    return not clause.isascii() and _JAPANESE_ASKS.search(clause) is not None
