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

from strands_manga_memory.language.packs import ANY, EN, JA, Section, cached_if_short, in_context
from strands_manga_memory.messages.texts import split_pieces

_T = TypeVar("_T")

_WORK, _PAUSE = 0.001, 0.000_1


def with_pauses(items: Iterable[_T]) -> Iterator[_T]:
    """Yield items, and pause after each millisecond of work so that other threads can run."""
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

_KANJI_SIGNS = "〇一二三四五六七八九十百千"
_KANJI_NUMBER = re.compile(
    rf"(?<![{_KANJI_SIGNS}])[{_KANJI_SIGNS}]{{1,15}}+"
    "(?=[巻冊話部点個本名人枚回件泊日月年時分円万歳箱通週目つ])"
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
    values = [int(unicodedata.numeric(sign)) for sign in digits]
    if max(values) < 10:
        return int("".join(map(str, values)))
    total, digit = 0, 0
    for value in values:
        if value < 10:
            digit = value
        else:
            total, digit = total + (digit or 1) * value, 0
    return total + digit


def _english_number(match: re.Match[str]) -> str:
    return str(sum(_WORDS[word] for word in match[0].replace("-", " ").split()))


_WORD = re.compile(
    r"[a-z0-9][a-z0-9'._/@:+-]*[a-z0-9]|[a-z0-9]|[\u3041-\u3096\u30fc]+|[\u3400-\u9fff々]+|[\uac00-\ud7af]+"
)


@cached_if_short
def words(text: str) -> tuple[str, ...]:
    """Return the words of a text, in the normal form of ``normalized``.

    In Japanese text, runs of kana and runs of kanji count as words.
    """
    return tuple(_WORD.findall(normalized(text)))


def lower_case(text: str) -> str:
    """Return a text in lower case, with ASCII apostrophes, as most patterns expect it."""
    return text.lower().replace("\u2019", "'")


_JAPANESE = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]")


def is_japanese(text: str) -> bool:
    """Return whether a text contains a kana or a kanji."""
    return _JAPANESE.search(text) is not None


def has_question_mark(text: str) -> bool:
    """Return whether a text ends with a question mark."""
    return text.rstrip().endswith(("?", "？"))


def encodable(text: str) -> str:
    """Replace the characters of a text that UTF-8 cannot encode (unpaired surrogates) by ``?``."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")


_SPELLINGS = {
    spelled(other.replace("+", " ")): spelled(standard.replace("+", " "))
    for standard, *others in EN.groups("spelling.words")
    for other in others
    for spelled in (str, lambda text: text[:1].upper() + text[1:])
}
_OTHER_SPELLING = re.compile(
    rf"(?<![\w'@.&/?=:-])(?:{'|'.join(map(re.escape, _SPELLINGS))})(?![\w'@&/=-])"
)
_DIALECT = JA.rules("spelling")
_DIALECT_LETTERS = re.compile("ん|ええ")
_REPEATED = re.compile(r"(?<=[a-z])([a-z])\1{2,8}(?=[a-z]|\b)")
_CHAT_CHARACTERS = 300
_SAME_LETTERS = re.compile(r"([a-z])\1\1")
_FIRST_WORDS = frozenset(
    f"{other.split()[0]}{sign}" for other in _SPELLINGS for sign in ("", *",.!?")
)


def standard_spelling(text: str) -> str:
    """Replace chat spellings, such as "im" and "looove", by standard spellings.

    Repeated letters are replaced only in texts of under 300 characters. Some words of the Kansai
    dialect of Japanese are replaced, too.
    """
    text = text.replace("\u2019", "'")
    if _DIALECT_LETTERS.search(text):
        for rule in _DIALECT:
            text = rule.pattern.sub(rule.key, text)
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


_CAPITALIZED = re.compile(r"(?<!\A)[A-Z](?<!\w[A-Z])[\w'-]+")
_NUMBER = re.compile(
    rf"\d+|(?=[otfsen])\b(?:(?<!the )(?<!this )(?<!that )one|{'|'.join(_UNITS[2:13])})\b|"
    r"(?<![一二三四五六七八九十百])[一二三四五六七八九十百]++(?=[巻冊人名日月時])"
)
_KANA_NAME = re.compile(r"[ァ-ヴー]{3,}|[一-龯]{2,}")
_LINE_NUMBER = re.compile(
    r"\A\W*(?:(?:step|number|no|item|option) ?\d{1,3}\b ?[:.)-]|\d{1,3}[.)] )", re.IGNORECASE
)


def information_weight(sentence: str) -> float:
    """Rate the amount of specific information in a sentence, from 0 to 5.5.

    Each number or name adds 1, up to 4. Words about the speaker ("my") add 1.5. The number of a
    list item, as in "2. Berserk", does not count.
    """
    sentence = _LINE_NUMBER.sub("", sentence).lstrip()
    lower = sentence.lower()
    numbers = len(_NUMBER.findall(lower))
    names = len(_CAPITALIZED.findall(sentence)) + len(_KANA_NAME.findall(sentence)) // 2
    return min(4.0, numbers + names) + (1.5 if ANY.condense.mine.search(lower) else 0.0)


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

    @property
    def has_value(self) -> bool:
        """Whether the text contains a number, a time or a name."""
        return self.has_number or self.has_time or self.name_count > 0


_STOP_WORDS = EN.words("features.stop_words")


def text_features(text: str) -> tuple[TextFeatures, frozenset[str]]:
    """Return the properties of a text, such as whether it is a question, and its content words.

    Content words of English are all words except stop words. Content words of Japanese are runs of
    kanji and of katakana. Only the first 4,000 characters of the text are read.
    """
    text = text[:_READ].strip()
    low = lower_case(text).replace(" '", "'").replace(" n't", "n't")
    rules = (JA if is_japanese(text) else EN).features
    found = TextFeatures(
        has_number=rules.number.search(low) is not None,
        name_count=len(rules.name.findall(text)),
        has_time=rules.time.search(low) is not None,
        has_wish=rules.wants.search(low) is not None,
        ends_with_question=rules.asks.search(low) is not None,
        is_about_speaker=bool(rules.tells.search(low) and not EN.features.serves.search(low)),
    )
    return found, frozenset(rules.word.findall(low)) - _STOP_WORDS


# Sentiment.


def sentiment_score(text: str) -> int:
    """Return the sentiment of a text: above 0 if positive, below 0 if negative, 0 if neutral.

    Args:
        text: Sentence or clause in English or Japanese, without names of genres, because "horror"
            would count as a complaint.
    """
    lower = lower_case(text)
    return sum(_sentiment_score(lower, rules) for rules in _sentiment_rules(lower))


def is_evaluative(text: str) -> bool:
    """Return whether a text contains an evaluating word, such as "great", even if it is negated."""
    lower = lower_case(text)
    return any(rules.evaluation.search(lower) for rules in _sentiment_rules(lower))


def _sentiment_rules(text: str) -> list[Section]:
    return [EN.sentiment] if text.isascii() else [EN.sentiment, JA.sentiment]


def _sentiment_score(text: str, rules: Section) -> int:
    score = 0
    for pattern, worth in ((rules.settled_good, 1), (rules.withheld, -1)):
        text, found = pattern.subn(" ", text)
        score += worth * found
    for match in rules.wished.finditer(text):
        score -= not match["asked"] and rules.evaluation.search(match[0]) is not None
    text = rules.wished.sub(" ", text)
    for match in rules.evaluation.finditer(text):
        context = in_context(text, *match.span())
        if match["good"]:
            score += -1 if rules.not_good.search(context) else 1
        else:
            score -= rules.not_bad.search(context) is None
    return score
