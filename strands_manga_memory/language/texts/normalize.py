"""One form for texts that mean the same: width, case, kana, quotes, dashes, numbers, dates and times."""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache

_KATAKANA = {code: code - 0x60 for code in range(0x30A1, 0x30F7)}
_SIGNS = str.maketrans(
    {
        **dict.fromkeys("\u2018\u2019\u02bc\u00b4`", "'"),
        **dict.fromkeys("\u201c\u201d\u301d\u301f", '"'),
        **dict.fromkeys("\u2010\u2011\u2012\u2013\u2014\u2015\u2212", "-"),
        "\u3001": ",",
        "\u3002": ".",
    }
)
_SPACE = re.compile(r"\s+")
_GROUPED = re.compile(r"(?<![\d.,])(\d{1,3}(?:,\d{3})+)(?![\d,])")

_UNIT_WORDS = """
zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen
nineteen
"""
_TEN_WORDS = "twenty thirty forty fifty sixty seventy eighty ninety"
_UNITS, _TENS = _UNIT_WORDS.split(), _TEN_WORDS.split()
_WORDS = {word: number for number, word in enumerate(_UNITS)} | {word: 10 * number for number, word in enumerate(_TENS, 2)}
_ENGLISH_NUMBER = re.compile(
    rf"\b(?:(?P<tens>{'|'.join(_TENS)})[- ](?P<unit>{'|'.join(_UNITS[1:10])})|(?P<word>{'|'.join(_WORDS)}))\b"
)

_KANJI_DIGITS = {digit: number for number, digit in enumerate("〇一二三四五六七八九")}
_KANJI_PLACES = {"十": 10, "百": 100, "千": 1_000}
_KANJI_COUNTERS = "巻冊話部点個本名人枚回件泊日月年時分円万歳箱通週"
_KANJI_SIGNS = "".join((*_KANJI_DIGITS, *_KANJI_PLACES))
_KANJI_NUMBER = re.compile(rf"(?<![{_KANJI_SIGNS}])[{_KANJI_SIGNS}]{{1,15}}+(?=[{_KANJI_COUNTERS}目つ])")
_LARGE_UNIT = re.compile(r"(?<!\d)(\d{1,12}+(?:\.\d{1,4})?)万(\d{0,4})")


_REMEMBERED, _SHORT = 8_192, 400
"""So many texts of at most so many characters are not normalized twice: slots are compared again with every summary."""


def normalized(text: str) -> str:
    """Return ``text`` in the one form used to compare texts.

    Full and half width, upper and lower case, hiragana and katakana, kinds of quotes, dashes and spaces are the same; digits
    carry no thousands separators; numbers in words are digits, in English up to ninety-nine, in Japanese before a counter.
    """
    return _remembered(text) if len(text) <= _SHORT else _normalized(text)


def _normalized(text: str) -> str:
    text = unicodedata.normalize("NFKC", text).casefold().translate(_SIGNS).translate(_KATAKANA)
    text = _GROUPED.sub(lambda match: match[1].replace(",", ""), text)
    if not text.isascii():
        text = _KANJI_NUMBER.sub(lambda match: str(kanji_number(match[0])), text)
        text = _LARGE_UNIT.sub(lambda match: str(int(float(match[1]) * 10_000) + int(match[2] or 0)), text)
    text = _ENGLISH_NUMBER.sub(_english_number, text)
    return _SPACE.sub(" ", text).strip()


_remembered = lru_cache(_REMEMBERED)(_normalized)


def kanji_number(digits: str) -> int:
    """Return the value of a number written in kanji, below ten thousand: ``二十一`` is 21."""
    if not any(place in digits for place in _KANJI_PLACES):
        return int("".join(str(_KANJI_DIGITS[digit]) for digit in digits))
    total, digit = 0, 0
    for sign in digits:
        if sign in _KANJI_PLACES:
            total += (digit or 1) * _KANJI_PLACES[sign]
            digit = 0
        else:
            digit = _KANJI_DIGITS[sign]
    return total + digit


def _english_number(match: re.Match[str]) -> str:
    if match["tens"]:
        return str(_WORDS[match["tens"]] + _WORDS[match["unit"]])
    return str(_WORDS[match["word"]])


_WORD = re.compile(r"[a-z0-9][a-z0-9'._/@:+-]*[a-z0-9]|[a-z0-9]|[\u3041-\u3096\u30fc]+|[\u3400-\u9fff々]+|[\uac00-\ud7af]+")


def words(text: str) -> list[str]:
    """Return the words of a text in its normalized form: English words and numbers, runs of hiragana, runs of kanji."""
    return list(_remembered_words(text)) if len(text) <= _SHORT else _WORD.findall(normalized(text))


@lru_cache(_REMEMBERED)
def _remembered_words(text: str) -> tuple[str, ...]:
    return tuple(_WORD.findall(normalized(text)))


def encodable(text: str) -> str:
    """Return a text with ``?`` for each half of a surrogate pair that stands alone: JSON can hold one, UTF-8 cannot."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")
