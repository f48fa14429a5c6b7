"""Entities that the conversation is about, such as an order id or a title."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import ClassVar

from pydantic import Field

from strands_manga_memory.exceptions import StateError
from strands_manga_memory.messages.tokens import shorten_line
from strands_manga_memory.state.dialogue import ConversationLayer
from strands_manga_memory.state.state_store import Keeper, Layer, Part

EXPIRES_AFTER_TURNS = 20
MOST_VALUES = 5
"""Most values of one type that are active together, such as two volumes to choose from."""

MOST_TYPES = 30

OF_THE_USER = frozenset({"email", "phone", "language"})
"""Types that describe the user. They stay active after a change of subject."""

BELONGS_TO: Mapping[str, frozenset[str]] = {
    kind: frozenset({"volume", "asin", "isbn", "price"}) for kind in ("series", "title")
}
"""Types that become inactive with a new value of the key's type: the ASIN of one series does not belong to the next."""


class Confidence(StrEnum):
    """Certainty that the user means this value."""

    INFERRED = "inferred"
    CONFIRMED = "confirmed"


class Origin(StrEnum):
    """Source of an entity."""

    USER = "user"
    ASSISTANT = "assistant"
    TOOL = "tool"
    CODE = "code"


class ActiveEntity(Part):
    """Entity that the conversation is about.

    Attributes:
        type: Name of its type.
        value: Canonical form.
        text: Original text.
        confidence: Confirmed if the user named the entity or it was confirmed explicitly.
        origin: Source of the entity.
        message: ``tracking_id`` of the message that named it; empty if it was set by code.
        turn: Last turn that named it.
    """

    type: str
    value: str = Field(min_length=1, max_length=200)
    text: str = Field(default="", max_length=200)
    confidence: Confidence = Confidence.INFERRED
    origin: Origin = Origin.CODE
    message: str = ""
    turn: int = 0

    @property
    def spelling(self) -> str:
        """Value with the capital letters of the original text, such as "Natsume" for the canonical "natsume"."""
        return self.text if self.text.casefold() == self.value else self.value


class EntityLayer(Layer):
    """Active entities: the latest values of each type.

    Attributes:
        active: Entities by type, in the order in which the types were first named.
    """

    KEY: ClassVar[str] = "manga_state.entities"

    active: dict[str, tuple[ActiveEntity, ...]] = Field(default_factory=dict)

    def all_active(self) -> list[ActiveEntity]:
        """Return the active entities, the most recently named first."""
        return sorted((each for group in self.active.values() for each in group), key=lambda each: -each.turn)

    def with_mentions(self, entities: Iterable[ActiveEntity]) -> EntityLayer:
        """Return the layer after a message that named ``entities``, all of one origin.

        They replace the active entities of their type. Entities that the user named are not replaced by a tool or the
        assistant in the same turn: a look-up of one book that mentions another one is still about the first.
        """
        groups: dict[str, dict[str, ActiveEntity]] = {}
        for entity in entities:
            groups.setdefault(entity.type, {})[entity.value] = entity
        active = dict(self.active)
        for type_, found in groups.items():
            known = {each.value: each for each in active.get(type_, ())}
            again = {value: each for value, each in found.items() if value in known}
            by_user = next(iter(found.values())).origin in (Origin.USER, Origin.CODE)
            if not by_user:
                if again:  # still mentioned, so other values in the same text do not replace it
                    if any(each.turn != known[value].turn for value, each in again.items()):
                        active[type_] = tuple(
                            each.replaced(turn=again[value].turn) if value in again else each for value, each in known.items()
                        )
                    continue
                if len(found) > MOST_VALUES:
                    continue  # a list of many values is about none of them
                turn = next(iter(found.values())).turn
                if any(each.turn >= turn and each.confidence is Confidence.CONFIRMED for each in known.values()):
                    continue
            if known and not again:
                gone = BELONGS_TO.get(type_, frozenset())
                turn = next(iter(found.values())).turn
                active = _without(active, [name for name in gone & active.keys() if all(e.turn < turn for e in active[name])])
            kept = {value: _as_sure_as(known.get(value), each) for value, each in found.items()}
            active[type_] = tuple(kept.values())[-MOST_VALUES:]
        while len(active) > MOST_TYPES:
            del active[min(active, key=lambda name: max(each.turn for each in active[name]))]
        return self._with(active)

    def confirmed(self, type_: str, value: str | None = None) -> EntityLayer:
        """Return the layer with the entity of a type confirmed; ``value`` selects one of several and drops the others."""
        group = self.active.get(type_, ())
        chosen = tuple(each.changed(confidence=Confidence.CONFIRMED) for each in group if value is None or each.value == value)
        return self._with({**self.active, type_: chosen}) if chosen else self

    def dropped(self, types: Iterable[str] | None = None) -> EntityLayer:
        """Return the layer without the entities of these types; None: without all entities of the current subject."""
        names = frozenset(self.active) - OF_THE_USER if types is None else frozenset(types)
        return self._with(_without(self.active, names))

    def without_source(self, message: str) -> EntityLayer:
        """Return the layer without the entities that a message named."""
        return self._with(
            {name: left for name, group in self.active.items() if (left := tuple(e for e in group if e.message != message))}
        )

    def expired(self, turn: int, after: int) -> EntityLayer:
        """Return the layer without entities that were not named for more than ``after`` turns."""
        if all(turn - each.turn <= after for group in self.active.values() for each in group):
            return self
        return self._with(
            {name: left for name, group in self.active.items() if (left := tuple(e for e in group if turn - e.turn <= after))}
        )

    def _with(self, active: dict[str, tuple[ActiveEntity, ...]]) -> EntityLayer:
        same = len(active) == len(self.active) and all(self.active.get(name) is group for name, group in active.items())
        return self if same else self.replaced(active=active)  # every entity is already validated


def _without(active: Mapping[str, tuple[ActiveEntity, ...]], types: Iterable[str]) -> dict[str, tuple[ActiveEntity, ...]]:
    gone = frozenset(types)
    return {name: group for name, group in active.items() if name not in gone}


def _as_sure_as(known: ActiveEntity | None, named: ActiveEntity) -> ActiveEntity:
    """Return ``named``, confirmed if ``known`` was."""
    if known is None or known.confidence is named.confidence or known.confidence is Confidence.INFERRED:
        return named
    return named.replaced(confidence=known.confidence)


class EntityKeeper(Keeper[EntityLayer]):
    """Accessor of the active entities, such as an order id or a title."""

    KIND = EntityLayer

    def set(self, type_: str, value: str, *, confirmed: bool = True) -> ActiveEntity:
        """Set the active entity of a type, replacing the previous one.

        Raises:
            StateError: The type does not exist, or the value is invalid for it.
        """
        types = self._store.types
        if type_ not in types:
            raise StateError(f"there is no entity type {type_!r:.80}; there are: {', '.join(each.name for each in types)}")
        canonical = types.value(type_, value)
        if canonical is None:
            raise StateError(f"{value!r:.80} is no valid {type_}")
        with self._changing():
            entity = ActiveEntity(
                type=type_,
                value=canonical,
                text=shorten_line(value, 200),
                confidence=Confidence.CONFIRMED if confirmed else Confidence.INFERRED,
                origin=Origin.CODE,
                turn=self._store.get(ConversationLayer).turn_count,
            )
            self._keep(self.layer.with_mentions([entity]))
            return entity

    def confirm(self, type_: str, value: str | None = None) -> None:
        """Confirm the active entity of a type; ``value`` selects one of several and drops the others."""
        with self._changing():
            self._keep(self.layer.confirmed(type_, value))

    def drop(self, *types: str) -> None:
        """Drop the active entities of these types; without types, all entities of the current subject."""
        with self._changing():
            self._keep(self.layer.dropped(types or None))

    def active(self) -> list[ActiveEntity]:
        """Return the active entities, the most recently named first."""
        return self.layer.all_active()
