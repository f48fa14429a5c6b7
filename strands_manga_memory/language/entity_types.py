"""Entity types: ``GENERAL`` for any conversation, ``SHOP`` for a book shop."""

from __future__ import annotations

import re
from typing import Any

from strands_manga_memory.language.entities import Canonical, EntityType, EntityTypes
from strands_manga_memory.language.packs import any_language, canonical_words, load_pack, load_packs
from strands_manga_memory.language.pii import find_personal_data, is_article_number
from strands_manga_memory.language.text_features import kanji_number, normalized

EN, JA = load_packs()


def _value(match: re.Match[str]) -> str:
    return match["value"] if "value" in match.re.groupindex else match[0]


def _lower(match: re.Match[str]) -> str:
    return _value(match).lower()


def number_of(text: str) -> int:
    """Return the value of a number that is written in digits, in English words or in kanji."""
    text = text.strip().replace(",", "")
    if text.isascii():
        return int(text) if text.isdigit() else int(normalized(text))
    return kanji_number(text) if not any(sign.isdigit() and sign.isascii() for sign in text) else int(text)


_CURRENCIES = canonical_words("entities.currencies")


def _price(match: re.Match[str]) -> str:
    sign = (match["before"] or match["after"]).strip().lower()
    amount = float((match["a"] or match["b"]).replace(",", "")) * (10_000 if match["man"] else 1) + int(match["rest"] or 0)
    return f"{_CURRENCIES[sign]} {amount:.2f}".removesuffix(".00")


def _phone(match: re.Match[str]) -> str | None:
    start, end = match.span("value")
    if not any(data.kind == "phone" and data.start < end and start < data.end for data in find_personal_data(match.string)):
        return None
    return "".join(sign for sign in match["value"] if sign.isdigit() or sign == "+")


_MONTHS = {name: number for number, names in enumerate(EN.groups("entities.months"), start=1) for name in names}


def _date(match: re.Match[str]) -> str | None:
    groups = {name: value for name, value in match.groupdict().items() if value}
    year = groups.get("y1") or groups.get("y2") or groups.get("y3") or groups.get("y4") or ""
    if bare := groups.get("d5") or groups.get("d6"):
        next_ = "next month " if groups.get("which", "").lower() == "next" else ""
        return f"{next_}day {int(bare)}" if 1 <= int(bare) <= 31 else None
    name = groups.get("name1") or groups.get("name2")
    month = _MONTHS[name.lower().rstrip(".")] if name else int(groups.get("m1") or groups.get("m2") or 0)
    day = int(groups.get("d1") or groups.get("d2") or groups.get("d3") or groups.get("d4") or 0)
    if not (1 <= month <= 12 and 1 <= day <= 31):
        return None
    return f"{year}-{month:02}-{day:02}" if year else f"{month:02}-{day:02}"


_PAST = {"half past": 30, "quarter past": 15, "quarter to": -15}
_HALVES = {"am": "am", "pm": "pm", "morning": "am", "afternoon": "pm", "evening": "pm", "午前": "am", "午後": "pm"}


def _time(match: re.Match[str]) -> str | None:
    said = {name: value.lower() for name, value in match.groupdict().items() if value}
    if said.keys() <= {"h", "before", "night"}:
        return None  # a number alone is no time
    hour, minute = int(said.get("h") or said["h3"]), int(said.get("m") or said.get("m3") or (30 if "jmin" in said else 0))
    half = next((_HALVES[said[name].replace(".", "")] for name in ("half", "before", "after", "jhalf") if name in said), "")
    if hour > 24 or minute > 59 or (hour > 12 and "half" in said):
        return None
    if "past" in said:
        hour, minute = divmod(hour * 60 + _PAST[said["past"]], 60)
    if (half == "pm" or "night" in said) and hour < 12:
        hour += 12
    elif hour == 12 and (half == "am" or "night" in said):
        hour = 0
    return f"{hour % 24:02}:{minute:02}"


_UNITS = canonical_words("entities.units")


def _quantity(match: re.Match[str]) -> str:
    return f"{number_of(match['n'])} {_UNITS[match['unit'].lower()]}"


_SMALL_WORDS = EN.words("entities.small_title_words")


def _is_title_case(text: str) -> bool:
    words = text.split()
    return (
        bool(words)
        and words[0][:1].isupper()
        and all(not word[:1].isalpha() or word[:1].isupper() or word in _SMALL_WORDS for word in words)
    )


def _title(match: re.Match[str]) -> str | None:
    """Return the title in a quotation. None if the quotation is not a title.

    Text in Japanese title brackets is a title. Other quoted text is a title only next to a word such as "book".
    """
    brackets, inside = match["value"][0], match["value"][1:-1].strip()
    is_named = match["named"] is not None or match["label"] is not None
    is_marked = is_named or match["before"] is not None or match["after"] is not None
    if (match["no"] is not None and match["after"] is None) or "。" in inside or inside.endswith((".", ",")):
        return None
    if brackets in "『《":
        is_title = True
    elif inside.isascii():
        is_title = is_named or (is_marked and _is_title_case(inside))
    else:
        is_title = is_marked
    if not is_title:
        return None
    title = normalized(inside)
    return title if len(title) > 1 else None


_LANGUAGES = canonical_words("entities.languages")


def _reference(match: re.Match[str]) -> str | None:
    return _upper(match) if len(match["value"]) >= 5 else None


def _upper(match: re.Match[str]) -> str:
    return match["value"].upper()


def isbn(match: re.Match[str]) -> str | None:
    """Return an ISBN as 13 digits. None if the check digit is wrong."""
    digits = match["value"].replace("-", "").replace(" ", "").upper()
    if len(digits) == 10:
        if sum((10 - at) * (10 if digit == "X" else int(digit)) for at, digit in enumerate(digits)) % 11:
            return None
        digits = f"978{digits[:9]}"
        return digits + str(-sum(int(digit) * (3 if at % 2 else 1) for at, digit in enumerate(digits)) % 10)
    return digits if is_article_number(digits) else None


def _volume(match: re.Match[str]) -> str:
    first, last = (match["a"] or match["c"] or match["e"]), (match["b"] or match["d"])
    return f"{number_of(first)}-{number_of(last)}" if last else str(number_of(first))


def _series(match: re.Match[str]) -> str | None:
    """Return the name of a manga series in a match of the pattern for series. None if the match names no series.

    For example, "manga: volume 2" names only a volume, and "manga: which was it?" is a question.
    """
    if EN.entities.question.match(match.string, match.start("value")):
        return None
    volume = SHOP["volume"].pattern.match(match.string, match.start("value"))
    if volume is not None and volume["series"] is None and volume.end() >= match.end("value"):
        return None
    return _lower_words(match)


def _lower_words(match: re.Match[str]) -> str:
    return " ".join(match["value"].split()).casefold()


_CANONICAL: dict[str, Canonical] = {
    "": _value,
    "date": _date,
    "isbn": isbn,
    "language": lambda match: _LANGUAGES[_lower(match)],
    "lower": _lower,
    "lower_words": _lower_words,
    "normalized": lambda match: normalized(match[0]),
    "phone": _phone,
    "price": _price,
    "quantity": _quantity,
    "reference": _reference,
    "series": _series,
    "time": _time,
    "title": _title,
    "upper": _upper,
    "volume": _volume,
}
"""Functions that check a match and return its canonical form, by the name in the pack."""

_MONTH_TITLES = {name.title() for name in _MONTHS}
_TITLES = ("title_named", "title_before", "title_label", "title_after", "no_title_after", "title_of_volume")
ENTITIES = load_pack(
    "entities",
    months=sorted(_MONTHS, key=len, reverse=True),
    units=sorted(_UNITS, key=len, reverse=True),
    languages=[*_LANGUAGES],
    numbers=EN.groups("numbers.units")[0][1:13],
    no_title=sorted(EN.words("entities.no_name") | _MONTH_TITLES),
    numbered=sorted(EN.words("entities.numbered") | _MONTH_TITLES),
    **{name: [any_language(f"entities.{name}").pattern] for name in _TITLES},
)


def _entity_type(entry: dict[str, Any]) -> EntityType:
    return EntityType(
        entry["key"],
        ENTITIES.compile(entry),
        _CANONICAL[entry.get("canonical", "")],
        **{name: entry[name] for name in ("is_exact", "has_digits", "cues", "is_single", "label") if name in entry},
    )


SHOP = EntityTypes(_entity_type(entry) for _, entry in ENTITIES.entries())
"""Entity types of a book shop. They include all types of ``GENERAL``, and orders, ISBNs, ASINs, series and volumes."""

GENERAL = EntityTypes(_entity_type(entry) for _, entry in ENTITIES.entries() if entry.get("is_general"))
"""Entity types of any conversation."""
