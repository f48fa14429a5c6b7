"""Entities: what a conversation is about, found by patterns and checked by validators. Types are data.

This is the one home of entity types: summaries verify them, the state layers keep them active.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from strands_manga_memory.language.pii.personal_data import CONTACT, find_personal_data
from strands_manga_memory.language.texts.excerpts import by_stretches, matches_of

_REMEMBERED, _SHORT = 4_096, 400
"""So many texts of at most so many characters are not searched twice: slots are compared again with every summary."""

Canonical = Callable[[re.Match[str]], str | None]
"""From a match to the one form of the value that all its spellings share; None if it is not valid."""


@dataclass(frozen=True)
class EntityType:
    """A kind of entity.

    Attributes:
        name: Its name, such as ``"asin"``.
        pattern: Finds candidates in a text whose full-width letters and digits were made half-width.
        canonical: Checks a candidate and returns its canonical form.
        is_exact: Whether a value identifies one thing (a number of an order), so that an unknown one in a summary is invented.
        has_digits: Whether every value has a digit, of any kind: then a text without any is not searched.
        cues: At least one of these, in lower case, is in every text with such an entity; they only save time.
        is_single: Whether a conversation has one current value, so that a newer one replaces the one before.
        label: What says of a bare value that it is of this type, as in ``"order #"``.
    """

    name: str
    pattern: re.Pattern[str]
    canonical: Canonical
    is_exact: bool = False
    has_digits: bool = False
    cues: Sequence[str] = ()
    is_single: bool = False
    label: str = ""


@dataclass(frozen=True, slots=True)
class Entity:
    """An entity in a text.

    Attributes:
        type: Name of its type.
        value: Canonical form: the same for all spellings.
        text: As it is written.
        start: Where in the text.
        end: Where it ends.
    """

    type: str
    value: str
    text: str
    start: int
    end: int


class EntityTypes:
    """A set of entity types. Where candidates overlap, the type that comes first has it.

    Personal data is recognized before: a card, an account or an address is no entity, whatever types there are.

    Args:
        types: The types. Several may have one name, such as the series that a shop knows before those that a label names.
    """

    def __init__(self, types: Iterable[EntityType]) -> None:
        self._listed = tuple(types)
        self._types = {type_.name: type_ for type_ in reversed(self._listed)}
        self._remembered = lru_cache(_REMEMBERED)(self._found)

    def __iter__(self) -> Iterator[EntityType]:
        return iter(self._listed)

    def __getitem__(self, name: str) -> EntityType:
        return self._types[name]

    def __contains__(self, name: object) -> bool:
        return name in self._types

    def find(self, text: str) -> list[Entity]:
        """Return the valid entities of a text, in their order."""
        return list(self._remembered(text) if len(text) <= _SHORT else self._found(text))

    def _found(self, text: str) -> tuple[Entity, ...]:
        plain = half_width(text)
        taken = bytearray(len(plain))  # a list of places would be looked through once for each of the places in it
        found = []
        has_digits = _DIGIT.search(plain) is not None
        contact = bytearray(len(plain))
        for data in find_personal_data(text) if has_digits else ():
            if data.kind != "birthday":
                (contact if data.kind in CONTACT else taken)[data.start : data.end] = b"\1" * (data.end - data.start)
        lower = plain.lower()
        for type_ in self._listed:
            if (type_.has_digits and not has_digits) or (type_.cues and not _holds(lower, type_.cues)):
                continue
            for match in matches_of(type_.pattern, plain):
                start, end = match.span("value" if "value" in match.re.groupindex else 0)
                if taken.find(1, start, end) >= 0:
                    continue
                if contact.find(1, start, end) >= 0 and type_.name not in CONTACT and not _label(match):
                    continue  # a telephone number may have the check digit of an ISBN
                value = type_.canonical(match)
                if value is not None:
                    taken[start:end] = b"\1" * (end - start)
                    found.append(Entity(type_.name, value, text[start:end], start, end))
        return tuple(sorted(found, key=lambda entity: entity.start))

    def value(self, name: str, text: str) -> str | None:
        """Return the canonical form of ``text``, labelled or bare, as an entity of the type ``name``; None if it is none.

        Raises:
            KeyError: There is no such type.
        """
        if name not in self:
            raise KeyError(name)
        if any(data.kind not in {*CONTACT, "birthday"} for data in find_personal_data(text)):
            return None
        plain = half_width(text).strip()
        for type_ in self._listed:
            for written in (plain, type_.label + plain) if type_.name == name else ():
                match = type_.pattern.fullmatch(written)
                value = type_.canonical(match) if match else None
                if value is not None:
                    return value
        return None


def _label(match: re.Match[str]) -> str | None:
    return match["label"] if "label" in match.re.groupindex else None


def _holds(text: str, cues: Sequence[str]) -> bool:
    for cue in cues:  # noqa: SIM110 - half the time of any() with a generator, and most texts are searched for all of them
        if cue in text:
            return True
    return False


_DIGIT = re.compile(r"[0-9〇一二三四五六七八九十百千]")

_WIDE = {code: code - 0xFEE0 for code in range(0xFF01, 0xFF5F)} | {0x3000: 0x20, 0xFFE5: 0xA5}


def half_width(text: str) -> str:
    """Return ``text`` with full-width letters, digits and signs half-width; every character stays in its place."""
    return text if text.isascii() else by_stretches(lambda part: part.translate(_WIDE), text)


def named(name: str, values: Mapping[str, Iterable[str]]) -> EntityType:
    """Return a type of known names, such as the series of a shop.

    Args:
        name: Name of the type.
        values: Each value, and its other spellings: ``{"One Piece": ["ワンピース"]}``. Case and width make no difference.

    Raises:
        ValueError: There are no values, or two share a spelling.
    """
    spellings: dict[str, str] = {}
    for value, others in values.items():
        for spelling in (value, *others):
            if spellings.setdefault(half_width(spelling).lower(), value) != value:
                raise ValueError(f"values must not share a spelling, got {spelling!r:.80} twice")
    if not spellings:
        raise ValueError("values must not be empty")
    longest_first = sorted(spellings, key=len, reverse=True)
    pattern = "|".join(
        f"{_WORD_EDGE if each[0].isascii() else ''}{re.escape(each)}{_WORD_END if each[-1].isascii() else ''}"
        for each in longest_first
    )
    return EntityType(name, re.compile(pattern, re.IGNORECASE), lambda match: spellings[match[0].lower()])


_WORD_EDGE, _WORD_END = r"(?<![A-Za-z0-9])", r"(?![A-Za-z0-9])"
