"""Dialogue with the user: its phase, the user's intent, the slots of the intent, and the questions to the user.

A slot is a value that the intent needs, such as the volume to order.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from typing import ClassVar, NamedTuple

from pydantic import Field, model_validator

from strands_manga_memory.arguments import of_kind
from strands_manga_memory.exceptions import StateError
from strands_manga_memory.language.entities import EntityTypes
from strands_manga_memory.language.text_features import encodable, normalized
from strands_manga_memory.messages.injection import escape_line
from strands_manga_memory.messages.tokens import shorten_line
from strands_manga_memory.state.state_store import Layer, LayerAccessor, Part, StateStore

MOST_CHARACTERS = 200
"""Maximum number of characters of a slot's value."""


class SlotStatus(StrEnum):
    """Certainty of a value that the user's intent needs."""

    EMPTY = "empty"
    INFERRED = "inferred"
    CONFIRMED = "confirmed"


class DialogueSlot(Part):
    """Value that the user's intent needs, such as the volume to order.

    Attributes:
        name: Name of the slot, such as ``"volume"``.
        question: Question that asks the user for the value.
        required: Whether the intent needs the value. Only a confirmed value counts, not an inferred one.
        allowed: Allowed values, compared without regard to case and width. Empty: any value.
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
        """Whether the intent requires the value, and the value is not confirmed."""
        return self.required and self.status is not SlotStatus.CONFIRMED

    def filled(
        self, value: object, types: EntityTypes, *, confirmed: bool, source: str = "", is_canonical: bool = False
    ) -> DialogueSlot:
        """Return a copy of the slot with a new value, converted to its canonical form unless ``is_canonical`` is True.

        Raises:
            StateError: The value is not allowed. The message names the rule.
        """
        status = SlotStatus.CONFIRMED if confirmed else SlotStatus.INFERRED
        return self.changed(value=self._checked(value, types, is_canonical=is_canonical), status=status, source=source)

    def _checked(self, value: object, types: EntityTypes, *, is_canonical: bool) -> str:
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

    def cleared(self) -> DialogueSlot:
        """Return a copy of the slot without its value."""
        return self.changed(value=None, status=SlotStatus.EMPTY, source="")


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
    **dict.fromkeys(_WORKING, _WORKING | _LEAVING | {Phase.FOLLOW_UP}),
    **dict.fromkeys((Phase.GREETING, Phase.FOLLOW_UP), _WORKING | _LEAVING),
    # After a human, the agent starts again with the user's intent; it does not resume its earlier work.
    Phase.HANDOFF: frozenset({Phase.INTENT_DETECTION, Phase.FOLLOW_UP, Phase.FAREWELL}),
    Phase.FAREWELL: frozenset({Phase.GREETING, Phase.INTENT_DETECTION}),
}
"""Allowed next phases of each phase. Staying in a phase is always allowed."""

MOST_SLOTS, MOST_CLARIFICATIONS = 50, 10


class Mention(NamedTuple):
    """Entity in a user's message: type, canonical value, and the ``tracking_id`` of the message."""

    type: str
    value: str
    message: str


class Clarification(Part):
    """Question to the user. ``slot`` is the name of the slot that the answer fills; None if it fills none."""

    question: str = Field(min_length=1, max_length=300)
    slot: str | None = None


class ConversationLayer(Layer):
    """Stored dialogue with the user. A slot is a value that the intent needs.

    Attributes:
        phase: Current phase.
        intent: Current intent of the user.
        agent: Agent that serves the user.
        slots: Slots of the intent, keyed by name.
        clarifications: Pending questions to the user, the next question first.
        turn_count: Number of user requests.
    """

    KEY: ClassVar[str] = "manga_state.conversation"

    phase: Phase = Phase.GREETING
    intent: str | None = Field(default=None, min_length=1, max_length=100)
    agent: str | None = Field(default=None, min_length=1, max_length=100)
    slots: dict[str, DialogueSlot] = Field(default_factory=dict, max_length=MOST_SLOTS)
    clarifications: tuple[Clarification, ...] = Field(default=(), max_length=MOST_CLARIFICATIONS)
    turn_count: int = Field(default=0, ge=0)

    def advanced(self, phase: Phase) -> ConversationLayer:
        """Return a copy in another phase, unchanged if ``MOVES`` forbids it or a human was given the dialogue (``HANDOFF``)."""
        if phase is self.phase or self.phase is Phase.HANDOFF or phase not in MOVES[self.phase]:
            return self
        return self.replaced(phase=phase)

    def with_intent(self, intent: str | None, slots: Iterable[DialogueSlot]) -> ConversationLayer:
        """Return a copy with another intent of the user, without pending questions.

        ``slots`` are the values that the intent needs. Slots that both intents define equally keep their values.
        """
        kept = {}
        for slot in slots:
            before = self.slots.get(slot.name)
            kept[slot.name] = before if before is not None and before.cleared() == slot.cleared() else slot
        return self.changed(intent=intent, slots=kept, clarifications=())

    def with_slot(self, slot: DialogueSlot) -> ConversationLayer:
        """Return a copy with a slot added or replaced. A confirmed value removes the pending questions for the slot."""
        is_answered = slot.status is SlotStatus.CONFIRMED
        asked = tuple(each for each in self.clarifications if not is_answered or each.slot != slot.name)
        return self.changed(slots={**self.slots, slot.name: slot}, clarifications=asked)

    def slot(self, name: str) -> DialogueSlot:
        """Return the slot (value that the intent needs) with the given name.

        Raises:
            StateError: The slot does not exist. The message names the existing slots.
        """
        if name not in self.slots:
            known = ", ".join(map(repr, self.slots)) or "none"
            raise StateError(f"there is no slot {name!r:.80}; there are: {known}")
        return self.slots[name]

    @property
    def missing(self) -> tuple[DialogueSlot, ...]:
        """Slots that the intent requires, and whose values the user has not confirmed."""
        return tuple(slot for slot in self.slots.values() if slot.is_missing)

    @property
    def next_question(self) -> str | None:
        """Next question to the user, or None. Clarifications come first, then the questions of missing slots."""
        if self.clarifications:
            return self.clarifications[0].question
        return next((slot.question for slot in self.missing if slot.question), None)

    @property
    def next_request(self) -> str:
        """Text line that asks the model to put the next question to the user; empty without a question.

        An inferred value is included, so that the user can confirm it.
        """
        if self.clarifications:
            return f"Ask the user next: {self.clarifications[0].question}"
        slot = next((slot for slot in self.missing if slot.question), None)
        guess = "" if slot is None or slot.value is None else f" (probably {slot.value})"
        return f"Ask the user next: {slot.question}{guess}" if slot else ""

    def with_mention(self, mention: Mention, types: EntityTypes, *, is_answer: bool) -> ConversationLayer:
        """Return a copy in which an entity of a user's message fills a slot.

        The slot is the first one of the entity's type that allows the value and has no confirmed value. The value is confirmed
        if the message answers the question for the slot, and inferred otherwise.
        """
        question = self.next_question
        for slot in self.slots.values():
            if slot.entity != mention.type or slot.status is SlotStatus.CONFIRMED:
                continue
            was_asked = any(each.slot == slot.name for each in self.clarifications[:1]) or (
                question is not None and question == slot.question
            )
            try:
                return self.with_slot(
                    slot.filled(
                        mention.value, types, confirmed=is_answer and was_asked, source=mention.message, is_canonical=True
                    )
                )
            except StateError:
                continue  # the value is not allowed, so it belongs to another slot
        return self

    def without_source(self, message: str) -> ConversationLayer:
        """Return a copy without the slot values that were read from the message with the ``tracking_id`` ``message``."""
        kept = {name: slot.cleared() if slot.source == message else slot for name, slot in self.slots.items()}
        return self if kept == self.slots else self.changed(slots=kept)

    def lines(self) -> Iterator[str]:
        """Yield the text lines that show the dialogue to the model."""
        if self.phase is Phase.HANDOFF:
            yield "The conversation is being handed to a human."
        if self.intent:
            yield f"The user's intent: {escape_line(self.intent)}"
        unsure = {SlotStatus.INFERRED: " (inferred, to be confirmed)"}
        filled = [slot for slot in self.slots.values() if slot.value is not None]
        if filled:
            yield "Known: " + "; ".join(
                f"{slot.name} = {escape_line(slot.value)}{unsure.get(slot.status, '')}" for slot in filled
            )
        missing = [slot for slot in self.missing if slot.value is None]
        if missing:
            yield "Missing: " + "; ".join(
                f"{slot.name} ({escape_line(' / '.join(slot.allowed))})" if slot.allowed else slot.name for slot in missing
            )
        if self.next_request:
            yield escape_line(self.next_request, 220)


class DialogueState(LayerAccessor[ConversationLayer]):
    """Dialogue of an agent with the user, to read and change. A slot is a value that the user's intent needs.

    If the stored dialogue cannot be read, methods that change it raise ``CorruptRecordError``, and the stored data stay
    unchanged.

    Args:
        store: Store of the agent's state.
        intents: Slots of each intent, keyed by the intent's name.

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
        self._mentions: list[Mention] = []

    def set_intent(self, intent: str | None, *, agent: str | None = None) -> None:
        """Set the user's intent, and the agent that serves the intent (None: unchanged).

        Values of slots that both the old and the new intent have are kept. The entities of the user's last message fill the new
        slots with inferred values: in "volume 2 - I want to order it", the value precedes the intent.
        """
        with self._changing():
            layer = self.layer
            if intent != layer.intent:
                layer = layer.with_intent(intent, self.intents.get(intent or "", ()))
                for mention in self._mentions:
                    layer = layer.with_mention(mention, self._store.types, is_answer=False)
            self._keep(layer if agent is None else layer.changed(agent=agent))

    def set_phase(self, phase: Phase | str) -> None:
        """Move the conversation to a phase.

        Raises:
            StateError: The phase does not exist, or may not follow the current phase. The message names the allowed phases.
        """
        try:
            wanted = Phase(phase)
        except ValueError as error:
            raise StateError(f"phase must be one of {', '.join(Phase)}; got {phase!r:.80}") from error
        with self._changing():
            now = self.layer.phase
            if wanted is not now and wanted not in MOVES[now]:
                raise StateError(f"phase cannot go from {now} to {wanted}; allowed are: {', '.join(sorted(MOVES[now]))}")
            self._keep(self.layer.replaced(phase=wanted))

    def add_slot(self, slot: DialogueSlot) -> None:
        """Add a slot (value that the intent needs). It replaces a slot with the same name, including its value."""
        with self._changing():
            self._keep(self.layer.with_slot(slot))

    def fill_slot(self, name: str, value: object, *, confirmed: bool = False) -> DialogueSlot:
        """Set the value of a slot, and return the slot. Only a confirmed value satisfies a required slot.

        Raises:
            StateError: The slot does not exist, or the value is not allowed.
        """
        with self._changing():
            slot = self.layer.slot(name).filled(value, self._store.types, confirmed=confirmed)
            self._keep(self.layer.with_slot(slot))
            return slot

    def ask(self, question: str, *, slot: str | None = None) -> None:
        """Append a question to the queue of questions to the user, unless it is in the queue already or the queue is full.

        With ``slot``, the question leaves the queue when the slot gets a confirmed value.

        Raises:
            StateError: The slot does not exist.
        """
        with self._changing():
            if slot is not None:
                self.layer.slot(slot)
            asked = self.layer.clarifications
            added = Clarification(question=shorten_line(question, 300), slot=slot)
            if added not in asked and len(asked) < MOST_CLARIFICATIONS:
                self._keep(self.layer.replaced(clarifications=(*asked, added)))

    def answered(self) -> None:
        """Remove the first question from the queue of questions to the user."""
        with self._changing():
            self._keep(self.layer.replaced(clarifications=self.layer.clarifications[1:]))

    # Events of a turn; they do not raise

    def take_message(self, phase: Phase, mentions: Iterable[Mention], *, is_new_turn: bool) -> None:
        """Fill slots with the entities of a user's message, move to ``phase`` if allowed, and count the turn if it is new."""
        self._mentions = list(mentions)
        layer = self.layer.advanced(phase)
        if is_new_turn:
            layer = layer.replaced(turn_count=layer.turn_count + 1)
        for mention in self._mentions:
            layer = layer.with_mention(mention, self._store.types, is_answer=True)
        self._store.put_if_readable(layer)

    def advance(self, phase: Phase) -> None:
        """Move the conversation to a phase, if the phase may follow the current one."""
        self._store.put_if_readable(self.layer.advanced(phase))

    def remove_source(self, message: str) -> None:
        """Remove the slot values that were read from the user's message with the ``tracking_id`` ``message``."""
        self._mentions = [each for each in self._mentions if each.message != message]
        self._store.put_if_readable(self.layer.without_source(message))
