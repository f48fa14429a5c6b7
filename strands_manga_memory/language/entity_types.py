"""Entity types: ``GENERAL`` for any conversation, ``SHOP`` for a book shop."""

from __future__ import annotations

import re

from strands_manga_memory.language.entities import EntityType, EntityTypes
from strands_manga_memory.language.packs import any_language, canonical_words, load_packs
from strands_manga_memory.language.pii import find_personal_data
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


MONTHS = {name: number for number, names in enumerate(EN.groups("entities.months"), start=1) for name in names}
_MONTH = "|".join(sorted(MONTHS, key=len, reverse=True))


def _date(match: re.Match[str]) -> str | None:
    groups = {name: value for name, value in match.groupdict().items() if value}
    year = groups.get("y1") or groups.get("y2") or groups.get("y3") or groups.get("y4") or ""
    if bare := groups.get("d5") or groups.get("d6"):
        next_ = "next month " if groups.get("which", "").lower() == "next" else ""
        return f"{next_}day {int(bare)}" if 1 <= int(bare) <= 31 else None
    name = groups.get("name1") or groups.get("name2")
    month = MONTHS[name.lower().rstrip(".")] if name else int(groups.get("m1") or groups.get("m2") or 0)
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


_UNITS = canonical_words("entities.units")
_ENGLISH_NUMBERS = "|".join(EN.groups("numbers.units")[0][1:13])
_COUNTER = "|".join(sorted(_UNITS, key=len, reverse=True))


def _quantity(match: re.Match[str]) -> str:
    return f"{number_of(match['n'])} {_UNITS[match['unit'].lower()]}"


_SMALL_WORDS = EN.words("entities.small_title_words")


def _source(name: str) -> str:
    return any_language(f"entities.{name}").pattern


def _is_title_case(text: str) -> bool:
    words = text.split()
    return (
        bool(words)
        and words[0][:1].isupper()
        and all(not word[:1].isalpha() or word[:1].isupper() or word in _SMALL_WORDS for word in words)
    )


def _title(match: re.Match[str]) -> str | None:
    """Return the title in a quotation. None if the quotation is not a title.

    Text in Japanese title brackets is a title. Other quoted text is a title only next to a word for books.
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


def _language(match: re.Match[str]) -> str:
    return _LANGUAGES[match["value"].lower()]


def _reference(match: re.Match[str]) -> str | None:
    value = match["value"]
    return value.upper() if any(sign.isdigit() for sign in value) and any(sign.isalpha() for sign in value) else None


KANJI = "〇一二三四五六七八九十百千"
_NUMBER = rf"(?:\d{{1,3}}(?:,\d{{3}}){{1,4}}|\d{{1,12}}|[{KANJI}]{{1,8}})"  # bounded, or a long run takes quadratic time

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
PHONE = EntityType(
    "phone",
    re.compile(
        r"(?<![\w-])(?P<value>\+?\d{1,4}[- ]\d{2,4}[- ]\d{3,4}(?:[- ]\d{2,4})?|\(\d{2,4}\) ?\d{3,4}-\d{4}|0\d{9,10})(?![\w-])"
    ),
    _phone,
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
QUANTITY = EntityType(
    "quantity",
    re.compile(
        rf"(?=[\dotfsen{KANJI}])(?<![A-Za-z0-9_.])(?:(?<!\w)|(?=\d))"
        rf"(?P<n>{_NUMBER}|{_ENGLISH_NUMBERS})[- ]?(?P<unit>{_COUNTER})(?![a-z])",
        re.IGNORECASE,
    ),
    _quantity,
    cues=tuple(cue for cue in _UNITS if not any(other in cue for other in _UNITS.keys() - {cue})),
)
TITLE = EntityType(
    "title",
    re.compile(
        rf"(?:\b(?P<named>{_source('title_named')}) |\b(?P<before>{_source('title_before')}) "
        rf"|(?P<label>{_source('title_label')}))?"
        r"(?P<value>「[^「」\n]{2,60}」|『[^『』\n]{2,60}』|《[^《》\n]{2,60}》|[\"“][^\"“”\n]{2,80}[\"”])"
        rf"(?:(?=(?P<no>{_source('no_title_after')})))?(?:(?=(?P<after>{_source('title_after')})))?",
        re.IGNORECASE,
    ),
    _title,
    cues='「『《"“',
    label="title: ",
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
        r"\b(?:(?:this|next) )?(?:mon|tues|wednes|thurs|fri|satur|sun)day(?: (?:this|next) week)?\b"
        r"|[月火水木金土日]曜日?)",
        re.IGNORECASE,
    ),
    lambda match: normalized(match[0]),
    cues=("day", "曜"),
)

GENERAL = EntityTypes([EMAIL, URL, DATE, WEEKDAY, TIME, PRICE, PHONE, QUANTITY, TITLE, LANGUAGE, REFERENCE])
"""Entity types of any conversation."""


_EDGE = r"(?<![A-Za-z0-9_-])"
_END = r"(?![A-Za-z0-9_]|-[A-Za-z0-9])"


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
    if sum(int(digit) * (3 if at % 2 else 1) for at, digit in enumerate(digits)) % 10:
        return None
    return digits


def _volume(match: re.Match[str]) -> str:
    first, last = (match["a"] or match["c"] or match["e"]), (match["b"] or match["d"])
    return f"{number_of(first)}-{number_of(last)}" if last else str(number_of(first))


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
    label="order #",
)
_MONTH_TITLES = frozenset(name.title() for name in MONTHS)
_NO_TITLE = "|".join(sorted(EN.words("entities.no_name") | _MONTH_TITLES))
_NUMBERED = "|".join(sorted(EN.words("entities.numbered") | _MONTH_TITLES))
_WORD, _SMALL = r"[A-Z][\w'-]{0,20}", r"(?:(?:of|on|the|no|to|and|in|x) ){0,2}"
_NAME = rf"(?-i:\b(?!(?:{_NO_TITLE}|{_NUMBERED})\b)(?:{_WORD} {_SMALL}){{1,4}}(?!(?:{_NUMBERED})\b){_WORD})"
"""Two to five capitalized words, as in "Attack on Titan". A word such as "Volume" or a month is no part of a series name."""
_ALONE = r"\d{1,3}(?![\w%:/-]|[.,]\d| ?(?:[ap]\.?m\b|yen|dollars|euros|%))"
"""A number without a following word that the number could count."""


def _series(match: re.Match[str]) -> str | None:
    """Return the name of a manga series in a match. None if the match names no series.

    For example, "manga: volume 2" names only a volume, and "manga: which was it?" is a question.
    """
    if EN.entities.question.match(match.string, match.start("value")):
        return None
    volume = VOLUME.pattern.match(match.string, match.start("value"))
    if volume is not None and volume["series"] is None and volume.end() >= match.end("value"):
        return None
    return " ".join(match["value"].split()).casefold()


SERIES = EntityType(
    "series",
    re.compile(
        r"(?P<label>(?:\b(?:series|manga|title)|シリーズ名?|作品名?|タイトル) ?: ?)?"
        r"(?P<value>(?(label)[^\s,;。、|「『《\"“][^\n,;。、|「『]{0,59}?"
        rf"(?=\s*(?:[\n,;。、|]|(?<!Dr)(?<!Mr)(?<!St)[.!?](?:\s|\Z)|\Z))|{_NAME}(?= {_ALONE})))",
        re.IGNORECASE,
    ),
    _series,
    cues=(":", *"0123456789"),
    label="series: ",
)
SERIES_OF_VOLUME = EntityType(
    "series",
    re.compile(
        rf"\b(?:vol(?:ume)?s?\.?|chapters?) ?#?\d{{1,4}}(?: ?(?:-|to|through|~) ?\d{{1,4}})? of "
        rf"(?P<value>(?-i:(?!(?:{_NO_TITLE}|{_NUMBERED}|The|A|An|This|That|It)\b){_WORD}(?: {_SMALL}{_WORD}){{0,4}}))",
        re.IGNORECASE,
    ),
    lambda match: " ".join(match["value"].split()).casefold(),
    has_digits=True,
    cues=(" of ",),
)
TITLE_OF_VOLUME = EntityType(
    "title",
    re.compile(rf"(?<![A-Za-zァ-ヴー・\d々一-龠ぁ-ん])(?P<value>{JA.entities.title_of_volume.pattern})"),
    lambda match: match["value"],
    has_digits=True,
    cues=("の",),
)
VOLUME = EntityType(
    "volume",
    re.compile(
        rf"(?=[vt第\d{KANJI}]|(?-i:[A-Z]))(?P<series>{_NAME} )?(?P<value>(?(series)(?P<e>{_ALONE})"
        rf"|(?:\b(?:vol(?:ume)?s?\.?|tome) ?#?(?P<a>\d{{1,4}})(?: ?(?:-|to|through|~) ?(?P<b>\d{{1,4}}))?\b"
        rf"|(?<![\d{KANJI}])(?:(?P<ordinal>第)|(?<!全)(?<!計)(?<!各)(?<!約)(?<!既刊)(?<!残り)(?<!あと)(?<!最大)(?<!初の)(?<!後の)(?<!った))"
        rf"(?P<c>\d{{1,4}}|[{KANJI}]{{1,8}})(?:巻?[~〜\-から]{{1,2}}(?P<d>\d{{1,4}}|[{KANJI}]{{1,8}}))?巻(?!の終わり)"
        r"(?(ordinal)|(?!完結|セット|分|組|中|も?あ[るり]|ほど|くらい|ぐらい|以上|以下|以内|連続|ずつ|構成|まとめ|しか|[きの]?寿司)))))",
        re.IGNORECASE,
    ),
    _volume,
    has_digits=True,
    label="volume ",
)

SHOP = EntityTypes(
    [
        EMAIL,
        URL,
        ORDER_ID,
        ISBN,
        ASIN,
        DATE,
        WEEKDAY,
        TIME,
        PRICE,
        PHONE,
        SERIES,
        SERIES_OF_VOLUME,
        VOLUME,
        QUANTITY,
        TITLE,
        TITLE_OF_VOLUME,
        LANGUAGE,
        REFERENCE,
    ],
)
"""Entity types of a book shop. They include all types of ``GENERAL``, and orders, ISBNs, ASINs, series and volumes."""
