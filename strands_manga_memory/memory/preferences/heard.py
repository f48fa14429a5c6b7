"""Heard: what a user has said lately, statement by statement, so that a message can be taken back. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from strands_manga_memory.language.preferences.slot_values import Preference, touched
from strands_manga_memory.memory.records.memory_records import content_key

MOST_HEARD = 30
"""So many statements are kept beside the memories; the latest."""


@dataclass(frozen=True, slots=True)
class Heard:
    """A preference, and the message that said it, if that is known."""

    said: Preference
    message_id: str | None

    @property
    def row(self) -> list[Any]:
        """What is stored of it."""
        return [self.said.slot, self.said.value, self.said.liked, self.said.adds, self.message_id]

    @classmethod
    def of(cls, row: Any) -> Heard:
        """Return what ``row`` was made of; raises ``TypeError`` or ``ValueError`` for anything else."""
        slot, value, liked, adds, message_id = row
        return cls(
            Preference(text_of(slot), text_of(value), liked, bool(adds)), None if message_id is None else text_of(message_id)
        )


def after(heard: tuple[Heard, ...], since: Sequence[Heard | str]) -> tuple[Heard, ...]:
    """Return what is heard after more was said, and messages taken back."""
    rows = list(heard)
    for each in since:
        if isinstance(each, str):
            rows = [row for row in rows if row.message_id != each]
        else:
            rows.append(each)
    return tuple(rows[-MOST_HEARD:])


def slots_of(heard: tuple[Heard, ...]) -> dict[str, str]:
    """Return what was heard, slot by slot, what was said last at the end; a statement has a key of its own."""
    slots: dict[str, str] = {}
    for each in heard:
        said = each.said
        changed = touched(slots, said) if said.slot else {f"~{content_key(said.value)[:12]}": said.value}
        if said.slot and said.liked and said.slot in slots and said.slot not in changed:
            changed[said.slot] = slots[said.slot]
        for slot, value in changed.items():
            slots.pop(slot, None)
            if value:
                slots[slot] = value
    return slots


def text_of(value: object) -> str:
    """Return a stored text; raises ``TypeError`` for anything else."""
    if not isinstance(value, str):
        raise TypeError(f"{value!r:.80} is no text")
    return value
