"""What a clause says of the speaker's taste: what it names, and how it speaks of it, in English and Japanese. Pure.

Either its predicate is known ("I'm tired of ..."), whatever it names, or what it names is known (a genre, a format, an author),
whatever its words: then it is a taste if the speaker is in it, and how well it speaks decides.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from strands_manga_memory.language.preferences import preference_rules as rules
from strands_manga_memory.language.preferences.attitude import attitude, evaluates
from strands_manga_memory.language.preferences.slot_values import Preference


def tastes_in_english(clause: str, *, asked: bool) -> list[Preference]:
    """Return what an English clause says; of one that asks only what its predicate says of known values."""
    said = clause.replace("\u2019", "'").strip()
    if rules.NOT_SAID.search(said) or rules.SOMEBODY.search(said):
        return []
    for liked, pattern in ((None, rules.ONCE), (False, rules.DISLIKES), (True, rules.LIKES)):
        if (match := pattern.search(said)) is not None:
            if not _THING.search(said[match.end() :]):
                break  # what it is about stands before it: "horror is what I love most"
            rest, *others = rules.BUT_NOT.split(said[match.end() :], maxsplit=1)
            adds = rules.ADDS.search(said) is not None
            found = _named(rest, liked=liked, adds=adds, asked=asked or rules.MOMENT.search(match[0]) is not None)
            return found + [each for other in others for each in _named(other, liked=liked is False, adds=True, asked=True)]
    return [] if asked else _valued(said)


def wanted_instead(clause: str) -> list[Preference]:
    """Return what a clause asks for that follows one of what is not wanted: "no more romance, mystery please"."""
    asked = _INSTEAD.sub("", clause)
    if not rules.ASKS_FOR.search(clause) or rules.UNWANTED.search(clause) or attitude(_EXPLICIT.sub("", asked)) < 0:
        return []
    return _all_values(asked, liked=True, adds=True)


_EXPLICIT = re.compile(r"\binstead\b", re.IGNORECASE)


def _valued(said: str) -> list[Preference]:
    """Return what a clause that names a known value says of it, by how well it speaks, whatever its words."""
    text = _INSTEAD.sub("", said)
    named = _named_in(text)
    if not named or rules.SHOP.search(text) or not _is_the_speakers(text, named):
        return []
    rest = said
    for _, value, _ in named:
        rest = rest.replace(value, "*")
    score = attitude(rest)
    if rules.INSTRUCTION.search(text) and rules.UNWANTED.search(rest):
        score = -1
    if not score and not evaluates(rest):
        score = _stand(rest, frozenset(slot for slot, _, _ in named))
    if score == 0:
        return []
    adds = rules.ADDS.search(said) is not None
    slots = dict.fromkeys(slot for slot, _, _ in named)
    values = {slot: [value for at, value, _ in named if at == slot] for slot in slots}
    return [each for slot in slots for each in _preferences(slot, values[slot], liked=score > 0, adds=adds)]


def _named_in(text: str) -> list[tuple[str, str, int]]:
    """Return what a clause names: the slot, the value, and where."""
    found = [(slot, match) for slot, pattern in rules.VALUES for match in pattern.finditer(text)]
    if (author := rules.AUTHOR.search(text)) is not None:
        found.append(("author", author))
    return [(slot, next(filter(None, match.groups()), match[0]), match.start()) for slot, match in found]


def _is_the_speakers(text: str, named: list[tuple[str, str, int]]) -> bool:
    if any(rules.SPECIFIC.search(text[:start]) for slot, _, start in named if slot != "author"):
        return False
    starts = min(start for _, _, start in named)
    return bool(starts <= _AT_THE_BEGINNING or rules.SPEAKER.search(text) or rules.INSTRUCTION.search(text))


def _stand(rest: str, slots: frozenset[str]) -> int:
    """Return what side a clause takes that has no evaluating word: what somebody does as a rule, he likes."""
    if rules.NEEDED.search(rest) and slots <= {"format", "language"}:
        return 1
    if rules.AS_A_RULE.search(rest) and not rules.NO_TASTE.search(rest):
        return -1 if rules.NEGATIVE.search(rest) else 1
    return -1 if rules.NEGATIVE.search(rest) and rules.FOR_ME.search(rest) else 0


_THING = re.compile(
    r"(?<!\s)(?!\s*(?:the )?(?:most|best|more|now|so far|always|a lot|too|anyway|thank you|thanks)\b\W*\Z)\s*\w"
)
_AT_THE_BEGINNING = 12
_INSTEAD = re.compile(r"\bfrom [\w-]+(?= to\b)|\b(?:over|than|rather than|instead of)\b (?!me\b).*", re.IGNORECASE)


def _named(rest: str, *, liked: bool | None, adds: bool, asked: bool) -> list[Preference]:
    """Return the preferences that an object names; one that names nothing known is a like or a dislike as it stands."""
    whole = _SENTENCE_ENDS.sub("", rest.strip()).strip(" ,;:-\"'")
    thing = rules.ENDS.sub("", whole).strip(" ,;:-\"'")
    found = _all_values(thing, liked=liked, adds=adds)
    if not found and rules.NARROWED.match(whole[len(thing) :]):
        thing, found = whole, _all_values(whole, liked=liked, adds=adds)
    author = rules.AUTHOR.search(rest)
    if author is not None:
        found += _preferences("author", [next(filter(None, author.groups()))], liked=liked, adds=adds)
    if found or asked or rules.EMPTY_OBJECT.match(thing) or len(thing) > _LONGEST_THING or _is_at_hand(thing):
        return found
    return [Preference("likes", thing, liked, adds=True)]


_SENTENCE_ENDS = re.compile(r"[.!?…].*", re.DOTALL)
_LONGEST_THING = 60


def _all_values(thing: str, *, liked: bool | None, adds: bool) -> list[Preference]:
    return [each for slot, pattern in rules.VALUES for each in _values(slot, pattern, thing, liked=liked, adds=adds)]


_AT_HAND = re.compile(r"(?:the|this|that|these|those|my|your|our)\b", re.IGNORECASE)


def _is_at_hand(thing: str) -> bool:
    """Tell whether an object is one thing that is spoken of, or what the shop does, and no kind of things."""
    return rules.SHOP.search(thing) is not None or (
        _AT_HAND.match(thing) is not None and not any(word[:1].isupper() for word in thing.split())
    )


def _values(slot: str, pattern: re.Pattern[str], text: str, *, liked: bool | None, adds: bool) -> list[Preference]:
    names = [(match[1] or match[0]) if match.lastindex else match[0] for match in pattern.finditer(text)]
    return _preferences(slot, names, liked=liked, adds=adds)


def _preferences(slot: str, names: Iterable[str], *, liked: bool | None, adds: bool) -> list[Preference]:
    keeps = slot == "author"
    values = [name.rstrip(".") if keeps or name.isupper() else name.lower() for name in dict.fromkeys(names)][:3]
    if not values:
        return []
    if liked is True:
        return [Preference(slot, ", ".join(values), liked, adds)]
    return [Preference(slot, value, liked, adds) for value in values]


def tastes_in_japanese(sentence: str) -> list[Preference]:
    """Return what a Japanese sentence says: a thing that is named belongs to the first predicate after it that takes a side."""
    found: list[Preference] = []
    parts = [part for part in rules.CLAUSES_JAPANESE.split(sentence) if part.strip(" 。！!")]
    carried = ""
    for at, part in enumerate(parts):
        clause = rules.RATHER_JAPANESE.sub("", part.strip(" 。！!"))
        if rules.NOT_SAID_JAPANESE.search(clause):
            continue
        if carried and not _values_japanese(clause):
            clause = f"{carried}{clause}"
        said = _of_japanese_clause(clause, is_last=at == len(parts) - 1)
        said = said or (wanted_instead(clause) if found and found[-1].liked is False else [])
        carried = "" if said else clause if _values_japanese(clause) else ""
        found += said
    return found


def _values_japanese(clause: str) -> list[tuple[str, list[str]]]:
    values = [(slot, names) for slot, pattern in rules.VALUES if (names := [match[0] for match in pattern.finditer(clause)])]
    author = None if values else rules.AUTHOR.search(clause)
    return values if author is None else [("author", [next(filter(None, author.groups()))])]


def _of_japanese_clause(clause: str, *, is_last: bool) -> list[Preference]:
    excepted, sign, others = clause.partition("以外")
    if sign and others and (liked := _liked_in(others, is_last=is_last)) and (but := _values_japanese(excepted)):
        sides = [(slot, names, liked == "no") for slot, names in but]
        sides += [(slot, names, liked == "yes") for slot, names in _values_japanese(others)]
        return [each for slot, names, side in sides for each in _preferences(slot, names, liked=side, adds=True)]
    plain = rules.AS_ONE_LIKES.sub("", clause)
    values = _values_japanese(plain)
    rest = plain
    for _, names in values:
        for name in names:
            rest = rest.replace(name, "*")
    liked = _liked_in(rest, is_last=is_last)
    if not liked or rules.SHOP.search(rest):
        return []
    adds = rules.ADDS.search(clause) is not None
    found = [each for slot, names in values for each in _preferences(slot, names, liked=_POLARITY[liked], adds=adds)]
    thing = rules.THING_JAPANESE.search(plain) if not found else None
    if thing is not None and not rules.NO_THING_JAPANESE.search(thing[1]):
        return [Preference("likes", thing[1], _POLARITY[liked], adds=True)]
    return found


_POLARITY: dict[str, bool | None] = {"yes": True, "no": False, "once": None}


def _liked_in(clause: str, *, is_last: bool) -> str:
    """Return what a Japanese clause's predicate says: ``yes``, ``no``, ``once``, or nothing."""
    if rules.ONCE_JAPANESE.search(clause):
        return "once"
    if rules.NOT_DISLIKED_JAPANESE.search(clause):
        return ""
    if rules.DISLIKES_JAPANESE.search(clause) and not rules.ONLY_JAPANESE.search(clause):
        return "no"
    score = attitude(clause)
    if rules.LIKES_JAPANESE.search(clause) or rules.ONLY_JAPANESE.search(clause):
        return "yes" if score >= 0 or rules.ONLY_JAPANESE.search(clause) else "no"
    if score == 0 and is_last and rules.OBJECT_JAPANESE.search(clause) and not rules.NO_TASTE_JAPANESE.search(clause):
        score = -1 if rules.NEGATIVE_JAPANESE.search(clause) else 1
    return "yes" if score > 0 else "no" if score < 0 else ""
