"""Merging: which slots are current once more has been said. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from strands_manga_memory.language.corrections import OF_USERS, corrected
from strands_manga_memory.language.entities import SHOP, EntityTypes
from strands_manga_memory.language.normalize import words
from strands_manga_memory.language.slots import Slot, SlotKind


def merged(slots: Iterable[Slot], *, earlier: Sequence[Slot] = (), types: EntityTypes = SHOP) -> list[Slot]:
    """Return the slots that are current, the older first: the newest value wins.

    A slot goes when a later one says the same or more, has the same kind and key, or corrects it; see ``corrected``. What was
    merged before is only compared with what is new.

    Args:
        slots: What was said last.
        earlier: What was current before that: slots that this function returned. A correction among them has had its effect.
        types: The entity types that are compared by value.
    """
    said_last = list(slots)
    together = corrected([*earlier, *said_last], types, since=len(earlier))
    return _newest(together)


def _newest(slots: Sequence[Slot]) -> list[Slot]:
    newest: list[Slot] = []
    keys: set[tuple[SlotKind, str]] = set()
    later: dict[str, set[int]] = {}  # word to the slots that hold it
    of_users: set[int] = set()
    for slot in reversed(slots):
        group = SlotKind.STATEMENT if slot.kind in OF_USERS else slot.kind
        said = frozenset(words(slot.text)) or frozenset((slot.text,))
        if slot.key and (group, slot.key) in keys:
            continue
        # What the user said is not replaced by the assistant's repeating it: that is the first to be left out.
        holders = set.intersection(*(later.get(word, set()) for word in said))
        if holders & of_users if group is SlotKind.STATEMENT else holders:
            continue
        if slot.key:
            keys.add((group, slot.key))
        if group is SlotKind.STATEMENT:
            of_users.add(len(newest))
        if slot.kind is not SlotKind.TASK:
            for word in said:
                later.setdefault(word, set()).add(len(newest))
        newest.append(slot)
    return newest[::-1]
