"""ConversationLayer: phase, intent, slots, and what is still to be asked. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import ClassVar

from pydantic import Field

from strands_manga_memory.exceptions import StateError
from strands_manga_memory.language.entities import EntityTypes
from strands_manga_memory.state.layers.dialogue_slots import DialogueSlot, SlotStatus
from strands_manga_memory.state.layers.layer import Layer, Part


class Phase(StrEnum):
    """Where a conversation is."""

    GREETING = "greeting"
    INTENT_DETECTION = "intent_detection"
    SLOT_FILLING = "slot_filling"
    TOOL_EXECUTION = "tool_execution"
    RESPONSE_GENERATION = "response_generation"
    FOLLOW_UP = "follow_up"
    HANDOFF = "handoff"
    FAREWELL = "farewell"


_WORKING = frozenset({Phase.INTENT_DETECTION, Phase.SLOT_FILLING, Phase.TOOL_EXECUTION, Phase.RESPONSE_GENERATION})
_LEAVING = frozenset({Phase.HANDOFF, Phase.FAREWELL})

MOVES: dict[Phase, frozenset[Phase]] = {
    Phase.GREETING: _WORKING | _LEAVING,
    Phase.INTENT_DETECTION: _WORKING | _LEAVING | {Phase.FOLLOW_UP},
    Phase.SLOT_FILLING: _WORKING | _LEAVING | {Phase.FOLLOW_UP},
    Phase.TOOL_EXECUTION: _WORKING | _LEAVING | {Phase.FOLLOW_UP},
    Phase.RESPONSE_GENERATION: _WORKING | _LEAVING | {Phase.FOLLOW_UP},
    Phase.FOLLOW_UP: _WORKING | _LEAVING,
    # With a human: back to the agent only by starting from what the user wants; what the agent was doing is not gone on with.
    Phase.HANDOFF: frozenset({Phase.INTENT_DETECTION, Phase.FOLLOW_UP, Phase.FAREWELL}),
    Phase.FAREWELL: frozenset({Phase.GREETING, Phase.INTENT_DETECTION}),
}
"""From each phase, those that may come next. To stay is always possible; nothing leads back to a greeting but a farewell."""

MOST_SLOTS, MOST_CLARIFICATIONS = 50, 10


class Clarification(Part):
    """A question to ask the user; ``slot`` is the slot it is for, if any."""

    question: str = Field(min_length=1, max_length=300)
    slot: str | None = None


class ConversationLayer(Layer):
    """The conversation itself.

    Attributes:
        phase: Where it is.
        intent: What the user wants now.
        agent: Who serves it now.
        slots: What the intent must know, by name.
        clarifications: What to ask, the first one next.
        turn_count: User requests so far.
    """

    KEY: ClassVar[str] = "manga_state.conversation"

    phase: Phase = Phase.GREETING
    intent: str | None = Field(default=None, min_length=1, max_length=100)
    agent: str | None = Field(default=None, min_length=1, max_length=100)
    slots: dict[str, DialogueSlot] = Field(default_factory=dict, max_length=MOST_SLOTS)
    clarifications: tuple[Clarification, ...] = Field(default=(), max_length=MOST_CLARIFICATIONS)
    turn_count: int = Field(default=0, ge=0)

    def can_move(self, phase: Phase) -> bool:
        """Tell whether the conversation may be in ``phase`` next."""
        return phase is self.phase or phase in MOVES[self.phase]

    def moved(self, phase: Phase) -> ConversationLayer:
        """Return the layer in another phase.

        Raises:
            StateError: The move is impossible; the message names those that are not.
        """
        if not self.can_move(phase):
            allowed = ", ".join(sorted(MOVES[self.phase]))
            raise StateError(f"phase cannot go from {self.phase} to {phase}; allowed are: {allowed}")
        return self if phase is self.phase else self.replaced(phase=phase)

    def with_intent(self, intent: str | None, slots: Iterable[DialogueSlot]) -> ConversationLayer:
        """Return the layer with another intent and its slots; a slot both know keeps its value."""
        if intent == self.intent:
            return self
        kept: dict[str, DialogueSlot] = {}
        for slot in slots:
            before = self.slots.get(slot.name)
            same = before is not None and before.definition() == slot.definition()
            kept[slot.name] = before if same and before is not None else slot
        return self.changed(intent=intent, slots=kept, clarifications=())

    def with_slot(self, slot: DialogueSlot) -> ConversationLayer:
        """Return the layer with a slot more, or another one of its name; a confirmed value answers its questions."""
        asked = self.clarifications
        if slot.status is SlotStatus.CONFIRMED:
            asked = tuple(each for each in asked if each.slot != slot.name)
        slots = {**self.slots, slot.name: slot}
        change = self.replaced if slot.name in self.slots else self.changed  # one more may be one too many
        return change(slots=slots, clarifications=asked)

    def slot(self, name: str) -> DialogueSlot:
        """Return a slot.

        Raises:
            StateError: There is none of this name; the message names those there are.
        """
        if name not in self.slots:
            known = ", ".join(map(repr, self.slots)) or "none"
            raise StateError(f"there is no slot {name!r:.80}; there are: {known}")
        return self.slots[name]

    @property
    def missing(self) -> tuple[DialogueSlot, ...]:
        """Required slots that are not confirmed, in their order."""
        return tuple(slot for slot in self.slots.values() if slot.is_missing)

    @property
    def next_question(self) -> str | None:
        """What to ask next: the first clarification, else the question of the first missing slot that has one."""
        if self.clarifications:
            return self.clarifications[0].question
        return next((slot.question for slot in self.missing if slot.question), None)

    def asking(self, clarification: Clarification) -> ConversationLayer:
        """Return the layer with a question more, at the end; one that waits already, or one too many, changes nothing."""
        if clarification in self.clarifications or len(self.clarifications) == MOST_CLARIFICATIONS:
            return self
        return self.changed(clarifications=(*self.clarifications, clarification))

    def answered(self) -> ConversationLayer:
        """Return the layer without its first question."""
        return self.changed(clarifications=self.clarifications[1:]) if self.clarifications else self

    def heard(self, type_: str, value: str, source: str, types: EntityTypes) -> ConversationLayer:
        """Return the layer after the user named an entity.

        The first slot of that type without a confirmed value takes it: confirmed if it was asked for, else inferred.
        """
        for slot in self.slots.values():
            if slot.entity != type_ or slot.status is SlotStatus.CONFIRMED:
                continue
            question = self.next_question
            was_asked = any(each.slot == slot.name for each in self.clarifications[:1]) or (
                question is not None and question == slot.question
            )
            try:
                filled = slot.filled(value, types, confirmed=was_asked, source=source, is_canonical=True)
            except StateError:
                continue  # not one of the allowed values: it is not said to be this slot's
            return self.with_slot(filled)
        return self

    def without_source(self, source: str) -> ConversationLayer:
        """Return the layer without the values that were read from a message."""
        kept = {name: slot.cleared() if slot.source == source else slot for name, slot in self.slots.items()}
        return self if kept == self.slots else self.changed(slots=kept)
