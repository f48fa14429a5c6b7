"""Recognition of entities in messages: values such as prices, dates and order numbers.

Each type of entity has a pattern, and a function that checks each match of the pattern. ``GENERAL``
holds the types for any conversation. ``SHOP`` adds the types for a book shop.
"""

from __future__ import annotations

import logging
import re
import string
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from strands_manga_memory.arguments import checked, with_repr
from strands_manga_memory.language.packs import (
    ANY,
    EN,
    cached_if_short,
    compile_words,
    in_context,
    load_pack,
)
from strands_manga_memory.language.pii import (
    CONTACT,
    find_personal_data,
    half_width,
    is_article_number,
)
from strands_manga_memory.language.text_features import kanji_number, normalized
from strands_manga_memory.messages.texts import find_matches

logger = logging.getLogger(__name__)

Canonical = Callable[[re.Match[str]], str | None]
"""Function that returns the canonical form of a match, which all spellings of a value share.
None if the match is invalid.
"""


@dataclass(frozen=True)
class EntityType:
    """A type of entity, such as prices or order numbers.

    Attributes:
        name: Name of the type, such as ``"asin"``.
        pattern: Pattern of an entity's text. It is searched in a copy of the text with half-width
            instead of full-width letters and digits.
        canonical: Function that returns the canonical form of a match. A match is ignored if the
            function returns None or raises an error.
        is_exact: Whether a value identifies a single thing, as an order number does.
        has_digits: Whether every value of this type has a digit, including kanji digits. If True, a
            text without digits is not searched for this type.
        cues: Lower-case texts. A text is searched only if it contains at least one cue. Without
            cues, every text is searched.
        is_single: Whether a conversation has only one current value of this type. A newer value
            then replaces an older value.
        label: Words before a value in messages, such as ``"order #"``. ``EntityTypes.value``
            accepts a value without its label.
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
    """Value found in a text, such as a price, a date or an order number.

    Attributes:
        type: Name of the entity type.
        value: Canonical form of the entity, the same for all its spellings.
        text: Text of the entity as it was written.
        start: Position of the first character.
        end: Position after the last character.
    """

    type: str
    value: str
    text: str
    start: int
    end: int


@with_repr("_listed")
class EntityTypes:
    """Collection of entity types, such as prices and dates, that finds their entities in texts.

    The types are in order of priority. Of two overlapping matches in a text, the match of the type
    with the higher priority wins.

    Card numbers, account numbers, postal addresses and most other personal data are not found.

    Args:
        types: Entity types, the type with the highest priority first. Several types may have the
            same name. For example, a type ``series`` for known titles may come before a type
            ``series`` for titles after a label.
    """

    @checked
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
        """Find the entities in a text, such as prices and dates, in the order of the text."""
        return list(self._find(text))

    def _found(self, text: str) -> tuple[Entity, ...]:
        plain = half_width(text)
        # 1: taken, 2: contact data. A list of spans would be searched once for each of its spans.
        marks = bytearray(len(plain))
        found = []
        has_digits = _DIGIT.search(plain) is not None
        for data in find_personal_data(text) if has_digits else ():
            if data.kind != "birthday":
                mark = b"\2" if data.kind in CONTACT else b"\1"
                marks[data.start : data.end] = mark * (data.end - data.start)
        lower = plain.lower()
        for type_ in self._listed:
            if (type_.has_digits and not has_digits) or (
                type_.cues and not any(cue in lower for cue in type_.cues)
            ):
                continue
            for match in find_matches(type_.pattern, plain):
                start, end = match.span("value" if "value" in match.re.groupindex else 0)
                is_contact = marks.find(2, start, end) >= 0 and type_.name not in CONTACT
                # a telephone number may have the check digit of an ISBN
                if marks.find(1, start, end) >= 0 or (
                    is_contact and not match.groupdict().get("label")
                ):
                    continue
                value = _canonical(type_, match)
                if value is not None:
                    marks[start:end] = b"\1" * (end - start)
                    found.append(Entity(type_.name, value, text[start:end], start, end))
        return tuple(sorted(found, key=lambda entity: entity.start))

    def value(self, name: str, text: str) -> str | None:
        """Return the canonical form of an entity, such as ``"USD 5"`` for the price ``"$5"``.

        The result is None if the text is not exactly one entity of the given type.

        Args:
            name: Name of the entity type.
            text: Text of the entity. It may begin with the label of the type, such as ``order #``.

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
                value = _canonical(type_, match) if match else None
                if value is not None:
                    return value
        return None


def _canonical(type_: EntityType, match: re.Match[str]) -> str | None:
    try:
        return type_.canonical(match)
    except Exception as error:  # noqa: BLE001 - an application's function must not end the turn
        logger.warning(
            "type=<%s>, error=<%s> | a match is ignored, its canonical form fails",
            type_.name,
            type(error).__name__,
        )
        return None


_DIGIT = re.compile(r"[0-9〇一二三四五六七八九十百千]")


@checked
def named(name: str, values: Mapping[str, Iterable[str]]) -> EntityType:
    """Create an entity type from a list of known values, such as the series of a shop.

    Values are found in upper and lower case, and in full and half width.

    Args:
        name: Name of the type.
        values: Other spellings of each value, keyed by value, such as
            ``{"One Piece": ["ワンピース"]}``.

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
    return EntityType(name, compile_words(spellings), lambda match: spellings[match[0].lower()])


_PASTED = re.compile(
    r"```[\s\S]{0,400}?(?:```|\Z)|`[^`\n]{1,200}`|https?://[^\s<>「」、。]{1,400}"  # code, URL
    r"|[\"'][\w .-]{1,60}[\"']\s?:\s?(?:[\"'][^\"'\n]{0,300}[\"']|[-\w.]{1,40})"  # a field of JSON
    # a call, a comparison
    r"|(?<![\w.])[a-z_]\w{0,40}(?:\.\w{1,40})?\([^()\n]{0,200}\)|(?<!\w)\w{1,40} ?== ?[^\s;]{1,80}"
)
"""Code, URLs and fields of JSON in a text."""
_THING = frozenset(
    {"asin", "isbn", "order_id", "price", "series", "title", "volume", "date", "language"}
)
_COUNTS = frozenset({"price", "quantity"})
"""Types of amounts, to which the word "it" does not refer."""


def find_spoken_entities(text: str, types: EntityTypes) -> list[Entity]:
    """Find the entities that a user mentions in a message, such as prices and order numbers.

    Each entity is returned once. Entities that the user rejects ("not volume 3") are left out.
    In code, JSON and URLs, which are usually pasted, only URLs and identifiers, such as order
    numbers, are found.
    """
    pasted = bytearray(len(text))
    for match in find_matches(_PASTED, text):
        pasted[match.start() : match.end()] = b"\1" * (match.end() - match.start())
    found: dict[tuple[str, str], Entity] = {}
    for entity in types.find(text):
        is_pasted = pasted.find(1, entity.start, entity.end) >= 0 and entity.type != "url"
        if is_pasted and not (types[entity.type].is_exact and entity.type != "reference"):
            continue
        key = entity.type, entity.value
        if key not in found and not (
            entity.type in _THING
            and ANY.entities.refused.search(in_context(text, entity.start, entity.end))
        ):
            found[key] = entity
    return list(found.values())


def is_referent(entity: Entity) -> bool:
    """Return whether a later "it" may refer to an entity: to a book, but not to a price."""
    return entity.type not in _COUNTS


def _value(match: re.Match[str]) -> str:
    return str(match.groupdict().get("value", match[0]))


def number_of(text: str) -> int:
    """Convert a number in digits, in English words or in kanji to an integer."""
    plain = normalized(text).replace(",", "")
    return int(plain) if plain.isdecimal() else kanji_number(plain)


def _parts(match: re.Match[str]) -> dict[str, str]:
    # Alternatives in a pattern have numbered names: ``day1`` and ``day2`` stand for ``day``.
    return {
        name.rstrip("123456789"): value.lower()
        for name, value in match.groupdict().items()
        if value
    }


_CURRENCIES = ANY.canonical_words("entities.currencies")


def _price(match: re.Match[str]) -> str:
    parts = _parts(match)
    amount = float(parts["amount"].replace(",", "")) * (10_000 if "man" in parts else 1) + int(
        parts.get("rest", 0)
    )
    return f"{_CURRENCIES[parts['sign'].strip()]} {amount:.2f}".removesuffix(".00")


def _phone(match: re.Match[str]) -> str | None:
    start, end = match.span("value")
    is_phone = any(
        data.kind == "phone" and data.start < end and start < data.end
        for data in find_personal_data(match.string)
    )
    return _NOT_OF_A_PHONE.sub("", match["value"]) if is_phone else None


_NOT_OF_A_PHONE = re.compile(r"[^\d+]")


_MONTHS = {
    name: number
    for number, names in enumerate(EN.groups("entities.months"), start=1)
    for name in names
}


def _date(match: re.Match[str]) -> str | None:
    parts = _parts(match)
    day = int(parts.get("bare") or parts["d"])
    name = parts.get("name", "").rstrip(".")
    month = _MONTHS[name] if name else int(parts.get("m", 1))
    if not (1 <= month <= 12 and 1 <= day <= 31):
        return None
    if "bare" in parts:
        return f"{'next month ' if parts.get('which') == 'next' else ''}day {day}"
    year = f"{parts['y']}-" if "y" in parts else ""
    return f"{year}{month:02}-{day:02}"


_PAST = {"half past": 30, "quarter past": 15, "quarter to": -15}
_HALVES = ANY.canonical_words("entities.halves")


def _time(match: re.Match[str]) -> str | None:
    parts = _parts(match)
    hour, minute = int(parts["h"]), int(parts.get("m") or (30 if "jmin" in parts else 0))
    if hour > 24 or minute > 59 or (hour > 12 and match["half2"]):
        return None
    if "past" in parts:
        hour, minute = divmod(hour * 60 + _PAST[parts["past"]], 60)
    half = _HALVES[parts["half"]] if "half" in parts else ""
    if (half == "pm" and hour < 12) or (half == "night" and 6 <= hour < 12):
        hour += 12
    elif half in ("am", "night") and hour == 12:
        hour = 0
    return f"{hour % 24:02}:{minute:02}"


_UNITS = ANY.canonical_words("entities.units")


def _quantity(match: re.Match[str]) -> str:
    return f"{number_of(match['n'])} {_UNITS[match['unit'].lower()]}"


def _title(match: re.Match[str]) -> str | None:
    inside = match["value"][1:-1].strip()
    is_named = match["named"] or match["label"]
    is_marked = is_named or match["before"] or match["after"]
    has_form = is_named or not inside.isascii() or ENTITIES.titles.case.search(inside)
    # Other quoted text is a title only next to a word such as "book".
    is_title = match["value"][0] in "『《" or (is_marked and has_form)
    return normalized(inside) or None if is_title else None


_LANGUAGES = ANY.canonical_words("entities.languages")


def isbn(match: re.Match[str]) -> str | None:
    """Convert a matched ISBN to its form with 13 digits. None if the check digit is wrong."""
    digits = match["value"].replace("-", "").replace(" ", "").upper()
    if len(digits) == 10:
        if sum((10 - at) * "0123456789X".index(digit) for at, digit in enumerate(digits)) % 11:
            return None
        known = f"978{digits[:9]}"
        return next(known + last for last in string.digits if is_article_number(known + last))
    return digits if is_article_number(digits) else None


def _volume(match: re.Match[str]) -> str:
    parts = _parts(match)
    first = number_of(parts["first"])
    return f"{first}-{number_of(parts['last'])}" if "last" in parts else str(first)


def _lower_words(match: re.Match[str]) -> str:
    return " ".join(match["value"].split()).casefold()


_CANONICAL: dict[str, Canonical] = {
    "": _value,
    "date": _date,
    "isbn": isbn,
    "language": lambda match: _LANGUAGES[_value(match).lower()],
    "lower": lambda match: _value(match).lower(),
    "lower_words": _lower_words,
    "normalized": lambda match: normalized(match[0]),
    "phone": _phone,
    "price": _price,
    "quantity": _quantity,
    "time": _time,
    "title": _title,
    "upper": lambda match: match["value"].upper(),
    "volume": _volume,
}
"""Functions that check a match and return its canonical form, by their names in language packs."""

_MONTH_TITLES = {name.title() for name in _MONTHS}
_TITLES = (
    "title_named",
    "title_before",
    "title_label",
    "title_after",
    "no_title_after",
    "title_of_volume",
)
ENTITIES = load_pack(
    "entities",
    months=sorted(_MONTHS, key=len, reverse=True),
    units=sorted(_UNITS, key=len, reverse=True),
    languages=[*_LANGUAGES],
    numbers=EN.groups("numbers.units")[0][1:13],
    no_title=sorted(EN.words("entities.no_name") | _MONTH_TITLES),
    small=sorted(EN.words("entities.small_title_words")),
    numbered=sorted(EN.words("entities.numbered") | _MONTH_TITLES),
    **{name: [getattr(ANY.entities, name).pattern] for name in _TITLES},
)


_OPTIONS = ("is_exact", "has_digits", "cues", "is_single", "label")


def _entity_types(*, general: bool) -> Iterator[EntityType]:
    for entry, pattern in ENTITIES.table("entities"):
        if not general or entry.get("is_general"):
            options = {name: entry[name] for name in _OPTIONS if name in entry}
            canonical = _CANONICAL[entry.get("canonical", "")]
            yield EntityType(entry["key"], pattern, canonical, **options)


SHOP = EntityTypes(_entity_types(general=False))
"""Entity types of a book shop.
They include all types of ``GENERAL``, and orders, ISBNs, ASINs, series and volumes.
"""

GENERAL = EntityTypes(_entity_types(general=True))
"""Entity types of any conversation."""
