"""Rules for the slots, the values and the changes of a user's stored preferences.

A slot is the standard key of a preference, such as ``genre`` for "favorite genres". The stored text
of a slot holds one or more values.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from strands_manga_memory.language.instructions import (
    contradicts_instruction,
    forbids,
    instruction_terms,
    subject_terms,
)
from strands_manga_memory.language.packs import ANY, cached_if_short
from strands_manga_memory.language.text_features import sentiment_score
from strands_manga_memory.messages.texts import shorten_line

DISLIKES, LIKES, STYLE = "dislikes", "likes", "style"
"""Slots of unwanted things, of wanted things without another slot, and of the style of answers."""

TASTES = ("genre", "author", "format", LIKES)
"""Slots from which a thing is removed when the user no longer wants it."""

ALLERGY = "allergy"
OTHERS_TASTES = {
    " likes": " dislikes",
    " dislikes": " likes",
    "の好み": "の苦手",
    "の苦手": "の好み",
}
"""Endings of slots for another person's taste, as in "sister's likes", with their opposites."""
FACTS = (
    "name",
    "home",
    "hometown",
    "work",
    "working hours",
    "diet",
    "health",
    "size",
    "system",
    ALLERGY,
)
"""Slots of facts about the user. A fact changes no taste, and its denial only removes the fact."""

_SLOT_OF = ANY.canonical_words("preferences.slots")
KNOWN_SLOTS = frozenset(_SLOT_OF.values())
_OWNER = re.compile(rf"\A(?:{ANY.preference_keys.owner.pattern})\s?")
_ROLES = ("unwanted", "wanted", "amount", "answer")
_ANY_ROLE = "|".join(f"(?P<{role}>{getattr(ANY.preference_keys, role).pattern})" for role in _ROLES)
_ROLE = re.compile(rf"\A(?:{_ANY_ROLE})\s?")
"""Words before the name of a key, such as "favorite" in "favorite genre"."""
_OF_ROLE = {
    "unwanted": dict.fromkeys(TASTES, DISLIKES),
    "wanted": {slot: slot for slot in (*TASTES, "language", STYLE)},
    "amount": {"budget": "budget"},
    "answer": {STYLE: STYLE, "language": "language"},
}

_MOST_VALUES = {DISLIKES: 8, LIKES: 8, ALLERGY: 8, "health": 8}
_MOST_OF_A_SLOT = 4
BETWEEN_VALUES = re.compile(r"[、，]|(?<![0-9]),|,(?![0-9]{3}(?![0-9]))")  # not the comma in 3,000
"""Separators between the values of a slot. No single value may contain a separator."""
_AFFIX = re.compile(
    r"\Athe |(?<=\S)(?: (?:manga|comics|stories|books|series)|漫画|マンガ|もの|系)\Z"
)
_PLURAL = re.compile(r"\A([ -~]{3,}[ -rt-~])s\Z")
_CANONICAL = ANY.canonical_words("preferences.canonical_values")
_VALUES = tuple((slot, getattr(ANY.known_values, slot)) for slot in ("genre", "format", "language"))


@dataclass(frozen=True, slots=True)
class Preference:
    """A preference that a user stated.

    Attributes:
        slot: Standard key of the preference, such as ``genre``, ``budget``, ``style``, ``likes`` or
            ``name``. Empty for a statement that fits no standard key.
        value: Preferred value, or the whole statement.
        liked: True if the user wants the value, False if not. None ends an earlier wish for the
            value; in the slot ``dislikes``, an earlier dislike; with an empty slot, all preferences
            about the value; with an empty slot and value, all preferences.
        adds: Whether the value is added to earlier values of the slot instead of replacing them.
    """

    slot: str
    value: str
    liked: bool | None = True
    adds: bool = False


def slot_for_key(key: str) -> str:
    """Return the slot (standard key) of a preference: ``genre`` for "my favorite genres"."""
    plain = " ".join(
        unicodedata.normalize("NFKC", key).replace("_", " ").casefold().split()
    ).replace("favourite", "favorite")
    bare = _OWNER.sub("", plain)
    role = _ROLE.match(bare)
    name = bare if role is None else bare[role.end() :]
    for ending in ("", "s", " preference", " preferences", "の好み"):
        slot = _SLOT_OF.get(name.removesuffix(ending), "")
        if role is not None and role.lastgroup is not None:
            slot = _OF_ROLE[role.lastgroup].get(slot, "")
        if slot:
            return slot
    return (
        f"favorite {name}"
        if role is not None and role["wanted"] and not role["wanted"].isascii()
        else plain
    )


def canonical_value(value: str) -> str:
    """Return the canonical form of a preferred value, such as ``horror`` for "Horror manga"."""
    plain = _AFFIX.sub("", " ".join(unicodedata.normalize("NFKC", value).casefold().split()))
    singular = _PLURAL.sub(r"\1", plain)
    known = (_CANONICAL.get(each.replace(" ", "-")) for each in (plain, singular))
    return next(filter(None, known), singular)


def split_values(text: str) -> list[str]:
    """Split the stored text of a preference, such as "horror, romance", into its values."""
    return [value for each in BETWEEN_VALUES.split(text) if (value := each.strip())]


def statement_key(statement: str) -> str:
    """Return the key of a statement without a slot: its first 40 characters in lower case."""
    return shorten_line(statement.rstrip(".!。！").lower(), 40)


def parse_preference(key: str, value: str) -> list[Preference]:
    """Convert a key and its value, from a session summary, to preferences.

    Each item in a value of ``likes`` or ``dislikes``, such as "horror, romance", gives one
    preference.
    """
    key, value = shorten_line(key, 60), shorten_line(value, 120)
    if not key or not value:
        return []
    if key == statement_key(value):
        return [Preference("", value)]
    slot = slot_for_key(key)
    if slot in (LIKES, DISLIKES):
        values = reversed(split_values(value))
        return [Preference(LIKES, each, slot == LIKES, adds=True) for each in values]
    return [Preference(slot, value, adds=slot.endswith(tuple(OTHERS_TASTES)))]


def names_a_value(sentence: str) -> bool:
    """Return whether a text names a known genre, format or language, such as "horror"."""
    return any(pattern.search(sentence) for _, pattern in _VALUES)


def find_values(text: str) -> list[tuple[str, str, int]]:
    """Find known values, such as genres, in a text.

    Each result is a slot (standard key, such as ``genre``), the value and its position.
    """
    found = [(slot, match) for slot, pattern in _VALUES for match in pattern.finditer(text)]
    if (author := ANY.preferences.author.search(text)) is not None:
        found.append(("author", author))
    return [
        (slot, next(filter(None, match.groups()), match[0]), match.start()) for slot, match in found
    ]


def as_preferences(
    named: Sequence[tuple[str, str, int]], *, liked: bool | None, adds: bool
) -> list[Preference]:
    """Convert values that ``find_values`` has found, such as genres, to preferences.

    If ``liked`` is True, the values of a slot become one preference, such as "horror, romance".
    Otherwise, each value becomes a preference.
    """
    found: list[Preference] = []
    for slot in dict.fromkeys(slot for slot, _, _ in named):
        names = list(dict.fromkeys(value for at, value, _ in named if at == slot))[:3]
        values = [
            name.rstrip(".") if slot == "author" or name.isupper() else name.lower()
            for name in names
        ]
        found += [
            Preference(slot, value, liked, adds)
            for value in ([", ".join(values)] if liked else values)
        ]
    return found


def without_values(text: str, named: Sequence[tuple[str, str, int]]) -> str:
    """Replace each value that ``find_values`` has found by ``*`` in a text.

    The genre "horror" then does not count as a negative word.
    """
    for _, value, _ in named:
        text = text.replace(value, "*")
    return text


def remove_values(text: str, value: str) -> str:
    """Remove values, in any spelling, from the stored text of a preference.

    For example, "Horror, romance" without "ホラー" is "romance".
    """
    gone = set(map(canonical_value, split_values(value)))
    kept = [each for each in split_values(text) if canonical_value(each) not in gone]
    return text if len(kept) == len(split_values(text)) else ", ".join(kept)


def _without_subject(slot: str, text: str, subject: str) -> str:
    """Remove the values about a subject from the stored text of a slot.

    The subject "mechs" removes "anything with mechs". The subject "son's allergy" removes "nuts"
    from the slot ``son's allergy``.
    """
    gone, terms, named = canonical_value(subject), subject_terms(subject), subject_terms(slot)
    values = split_values(text) if slot in (*TASTES, *_MOST_VALUES, STYLE) else [text]
    kept = [
        each
        for each in values
        if canonical_value(each) != gone and not (terms and terms <= subject_terms(each) | named)
    ]
    return ", ".join(kept) if len(kept) < len(values) else text


def contradicts_statement(said: Preference, statement: str) -> bool:
    """Return whether a new preference contradicts an earlier statement, and so replaces it.

    The statement was stored as a whole sentence, because it fits no slot, such as ``genre``. "I
    enjoy long fight scenes" replaces "I find long fight scenes exhausting".
    """
    side, terms = _sentiment_and_subject(said.value)
    before, earlier = _sentiment_and_subject(statement)
    if not terms or not earlier:
        return False
    if not before:  # "I eat pork again" ends "I don't eat pork"
        is_permitted = forbids(statement) and not forbids(said.value)
        return not said.slot and earlier <= terms and is_permitted
    if not said.slot:
        return side == -before and 2 * len(terms & earlier) >= min(len(terms), len(earlier))
    side = 1 if said.liked or (said.slot == DISLIKES and said.liked is None) else -1
    return said.slot in (*TASTES, DISLIKES) and terms <= earlier and side == -before


@cached_if_short
def _sentiment_and_subject(statement: str) -> tuple[int, frozenset[str]]:
    score = sentiment_score(statement)
    return (score > 0) - (score < 0), subject_terms(statement)


def _nearest_value(text: str, values: Sequence[str]) -> str:
    wanted = instruction_terms(text)
    nearest = max(values, key=lambda value: len(wanted & instruction_terms(value)), default=text)
    return nearest if wanted & instruction_terms(nearest) else text


def _with_value(slot: str, text: str, said: Preference) -> str:
    if not said.adds and slot not in _MOST_VALUES:
        return said.value
    rest = split_values(remove_values(text, said.value))
    kept = [
        said.value,
        *(each for each in rest if slot != STYLE or not contradicts_instruction(said.value, each)),
    ]
    return ", ".join(kept[: _MOST_VALUES.get(slot, _MOST_OF_A_SLOT)])


def apply_preference(slots: Mapping[str, str], said: Preference) -> dict[str, str]:
    """Return the stored preferences that change when a user states a new preference.

    A wanted value is removed from ``dislikes``. An unwanted value moves to ``dislikes``. A value
    that the user no longer likes or dislikes is removed.

    Returns:
        The new texts of the changed slots, keyed by slot such as ``genre``. An empty text removes a
        slot.
    """
    if not said.slot and not said.value:
        return dict.fromkeys(slots, "")  # "Forget everything about me"
    if not said.slot:
        about = {slot: _without_subject(slot, text, said.value) for slot, text in slots.items()}
        return {slot: text for slot, text in about.items() if text != slots[slot]}
    if said.slot == STYLE and said.liked is None:
        said = replace(said, value=_nearest_value(said.value, split_values(slots.get(STYLE, ""))))
    if said.liked is None and slot_for_key(said.value) == said.slot:
        return dict.fromkeys({said.slot} & slots.keys(), "")  # "I have no allergies"
    into = DISLIKES if said.liked is False else said.slot if said.liked else ""
    opposite = [
        said.slot.removesuffix(ending) + other
        for ending, other in OTHERS_TASTES.items()
        if said.slot.endswith(ending)
    ]
    is_wanted = said.liked or said.slot == DISLIKES
    tastes = opposite or ([DISLIKES] if is_wanted else [*TASTES, said.slot])
    changed = {
        slot: remove_values(slots[slot], said.value)
        for slot in ([said.slot] if said.slot in FACTS else tastes)
        if slot in slots and slot != into
    }
    if into:
        changed[into] = _with_value(into, slots.get(into, ""), said)
    return {slot: text for slot, text in changed.items() if text != slots.get(slot)}
