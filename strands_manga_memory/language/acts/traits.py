"""Traits of a text that tell how much it says: figures, names, dates, wishes, questions, and what the speaker tells of itself.

All of it is read from the surface, in English and Japanese, in some ten microseconds; nothing is known of the conversation.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Collection
from dataclasses import dataclass

from strands_manga_memory.language.text_forms import word_set

_READ = 4_000
"""Of a longer text only so many characters are read."""

_MOST_SHARED = 50_000
"""So many different words are kept once for all conversations of the process."""


@dataclass(frozen=True, slots=True)
class Traits:
    """What the surface of a text shows.

    Attributes:
        number: It holds a figure, or a number in words.
        names: How many names: capitalized words within a sentence; in Japanese runs of katakana and quoted titles.
        time: It speaks of a day, a date or a time.
        wants: The speaker says what it wants or needs.
        asks: It ends with a question.
        tells: The speaker tells of itself: what it has, did, or likes.
    """

    number: bool = False
    names: int = 0
    time: bool = False
    wants: bool = False
    asks: bool = False
    tells: bool = False


@functools.lru_cache(4_096)
def traits_of(number: bool, names: int, time: bool, wants: bool, asks: bool, tells: bool) -> Traits:  # noqa: FBT001 - a cache's key
    """Return one and the same object for all texts that show the same."""
    return Traits(number, names, time, wants, asks, tells)


_shared: dict[str, str] = {}


def shared(said: Collection[str]) -> tuple[str, ...]:
    """Return words, to be kept, as the objects that other conversations keep: thousands of agents use the same ones."""
    if len(_shared) > _MOST_SHARED:
        _shared.clear()
    return tuple(map(_shared.setdefault, said, said))


STOP_WORDS = word_set(
    "a about after again all also am an and any are as at be been before being but by can could did didn't do "
    "does doesn't doing don don't done each for from get go going good got great had has have having he hello "
    "her here hers hey hi him his how i i'd i'll i'm i've if in into is it it's its just know let let's like "
    "lot may me might mine more most must my need no nor not now of off oh ok okay on once one only or other "
    "our out over own please really s same shall she should so some such sure t than thank thanks that that's "
    "the their them then there these they this those to too up us very want was we well were what when where "
    "which who whom whose why will with would wow yeah yes you you're your yours"
)

_WORD = re.compile(r"[a-z0-9][a-z0-9'_-]*")
_SPACED = bytes(code if code < 128 and (chr(code).isalnum() or chr(code) in "'_-") else 32 for code in range(256))
_DIGITS = "0123456789"
_NUMBERS = word_set("one two three four five six seven eight nine ten first second third")
_SELF = word_set("i i'd i'll i'm i've my our we we'd we'll we're we've")
_NAME = re.compile(r"(?<=[a-z0-9,;:'\"] )[A-Z][a-z]+")
_TIMES = word_set(
    "today tonight tomorrow yesterday last next ago week weeks month months year years monday tuesday wednesday thursday friday"
    " saturday sunday january february march april june july august september october november december morning afternoon"
    " evening noon"
)
_CLOCK = re.compile(r"\d ?[ap]\.?m\b|\bmay \d|\d(?:st|nd|rd|th)?(?: of)? may\b")
_WISHES = word_set("need want like looking look prefer love hate")
_WANTS = re.compile(rf"\b(?:i|we)(?:'d|'m|'ll)?(?: \w+){{0,2}} (?:{'|'.join(sorted(_WISHES))})\b")
_TELLS = re.compile(
    r"\b(?:my|our) (?!pleasure|apolog|mistake|recommend|suggest|bad\b|records?|system|service)\w+"
    r"|\b(?:i|we)(?:'ve|'m| am| have| had| was| were| just| also| really| finally| recently| even| actually| always| never"
    r"| only"
    r"| used to| love| can't)* (?:\w+ed|went|got|made|took|saw|bought|met|started|gave|had|did|been|won|was|were|tried|read"
    r"|wrote"
    r"|heard|told|felt|grew|love|like|enjoy|hate|miss|came|ran|lost|ate|drove|spent|taught|learned|kept)\b"
)
_SERVES = re.compile(
    r"\b(?:i|we)(?:'ve| have| had)? (?:found|discovered|booked|located|checked|confirmed|completed|reserved|retrieved"
    r"|reviewed|scheduled"
    r"|transferred|cancelled|canceled|updated|looked|searched|issued|processed|modified|selected|ordered|added"
    r"|apologi[sz]ed?|made (?:the|a|your)"
    r"|got (?:you|a|\d|one|some)|need(?:ed)?|tried|was (?:able|unable|not able)|did|received|noted|understood|started)\b"
)

_JA_TEXT = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]")
_JA_WORD = re.compile(r"[\u3400-\u9fff\u3005]+|[\u30a1-\u30fa\u30fc]{2,}|[a-z0-9]+")
_JA_NUMBER = re.compile(r"[0-9０-９]|[一二三四五六七八九十百千万](?:つ|冊|巻|人|名|個|円|回|本|枚|歳|年|月|日|時)")
_PREFECTURES = (
    "北海道 青森 岩手 宮城 秋田 山形 福島 茨城 栃木 群馬 埼玉 千葉 東京 神奈川 新潟 富山 石川 福井 山梨 長野 岐阜 静岡 愛知"
    " 三重 滋賀 京都 大阪 兵庫 奈良 和歌山 鳥取 島根 岡山 広島 山口 徳島 香川 愛媛 高知 福岡 佐賀 長崎 熊本 大分 宮崎 鹿児島"
    " 沖縄 札幌 盛岡 仙台 水戸 宇都宮 前橋 横浜 金沢 甲府 名古屋 大津 神戸 松江 高松 松山 那覇"
)
"""Prefectures, and their capitals where these have another name: the places that are spoken of without 市 or 県."""

_JA_NAME = re.compile(
    r"[「『][^「『」』]{1,80}[」』]|[\u30a1-\u30fa\u30fc]{3,}|[A-Z][A-Za-z]+"
    r"|[\u3400-\u9fff々ヶ]{1,8}(?<!最寄)(?<!最寄り)(?:駅|区|市|町|村|県|府|島|寺|神社|公園|線|通り|温泉|空港|大学|病院|さん|様|氏)"
    rf"|{'|'.join(_PREFECTURES.split())}"
)
_JA_TIME = re.compile(
    r"今日|明日|明後日|昨日|一昨日|[今来先]週|[今来先]月|今年|来年|去年|昨年|曜|午前|午後|朝|夜|夕方"
    r"|[0-9０-９一二三四五六七八九十](?:年|月|日|時|分)"
)
_JA_WANTS = re.compile(r"たい(?:です|の|と|ん|。|\Z)|ほしい|欲しい|探して|希望|必要|お願いし")
_JA_ASKS = re.compile(r"(?:[?？]|か[。.]?|かな[。.]?|の[?？])\s*\Z")
_JA_TELLS = re.compile(
    r"(?:私|わたし|僕|ぼく|俺|うち|自分)(?:の|は|も|が|に|と)|(?:好き|嫌い|苦手|ハマって|集めて|読んで|持って|住んで)(?:い"
    r"|る|ます|です|な)"
)


def traits(text: str) -> tuple[Traits, frozenset[str]]:
    """Return the traits of a text, and its words that carry meaning; of Japanese its runs of kanji and katakana.

    Of a text over 4,000 characters its beginning is read.
    """
    text = text[:_READ].strip()
    low = _lowered(text)
    if not text.isascii() and _JA_TEXT.search(text):
        found = traits_of(
            number=_JA_NUMBER.search(text) is not None,
            names=len(_JA_NAME.findall(text)),
            time=_JA_TIME.search(text) is not None,
            wants=_JA_WANTS.search(text) is not None,
            asks=_JA_ASKS.search(text) is not None,
            tells=_JA_TELLS.search(text) is not None,
        )
        return found, frozenset(_JA_WORD.findall(low)) - STOP_WORDS
    said = _words(low)
    speaks_of_self = not _SELF.isdisjoint(said)
    has_digit = any(map(low.__contains__, _DIGITS))
    found = traits_of(
        number=has_digit or not _NUMBERS.isdisjoint(said),
        names=len(_NAME.findall(text)),
        time=not _TIMES.isdisjoint(said) or (has_digit and _CLOCK.search(low) is not None),
        wants=speaks_of_self and not _WISHES.isdisjoint(said) and _WANTS.search(low) is not None,
        asks=low.endswith("?"),
        tells=speaks_of_self and _TELLS.search(low) is not None and not _SERVES.search(low),
    )
    return found, said - STOP_WORDS


def words_of(text: str) -> frozenset[str]:
    """Return the words that :func:`traits` returns."""
    low = _lowered(text := text[:_READ].strip())
    if not text.isascii() and _JA_TEXT.search(text):
        return frozenset(_JA_WORD.findall(low)) - STOP_WORDS
    return _words(low) - STOP_WORDS


def _lowered(text: str) -> str:
    return text.lower().replace("\u2019", "'").replace(" '", "'").replace(" n't", "n't")


def _words(low: str) -> frozenset[str]:
    """Return the words of a text in lower case."""
    if not low.isascii():
        return frozenset(_WORD.findall(low))
    return frozenset(low.encode().translate(_SPACED).decode().split())  # in half the time, and as good: ``'s`` is a stop word
