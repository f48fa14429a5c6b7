"""Slots of preferences: canonical values across languages, and the effect of a statement on the slots. Pure."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from strands_manga_memory.language.packs import any_language, canonical_words
from strands_manga_memory.language.search import search_terms

DISLIKES, LIKES, STYLE = "dislikes", "likes", "style"
"""Slots of unwanted things, of wanted things without a slot of their own, and of the style of answers."""

TASTES = ("genre", "author", "format", LIKES)
"""The slots that a thing leaves when it is not wanted any more."""

_SLOT_OF = canonical_words("preferences.slots")
_OWNER = re.compile(rf"\A(?:{any_language('preference_keys.owner').pattern})\s?")
_ROLES = ("unwanted", "wanted", "amount", "answer")
_ANY_ROLE = "|".join(f"(?P<{role}>{any_language(f'preference_keys.{role}').pattern})" for role in _ROLES)
_ROLE = re.compile(rf"\A(?:{_ANY_ROLE})\s?")
"""Words before the name of a slot that keep it that slot, or turn it into dislikes."""
_OF_ROLE = {
    "unwanted": dict.fromkeys(("genre", "author", "format", LIKES), DISLIKES),
    "wanted": {slot: slot for slot in ("genre", "author", "format", "language", STYLE, LIKES)},
    "amount": {"budget": "budget"},
    "answer": {STYLE: STYLE, "language": "language"},
}
_MOST_VALUES = {DISLIKES: 8, LIKES: 8}
_MOST_OF_A_SLOT = 4
_BETWEEN = re.compile("[,、，]")
_CANONICAL = canonical_words("preferences.canonical_values")


@dataclass(frozen=True, slots=True)
class Preference:
    """A preference that a user stated.

    Attributes:
        slot: Its slot: ``genre``, ``author``, ``format``, ``language``, ``budget``, ``style``, ``likes``, ``name``;
            empty: a statement that belongs to none.
        value: The preferred value, or the whole statement.
        liked: False: it is not wanted; None: it was wanted once.
        adds: It is added to earlier values of the slot and replaces none.
    """

    slot: str
    value: str
    liked: bool | None = True
    adds: bool = False


def slot_for_key(key: str) -> str:
    """Return the slot of a key. ``favorite genres`` of a profile and "my favorite genre" of a user have the same slot."""
    plain = " ".join(unicodedata.normalize("NFKC", key).replace("_", " ").casefold().split()).replace("favourite", "favorite")
    bare = _OWNER.sub("", plain)
    role = _ROLE.match(bare)
    name = bare if role is None else bare[role.end() :]
    for ending in ("", "s", " preference", " preferences", "の好み"):
        slot = _SLOT_OF.get(name.removesuffix(ending), "")
        if role is not None and role.lastgroup is not None:
            slot = _OF_ROLE[role.lastgroup].get(slot, "")
        if slot:
            return slot
    return f"favorite {name}" if role is not None and role["wanted"] and not role["wanted"].isascii() else plain


def canonical_value(value: str) -> str:
    """Return the canonical form of a value: ``ホラー``, ``Horror manga`` and ``horror`` have the same."""
    plain = " ".join(unicodedata.normalize("NFKC", value).casefold().split()).removeprefix("the ")
    for ending in (" manga", " comics", " stories", " books", " series", "漫画", "マンガ", "もの", "系"):
        shorter = plain.removesuffix(ending).strip()
        plain = shorter or plain
    for name in (plain, plain.removesuffix("s") if len(plain) > 4 and plain.isascii() else plain):
        if name.replace(" ", "-") in _CANONICAL:
            return _CANONICAL[name.replace(" ", "-")]
    return plain


def split_values(text: str) -> list[str]:
    """Return the values of a slot."""
    return [value for each in _BETWEEN.split(text) if (value := each.strip())]


def remove_values(text: str, value: str) -> str:
    """Return the values of a slot but those that mean the same as one of ``value``."""
    gone = set(map(canonical_value, split_values(value)))
    kept = [each for each in split_values(text) if canonical_value(each) not in gone]
    return text if len(kept) == len(split_values(text)) else ", ".join(kept)


def _nearest_value(text: str, values: Sequence[str]) -> str:
    """Return the value that shares most terms with a text, the first of several; the text itself if none shares any."""
    wanted = frozenset(search_terms(text))
    shared = [len(wanted.intersection(search_terms(value))) for value in values]
    return values[shared.index(max(shared))] if any(shared) else text


def _with_value(slot: str, text: str, said: Preference) -> str:
    """Return the values of a slot after a statement, the latest first."""
    if not said.adds and slot not in _MOST_VALUES:
        return said.value
    rest = remove_values(text, said.value)
    kept = [said.value, *split_values(rest)] if rest else [said.value]
    return ", ".join(kept[: _MOST_VALUES.get(slot, _MOST_OF_A_SLOT)])


def apply_preference(slots: Mapping[str, str], said: Preference) -> dict[str, str]:
    """Return the slots that a statement changes, with their new values; an empty value removes the slot.

    A wanted value leaves ``dislikes``; a value that is no longer wanted leaves its slot.
    """
    if not said.slot:
        return {}
    if said.slot == STYLE and said.liked is None:
        said = replace(said, value=_nearest_value(said.value, split_values(slots.get(STYLE, ""))))
    into = DISLIKES if said.liked is False else said.slot if said.liked else ""
    leaves = (DISLIKES,) if said.liked else (*TASTES, said.slot, DISLIKES)
    changed = {slot: remove_values(slots[slot], said.value) for slot in leaves if slot in slots and slot != into}
    if into:
        changed[into] = _with_value(into, slots.get(into, ""), said)
    return {slot: text for slot, text in changed.items() if text != slots.get(slot)}
