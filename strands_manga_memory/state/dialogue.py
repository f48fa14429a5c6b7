"""The conversation: phase, intent, slots, and questions to the user."""

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
"""Of a value."""


class SlotStatus(StrEnum):
    """How sure a slot's value is."""

    EMPTY = "empty"
    INFERRED = "inferred"
    CONFIRMED = "confirmed"


class DialogueSlot(Part):
    """One thing to know.

    Attributes:
        name: Its name, such as ``"volume"``.
        question: What to ask the user for it.
        required: Whether the intent needs it. Only a confirmed value satisfies that, an inferred one does not.
        allowed: The only values; compared without regard to case and width. Empty: any.
        entity: The entity type the value must be, such as ``"order_id"``; the slot is then filled from what the user says.
        pattern: A regular expression the whole value must match.
        value: What is known; None while ``status`` is ``EMPTY``.
        status: How sure it is.
        source: ``tracking_id`` of the message the value was read from; empty if it was given by code.
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
        """Whether it is required and not confirmed."""
        return self.required and self.status is not SlotStatus.CONFIRMED

    def checked(self, value: object, types: EntityTypes, *, is_canonical: bool = False) -> str:
        """Return the canonical form of a value; ``is_canonical`` says that an entity has it already.

        Raises:
            StateError: It is not allowed here; the message says what is.
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
            # "volume 3" is what a user says, "3" what a model passes on.
            canonical = types.value(self.entity, text) or types.value(self.entity, f"{self.entity} {text}")
            if canonical is None:
                raise StateError(f"slot {self.name!r:.80} takes a valid {self.entity}; got {text!r:.80}")
            text = canonical
        if self.pattern is not None and not re.fullmatch(self.pattern, text):
            raise StateError(f"slot {self.name!r:.80} takes what matches {self.pattern!r:.80}; got {text!r:.80}")
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
        """Return what the slot is, without what it holds."""
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
        """Next question to the user: the first clarification, else the question of the first missing slot that has one."""
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


class DialogueKeeper(Keeper[ConversationLayer]):
    """Keeps where the conversation stands: phase, intent, slots, questions.

    Raises ``ValueError`` where something that an intent must know is no ``DialogueSlot``.
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
        """Say what the user wants, and who serves it. Another intent brings its own slots; a slot both know keeps its value.

        Raises:
            CorruptRecordError: The stored layer cannot be read, and is not overwritten. So with every method that changes one.
        """
        with self._changing():
            layer = self.layer.with_intent(intent, self.intents.get(intent or "", ()))
            self._keep(layer if agent is None else layer.changed(agent=agent))

    def set_phase(self, phase: Phase | str) -> None:
        """Move the conversation into a phase.

        Raises:
            StateError: It cannot be there next; the message names what can.
        """
        try:
            wanted = Phase(phase)
        except ValueError as error:
            raise StateError(f"phase must be one of {', '.join(Phase)}; got {phase!r:.80}") from error
        with self._changing():
            self._keep(self.layer.moved(wanted))

    def add_slot(self, slot: DialogueSlot) -> None:
        """Add a thing to know; one of the same name is replaced, with what it holds."""
        with self._changing():
            self._keep(self.layer.with_slot(slot))

    def fill_slot(self, name: str, value: object, *, confirmed: bool = False) -> DialogueSlot:
        """Give a slot a value and return it; only a confirmed one counts as known.

        Raises:
            StateError: There is no such slot, or it does not take this value.
        """
        with self._changing():
            slot = self.layer.slot(name).filled(value, self._store.types, confirmed=confirmed)
            self._keep(self.layer.with_slot(slot))
            return slot

    def clear_slot(self, name: str) -> None:
        """Empty a slot.

        Raises:
            StateError: There is no such slot.
        """
        with self._changing():
            self._keep(self.layer.with_slot(self.layer.slot(name).cleared()))

    def missing_slots(self) -> list[str]:
        """Return the names of the required slots that are not confirmed."""
        return [slot.name for slot in self.layer.missing]

    def ask(self, question: str, *, slot: str | None = None) -> None:
        """Put a question at the end of the queue; with ``slot``, it is answered when that slot is confirmed.

        Raises:
            StateError: There is no such slot.
        """
        with self._changing():
            if slot is not None:
                self.layer.slot(slot)
            self._keep(self.layer.asking(Clarification(question=shorten_line(question, 300), slot=slot)))

    def next_question(self) -> str | None:
        """Return what to ask the user next."""
        return self.layer.next_question

    def answered(self) -> None:
        """Take the first question out of the queue."""
        with self._changing():
            self._keep(self.layer.answered())
