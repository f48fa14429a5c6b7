"""Clauses: where one statement of a sentence ends and the next begins, and what "it" in one stands for. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from strands_manga_memory.language.preferences import preference_rules as rules

_NEXT = re.compile(
    r"(?:,? (?:and|but|so)|,|;| because| since| -) ?(?=(?:now )?(?:i|i'm|i've|i'd|we|my|our|please|call me|what"
    r"|which|do|any|can|could|is|are)\b)"
    r"|(?:,? (?<!thing )(?<!all )(?<!any )but|, so) (?!(?:not|only|just not|no|never|much|many|that)\b)"
    r"|[,;:] ?(?=(?:give|show|get|find|bring|send|recommend|suggest|try|let's|rather|(?:just|more)(?! (?:not|than)\b))\b)"
    r"|(?<=です|ます|した)[がし]、|(?<=です|ます)[がし]|けど、?",
    re.IGNORECASE,
)
_INSTEAD = re.compile(r"\A([^,]{3,80}), ?((?:[\w-]+ ){1,2}?(?:please|instead)\W*)\Z", re.IGNORECASE)
"""Two things with one comma between them, of which only the second is asked for."""


def clauses(sentence: str) -> list[str]:
    """Return the statements of a sentence, as they follow one another."""
    return [part for each in _NEXT.split(sentence) for part in _apart(each) if part.strip()]


def _apart(clause: str) -> tuple[str, ...]:
    match = _INSTEAD.match(clause)
    return (clause,) if match is None else (match[1], match[2])


def with_answers(said: Iterable[str]) -> Iterator[str]:
    """Join what asks itself with what it answers: "Romance? No thank you."."""
    asked = ""
    for sentence in said:
        if asked:
            sentence = f"{asked.rstrip('?？ ')} - {sentence}"
        asked = sentence if _SELF_ASKED.match(sentence) else ""
        if not asked:
            yield sentence


_SELF_ASKED = re.compile(r"\A\W*+\w[\w-]*+(?: [\w-]++)?[?？]\s*\Z")


def with_antecedents(said: Iterable[str]) -> Iterator[str]:
    """Name what a taste is of, where it is only pointed at: of "Got any josei? I adore that stuff." the second is of josei."""
    genre = ""
    for each in said:
        named = [match for match in _GENRE.finditer(each) if not rules.SPECIFIC.search(each[: match.start()])]
        if named:
            genre = named[-1][0]
        elif genre and (match := _OF_IT.search(each.replace("\u2019", "'"))):
            each = f"{each[: match.start(1)]}{genre}{each[match.end(1) :]}"
        elif genre and _OF_IT_JAPANESE.match(each):
            each = f"{genre}が{each}"
        else:
            genre = ""
        yield each


_GENRE = dict(rules.VALUES)["genre"]
_OF_IT = re.compile(
    r"\b(?:love|adore|enjoy|like|hate|dislike|detest|loathe|despise|prefer|avoid|keep|leave|skip|drop|cut|filter|into"
    r"|(?:can't|cannot) (?:stand|bear|get enough of)|fans? of|(?:tired|sick|fond) of|keen on) "
    r"((?:it|them|that|those|these|this)(?: (?:stuff|things?|genre|(?:kind|sort|type)s?(?: of \w+)?))?)"
    r"(?=\W*\Z|\W*(?:out|away|off|too|so much|a lot|please|very much|to death|most|best)\b)",
    re.IGNORECASE,
)
_OF_IT_JAPANESE = re.compile(
    r"\A(?:もう|とても|すごく|本当に|実は|かなり|ちょっと|正直|私は?|僕は?|、){0,4}(?:大?好き|大?嫌い|苦手|目がな|ハマっ|はまっ|無理|飽き)"
)
