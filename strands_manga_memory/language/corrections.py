"""Corrections: which of the values said before a correction replaces. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from strands_manga_memory.language.condense import condensed, is_empty_word, weight
from strands_manga_memory.language.entities import EntityTypes
from strands_manga_memory.language.normalize import normalized, words
from strands_manga_memory.language.slots import Slot, SlotKind

BECAME = "→"
"""Stands in a slot between a value and the one that took its place, where it is not certain that the first is of no use."""

OF_USERS = frozenset({SlotKind.CORRECTION, SlotKind.PREFERENCE, SlotKind.DECISION, SlotKind.STATEMENT})

_REACH = 6
"""A correction is about one of so many things said before it, or about one further back on the same topic."""

_REMEMBERED = 4_096
"""So many texts are not read twice: each correction is compared with what was said before it."""

_CORRECTING_WORDS = "actually meant mean instead change make wrong please sorry rather about with from that this"
_CORRECTING = frozenset(_CORRECTING_WORDS.split())
_LONGER = 3

_COMPARED_TYPES = """
quantity date time price volume order_id asin isbn email phone reference language title weekday
"""
_COMPARED = frozenset(_COMPARED_TYPES.split())
_GROUPS = {"weekday": "date"}
_NUMBER = "number"
_BARE_NUMBER = re.compile(
    r"(?<![\w.:/-])(?<!past )(?<!quarter to )(\d{1,4})(?![\w:/-]|\.\d| ?[ap]\.?m\b| in the | o\W?clock)(?: ([a-z]{3,}))?"
)
"""A number that is no time of day, and the word after it."""


@dataclass(frozen=True, slots=True)
class Value:
    """A value that a correction may replace.

    Attributes:
        form: Its canonical form.
        text: As it is written.
        unit: What it counts, if it is a number and that is known: another unit is another thing.
    """

    form: str
    text: str
    unit: str = ""


def values_of(text: str, types: EntityTypes) -> dict[str, Value]:
    """Return the last value of each type in a text; a number that stands alone is a type too."""
    found: dict[str, Value] = {}
    for entity in types.find(text):
        if entity.type == "quantity":
            number, _, unit = entity.value.partition(" ")
            found[_NUMBER] = Value(number, entity.text, unit)
        elif entity.type in _COMPARED:
            found[_GROUPS.get(entity.type, entity.type)] = Value(entity.value, entity.text)
    if not found and (numbers := _BARE_NUMBER.findall(normalized(text))):
        number, after = numbers[-1]
        written = [word.strip(".,;") for word in text.split() if normalized(word.strip(".,;")) == number]
        if written:
            unit = "" if after in _CORRECTING or is_empty_word(after) else after.rstrip("s")
            found[_NUMBER] = Value(number, written[-1], unit)
    return found


def corrected(slots: Sequence[Slot], types: EntityTypes, *, since: int = 0) -> list[Slot]:
    """Return the slots after each correction from number ``since`` on has replaced what it is about.

    It is about the last other value of its type, near it or on the same topic. That value is taken out where it is plainly
    is of no use any more: it identifies something, counts the same things, or was said in the message before. Elsewhere the
    new value is written behind it, after ``→``. A slot of which nothing is left has no text. The correction remembers the
    message it corrects.
    """
    changed = list(slots)
    known: dict[int, dict[str, Value]] = {}

    def values(at: int) -> dict[str, Value]:
        if at not in known:
            said = changed[at].kind in OF_USERS or changed[at].kind is SlotKind.QUESTION
            known[at] = values_of(changed[at].text, types) if said else {}
        return known[at]

    for at in range(since, len(changed)):
        if changed[at].kind is not SlotKind.CORRECTION:
            continue
        for type_, new in list(values(at).items()):
            exact = type_ in types and types[type_].is_exact
            before = _corrected_by(at, type_, new, changed, values, exact=exact)
            if before is None:
                continue
            old = values(before)[type_]
            is_plain = exact or (old.unit == new.unit and _is_next(before, at, changed)) or (old.unit == new.unit != "")
            changed[before] = _without(changed[before], old.text) if is_plain else _marked(changed[before], old.text, new.text)
            changed[at] = replace(changed[at], corrects=tuple(dict.fromkeys((*changed[at].corrects, changed[before].source))))
            known.pop(before, None)
    return changed


def _corrected_by(
    at: int,
    type_: str,
    new: Value,
    slots: Sequence[Slot],
    values: Callable[[int], dict[str, Value]],
    *,
    exact: bool,
) -> int | None:
    """Return the number of the slot whose value of a type is replaced; None if there is none."""
    topic = _topic(slots[at].text)
    of_unknown_unit: int | None = None
    for before in range(at - 1, -1, -1):
        if slots[before].source == slots[at].source:
            continue
        if before < at - _REACH and len(topic & _topic(slots[before].text)) < (1 if exact else 2):
            continue
        old = values(before).get(type_)
        if old is None:
            continue
        if old.unit == new.unit:
            return before if old.form != new.form else None
        if of_unknown_unit is None and not (old.unit and new.unit) and _is_next(before, at, slots):
            of_unknown_unit = before
    return of_unknown_unit


def _is_next(before: int, at: int, slots: Sequence[Slot]) -> bool:
    """Whether the user said nothing between the messages of two slots."""
    ends = {slots[before].source, slots[at].source}
    between = (slot for slot in slots[before + 1 : at] if slot.kind in OF_USERS)
    return all(slot.source in ends for slot in between)


@lru_cache(_REMEMBERED)
def _topic(text: str) -> frozenset[str]:
    """The words a text is about: its longer ones, without numbers and without those of correcting."""
    return frozenset(word for word in words(text) if len(word) > _LONGER and word.isalpha() and word not in _CORRECTING)


def _without(slot: Slot, value: str) -> Slot:
    left = condensed(" ".join(slot.text.replace(value, " ", 1).split()))
    return replace(slot, text=left if weight(left) > 0 or len(left.split()) > 2 else "")


def _marked(slot: Slot, old: str, new: str) -> Slot:
    return replace(slot, text=f"{BECAME} {new}".join(_around(slot.text, old)))


def _around(text: str, value: str) -> tuple[str, str]:
    end = text.rindex(value) + len(value)
    return f"{text[:end]} ", text[end:]
