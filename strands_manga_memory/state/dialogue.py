"""Dialogue with the user: phase, intent, slots and questions.

A phase is a stage of the conversation, such as the greeting. A slot is a value that the user's
intent needs, such as the volume to order.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from enum import StrEnum
from typing import ClassVar

from pydantic import Field

from strands_manga_memory.arguments import check_instance, unknown_setting_text
from strands_manga_memory.exceptions import StateError
from strands_manga_memory.language.dialogue_acts import DialogueAct, dialogue_act
from strands_manga_memory.language.entities import Entity, EntityTypes
from strands_manga_memory.language.text_features import encodable, normalized
from strands_manga_memory.messages import is_turn_start
from strands_manga_memory.messages.injection import escape_line
from strands_manga_memory.messages.texts import shorten_line
from strands_manga_memory.state.session_state import StatePart, Values, change
from strands_manga_memory.state.state_item import StateItem, check_move, item_of

MAX_CHARACTERS = 200
"""Maximum number of characters of a slot's value."""

MAX_SLOTS, MAX_CLARIFICATIONS = 50, 10

_LONGEST_SET_PHRASE = 120
# Scoring counts thanks with a goodbye as thanks.
_GOODBYE = re.compile(r"\b(?:good ?bye|bye)\b", re.IGNORECASE)
_NO_SET_PHRASE = re.compile(r'\d|["「『]')


class SlotStatus(StrEnum):
    """Status of a slot (value that the user's intent needs): empty, inferred or confirmed."""

    EMPTY = "empty"
    INFERRED = "inferred"
    CONFIRMED = "confirmed"


class DialogueSlot(StateItem):
    """Value that the user's intent needs, such as the volume to order.

    Attributes:
        name: Name of the slot, such as ``"volume"``.
        question: Question that asks the user for the value.
        required: Whether the intent needs the value. A required slot is missing until its value is
            confirmed.
        allowed: Allowed values, compared without regard to case and width. Empty: any value.
        entity: Entity type of the value, such as ``"order_id"``. Entities of this type in the
            user's messages fill the slot.
        pattern: Regular expression that the whole value must match. It is not used with
            ``allowed``.
        value: The value, or None.
        is_confirmed: Whether the value is confirmed, and not inferred.
        source: ``tracking_id`` of the message that contained the value; empty if the value was set
            by a method, such as ``Dialogue.fill_slot``.
    """

    name: str = Field(pattern=r"^[\w.-]{1,60}$")
    question: str = Field(default="", max_length=300)
    required: bool = True
    allowed: tuple[str, ...] = ()
    entity: str | None = None
    pattern: str | None = None
    value: str | None = Field(default=None, max_length=MAX_CHARACTERS)
    is_confirmed: bool = False
    source: str = ""

    @property
    def status(self) -> SlotStatus:
        """Status of the slot: empty, inferred or confirmed."""
        if self.value is None:
            return SlotStatus.EMPTY
        return SlotStatus.CONFIRMED if self.is_confirmed else SlotStatus.INFERRED

    @property
    def is_missing(self) -> bool:
        """Whether the slot is required and its value is empty or not confirmed."""
        return self.required and self.status is not SlotStatus.CONFIRMED

    def filled(
        self,
        value: object,
        types: EntityTypes,
        *,
        confirmed: bool,
        source: str = "",
        is_canonical: bool = False,
    ) -> DialogueSlot:
        """Return a copy of the slot with a new value.

        Args:
            value: The new value, a text or a number.
            types: Entity types, such as ASIN, which convert the value to its standard form.
            confirmed: Whether the value is confirmed, and not inferred.
            source: ``tracking_id`` of the message that contained the value.
            is_canonical: Whether ``value`` is in the standard form of its type already.

        Raises:
            StateError: The value is not allowed. The message names the violated rule.
        """
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise StateError(f"slot {self.name!r:.80} takes a text or a number, got {value!r:.80}")
        canonical = text = " ".join(encodable(str(value)).split())
        if 0 < len(text) <= MAX_CHARACTERS:
            canonical = self._canonical(text, types, is_canonical=is_canonical)
        if not 0 < len(canonical) <= MAX_CHARACTERS:
            form = "" if canonical == text else " in the canonical form"
            raise StateError(
                f"slot {self.name!r:.80} takes 1 to {MAX_CHARACTERS} characters, got"
                f" {len(canonical)}{form}"
            )
        return self.replaced(value=canonical, is_confirmed=confirmed, source=source)

    def _canonical(self, text: str, types: EntityTypes, *, is_canonical: bool) -> str:
        value: str | None = text
        rule = f"a valid {self.entity}"
        if self.allowed:
            rule = f"one of {', '.join(map(repr, self.allowed))}"
            options = {normalized(option): option for option in reversed(self.allowed)}
            value = options.get(normalized(text))
        elif (kind := self.entity or "") in types and not is_canonical and text != self.value:
            # A user writes "volume 3", a model passes "3".
            value = types.value(kind, text) or types.value(kind, f"{kind} {text}")
        if value and self.pattern and not self.allowed and not re.fullmatch(self.pattern, value):
            rule, value = f"a value that matches {self.pattern!r:.80}", None
        if not value:
            raise StateError(f"slot {self.name!r:.80} takes {rule}; got {text!r:.80}")
        return value

    def cleared(self) -> DialogueSlot:
        """Return a copy of the slot without its value."""
        return self.replaced(value=None, is_confirmed=False, source="")


def checked_slot(name: str, slot: object, types: EntityTypes) -> DialogueSlot:
    """Check a slot that an application has defined, and return it. Errors call it ``name``.

    Raises:
        ValueError: ``slot`` is no ``DialogueSlot``, has an unknown field or entity type (not in
            ``types``), or has an invalid pattern.
    """
    found = check_instance(name, slot, DialogueSlot)
    for field in found.model_extra or ():
        raise ValueError(f"{name}: {unknown_setting_text(field, DialogueSlot.model_fields)}")
    if found.entity is not None and found.entity not in types:
        known = ", ".join(dict.fromkeys(each.name for each in types))
        raise ValueError(f"{name}: entity must be one of {known}, got {found.entity!r:.80}")
    try:
        re.compile(found.pattern or "")
    except re.error as error:
        raise ValueError(
            f"{name}: pattern must be a regular expression, got {found.pattern!r:.80}: {error}"
        ) from error
    return found


class Phase(StrEnum):
    """Stage of a conversation, such as the greeting, slot filling or the farewell."""

    GREETING = "greeting"
    INTENT_DETECTION = "intent_detection"
    SLOT_FILLING = "slot_filling"
    TOOL_EXECUTION = "tool_execution"
    RESPONSE_GENERATION = "response_generation"
    FOLLOW_UP = "follow_up"
    HANDOFF = "handoff"
    FAREWELL = "farewell"


_WORKING = {
    Phase.INTENT_DETECTION,
    Phase.SLOT_FILLING,
    Phase.TOOL_EXECUTION,
    Phase.RESPONSE_GENERATION,
}
_LEAVING = {Phase.HANDOFF, Phase.FAREWELL}

MOVES: dict[Phase, set[Phase]] = {
    **dict.fromkeys(_WORKING, _WORKING | _LEAVING | {Phase.FOLLOW_UP}),
    **dict.fromkeys((Phase.GREETING, Phase.FOLLOW_UP), _WORKING | _LEAVING),
    # After a human, the agent starts again with the user's intent; it does not resume its earlier
    # work.
    Phase.HANDOFF: {Phase.INTENT_DETECTION, Phase.FOLLOW_UP, Phase.FAREWELL},
    Phase.FAREWELL: {Phase.GREETING, Phase.INTENT_DETECTION},
}
"""Allowed next phases of each phase. Staying in a phase is always allowed."""


class Clarification(StateItem):
    """Question to the user, and the name of the slot that the answer fills, if any."""

    question: str = Field(min_length=1, max_length=300)
    slot: str | None = None


class Dialogue(StatePart):
    """Dialogue with the user: phase, intent, slots of the intent and pending questions.

    Slots are the values that the intent needs. If the stored dialogue cannot be read, methods that
    change it raise ``CorruptRecordError``, and the stored data stay unchanged.

    Attributes:
        phase: Current phase, such as the greeting.
        intent: Current intent of the user.
        agent: Agent that serves the user.
        slots: Slots of the intent, keyed by name.
        clarifications: Pending questions to the user, the next question first.
        turns: Stored number of user requests; 0 if none is stored (see ``turn_count``).
    """

    KEY: ClassVar[str] = "manga_state.conversation"

    phase: Phase = Phase.GREETING
    intent: str | None = Field(default=None, min_length=1, max_length=100)
    agent: str | None = Field(default=None, min_length=1, max_length=100)
    slots: dict[str, DialogueSlot] = Field(default_factory=dict, max_length=MAX_SLOTS)
    clarifications: tuple[Clarification, ...] = Field(default=(), max_length=MAX_CLARIFICATIONS)
    turns: int = Field(default=0, ge=0)

    _mentions: tuple[Entity, ...] = ()
    _message: str = ""

    def merge(self, base: Values, other: Values) -> None:
        """Merge changes that another agent of the session made to the dialogue.

        Slots and questions are merged one by one. If there are more than 50 slots or 10 questions,
        those that this agent added last are dropped.

        Args:
            base: Values of the dialogue before the changes of both agents.
            other: Values of the dialogue of the other agent.
        """
        theirs, known = other["slots"], base["slots"]
        # Slots that both agents added, for example by setting one intent. Only their values count.
        empty = {
            name: slot.cleared()
            for name, slot in self.slots.items()
            if name in theirs and name not in known and theirs[name].cleared() == slot.cleared()
        }
        super().merge({**base, "slots": {**known, **empty}}, other)
        self.slots = dict(list(self.slots.items())[:MAX_SLOTS])
        self.clarifications = self.clarifications[:MAX_CLARIFICATIONS]

    @property
    def turn_count(self) -> int:
        """Number of user requests in the conversation.

        If no number is stored, as in a new fork (copy) of a conversation, the requests in the
        agent's messages are counted.
        """
        agent = self._store.agent
        return self.turns or (0 if agent is None else sum(map(is_turn_start, agent.messages)))

    def slot(self, name: str) -> DialogueSlot:
        """Return the slot (value that the intent needs) with the given name.

        Raises:
            StateError: The slot does not exist. The message names the existing slots.
        """
        return item_of(self.slots, "slot", name)

    @property
    def missing(self) -> tuple[DialogueSlot, ...]:
        """Slots that the agent still has to ask for: required, and empty or not confirmed."""
        return tuple(slot for slot in self.slots.values() if slot.is_missing)

    @property
    def to_ask(self) -> list[Clarification | DialogueSlot]:
        """Questions and slots that the agent still has to ask the user about, in this order.

        Questions added with ``ask`` come first. Then come required slots without a confirmed value,
        except those whose attribute ``question`` is empty.
        """
        asked: list[Clarification | DialogueSlot] = [*self.clarifications, *self.missing]
        return [each for each in asked if each.question]

    @property
    def next_question(self) -> str | None:
        """Next question that the agent should ask the user, the first of ``to_ask``, or None."""
        return next((each.question for each in self.to_ask), None)

    @property
    def next_request(self) -> str:
        """Text line that tells the model to ask the user the next question.

        An example is ``Ask the user next: Which volume? (probably 2)``, in which 2 is an inferred
        value. Tags are escaped. The line is empty if there is no question.
        """
        asked = next(iter(self.to_ask), None)
        value = getattr(asked, "value", None)
        guess = "" if value is None else f" (probably {value})"
        return escape_line(f"Ask the user next: {asked.question}{guess}", 220) if asked else ""

    def lines(self) -> Iterator[str]:
        """Yield the text lines that show the dialogue to the model.

        They contain the intent, the known and the missing values, and the next question.
        """
        if self.phase is Phase.HANDOFF:
            yield "The conversation is being handed to a human."
        if self.intent:
            yield f"The user's intent: {escape_line(self.intent)}"
        unsure = " (inferred, to be confirmed)"
        if known := [
            f"{slot.name} = {escape_line(slot.value)}{'' if slot.is_confirmed else unsure}"
            for slot in self.slots.values()
            if slot.value is not None
        ]:
            yield f"Known: {'; '.join(known)}"
        if missing := [
            slot.name + (f" ({escape_line(' / '.join(slot.allowed))})" if slot.allowed else "")
            for slot in self.missing
            if slot.value is None
        ]:
            yield f"Missing: {'; '.join(missing)}"
        if self.next_request:
            yield self.next_request

    @change
    def set_intent(self, intent: str | None, *, agent: str | None = None) -> None:
        """Set the user's intent, and replace the slots by those of the new intent.

        A slot keeps its value if its definition is the same in both intents. Slots without a
        confirmed value may be filled from the user's last message, such as "Volume 2 - I want to
        order it". Such values are inferred, not confirmed. Pending questions to the user are
        dropped. If the intent is the current one, slots and questions do not change.

        Args:
            intent: The new intent; None for no intent.
            agent: Name of the agent that serves the intent. None keeps the current name.
        """
        if intent != self.intent:
            before = {slot.cleared(): slot for slot in self.slots.values()}
            self.intent, self.clarifications = intent, ()
            self.slots = {
                slot.name: before.get(slot.cleared(), slot)
                for slot in self._store.intents.get(intent or "", ())
            }
            self._fill_from_mentions(is_answer=False)
        if agent is not None:
            self.agent = agent

    @change
    def set_phase(self, phase: Phase | str) -> None:
        """Move the conversation to a phase, such as ``slot_filling``.

        Raises:
            StateError: The phase does not exist, or may not follow the current phase. The message
                names the allowed phases.
        """
        wanted = item_of({each.value: each for each in Phase}, "phase", phase)
        if wanted is not self.phase:
            check_move("phase", MOVES, self.phase, wanted)
        self.phase = wanted

    @change
    def add_slot(self, slot: DialogueSlot) -> None:
        """Add a slot (value that the intent needs) to the dialogue.

        A slot of the same name is replaced together with its value.

        Raises:
            ValueError: The slot has an unknown field, entity type or an invalid pattern.
        """
        self._put(checked_slot("slot", slot, self._store.types))

    @change
    def fill_slot(self, name: str, value: object, *, confirmed: bool = False) -> DialogueSlot:
        """Fill a slot of the dialogue with a value, and return the slot.

        The value counts as inferred, unless ``confirmed`` is True.

        Raises:
            StateError: The slot does not exist, or the value is not allowed.
        """
        return self._put(self.slot(name).filled(value, self._store.types, confirmed=confirmed))

    @change
    def ask(self, question: str, *, slot: str | None = None) -> None:
        """Append a question to the queue of questions that the agent asks the user.

        Nothing is appended if the queue has the question already or is full. ``slot`` is the name
        of the slot that the answer fills, if any. When this slot gets a confirmed value, the
        question is removed from the queue.

        Raises:
            StateError: The slot does not exist.
        """
        if slot is not None:
            self.slot(slot)
        added = Clarification(question=shorten_line(question, 300), slot=slot)
        if added not in self.clarifications:
            self.clarifications = (*self.clarifications, added)[:MAX_CLARIFICATIONS]

    @change
    def answered(self) -> None:
        """Remove the first question to the user from the queue, because the user answered it."""
        self.clarifications = self.clarifications[1:]

    def _put(self, slot: DialogueSlot) -> DialogueSlot:
        if slot.is_confirmed:
            self.clarifications = tuple(
                each for each in self.clarifications if each.slot != slot.name
            )
        self.slots = {**self.slots, slot.name: slot}
        return slot

    # Events of a turn; they do not raise

    def phase_after(self, text: str) -> Phase:
        """Return the phase, such as a greeting, that a message of the user suggests.

        Only a short text without digits and quotation marks counts as a greeting or a goodbye.
        """
        act = None
        if text and len(text) <= _LONGEST_SET_PHRASE and not _NO_SET_PHRASE.search(text):
            act = dialogue_act(text, "user")
        says_goodbye = act is DialogueAct.ACKNOWLEDGEMENT and _GOODBYE.search(text)
        if act is DialogueAct.FAREWELL or says_goodbye:
            return Phase.FAREWELL
        has_left = self.phase is Phase.FAREWELL
        if act is DialogueAct.GREETING and (has_left or self.phase is Phase.GREETING):
            return Phase.GREETING
        return Phase.SLOT_FILLING if self.missing and not has_left else Phase.INTENT_DETECTION

    def fill_from_message(
        self, found: Iterable[Entity], message: str, *, is_correction: bool
    ) -> None:
        """Fill slots with the entities in a message of the user.

        Args:
            found: Entities in the message.
            message: Id (``tracking_id``) of the message.
            is_correction: Whether the message corrects an earlier one. Only a correction can
                replace confirmed values.
        """
        self._mentions, self._message = tuple(found), message
        self._fill_from_mentions(is_answer=True, is_correction=is_correction)

    def advance(self, phase: Phase) -> None:
        """Move the conversation to a phase that may follow the current one; ignore any other phase.

        A conversation that a human has taken over stays in the phase ``HANDOFF``.
        """
        if self.phase is not Phase.HANDOFF and phase in MOVES[self.phase]:
            self.phase = phase

    def remove_source(self, message: str) -> None:
        """Clear the slots whose values came from the message with the given ``tracking_id``."""
        if message == self._message:
            self._mentions = ()
        self.slots = {
            name: slot.cleared() if slot.source == message else slot
            for name, slot in self.slots.items()
        }

    def _fill_from_mentions(self, *, is_answer: bool, is_correction: bool = False) -> None:
        """Fill slots with the entities, such as a volume, that the user's last message named.

        An entity fills a slot of its type. The new value is confirmed if the message answers the
        current question about this slot, and otherwise inferred. Only a correction replaces a
        confirmed value.
        """
        filled_names = set[str]()
        mentions = list(dict.fromkeys((each.type, each.value) for each in self._mentions))
        for type_, value in mentions:
            slots = [slot for slot in self.slots.values() if slot.entity == type_]
            if sum(kind == type_ for kind, _ in mentions) > len(slots):
                continue
            asked = next(iter(self.to_ask), None) if is_answer else None
            for slot in slots:
                is_replaced = is_correction and len(slots) == 1 and slot.value != value
                if slot.name in filled_names or (slot.is_confirmed and not is_replaced):
                    continue
                is_asked = asked is not None and (
                    slot.question == asked.question or slot.name == getattr(asked, "slot", None)
                )
                with suppress(StateError):  # a value that is not allowed belongs to another slot
                    filled = slot.filled(
                        value[:MAX_CHARACTERS],
                        self._store.types,
                        confirmed=is_asked and not slot.is_confirmed,
                        source=self._message,
                        is_canonical=True,
                    )
                    self._put(filled)
                    filled_names.add(slot.name)
                    break
