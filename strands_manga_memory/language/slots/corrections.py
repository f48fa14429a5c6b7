"""Corrections: which of the values said before a correction replaces. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from strands_manga_memory.language.entities.entities import EntityTypes
from strands_manga_memory.language.slots.slots import Slot, SlotKind
from strands_manga_memory.language.texts.condense import condensed, is_empty_word, weight
from strands_manga_memory.language.texts.normalize import normalized, words

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
        type: Its entity type, or ``number``.
        form: Its canonical form.
        text: As it is written.
        unit: What it counts, if it is a number and that is known: another unit is another thing.
    """

    type: str
    form: str
    text: str
    unit: str = ""

    def is_like(self, other: Value) -> bool:
        """Whether the one can take the place of the other."""
        return self.type == other.type and self.unit == other.unit

    @property
    def is_definite(self) -> bool:
        """Whether it is known what it is a value of: of a number alone it is not."""
        return self.type != _NUMBER or self.unit != ""

    def differs_from(self, other: Value) -> bool:
        """Whether the two certainly mean different things: a weekday may be a date, and five o'clock 17:00."""
        if self.type == "time":
            return _on_the_dial(self.form) != _on_the_dial(other.form)
        return self.form != other.form and self.form[:1].isdigit() == other.form[:1].isdigit()


def _on_the_dial(time: str) -> str:
    hour, _, minute = time.partition(":")
    return f"{int(hour) % 12}:{minute}"


def values_of(text: str, types: EntityTypes) -> list[Value]:
    """Return the last value of each type and unit in a text; a number that stands alone is a type too."""
    found: dict[tuple[str, str], Value] = {}
    for entity in types.find(text):
        if entity.type == "quantity":
            number, _, unit = entity.value.partition(" ")
            found[_NUMBER, unit] = Value(_NUMBER, number, entity.text, unit)
        elif entity.type in _COMPARED:
            group = _GROUPS.get(entity.type, entity.type)
            found[group, ""] = Value(group, entity.value, entity.text)
    if not found and (numbers := _BARE_NUMBER.findall(normalized(text))):
        number, after = numbers[-1]
        written = [word.strip(".,;?!") for word in text.split() if normalized(word.strip(".,;?!")) == number]
        if written and written[-1].lower() != "one":  # "that one" is no number
            unit = "" if after in _CORRECTING or is_empty_word(after) else after.rstrip("s")
            return [Value(_NUMBER, number, written[-1], unit)]
    return list(found.values())


def corrected(slots: Sequence[Slot], types: EntityTypes, *, since: int = 0) -> list[Slot]:
    """Return the slots after each correction from number ``since`` on has replaced what it is about.

    It is about the last other value of its type, near it or on the same topic. That value is taken out where it is plainly
    of no use any more: it identifies something, counts the same things, or was said in the message before. Elsewhere the
    new value is written behind it, after ``→``. A slot of which nothing is left has no text. The correction remembers the
    message it corrects.
    """
    changed = list(slots)
    known: dict[int, list[Value]] = {}

    def values(at: int) -> list[Value]:
        if at not in known:
            said = changed[at].kind in OF_USERS or changed[at].kind is SlotKind.QUESTION
            known[at] = values_of(changed[at].text, types) if said else []
        return known[at]

    for at in range(since, len(changed)):
        if changed[at].kind is not SlotKind.CORRECTION:
            continue
        for new in values(at):
            exact = new.type in types and types[new.type].is_exact
            found = _corrected_by(at, new, changed, values, exact=exact)
            if found is None:
                continue
            before, old = found
            is_plain = exact or (old.unit == new.unit and _is_next(before, at, changed)) or (old.unit == new.unit != "")
            changed[before] = _without(changed[before], old.text) if is_plain else _marked(changed[before], old.text, new.text)
            changed[at] = replace(changed[at], corrects=tuple(dict.fromkeys((*changed[at].corrects, changed[before].source))))
            known.pop(before, None)
    return changed


def _corrected_by(
    at: int, new: Value, slots: Sequence[Slot], values: Callable[[int], list[Value]], *, exact: bool
) -> tuple[int, Value] | None:
    """Return the value that is replaced, and the number of its slot; None if there is none."""
    topic = _topic(slots[at].text)
    of_unknown_unit: tuple[int, Value] | None = None
    for before in range(at - 1, -1, -1):
        if slots[before].source == slots[at].source:
            continue
        if before < at - _REACH and len(topic & _topic(slots[before].text)) < (1 if exact else 2):
            continue
        for old in reversed(values(before)):
            if old.is_like(new):
                return (before, old) if old.form != new.form else None
            if old.type == new.type and of_unknown_unit is None and not (old.unit and new.unit) and _is_next(before, at, slots):
                of_unknown_unit = before, old
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
