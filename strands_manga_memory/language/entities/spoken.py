"""The user's own words in a message: which entities of a text are spoken of, and which are pasted, quoted or refused. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator

from strands_manga_memory.language.entities.entities import Entity, EntityTypes
from strands_manga_memory.language.texts.excerpts import matches_of
from strands_manga_memory.language.texts.injection import BLOCKS

_OWN_BEGIN = re.compile(rf"<(?P<name>{'|'.join(BLOCKS)})\b")
_PASTED = re.compile(
    r"```[\s\S]{0,400}?(?:```|\Z)|`[^`\n]{1,200}`|https?://[^\s<>「」、。]{1,400}"  # code, URL
    r"|[\"'][\w .-]{1,60}[\"']\s?:\s?(?:[\"'][^\"'\n]{0,300}[\"']|[-\w.]{1,40})"  # a field of JSON
    r"|(?<![\w.])[a-z_]\w{0,40}(?:\.\w{1,40})?\([^()\n]{0,200}\)|(?<!\w)\w{1,40} ?== ?[^\s;]{1,80}"  # a call, a comparison
)
"""Code, URLs and fields of JSON in a text."""
_REFUSED_BEFORE = re.compile(
    r"(?:\bnot|n't|\bn[eo]ver|\bexcept(?: for)?|\bother than|\binstead of|\brather than|\bwithout|\bno longer|\banything but)"
    r"(?: (?:want|need|mean|order|buy|about|for|interested in|looking for|have|like|the|a|an|my|to|really|of)){0,4}"
    r" ?[\"“「『《]?\Z",
    re.IGNORECASE,
)
_REFUSED_AFTER = re.compile(
    r"\A[\"”」』》]?(?: ?ではな| ?じゃな| ?じゃあり| ?でな[いく]| ?以外| ?を除| ?抜き"
    r"| ?[はも](?:いら|要ら|不要|結構|違)|はもう(?:持|読|買))"
)
_AROUND = 60
_THING = frozenset({"asin", "isbn", "order_id", "price", "series", "title", "volume", "date", "language"})
_COUNTS = frozenset({"price", "quantity"})
"""Types that say how much: a budget is no price of an item, and a number of volumes no number to order."""


def without_own_blocks(text: str) -> str:
    """Return a text without the blocks that this package adds to messages, such as a handoff."""
    if "<" not in text:
        return text
    parts, end = list[str](), 0
    for match in matches_of(_OWN_BEGIN, text):
        if match.start() < end:
            continue
        closing = f"</{match['name']}>"
        at = text.find(closing, match.end())
        parts.append(text[end : match.start()])
        end = len(text) if at < 0 else at + len(closing)
    return "".join([*parts, text[end:]])


def spoken_entities(text: str, types: EntityTypes) -> list[Entity]:
    """Return the entities that a user speaks of: not those of code, JSON and URLs in the text, and not those refused.

    What identifies a thing, such as an order id, is taken from pasted text too.
    """
    pasted = [match.span() for match in matches_of(_PASTED, text)]
    return list(_spoken(text, types, pasted))


def _spoken(text: str, types: EntityTypes, pasted: list[tuple[int, int]]) -> Iterator[Entity]:
    at = 0
    for entity in types.find(text):
        while at < len(pasted) and pasted[at][1] <= entity.start:
            at += 1
        is_pasted = at < len(pasted) and pasted[at][0] < entity.end and entity.type != "url"
        if is_pasted and not (types[entity.type].is_exact and entity.type != "reference"):
            continue
        if entity.type in _THING and is_refused(text, entity):
            continue
        yield entity


def is_refused(text: str, entity: Entity) -> bool:
    """Return whether the words around an entity say that another one is meant: "not volume 3", "3巻ではなく"."""
    before, after = text[max(0, entity.start - _AROUND) : entity.start], text[entity.end : entity.end + _AROUND]
    return _REFUSED_BEFORE.search(before) is not None or _REFUSED_AFTER.search(after) is not None


def is_referent(entity: Entity) -> bool:
    """Return whether "it" may mean an entity: a thing, a date or a person's contact, but no amount."""
    return entity.type not in _COUNTS
