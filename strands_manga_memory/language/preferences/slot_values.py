"""PreferenceSlots: one slot for each thing a user can prefer, and what a statement does to them. Pure."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from strands_manga_memory.language.search import search_terms

DISLIKES, LIKES, STYLE = "dislikes", "likes", "style"
"""The slots of what is not wanted, of what is and belongs to no other slot, and of how the user wants to be answered."""

TASTES = ("genre", "author", "format", LIKES)
"""The slots that a thing leaves when it is not wanted any more."""

_NAMES = (
    "genre ジャンル",
    "author writer mangaka artist 作家 作者 漫画家 著者",
    "format 形式 形態 媒体",
    "language 言語",
    "budget limit 予算 上限",
    "style tone 口調 話し方 文体",
    "name nickname 名前 呼び名 呼び方 ニックネーム あだ名",
    "home residence 住まい 居住地",
    "spoilers spoiler ネタバレ",
    "dislikes dislike disliked hates 嫌い 苦手",
    "likes like liked 好き",
)
_SLOT_OF = {name: line.split()[0] for line in _NAMES for name in line.split()}
_OWNER = re.compile(r"\A(?:(?:my|our|the|user'?s?|current|usual|main)\b|(?:私|僕|俺|ユーザー)の)\s?")
_ROLE = re.compile(
    r"\A(?:(?P<unwanted>(?:disliked|hated|unwanted|least favorite)\b|(?:嫌い|苦手)な)"
    r"|(?P<wanted>(?:favorite|preferred|liked)\b|(?:一番|いちばん)?(?:好き|お気に入り|好み)[なの])"
    r"|(?P<amount>(?:monthly|weekly|yearly|annual|max|maximum|total|spending|price)\b|(?:毎?月|週|年間?)の)"
    r"|(?P<answer>(?:answer|answering|reply|response|writing|conversation|communication)\b|(?:返事|回答|返答)の))\s?"
)
"""What stands before the name of a slot and leaves it that slot, or turns it round."""
_OF_ROLE = {
    "unwanted": dict.fromkeys(("genre", "author", "format", LIKES), DISLIKES),
    "wanted": {slot: slot for slot in ("genre", "author", "format", "language", STYLE, LIKES)},
    "amount": {"budget": "budget"},
    "answer": {STYLE: STYLE, "language": "language"},
}
_MOST_VALUES = {DISLIKES: 8, LIKES: 8}
_MOST_OF_A_SLOT = 4
_BETWEEN = re.compile("[,、，]")
_SYNONYMS = (
    "horror ホラー scary",
    "romance 恋愛 ロマンス love-story",
    "rom-com romcom ラブコメ romantic-comedy",
    "shonen shounen 少年 少年漫画",
    "seinen 青年 青年漫画",
    "shojo shoujo 少女 少女漫画",
    "josei 女性漫画",
    "isekai 異世界",
    "mystery mysteries ミステリー 推理 detective",
    "fantasy ファンタジー",
    "sci-fi scifi sf science-fiction",
    "sports スポーツ",
    "comedy コメディ ギャグ comedies",
    "slice-of-life 日常 日常系",
    "action アクション バトル",
    "adventure 冒険",
    "historical history 歴史",
    "mecha ロボット",
    "cooking food グルメ 料理",
    "thriller thrillers スリラー サスペンス suspense",
    "drama ドラマ",
    "digital e-book e-books ebook ebooks 電子書籍 電子版 digital-edition digital-editions",
    "print paper 紙 紙の本 print-edition print-editions",
    "paperback paperbacks",
    "hardcover hardcovers",
    "english 英語",
    "japanese 日本語",
    "chinese 中国語",
    "korean 韓国語",
)
_CANONICAL = {name: line.split()[0] for line in _SYNONYMS for name in line.split()}


@dataclass(frozen=True, slots=True)
class Preference:
    """What a user said of himself.

    Attributes:
        slot: What it is about: ``genre``, ``author``, ``format``, ``language``, ``budget``, ``style``, ``likes``, ``name``;
            empty: a statement that belongs to none.
        value: What is preferred, or the statement.
        liked: False: it is not wanted; None: it was wanted once.
        adds: It is said beside what was said before, in place of nothing.
    """

    slot: str
    value: str
    liked: bool | None = True
    adds: bool = False


def slot_of(key: str) -> str:
    """Return the slot of a key, whoever made it: a profile's ``favorite genres`` is what a user calls his favorite genre."""
    plain = " ".join(unicodedata.normalize("NFKC", key).replace("_", " ").casefold().split()).replace("favourite", "favorite")
    bare = _OWNER.sub("", plain)
    role = _ROLE.match(bare)
    name = bare if role is None else bare[role.end() :]
    for ending in ("", "s", " preference", " preferences", "の好み"):
        slot = _SLOT_OF.get(name.removesuffix(ending), "")
        if role is not None and role.lastgroup is not None:
            slot = _OF_ROLE[role.lastgroup].get(slot, "")
        if slot:
            return slot
    return f"favorite {name}" if role is not None and role["wanted"] and not role["wanted"].isascii() else plain


def canonical(value: str) -> str:
    """Return what values that mean the same have in common: ``ホラー``, ``Horror manga`` and ``horror`` are one."""
    plain = " ".join(unicodedata.normalize("NFKC", value).casefold().split()).removeprefix("the ")
    for ending in (" manga", " comics", " stories", " books", " series", "漫画", "マンガ", "もの", "系"):
        shorter = plain.removesuffix(ending).strip()
        plain = shorter or plain
    for name in (plain, plain.removesuffix("s") if len(plain) > 4 and plain.isascii() else plain):
        if name.replace(" ", "-") in _CANONICAL:
            return _CANONICAL[name.replace(" ", "-")]
    return plain


def values_of(text: str) -> list[str]:
    """Return the values of a slot."""
    return [value for each in _BETWEEN.split(text) if (value := each.strip())]


def without(text: str, value: str) -> str:
    """Return the values of a slot but those that mean the same as one of ``value``."""
    gone = set(map(canonical, values_of(value)))
    kept = [each for each in values_of(text) if canonical(each) not in gone]
    return text if len(kept) == len(values_of(text)) else ", ".join(kept)


def nearest(text: str, values: Sequence[str]) -> str:
    """Return the value that shares most terms with a text, the first of several; the text itself if none shares any."""
    wanted = frozenset(search_terms(text))
    shared = [len(wanted.intersection(search_terms(value))) for value in values]
    return values[shared.index(max(shared))] if any(shared) else text


def with_value(slot: str, text: str, said: Preference) -> str:
    """Return the values of a slot after ``said``, the latest first."""
    if not said.adds and slot not in _MOST_VALUES:
        return said.value
    rest = without(text, said.value)
    kept = [said.value, *values_of(rest)] if rest else [said.value]
    return ", ".join(kept[: _MOST_VALUES.get(slot, _MOST_OF_A_SLOT)])


def touched(slots: Mapping[str, str], said: Preference) -> dict[str, str]:
    """Return the slots that a statement changes, as they are then; an empty one is to go.

    What is wanted leaves ``dislikes``, and what is not wanted any more leaves the slot in which it was.
    """
    if not said.slot:
        return {}
    if said.slot == STYLE and said.liked is None:
        said = replace(said, value=nearest(said.value, values_of(slots.get(STYLE, ""))))
    into = DISLIKES if said.liked is False else said.slot if said.liked else ""
    leaves = (DISLIKES,) if said.liked else (*TASTES, said.slot, DISLIKES)
    changed = {slot: without(slots[slot], said.value) for slot in leaves if slot in slots and slot != into}
    if into:
        changed[into] = with_value(into, slots.get(into, ""), said)
    return {slot: text for slot, text in changed.items() if text != slots.get(slot)}
