"""Entities in a text, such as prices, dates and order numbers.

A pattern finds candidates, and a function checks each candidate. A new type of entity needs only a pattern and a function.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from strands_manga_memory.language.packs import cached_if_short, load_packs
from strands_manga_memory.language.pii import CONTACT, find_personal_data, half_width
from strands_manga_memory.messages.texts import find_matches

EN, JA = load_packs()

Canonical = Callable[[re.Match[str]], str | None]
"""Function that returns the canonical form of a match, which all spellings of a value share. None if the match is invalid."""


@dataclass(frozen=True)
class EntityType:
    """A type of entity, such as prices or order numbers.

    Attributes:
        name: Name of the type, such as ``"asin"``.
        pattern: Pattern that finds candidates. Full-width letters and digits of the text were replaced by half-width
            characters.
        canonical: Function that returns the canonical form of a candidate, or None if the candidate is invalid.
        is_exact: Whether a value identifies one thing, as an order number does.
        has_digits: Whether every value has a digit, including kanji digits. Texts without digits are then not searched.
        cues: Lower-case texts. A text is searched only if it contains at least one cue. Without cues, every text is searched.
        is_single: Whether a conversation has only one current value of this type. A newer value then replaces an older value.
        label: Words before a value of this type, as in ``"order #"``.
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
        type: Name of the entity type.
        value: Canonical form of the entity. All spellings have the same canonical form.
        text: Text of the entity as it was written.
        start: Position of the first character.
        end: Position after the last character.
    """

    type: str
    value: str
    text: str
    start: int
    end: int


class EntityTypes:
    """Entity types in order of priority. Of two overlapping matches in a text, the type with the higher priority wins.

    Personal data is recognized first. Card numbers, account numbers and postal addresses are therefore never entities.

    Args:
        types: Entity types, the type with the highest priority first. Several types may have the same name. For example, a type
            ``series`` for known titles may come before a type ``series`` for titles after a label.
    """

    def __init__(self, types: Iterable[EntityType]) -> None:
        self._listed = tuple(types)
        self._types = {type_.name: type_ for type_ in reversed(self._listed)}
        self._find = cached_if_short(self._found)

    def __iter__(self) -> Iterator[EntityType]:
        return iter(self._listed)

    def __getitem__(self, name: str) -> EntityType:
        return self._types[name]

    def __contains__(self, name: object) -> bool:
        return name in self._types

    def find(self, text: str) -> list[Entity]:
        """Return the entities in a text, such as prices and order numbers, in the order of the text."""
        return list(self._find(text))

    def _found(self, text: str) -> tuple[Entity, ...]:
        plain = half_width(text)
        taken = bytearray(len(plain))  # a list of spans would be searched once for each of its spans
        found = []
        has_digits = _DIGIT.search(plain) is not None
        contact = bytearray(len(plain))
        for data in find_personal_data(text) if has_digits else ():
            if data.kind != "birthday":
                (contact if data.kind in CONTACT else taken)[data.start : data.end] = b"\1" * (data.end - data.start)
        lower = plain.lower()
        for type_ in self._listed:
            if (type_.has_digits and not has_digits) or (type_.cues and not any(cue in lower for cue in type_.cues)):
                continue
            for match in find_matches(type_.pattern, plain):
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
        """Return the canonical form of the entity in a text, or None if the text is not exactly one entity of the given type.

        The text may begin with the label of the type, such as ``order #``.

        Args:
            name: Name of the entity type.
            text: Text of the entity.

        Raises:
            KeyError: No entity type has this name.
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


_DIGIT = re.compile(r"[0-9〇一二三四五六七八九十百千]")


def named(name: str, values: Mapping[str, Iterable[str]]) -> EntityType:
    """Create an entity type from a list of known values, such as the series of a shop.

    Values are found in upper and lower case, and in full and half width.

    Args:
        name: Name of the type.
        values: Other spellings of each value, keyed by value, such as ``{"One Piece": ["ワンピース"]}``.

    Raises:
        ValueError: ``values`` is empty, or two values share a spelling.
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


_PASTED = re.compile(
    r"```[\s\S]{0,400}?(?:```|\Z)|`[^`\n]{1,200}`|https?://[^\s<>「」、。]{1,400}"  # code, URL
    r"|[\"'][\w .-]{1,60}[\"']\s?:\s?(?:[\"'][^\"'\n]{0,300}[\"']|[-\w.]{1,40})"  # a field of JSON
    r"|(?<![\w.])[a-z_]\w{0,40}(?:\.\w{1,40})?\([^()\n]{0,200}\)|(?<!\w)\w{1,40} ?== ?[^\s;]{1,80}"  # a call, a comparison
)
"""Code, URLs and fields of JSON in a text."""
_AROUND = 60
_THING = frozenset({"asin", "isbn", "order_id", "price", "series", "title", "volume", "date", "language"})
_COUNTS = frozenset({"price", "quantity"})
"""Types of amounts, to which the word "it" does not refer."""


def find_spoken_entities(text: str, types: EntityTypes) -> list[Entity]:
    """Return the entities that a user mentions in a message, each once, without entities that the user rejects.

    In code, JSON and URLs, only identifiers such as an order number count as mentioned. The URLs themselves are returned, too.
    """
    pasted = bytearray(len(text))
    for match in find_matches(_PASTED, text):
        pasted[match.start() : match.end()] = b"\1" * (match.end() - match.start())
    found: dict[tuple[str, str], Entity] = {}
    for entity in types.find(text):
        is_pasted = pasted.find(1, entity.start, entity.end) >= 0 and entity.type != "url"
        if is_pasted and not (types[entity.type].is_exact and entity.type != "reference"):
            continue
        if not (entity.type in _THING and _is_refused(text, entity)):
            found.setdefault((entity.type, entity.value), entity)
    return list(found.values())


def _is_refused(text: str, entity: Entity) -> bool:
    """Return whether the text around an entity rejects the entity, as in "not volume 3" or "3巻ではなく"."""
    before, after = text[max(0, entity.start - _AROUND) : entity.start], text[entity.end : entity.end + _AROUND]
    return EN.entities.refused_before.search(before) is not None or JA.entities.refused_after.search(after) is not None


def is_referent(entity: Entity) -> bool:
    """Return whether a user may call an entity "it". False for amounts, such as prices, and True for all other entities."""
    return entity.type not in _COUNTS
