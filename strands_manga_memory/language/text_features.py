"""Normalization, sentences, content words, features and sentiment of English and Japanese text.

Normalization makes different spellings of a text equal. Features are numbers, names, dates, wishes,
questions and words about the speaker. Word lists contain stems, which match all forms of a word.
"""

from __future__ import annotations

import re
import time
import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from strands_manga_memory.language.packs import ANY, EN, JA, cached_if_short
from strands_manga_memory.messages.texts import split_pieces

_T = TypeVar("_T")

_WORK, _PAUSE = 0.001, 0.000_1


def with_pauses(items: Iterable[_T]) -> Iterator[_T]:
    """Yield items, with a pause for other threads after each millisecond of work.

    Without pauses, long work would stop other threads, such as the event loop's, for 5 ms at a
    time.
    """
    began = time.perf_counter()
    for item in items:
        yield item
        if time.perf_counter() - began >= _WORK:
            time.sleep(_PAUSE)
            began = time.perf_counter()


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

_UNITS, _TENS = EN.groups("numbers.units")[0], EN.groups("numbers.tens")[0]
_WORDS = {word: number for number, word in enumerate(_UNITS)} | {
    word: 10 * number for number, word in enumerate(_TENS, 2)
}
_ENGLISH_NUMBER = re.compile(
    rf"\b(?:(?:{'|'.join(_TENS)})[- ](?:{'|'.join(_UNITS[1:10])})|{'|'.join(_WORDS)})\b"
)

_KANJI_DIGITS = {digit: number for number, digit in enumerate("〇一二三四五六七八九")}
_KANJI_PLACES = {"十": 10, "百": 100, "千": 1_000}
_KANJI_COUNTERS = "巻冊話部点個本名人枚回件泊日月年時分円万歳箱通週"
_KANJI_SIGNS = "".join((*_KANJI_DIGITS, *_KANJI_PLACES))
_KANJI_NUMBER = re.compile(
    rf"(?<![{_KANJI_SIGNS}])[{_KANJI_SIGNS}]{{1,15}}+(?=[{_KANJI_COUNTERS}目つ])"
)
_LARGE_UNIT = re.compile(r"(?<!\d)(\d{1,12}+(?:\.\d{1,4})?)万(\d{0,4})")


@cached_if_short
def normalized(text: str) -> str:
    """Return a text in a normal form, in which different spellings can be compared.

    Upper and lower case, full and half width, hiragana and katakana, and kinds of quotes, dashes
    and spaces become the same. Thousands separators are removed. Numbers in words become digits: in
    English up to 99, in Japanese before a counting word such as ``冊``.
    """
    text = unicodedata.normalize("NFKC", text).casefold().translate(_SIGNS).translate(_KATAKANA)
    text = _GROUPED.sub(lambda match: match[1].replace(",", ""), text)
    if not text.isascii():
        text = _KANJI_NUMBER.sub(lambda match: str(kanji_number(match[0])), text)
        text = _LARGE_UNIT.sub(
            lambda match: str(int(float(match[1]) * 10_000) + int(match[2] or 0)), text
        )
    text = _ENGLISH_NUMBER.sub(_english_number, text)
    return _SPACE.sub(" ", text).strip()


def kanji_number(digits: str) -> int:
    """Convert a number below ten thousand in kanji to an integer, such as ``二十一`` to 21."""
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
    return str(sum(_WORDS[word] for word in match[0].replace("-", " ").split()))


_WORD = re.compile(
    r"[a-z0-9][a-z0-9'._/@:+-]*[a-z0-9]|[a-z0-9]|[\u3041-\u3096\u30fc]+|[\u3400-\u9fff々]+|[\uac00-\ud7af]+"
)


def words(text: str) -> list[str]:
    """Return the words of a text, in the normal form of ``normalized``.

    Japanese text has no spaces, so its runs of kana and runs of kanji count as words.
    """
    return list(_words(text))


@cached_if_short
def _words(text: str) -> tuple[str, ...]:
    return tuple(_WORD.findall(normalized(text)))


def lower_case(text: str) -> str:
    """Return a text in lower case, with ASCII apostrophes, as most patterns expect it."""
    return text.lower().replace("\u2019", "'")


def has_question_mark(text: str) -> bool:
    """Return whether a text ends with a question mark."""
    return text.rstrip().endswith(("?", "？"))


def encodable(text: str) -> str:
    """Replace the characters of a text that UTF-8 cannot encode by ``?``.

    These are unpaired surrogates (halves of characters), which JSON may contain.
    """
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")


_SPELLINGS = {
    other.replace("+", " "): standard.replace("+", " ")
    for standard, *others in EN.groups("spelling.words")
    for other in others
}
_OTHER_SPELLING = re.compile(
    rf"(?<![\w'@.&/?=:-])(?:{'|'.join(map(re.escape, _SPELLINGS))})(?![\w'@&/=-])"
)
_REPEATED = re.compile(r"(?<=[a-z])([a-z])\1{2,8}(?=[a-z]|\b)")
_CHAT_CHARACTERS = 300
_SAME_LETTERS = re.compile(r"([a-z])\1\1")
_FIRST_WORDS = frozenset(
    f"{other.split()[0]}{sign}" for other in _SPELLINGS for sign in ("", *",.!?")
)


def standard_spelling(text: str) -> str:
    """Replace lower-case chat spellings, such as "im" and "looove", by standard spellings.

    Repeated letters are replaced only in texts of under 300 characters.
    """
    text = text.replace("\u2019", "'")
    if len(text) < _CHAT_CHARACTERS and _SAME_LETTERS.search(text):
        text = _REPEATED.sub(r"\1", text)
    if _FIRST_WORDS.isdisjoint(text.split()):  # the pattern is slow
        return text
    return _OTHER_SPELLING.sub(lambda match: _SPELLINGS[match[0]], text)


_ABBREVIATED = (
    r"(?<!\b(?i:st|mr|ms|dr|no|vs|pp|ca|cf)\.)(?<!\b(?i:mrs|vol|etc|inc|ltd|fig)\.)(?<!\bapprox\.)"
)
_IN_A_LIST = r"(?<!\A\d\.)(?<!\A\d\d\.)"
"""Pattern that prevents the end of a sentence after a list number, as in "2. Berserk"."""
_NOT_IN_A_TITLE = (
    r"(?!(?<=[！？])(?:[』」]|を|[はがのもに](?:[^ぁ-んー]|すき|ほし|あり|どこ|いくら|まだ|いい)))"
)
"""Pattern that prevents the end of a sentence within a title, as in 「けいおん！が好きです」."""
_SENTENCE_END = re.compile(
    rf"(?<=[.!?]){_ABBREVIATED}{_IN_A_LIST}(?:\s+(?=[^a-z])|(?<=[a-z0-9)!?]{{2}}[.!?])\s+(?=[a-z]))|"
    rf"(?<=[。！？])(?![！？]){_NOT_IN_A_TITLE}|;\s|(?<=\w) ++[.!?] "
)


def split_sentences(text: str) -> Iterator[str]:
    """Yield the sentences of a text, without surrounding white space."""
    for piece in split_pieces(text):
        yield from filter(None, map(str.strip, _SENTENCE_END.split(piece)))


_CAPITALIZED = re.compile(r"[A-Z](?<!\w[A-Z])[\w'-]+")
_NUMBER = re.compile(
    rf"\d+|(?=[otfsen])\b(?:(?<!the )(?<!this )(?<!that )one|{'|'.join(_UNITS[2:13])})\b|"
    r"(?<![一二三四五六七八九十百])[一二三四五六七八九十百]++(?=[巻冊人名日月時])"
)
_LINE_NUMBER = re.compile(
    r"\A\W*(?:(?:step|number|no|item|option) ?\d{1,3}\b ?[:.)-]|\d{1,3}[.)] )", re.IGNORECASE
)
_KANA_NAME = re.compile(r"[ァ-ヴー]{3,}|[一-龯]{2,}")


def information_weight(sentence: str) -> float:
    """Rate the amount of specific information in a sentence, from 0 to 5.5.

    Each number or name adds 1, up to 4. Words about the speaker ("my") add 1.5. The number of a
    list item, as in "2. Berserk", does not count.
    """
    sentence = _LINE_NUMBER.sub("", sentence).lstrip()
    lower = sentence.lower()
    names = sum(name.start() > 0 for name in _CAPITALIZED.finditer(sentence))
    if not sentence.isascii():
        names += len(_KANA_NAME.findall(sentence)) // 2
    is_mine = ANY.condense.mine.search(lower) is not None
    numbers = len(_NUMBER.findall(lower))
    return min(4.0, numbers + names) + (1.5 if is_mine else 0.0)


_READ = 4_000
"""Most characters of a text that are read. Further characters are ignored."""


@dataclass(frozen=True, slots=True)
class TextFeatures:
    """Properties of a text that are recognized by its wording, such as a wish or a question.

    Attributes:
        has_number: Whether the text contains a number in digits or in words.
        name_count: Number of names: capitalized words within a sentence, or in Japanese runs of
            katakana and quoted titles.
        has_time: Whether the text mentions a day, a date or a time.
        has_wish: Whether the speaker states a wish or a need.
        ends_with_question: Whether the text ends with a question.
        is_about_speaker: Whether speakers talk about themselves, such as about their possessions
            or actions.
    """

    has_number: bool = False
    name_count: int = 0
    has_time: bool = False
    has_wish: bool = False
    ends_with_question: bool = False
    is_about_speaker: bool = False


STOP_WORDS = EN.words("features.stop_words")


def text_features(text: str) -> tuple[TextFeatures, frozenset[str]]:
    """Return the properties of a text, such as a wish or a question, and its content words.

    Content words of English are all words except stop words. Content words of Japanese are runs of
    kanji and of katakana. Only the first 4,000 characters of the text are read.
    """
    text = text[:_READ].strip()
    low = lower_case(text).replace(" '", "'").replace(" n't", "n't")
    features = (JA if JA.features.text.search(text) else EN).features
    found = TextFeatures(
        has_number=features.number.search(low) is not None,
        name_count=len(features.name.findall(text)),
        has_time=features.time.search(low) is not None,
        has_wish=features.wants.search(low) is not None,
        ends_with_question=features.asks.search(low) is not None,
        is_about_speaker=features.tells.search(low) is not None
        and not EN.features.serves.search(low),
    )
    return found, frozenset(features.word.findall(low)) - STOP_WORDS


# Sentiment.


_SETTLED_BAD = ("二度と", "な", "ま", "い")
"""Endings of negative words whose meaning a following negation does not reverse."""


def sentiment_score(text: str) -> int:
    """Return the sentiment of a text: above 0 if positive, below 0 if negative, 0 if neutral.

    Args:
        text: Sentence or clause in English or Japanese, without names of genres, because "horror"
            would count as a complaint.
    """
    lower, score = lower_case(text), 0
    for pattern, worth in ((EN.sentiment.settled_good, 1), (EN.sentiment.withheld, -1)):
        lower, found = pattern.subn(" ", lower)
        score += worth * found
    for match in EN.sentiment.wished.finditer(lower):
        score -= not match["asked"] and EN.sentiment.english.search(match[0]) is not None
    lower = EN.sentiment.wished.sub(" ", lower)
    for match in EN.sentiment.english.finditer(lower):
        is_not = (
            EN.sentiment.negated.search(lower[max(0, match.start() - 60) : match.start()])
            is not None
        )
        if match["good"]:
            score += -1 if is_not else 1
        else:
            score -= not is_not
    return score if lower.isascii() else score + _japanese_score(lower)


def is_evaluative(text: str) -> bool:
    """Return whether a text contains an evaluating word, such as "great", even if it is negated."""
    lower = lower_case(text)
    return EN.sentiment.english.search(lower) is not None or (
        not lower.isascii() and JA.sentiment.japanese.search(lower) is not None
    )


def _japanese_score(text: str) -> int:
    score = -sum(not match["asked"] for match in JA.sentiment.wished.finditer(text))
    rest, withheld = JA.sentiment.withheld.subn("\u3000", JA.sentiment.wished.sub("\u3000", text))
    score -= withheld
    for match in JA.sentiment.japanese.finditer(rest):
        is_not = JA.sentiment.negated_after.match(rest[match.end() : match.end() + 14]) is not None
        if match["good"]:
            settled = match[0].endswith(("い", "せん", "くて", "さ", "なく", "なし"))
            score += -1 if is_not and not settled else 1
        else:
            score -= not is_not or match[0].endswith(_SETTLED_BAD)
    return score
