"""Entities: what a conversation is about, found by patterns and checked by validators. Types are data.

This is the one home of entity types: summaries verify them, the state layers keep them active.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from strands_manga_memory.language.excerpts import by_stretches, matches_of
from strands_manga_memory.language.normalize import kanji_number, normalized

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
    """

    name: str
    pattern: re.Pattern[str]
    canonical: Canonical
    is_exact: bool = False
    has_digits: bool = False
    cues: Sequence[str] = ()
    is_single: bool = False


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
    """A set of entity types. Where candidates overlap, the type that is named first has it.

    Args:
        types: The types.

    Raises:
        ValueError: Two types have the same name.
    """

    def __init__(self, types: Iterable[EntityType]) -> None:
        listed = tuple(types)
        self._types = {type_.name: type_ for type_ in listed}
        self._searched = [(type_, "value" in type_.pattern.groupindex) for type_ in listed]
        if len(self._types) < len(listed):
            raise ValueError(f"types must have different names, got {[type_.name for type_ in listed]!r:.80}")
        self._remembered = lru_cache(_REMEMBERED)(self._found)

    def __iter__(self) -> Iterator[EntityType]:
        return iter(self._types.values())

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
        lower = plain.lower()
        for type_, has_value in self._searched:
            if (type_.has_digits and not has_digits) or (type_.cues and not _holds(lower, type_.cues)):
                continue
            for match in matches_of(type_.pattern, plain):
                start, end = match.span("value" if has_value else 0)
                if taken.find(1, start, end) >= 0:
                    continue
                value = type_.canonical(match)
                if value is not None:
                    taken[start:end] = b"\1" * (end - start)
                    found.append(Entity(type_.name, value, text[start:end], start, end))
        return tuple(sorted(found, key=lambda entity: entity.start))

    def value(self, name: str, text: str) -> str | None:
        """Return the canonical form of ``text`` as an entity of the type ``name``; None if it is none.

        Raises:
            KeyError: There is no such type.
        """
        match = self._types[name].pattern.fullmatch(half_width(text).strip())
        return self._types[name].canonical(match) if match else None


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


# --- Validators -------------------------------------------------------------------------------------------------------------


def _value(match: re.Match[str]) -> str:
    return match["value"] if "value" in match.re.groupindex else match[0]


def _upper(match: re.Match[str]) -> str:
    return _value(match).upper()


def _lower(match: re.Match[str]) -> str:
    return _value(match).lower()


def isbn(match: re.Match[str]) -> str | None:
    """Return an ISBN as 13 digits if its check digit is right."""
    digits = match["value"].replace("-", "").replace(" ", "").upper()
    if len(digits) == 10:
        if sum((10 - at) * (10 if digit == "X" else int(digit)) for at, digit in enumerate(digits)) % 11:
            return None
        digits = f"978{digits[:9]}"
        return digits + str(-sum(int(digit) * (3 if at % 2 else 1) for at, digit in enumerate(digits)) % 10)
    if sum(int(digit) * (3 if at % 2 else 1) for at, digit in enumerate(digits)) % 10:
        return None
    return digits


def _number(text: str) -> int:
    text = text.strip().replace(",", "")
    if text.isascii():
        return int(text) if text.isdigit() else int(normalized(text))
    return kanji_number(text) if not any(sign.isdigit() and sign.isascii() for sign in text) else int(text)


def _volume(match: re.Match[str]) -> str:
    first, last = (match["a"] or match["c"]), (match["b"] or match["d"])
    return f"{_number(first)}-{_number(last)}" if last else str(_number(first))


_CURRENCIES = {
    **dict.fromkeys(("¥", "円", "yen", "jpy"), "JPY"),
    **dict.fromkeys(("$", "dollar", "dollars", "usd", "us$", "ドル", "bucks"), "USD"),
    **dict.fromkeys(("€", "euro", "euros", "eur", "ユーロ"), "EUR"),
    **dict.fromkeys(("£", "pound", "pounds", "gbp", "ポンド"), "GBP"),
}


def _price(match: re.Match[str]) -> str:
    sign = (match["before"] or match["after"]).strip().lower()
    amount = float((match["a"] or match["b"]).replace(",", "")) * (10_000 if match["man"] else 1) + int(match["rest"] or 0)
    return f"{_CURRENCIES[sign]} {amount:.2f}".removesuffix(".00")


_MONTH_NAMES = (
    "jan january|feb february|mar march|apr april|may|jun june|jul july|aug august|sep sept september"
    "|oct october|nov november|dec december"
)
_MONTHS = {name: number for number, names in enumerate(_MONTH_NAMES.split("|"), start=1) for name in names.split()}
_MONTH = "|".join(sorted(_MONTHS, key=len, reverse=True))


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


_PART = "morning|afternoon|evening"
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


_COUNTERS = {
    **dict.fromkeys(("copy", "copies", "book", "books", "volume", "volumes", "item", "items", "冊", "点", "個"), "item"),
    **dict.fromkeys(
        ("person", "people", "persons", "guest", "guests", "passenger", "passengers", "adults", "人", "名"), "person"
    ),
    **dict.fromkeys(("night", "nights", "泊"), "night"),
    **dict.fromkeys(("day", "days", "日間"), "day"),
    **dict.fromkeys(("ticket", "tickets", "枚"), "ticket"),
    **dict.fromkeys(("room", "rooms", "部屋", "室"), "room"),
    **dict.fromkeys(("bag", "bags"), "bag"),
    **dict.fromkeys(("box", "boxes", "set", "sets", "箱", "セット"), "set"),
    **dict.fromkeys(("seat", "seats", "席"), "seat"),
    **dict.fromkeys(("star", "stars", "つ星"), "star"),
}
_ENGLISH_NUMBERS = "one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve"
_COUNTER = "|".join(sorted(_COUNTERS, key=len, reverse=True))


def _quantity(match: re.Match[str]) -> str:
    return f"{_number(match['n'])} {_COUNTERS[match['unit'].lower()]}"


def _title(match: re.Match[str]) -> str | None:
    inside = next(group for group in match.groups() if group is not None).strip()
    title = normalized(inside)
    return title if len(title) > 1 else None


_LANGUAGES = {
    **dict.fromkeys(("english", "英語"), "english"),
    **dict.fromkeys(("japanese", "日本語"), "japanese"),
    **dict.fromkeys(("french", "フランス語"), "french"),
    **dict.fromkeys(("german", "ドイツ語"), "german"),
    **dict.fromkeys(("spanish", "スペイン語"), "spanish"),
    **dict.fromkeys(("chinese", "中国語"), "chinese"),
    **dict.fromkeys(("korean", "韓国語"), "korean"),
}


def _language(match: re.Match[str]) -> str:
    return _LANGUAGES[match["value"].lower()]


def _reference(match: re.Match[str]) -> str | None:
    value = match["value"]
    return value.upper() if any(sign.isdigit() for sign in value) and any(sign.isalpha() for sign in value) else None


# --- The presets ------------------------------------------------------------------------------------------------------------

_EDGE = r"(?<![A-Za-z0-9_-])"
_END = r"(?![A-Za-z0-9_]|-[A-Za-z0-9])"
_KANJI = "〇一二三四五六七八九十百千"
_NUMBER = rf"(?:\d{{1,3}}(?:,\d{{3}}){{1,4}}|\d{{1,12}}|[{_KANJI}]{{1,8}})"  # bounded, or a long run takes quadratic time

EMAIL = EntityType(
    "email",
    re.compile(r"(?<![\w.+-])(?P<value>[A-Za-z0-9._%+-]+@[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)+)"),
    _lower,
    is_exact=True,
    is_single=True,
    cues="@",
)
URL = EntityType(
    "url",
    re.compile(r"(?P<value>https?://[^\s\"'<>()「」、。]+[^\s\"'<>()「」、。.,;:!?])"),
    _value,
    is_exact=True,
    cues=":",
)
ISBN = EntityType(
    "isbn",
    re.compile(rf"{_EDGE}(?P<value>97[89](?:[- ]?\d){{10}}|\d(?:-?\d){{8}}-?[\dXx]){_END}"),
    isbn,
    is_exact=True,
    has_digits=True,
)
ASIN = EntityType(
    "asin",
    re.compile(rf"{_EDGE}(?P<value>B0[A-Z0-9]{{8}}|B0\d[A-Z0-9]{{5}}){_END}", re.IGNORECASE),
    _upper,
    is_exact=True,
    has_digits=True,
    cues=("b0",),
)
ORDER_ID = EntityType(
    "order_id",
    re.compile(
        r"(?P<label>\border(?:[ _](?:id|no\.?|number)(?: is\b)?[: ]*#?|:? ?#)|注文(?:(?:番号|id)(?:は|:)? ?#?|:? ?#))?"
        # Bare digits are an order's number only where the label says so.
        rf"{_EDGE}(?P<value>ORD-\d{{4,12}}|\d{{3}}-\d{{7}}-\d{{7}}|(?(label)\d{{3,12}}|(?!))){_END}",
        re.IGNORECASE,
    ),
    _upper,
    is_exact=True,
    has_digits=True,
    cues=("-", "order", "注文"),
)
PHONE = EntityType(
    "phone",
    re.compile(
        r"(?<![\w-])(?P<value>\+?\d{1,4}[- ]\d{2,4}[- ]\d{3,4}(?:[- ]\d{2,4})?|\(\d{2,4}\) ?\d{3,4}-\d{4}|0\d{9,10})(?![\w-])"
    ),
    lambda match: "".join(sign for sign in match["value"] if sign.isdigit() or sign == "+"),
    is_exact=True,
    has_digits=True,
)
DATE = EntityType(
    "date",
    re.compile(
        r"(?=\d|[adfjmnost])(?:"  # what a match begins with: most places are passed by one look
        r"(?<!\d)(?P<y1>\d{4})[-/.](?P<m1>\d{1,2})[-/.](?P<d1>\d{1,2})(?!\d)"
        r"|(?<!\d)(?:(?P<y2>\d{4})年)?(?P<m2>\d{1,2})月(?P<d2>\d{1,2})日"
        rf"|\b(?P<name1>{_MONTH})\b\.? (?:the )?(?P<d3>\d{{1,2}})(?:st|nd|rd|th)?\b(?:,? (?P<y3>\d{{4}})\b)?"
        rf"|\b(?P<d4>\d{{1,2}})(?:st|nd|rd|th)? (?:of )?(?P<name2>{_MONTH})\b(?:,? (?P<y4>\d{{4}})\b)?"
        r"|\b(?:the )?(?P<d5>\d{1,2})(?:st|nd|rd|th) of (?P<which>this|next|the) month\b"
        # Alone it is a date only where no thing follows that it could number: "the 3rd volume".
        r"|\bthe (?P<d6>\d{1,2})(?:st|nd|rd|th)\b(?=\s*(?:[.,;!?]|$|(?:of (?:this|next|the)|for|at|instead|to|till|until"
        r"|through|and|with|please|in|around|by|or|if|i|would|should|will|is)\b)))",
        re.IGNORECASE,
    ),
    _date,
    has_digits=True,
)
TIME = EntityType(
    "time",
    re.compile(
        r"(?=\d|\b[hqmae]|午)(?:"
        rf"(?:\b(?P<before>{_PART}) )?(?:\b(?P<past>half past|quarter past|quarter to) )?"
        rf"(?<![\w:.$¥€£-])(?P<h>\d{{1,2}})(?![\d,]|\.\d|:\d:)"
        r"(?::(?P<m>\d{2})(?![\d:])|(?P<even> o'clock\b))?"
        rf"(?: ?(?P<half>[ap]\.?m\b\.?)| in the (?P<after>{_PART})\b|(?P<night> at night\b))?(?!時)"
        r"|(?P<jhalf>午前|午後)?(?<!\d)(?P<h3>\d{1,2})時(?!間)(?:(?P<m3>\d{1,2})分|(?P<jmin>半))?)",
        re.IGNORECASE,
    ),
    _time,
    has_digits=True,
    cues=(":", "am", "a.m", "pm", "p.m", "時", "o'clock", "past", "quarter", "night", *_PART.split("|")),
)
PRICE = EntityType(
    "price",
    re.compile(
        r"(?=[u¥$€£\d])(?:(?P<before>US\$|[¥$€£]) ?(?P<a>\d[\d,]{0,14}(?:\.\d{1,2})?)"
        r"|(?<![\d.])(?P<b>\d[\d,]{0,14}(?:\.\d{1,2})?)(?P<man>万(?P<rest>\d{1,4})?)? ?(?P<after>円|ドル|ユーロ|ポンド"
        r"|yen\b|jpy\b|dollars?\b|usd\b|bucks\b|euros?\b|eur\b"
        r"|pounds?\b|gbp\b))",
        re.IGNORECASE,
    ),
    _price,
    has_digits=True,
    cues=("$", "¥", "€", "£", *_CURRENCIES),
)
VOLUME = EntityType(
    "volume",
    re.compile(
        rf"(?=[vt第\d{_KANJI}])(?:\b(?:vol(?:ume)?s?\.?|tome) ?#?(?P<a>\d{{1,4}})(?: ?(?:-|to|through|~) ?(?P<b>\d{{1,4}}))?\b"
        rf"|第?(?P<c>\d{{1,4}}|[{_KANJI}]{{1,8}})(?:巻?[~〜\-から]{{1,2}}(?P<d>\d{{1,4}}|[{_KANJI}]{{1,8}}))?巻)",
        re.IGNORECASE,
    ),
    _volume,
    has_digits=True,
    cues=("vol", "tome", "巻"),
)
QUANTITY = EntityType(
    "quantity",
    re.compile(
        rf"(?=[\dotfsen{_KANJI}])(?<![A-Za-z0-9_.])(?:(?<!\w)|(?=\d))"
        rf"(?P<n>{_NUMBER}|{_ENGLISH_NUMBERS})[- ]?(?P<unit>{_COUNTER})(?![a-z])",
        re.IGNORECASE,
    ),
    _quantity,
    cues=tuple(cue for cue in _COUNTERS if not any(other in cue for other in _COUNTERS.keys() - {cue})),
)
TITLE = EntityType(
    "title",
    re.compile(r"「([^「」\n]{2,60})」|『([^『』\n]{2,60})』|《([^《》\n]{2,60})》|[\"“]([^\"“”\n]{3,80})[\"”]"),
    _title,
    cues='「『《"“',
)
LANGUAGE = EntityType(
    "language",
    re.compile(rf"(?=[ejfgsck英日フドス中韓])(?<![A-Za-z])(?P<value>{'|'.join(_LANGUAGES)})(?![A-Za-z])", re.IGNORECASE),
    _language,
    cues=tuple(_LANGUAGES),
)
REFERENCE = EntityType(
    "reference",
    re.compile(
        r"(?<![A-Za-z0-9_@./-])(?P<value>(?=[A-Za-z_]*\d)(?=[\d_]*[A-Za-z])[A-Za-z0-9]+(?:_[A-Za-z0-9]+)*)(?![A-Za-z0-9_@]|-\w)"
    ),
    lambda match: _reference(match) if len(match["value"]) >= 5 else None,
    is_exact=True,
    has_digits=True,
)

WEEKDAY = EntityType(
    "weekday",
    re.compile(
        r"(?=[mtwfsn月火水木金土日])(?:"
        r"\b(?:(?:(?:this|next) )?(?:mon|tues|wednes|thurs|fri|satur|sun)day(?: (?:this|next) week)?|tomorrow"
        # "Thanks for your help today" is no date.
        r"|(?<!help )(?<!all )(?<!with )(?<!else )(?<!all for )(?<!it for )(?<!thanks for )(?<!need )(?<!needed )(?<!date )"
        r"(?<!that )(?<!you )today)\b"
        r"|[月火水木金土日]曜日?)",
        re.IGNORECASE,
    ),
    lambda match: normalized(match[0]),
    cues=("day", "tomorrow", "曜"),
)


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

GENERAL = EntityTypes([EMAIL, URL, DATE, WEEKDAY, TIME, PRICE, PHONE, QUANTITY, TITLE, LANGUAGE, REFERENCE])
"""What any conversation may hold."""

SHOP = EntityTypes(
    [EMAIL, URL, ORDER_ID, ISBN, ASIN, DATE, WEEKDAY, TIME, PRICE, PHONE, VOLUME, QUANTITY, TITLE, LANGUAGE, REFERENCE],
)
"""The preset of a book shop: also orders, ISBN, ASIN and volumes."""
