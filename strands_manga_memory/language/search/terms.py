"""Search terms of a text: stems of English words, pairs of characters of Japanese, and words that mean the same as one."""

from __future__ import annotations

import re
import unicodedata
from functools import cache, lru_cache
from itertools import pairwise
from typing import Any

from strands_manga_memory.language.texts.word_sets import words

_STOP = words(
    "a about after again all also am an and any are as at be been before being but by can could d did do does "
    "doing don each for from had has have having he her here hers him his how i if in into is it its just ll m "
    "may me might mine more most must my no nor not now of off on once only or other our out over own re s "
    "same shall she should so some such t than that the their them then there these they this those to too up "
    "us ve very was we were what when where which who whom whose why will with would you your yours "
    "anything everything get gets getting got many much nothing ok okay please something thing things yes"
)
_JAPANESE_SIGNS = r"\u3041-\u309f\u30a1-\u30fa\u30fc\u3005\u3400-\u9fff"
_ASCII_WORD = re.compile(r"[a-z0-9]+")
_WORD = re.compile(rf"[^\W_{_JAPANESE_SIGNS}]+")
_JAPANESE = re.compile(rf"[{_JAPANESE_SIGNS}]+")
_HIRAGANA = re.compile(r"\A[\u3041-\u309f]+\Z")
_GRAMMAR = re.compile(r"[はがをにへとのもでやかだ]|何")
_READ = 8_000
"""Of a longer text only so many characters are indexed."""

_SAME = (
    ("漫画", "マンガ", "まんが", "コミック", "コミックス"),
    ("値段", "価格", "料金", "いくら", "金額", "予算"),
    ("送料", "配送料", "配達料"),
    ("届", "配送", "配達", "到着", "発送"),
    ("届け先", "住所", "配送先", "送り先"),
    ("返品", "返却", "返送", "交換"),
    ("返金", "払い戻し"),
    ("取り消", "キャンセル", "取消"),
    ("注文", "オーダー", "購入", "買"),
    ("支払", "決済", "払"),
    ("カード", "クレジット"),
    ("好き", "お気に入り", "好み", "好物", "大好", "推し", "ファン"),
    ("嫌い", "苦手", "避け", "嫌"),
    ("おすすめ", "お勧め", "推薦", "オススメ", "お薦め"),
    ("プレゼント", "贈り物", "ギフト", "贈"),
    ("誕生日", "バースデー", "生まれ"),
    ("本", "書籍", "単行本"),
    ("新刊", "最新刊", "新作", "発売"),
    ("予約", "取り置き", "取置"),
    ("在庫", "品切れ", "売り切れ"),
    ("割引", "セール", "値引", "クーポン", "安く"),
    ("会員", "メンバー", "登録"),
    ("店", "店舗", "ショップ"),
    ("子供", "子ども", "息子", "娘", "こども"),
    ("怖", "ホラー", "恐怖"),
    ("恋愛", "ラブ", "ラブコメ", "恋"),
    ("名前", "氏名", "宛名"),
    ("電話", "携帯", "番号", "連絡先"),
    ("メール", "メールアドレス", "アドレス"),
    ("壊", "破損", "破れ", "折れ", "傷", "不良"),
    ("遅", "遅延", "まだ"),
    ("電子", "デジタル", "キンドル"),
    ("紙", "印刷"),
    ("友達", "友人"),
    ("母", "お母さん", "母親"),
    ("父", "お父さん", "父親"),
    ("仕事", "職業", "勤め", "会社", "職場"),
    ("引っ越", "転居", "移転"),
    ("猫", "ネコ", "ねこ"),
    ("犬", "イヌ", "いぬ"),
    ("昨日", "きのう"),
    ("来週", "翌週"),
    ("全巻", "全部", "全て", "揃"),
    ("古本", "中古"),
    ("英語", "英訳", "英文"),
    ("雑誌", "マガジン"),
)


@cache
def _stemmer() -> Any:
    import snowballstemmer  # it loads thirty languages, which takes longer than the rest of the package

    return snowballstemmer.stemmer("english")


@lru_cache(maxsize=20_000)
def _stem(word: str) -> str:
    return str(_stemmer().stemWord(word))


def terms(text: str) -> list[str]:
    """Return the terms of a text, in order: no stop words, stems of words, characters and pairs of characters of Japanese."""
    plain, found = _split(text)
    found = [_stem(word) for word in found]
    if not plain.isascii():
        for run in _JAPANESE.findall(plain):
            found += _pairs(run)
    return found


def content_words(text: str) -> list[str]:
    """Return the words of a text that say what it is about, as they were written, each once, in order; no Japanese ones."""
    return list(dict.fromkeys(_split(text)[1]))


def _split(text: str) -> tuple[str, list[str]]:
    """Return the text in plain form, and its words that have spaces between them, without stop words."""
    text = text[:_READ]
    if text.isascii():
        plain = text.lower()
        return plain, [word for word in _ASCII_WORD.findall(plain) if word not in _STOP]
    plain = unicodedata.normalize("NFKC", text).lower()
    return plain, [word for word in _WORD.findall(plain) if word not in _STOP]


def query_terms(text: str) -> list[str]:
    """Return the terms of a question, each once, with those of words that mean the same."""
    found = dict.fromkeys(terms(text))
    plain = unicodedata.normalize("NFKC", text[:_READ])
    if not plain.isascii():
        for group in _SAME:
            if any(word in plain for word in group):
                for word in group:
                    found.update(dict.fromkeys(_pairs(word)))
    return list(found)


def content_terms(text: str) -> frozenset[str]:
    """Return the terms of a question of which a relevant text shares one.

    A single kanji says little: 送 is in 送料 and in 送り先. Without longer terms, and for runs of hiragana alone, all count.
    """
    found = query_terms(text)
    telling = frozenset(term for term in found if term.isascii() or (len(term) > 1 and not _GRAMMAR.search(term)))
    return telling or frozenset(found)


def _pairs(run: str) -> list[str]:
    """Return single kanji and pairs of neighbouring characters; a pair of hiragana alone says little and is left out."""
    found = [character for character in run if character >= "\u3400"]
    for first, second in pairwise(run):
        pair = first + second
        if not _HIRAGANA.match(pair):
            found.append(pair)
    if _HIRAGANA.match(run):
        found += [run[at : at + 3] for at in range(max(1, len(run) - 2))]
    return found
