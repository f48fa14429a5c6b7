"""Entities of a book shop: orders, ISBN, ASIN, series and volumes."""

from __future__ import annotations

import re

from strands_manga_memory.language.entities.entities import EntityType, EntityTypes
from strands_manga_memory.language.entities.entity_kinds import (
    DATE,
    EMAIL,
    KANJI,
    LANGUAGE,
    MONTHS,
    PHONE,
    PRICE,
    QUANTITY,
    REFERENCE,
    TIME,
    TITLE,
    URL,
    WEEKDAY,
    number_of,
)

_EDGE = r"(?<![A-Za-z0-9_-])"
_END = r"(?![A-Za-z0-9_]|-[A-Za-z0-9])"


def _upper(match: re.Match[str]) -> str:
    return match["value"].upper()


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
_NO_TITLE = (
    "Is|Are|Was|Do|Does|Did|Have|Has|Can|Could|Would|Will|Should|Where|When|What|Which|Who|Why|How|I|If|Hi|Hello|Hey|Please|And"
    "|Or|But|So|Also|Then|Yes|No|Not|Order|Buy|Get|Give|Send|My|Your|Our|On|In|At|By|From|For|With|To|Until|Till|Since|After"
    f"|Before|About|Around|Only|Just|Over|Under|Next|Last|{'|'.join(name.title() for name in MONTHS)}"
)
_NUMBERED = (
    "Vol|Volume|Volumes|Chapter|Chapters|Book|Part|Page|Level|Season|Episode|Act|Step|Top|Number|Order|Room|Suite|Unit|Floor|Gate"
    "|Street|Avenue|Road|Route|Highway|Platform|Terminal|Track|Line|Flight|Bus|Train|Windows|Version|Day|Week|Grade|Channel"
    "|Dollars|Yen|Euros"
    f"|{'|'.join(name.title() for name in MONTHS)}"
)
_WORD, _SMALL = r"[A-Z][\w'-]{0,20}", r"(?:(?:of|on|the|no|to|and|in|x) ){0,2}"
_NAME = rf"(?-i:\b(?!(?:{_NO_TITLE}|{_NUMBERED})\b)(?:{_WORD} {_SMALL}){{1,4}}(?!(?:{_NUMBERED})\b){_WORD})"
"""Two to five words that begin with capitals, as in "Attack on Titan"; what numbers other things is no name of a series."""
_ALONE = r"\d{1,3}(?![\w%:/-]|[.,]\d| ?(?:[ap]\.?m\b|yen|dollars|euros|%))"
"""A number that nothing follows that it could count."""


_QUESTION = re.compile(
    r"(?:which|what|who|where|when|why|how|is|are|was|were|do|does|did|have|has|can|could|would|will|should) [^\n?]{0,80}\?"
)
"""A question in small letters, as no title is written."""


def _series(match: re.Match[str]) -> str | None:
    """Return the name of a series; None where "manga: volume 2" names only a volume, or "manga: which was it?" asks."""
    if _QUESTION.match(match.string, match.start("value")):
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
        LANGUAGE,
        REFERENCE,
    ],
)
"""The preset of a book shop: also orders, ISBN, ASIN, series and volumes."""
