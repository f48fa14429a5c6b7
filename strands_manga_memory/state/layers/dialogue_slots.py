"""DialogueSlot: what an intent must know before it can be served. Pure."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Any

from pydantic import Field, model_validator

from strands_manga_memory.exceptions import StateError
from strands_manga_memory.language.entities import EntityTypes
from strands_manga_memory.language.text_features import encodable, normalized
from strands_manga_memory.state.layers.layer import Part

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
