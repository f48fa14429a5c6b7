"""Slots: what must not be lost when a conversation is summarized."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from strands.types.content import Message


class SlotKind(StrEnum):
    """What a slot holds; what comes first is kept first when not everything fits."""

    CORRECTION = "correction"
    PREFERENCE = "preference"
    DECISION = "decision"
    ENTITY = "entity"
    QUESTION = "open question"
    PROMISE = "promise"
    OUTCOME = "outcome"
    STATEMENT = "said"
    FINDING = "finding"
    TASK = "task"


RANK = {kind: number for number, kind in enumerate(SlotKind)}


@dataclass(frozen=True, slots=True)
class Slot:
    """One fact.

    Attributes:
        kind: What it is.
        text: The fact in few words, as it is written for the model.
        source: ``tracking_id`` of the message that says it.
        key: What it is about; of two slots of a kind with the same key the newer one replaces the other. Empty: only itself.
        weight: How much it says that cannot be guessed, 0 or more.
        corrects: ``tracking_id`` of the messages that say something which this one replaces.
    """

    kind: SlotKind
    text: str
    source: str = ""
    key: str = ""
    weight: float = 1.0
    corrects: tuple[str, ...] = ()


class SlotExtractor(Protocol):
    """Finds slots; any object with this method will do. It may be slow, it runs beside the conversation."""

    def extract(self, messages: Sequence[Message]) -> Iterable[Slot]:
        """Return the slots of ``messages``, in order; ``source`` is the ``tracking_id`` of the message each comes from."""
        ...


def most_important(slots: Sequence[Slot], *, most_tokens: int, count: Callable[[str], int]) -> list[Slot]:
    """Return the slots that fit into so many tokens together, the most important first chosen, in their own order."""
    chosen = set()
    for slot in sorted(slots, key=lambda slot: (RANK[slot.kind], -slot.weight)):
        tokens = count(slot.text)
        if tokens <= most_tokens:
            chosen.add(slot)
            most_tokens -= tokens
    return [slot for slot in slots if slot in chosen]
