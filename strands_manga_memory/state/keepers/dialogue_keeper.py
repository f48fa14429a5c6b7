"""DialogueKeeper: moves a conversation between phases, sets its intent, fills slots and queues questions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from strands_manga_memory.arguments import of_kind
from strands_manga_memory.exceptions import StateError
from strands_manga_memory.messages.tokens import shorten_line
from strands_manga_memory.state.keepers.keeper import Keeper, Shared
from strands_manga_memory.state.layers.dialogue import Clarification, ConversationLayer, Phase
from strands_manga_memory.state.layers.dialogue_slots import DialogueSlot


class DialogueKeeper(Keeper[ConversationLayer]):
    """Keeps where the conversation stands: phase, intent, slots, questions.

    Raises ``ValueError`` where something that an intent must know is no ``DialogueSlot``.
    """

    KIND = ConversationLayer

    def __init__(self, shared: Shared, intents: Mapping[str, Iterable[DialogueSlot]]) -> None:
        super().__init__(shared)
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
            slot = self.layer.slot(name).filled(value, self._shared.types, confirmed=confirmed)
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
