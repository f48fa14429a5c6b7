"""Merging: which slots are current once more has been said. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from strands_manga_memory.language.entities.entities import EntityTypes
from strands_manga_memory.language.entities.entity_shop import SHOP
from strands_manga_memory.language.slots.corrections import OF_USERS, corrected
from strands_manga_memory.language.slots.slots import Slot, SlotKind
from strands_manga_memory.language.texts.normalize import words
from strands_manga_memory.language.texts.unhurried import unhurried


def merged(slots: Iterable[Slot], *, earlier: Sequence[Slot] = (), types: EntityTypes = SHOP) -> list[Slot]:
    """Return the slots that are current, the older first: the newest value wins.

    A slot goes when a later one says the same or more, has the same kind and key, or corrects it; see ``corrected``. What was
    merged before is only compared with what is new.

    Args:
        slots: What was said last.
        earlier: What was current before that: slots that this function returned. A correction among them has had its effect.
        types: The entity types that are compared by value.
    """
    together = corrected([*earlier, *slots], types, since=len(earlier))
    return _newest(together, since=len(earlier))


def _newest(slots: Sequence[Slot], *, since: int) -> list[Slot]:
    """Return the slots that no later one replaces; those before number ``since`` have been compared with one another."""
    newest: list[Slot] = []
    keys: set[tuple[SlotKind, str]] = set()
    later: dict[str, set[int]] = {}  # word to the later slots that hold it
    of_users: set[int] = set()
    for at in unhurried(range(len(slots) - 1, -1, -1)):
        slot = slots[at]
        group = SlotKind.STATEMENT if slot.kind in OF_USERS else slot.kind
        said = frozenset(words(slot.text)) or frozenset((slot.text,))
        if not slot.text or (slot.key and (group, slot.key) in keys):
            continue
        # What the user said is not replaced by the assistant's repeating it: that is the first to be left out.
        holders = _holding(said, later)
        if holders & of_users if group is SlotKind.STATEMENT else holders:
            continue
        newest.append(slot)
        if at < since:
            continue
        if slot.key:
            keys.add((group, slot.key))
        if group is SlotKind.STATEMENT:
            of_users.add(at)
        if slot.kind is not SlotKind.TASK:
            for word in said:
                later.setdefault(word, set()).add(at)
    return newest[::-1]


def _holding(said: frozenset[str], slots: dict[str, set[int]]) -> set[int]:
    """Return the slots that hold all words."""
    holders: set[int] | None = None
    for word in said:
        holders = slots.get(word, set()) if holders is None else holders & slots.get(word, set())
        if not holders:
            return set()
    return holders or set()
