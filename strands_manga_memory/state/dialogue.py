"""Dialogue: phase, intent, slots, and questions to the user."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any, ClassVar

from pydantic import Field, model_validator

from strands_manga_memory.arguments import of_kind
from strands_manga_memory.exceptions import StateError
from strands_manga_memory.language.entities import EntityTypes
from strands_manga_memory.language.text_features import encodable, normalized
from strands_manga_memory.messages.tokens import shorten_line
from strands_manga_memory.state.state_store import Keeper, Layer, Part, StateStore

MOST_CHARACTERS = 200
"""Most characters of a slot's value."""


class SlotStatus(StrEnum):
    """Certainty of a slot's value."""

    EMPTY = "empty"
    INFERRED = "inferred"
    CONFIRMED = "confirmed"


class DialogueSlot(Part):
    """Value that an intent needs.

    Attributes:
        name: Its name, such as ``"volume"``.
        question: Question that asks the user for the value.
        required: Whether the intent needs the value. Only a confirmed value counts, not an inferred one.
        allowed: Allowed values, compared without regard to case and width. Empty: any.
        entity: Entity type of the value, such as ``"order_id"``; the slot is then filled from the user's messages.
        pattern: Regular expression that the whole value must match.
        value: The value; None while ``status`` is ``EMPTY``.
        status: Certainty of the value.
        source: ``tracking_id`` of the message that contained the value; empty if it was set by code.
    """

    name: str = Field(pattern=r"^[\w.-]{1,60}$")
    question: str = Field(default="", max_length=300)
    required: bool = True
    allowed: tuple[str, ...] = ()
    entity: str | None = None
    pattern: str | None = None
    value: str | None = Field(default=None, max_length=MOST_CHARACTERS)
    status: SlotStatus = SlotStatus.EMPTY
    source: str = ""

    @model_validator(mode="after")
    def _is_consistent(self) -> DialogueSlot:
        if (self.value is None) != (self.status is SlotStatus.EMPTY):
            raise ValueError(f"slot {self.name!r:.80}: a value goes with the status inferred or confirmed, and only with it")
        return self

    @property
    def is_missing(self) -> bool:
        """Whether the slot is required and not confirmed."""
        return self.required and self.status is not SlotStatus.CONFIRMED

    def checked(self, value: object, types: EntityTypes, *, is_canonical: bool = False) -> str:
        """Return the canonical form of a value. ``is_canonical`` marks the value of an extracted entity.

        Raises:
            StateError: The value is not allowed. The message names the rule.
        """
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise StateError(f"slot {self.name!r:.80} takes a text or a number, got {value!r:.80}")
        text = " ".join(encodable(str(value)).split())
        if not text or len(text) > MOST_CHARACTERS:
            raise StateError(f"slot {self.name!r:.80} takes 1 to {MOST_CHARACTERS} characters, got {len(text)}")
        if self.allowed:
            wanted = normalized(text)
            found = next((option for option in self.allowed if normalized(option) == wanted), None)
            if found is None:
                raise StateError(f"slot {self.name!r:.80} takes one of {', '.join(map(repr, self.allowed))}; got {text!r:.80}")
            return found
        if self.entity is not None and self.entity in types and not is_canonical and text != self.value:
            # A user writes "volume 3", a model passes "3".
            canonical = types.value(self.entity, text) or types.value(self.entity, f"{self.entity} {text}")
            if canonical is None:
                raise StateError(f"slot {self.name!r:.80} takes a valid {self.entity}; got {text!r:.80}")
            text = canonical
        if self.pattern is not None and not re.fullmatch(self.pattern, text):
            raise StateError(f"slot {self.name!r:.80} takes a value that matches {self.pattern!r:.80}; got {text!r:.80}")
        return text

    def filled(
        self, value: object, types: EntityTypes, *, confirmed: bool, source: str = "", is_canonical: bool = False
    ) -> DialogueSlot:
        """Return the slot with a value; see ``checked``.

        Raises:
            StateError: The value is not allowed.
        """
        status = SlotStatus.CONFIRMED if confirmed else SlotStatus.INFERRED
        return self.changed(value=self.checked(value, types, is_canonical=is_canonical), status=status, source=source)

    def cleared(self) -> DialogueSlot:
        """Return the slot without a value."""
        return self.changed(value=None, status=SlotStatus.EMPTY, source="")

    def definition(self) -> dict[str, Any]:
        """Return the definition of the slot, without its value."""
        return {name: value for name, value in dict(self).items() if name not in ("value", "status", "source")}


class Phase(StrEnum):
    """Phase of a conversation."""

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
    # After a human, the agent starts again with the user's intent; it does not resume its earlier work.
    Phase.HANDOFF: frozenset({Phase.INTENT_DETECTION, Phase.FOLLOW_UP, Phase.FAREWELL}),
    Phase.FAREWELL: frozenset({Phase.GREETING, Phase.INTENT_DETECTION}),
}
"""Allowed next phases of each phase. Staying is always allowed; a greeting follows only a farewell."""

MOST_SLOTS, MOST_CLARIFICATIONS = 50, 10


class Clarification(Part):
    """Question to the user, for a slot if ``slot`` is set."""

    question: str = Field(min_length=1, max_length=300)
    slot: str | None = None


class ConversationLayer(Layer):
    """Layer of the conversation.

    Attributes:
        phase: Current phase.
        intent: Current intent of the user.
        agent: Agent that serves the user.
        slots: Slots of the intent, by name.
        clarifications: Questions to the user, the next one first.
        turn_count: Number of user requests.
    """

    KEY: ClassVar[str] = "manga_state.conversation"

    phase: Phase = Phase.GREETING
    intent: str | None = Field(default=None, min_length=1, max_length=100)
    agent: str | None = Field(default=None, min_length=1, max_length=100)
    slots: dict[str, DialogueSlot] = Field(default_factory=dict, max_length=MOST_SLOTS)
    clarifications: tuple[Clarification, ...] = Field(default=(), max_length=MOST_CLARIFICATIONS)
    turn_count: int = Field(default=0, ge=0)

    def can_move(self, phase: Phase) -> bool:
        """Return whether ``phase`` may follow the current phase."""
        return phase is self.phase or phase in MOVES[self.phase]

    def moved(self, phase: Phase) -> ConversationLayer:
        """Return the layer in another phase.

        Raises:
            StateError: ``phase`` may not follow. The message names the allowed phases.
        """
        if not self.can_move(phase):
            allowed = ", ".join(sorted(MOVES[self.phase]))
            raise StateError(f"phase cannot go from {self.phase} to {phase}; allowed are: {allowed}")
        return self if phase is self.phase else self.replaced(phase=phase)

    def with_intent(self, intent: str | None, slots: Iterable[DialogueSlot]) -> ConversationLayer:
        """Return the layer with another intent and its slots. Slots of both intents keep their values."""
        if intent == self.intent:
            return self
        kept: dict[str, DialogueSlot] = {}
        for slot in slots:
            before = self.slots.get(slot.name)
            same = before is not None and before.definition() == slot.definition()
            kept[slot.name] = before if same and before is not None else slot
        return self.changed(intent=intent, slots=kept, clarifications=())

    def with_slot(self, slot: DialogueSlot) -> ConversationLayer:
        """Return the layer with a slot added or replaced. A confirmed value removes the questions for the slot."""
        asked = self.clarifications
        if slot.status is SlotStatus.CONFIRMED:
            asked = tuple(each for each in asked if each.slot != slot.name)
        slots = {**self.slots, slot.name: slot}
        change = self.replaced if slot.name in self.slots else self.changed  # validates the number of slots
        return change(slots=slots, clarifications=asked)

    def slot(self, name: str) -> DialogueSlot:
        """Return a slot.

        Raises:
            StateError: The slot does not exist. The message names the existing ones.
        """
        if name not in self.slots:
            known = ", ".join(map(repr, self.slots)) or "none"
            raise StateError(f"there is no slot {name!r:.80}; there are: {known}")
        return self.slots[name]

    @property
    def missing(self) -> tuple[DialogueSlot, ...]:
        """Required slots that are not confirmed, in order."""
        return tuple(slot for slot in self.slots.values() if slot.is_missing)

    @property
    def next_question(self) -> str | None:
        """Next question to the user: the first clarification, else the question of the first missing slot that has one."""
        if self.clarifications:
            return self.clarifications[0].question
        return next((slot.question for slot in self.missing if slot.question), None)

    def asking(self, clarification: Clarification) -> ConversationLayer:
        """Return the layer with a question appended, unless it is queued already or the queue is full."""
        if clarification in self.clarifications or len(self.clarifications) == MOST_CLARIFICATIONS:
            return self
        return self.changed(clarifications=(*self.clarifications, clarification))

    def answered(self) -> ConversationLayer:
        """Return the layer without its first question."""
        return self.changed(clarifications=self.clarifications[1:]) if self.clarifications else self

    def with_mention(self, type_: str, value: str, source: str, types: EntityTypes) -> ConversationLayer:
        """Return the layer after the user named an entity.

        The first slot of that type without a confirmed value gets the value: confirmed if a question asked for it,
        otherwise inferred.
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
                continue  # the value is not allowed, so it belongs to another slot
            return self.with_slot(filled)
        return self

    def without_source(self, source: str) -> ConversationLayer:
        """Return the layer without the values that were read from a message."""
        kept = {name: slot.cleared() if slot.source == source else slot for name, slot in self.slots.items()}
        return self if kept == self.slots else self.changed(slots=kept)


class DialogueKeeper(Keeper[ConversationLayer]):
    """Accessor of the dialogue: phase, intent, slots, questions.

    Raises:
        ValueError: ``intents`` contains a value that is not a ``DialogueSlot``.
    """

    KIND = ConversationLayer

    def __init__(self, store: StateStore, intents: Mapping[str, Iterable[DialogueSlot]]) -> None:
        super().__init__(store)
        self.intents = {
            intent: tuple(
                of_kind(f"intents[{intent!r:.80}]", slot, DialogueSlot, "a list of DialogueSlot(...)") for slot in slots
            )
            for intent, slots in intents.items()
        }

    def set_intent(self, intent: str | None, *, agent: str | None = None) -> None:
        """Set the user's intent and the agent that serves it. Slots that both intents have keep their values.

        Raises:
            CorruptRecordError: The stored layer cannot be read; it is not overwritten. All methods that change a layer
                raise this error.
        """
        with self._changing():
            layer = self.layer.with_intent(intent, self.intents.get(intent or "", ()))
            self._keep(layer if agent is None else layer.changed(agent=agent))

    def set_phase(self, phase: Phase | str) -> None:
        """Move the conversation to a phase.

        Raises:
            StateError: The phase may not follow. The message names the allowed phases.
        """
        try:
            wanted = Phase(phase)
        except ValueError as error:
            raise StateError(f"phase must be one of {', '.join(Phase)}; got {phase!r:.80}") from error
        with self._changing():
            self._keep(self.layer.moved(wanted))

    def add_slot(self, slot: DialogueSlot) -> None:
        """Add a slot, replacing one of the same name and its value."""
        with self._changing():
            self._keep(self.layer.with_slot(slot))

    def fill_slot(self, name: str, value: object, *, confirmed: bool = False) -> DialogueSlot:
        """Set the value of a slot and return the slot. Only a confirmed value satisfies a required slot.

        Raises:
            StateError: The slot does not exist, or the value is not allowed.
        """
        with self._changing():
            slot = self.layer.slot(name).filled(value, self._store.types, confirmed=confirmed)
            self._keep(self.layer.with_slot(slot))
            return slot

    def clear_slot(self, name: str) -> None:
        """Clear a slot.

        Raises:
            StateError: The slot does not exist.
        """
        with self._changing():
            self._keep(self.layer.with_slot(self.layer.slot(name).cleared()))

    def missing_slots(self) -> list[str]:
        """Return the names of the required slots that are not confirmed."""
        return [slot.name for slot in self.layer.missing]

    def ask(self, question: str, *, slot: str | None = None) -> None:
        """Append a question to the queue. With ``slot``, confirming the slot answers it.

        Raises:
            StateError: The slot does not exist.
        """
        with self._changing():
            if slot is not None:
                self.layer.slot(slot)
            self._keep(self.layer.asking(Clarification(question=shorten_line(question, 300), slot=slot)))

    def next_question(self) -> str | None:
        """Return the next question to the user, or None."""
        return self.layer.next_question

    def answered(self) -> None:
        """Remove the first question from the queue."""
        with self._changing():
            self._keep(self.layer.answered())
