"""Entities that a conversation is about, such as an order id or a title."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from enum import StrEnum
from typing import ClassVar

from pydantic import Field

from strands_manga_memory.exceptions import StateError
from strands_manga_memory.language.entities import Entity, is_referent
from strands_manga_memory.messages.injection import escape_line
from strands_manga_memory.messages.tokens import shorten_line
from strands_manga_memory.state.dialogue import ConversationLayer
from strands_manga_memory.state.state_store import Layer, LayerAccessor, Part

EXPIRES_AFTER_TURNS = 20
MOST_VALUES = 5
"""Maximum number of active values of one entity type, such as two volumes to choose from."""

MOST_TYPES = 30
_MOST_RENDERED = 12

OF_THE_USER = frozenset({"email", "phone", "language"})
"""Entity types that describe the user. They stay active after a change of subject, and no pronoun refers to them."""

BELONGS_TO: Mapping[str, frozenset[str]] = {
    kind: frozenset({"volume", "asin", "isbn", "price"}) for kind in ("series", "title")
}
"""Entity types to remove when the type in the key gets a new value. For example, each series has its own ASIN."""


class Confidence(StrEnum):
    """Certainty that the user means an entity."""

    INFERRED = "inferred"
    CONFIRMED = "confirmed"


class Origin(StrEnum):
    """Kind of source that named an entity."""

    USER = "user"
    ASSISTANT = "assistant"
    TOOL = "tool"
    CODE = "code"


class ActiveEntity(Part):
    """Entity that the conversation is about.

    Attributes:
        type: Name of the entity type, such as ``"asin"``.
        value: Value in its canonical form.
        text: Value as originally written.
        confidence: Confirmed if the user named the entity or it was confirmed explicitly.
        origin: Kind of source that named the entity.
        message: ``tracking_id`` of the message that named the entity; empty if code set it.
        turn: Number of the last turn that named the entity.
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
        """Value with the capital letters of the original text: "Natsume" for the canonical value "natsume"."""
        return self.text if self.text.casefold() == self.value else self.value


_Active = dict[str, tuple[ActiveEntity, ...]]


class EntityLayer(Layer):
    """Stored active entities of a conversation.

    Attributes:
        active: Entities by type, in the order in which the types were first named.
    """

    KEY: ClassVar[str] = "manga_state.entities"

    active: dict[str, tuple[ActiveEntity, ...]] = Field(default_factory=dict)

    def all_active(self) -> list[ActiveEntity]:
        """Return the active entities, the most recently named first."""
        return sorted((each for group in self.active.values() for each in group), key=lambda each: -each.turn)

    def with_mentions(self, entities: Iterable[ActiveEntity]) -> EntityLayer:
        """Return a copy in which the entities of a new message replace the active entities of their types.

        All entities must have the same origin. A tool's or the assistant's entities of a type replace the active ones only if
        none of them is active already, they are at most ``MOST_VALUES``, and no confirmed entity of the type was named in the
        same turn. Otherwise the new ones are ignored, and the already active ones among them count as named again.
        """
        groups: dict[str, dict[str, ActiveEntity]] = {}
        for entity in entities:
            groups.setdefault(entity.type, {})[entity.value] = entity
        active = dict(self.active)
        for type_, named in groups.items():
            first = next(iter(named.values()))
            if first.origin in (Origin.USER, Origin.CODE) or _is_new_subject(active.get(type_, ()), named, first.turn):
                _replace(active, type_, named, first.turn)
            elif type_ in active:  # still mentioned, so other values in the same text do not replace it
                active[type_] = tuple(
                    each.replaced(turn=named[each.value].turn) if each.value in named else each for each in active[type_]
                )
        while len(active) > MOST_TYPES:
            del active[min(active, key=lambda name: max(each.turn for each in active[name]))]
        return self._with(active)

    def without(self, types: Iterable[str] | None = None) -> EntityLayer:
        """Return a copy without the entities of the given types. None: keep only types that describe the user, as email."""
        gone = frozenset(self.active) - OF_THE_USER if types is None else frozenset(types)
        return self._with({name: group for name, group in self.active.items() if name not in gone})

    def without_source(self, message: str) -> EntityLayer:
        """Return a copy without the entities that the message with the ``tracking_id`` ``message`` named."""
        return self._filtered(lambda each: each.message != message)

    def expired(self, turn: int, after: int) -> EntityLayer:
        """Return a copy without the entities that were last named more than ``after`` turns before ``turn``."""
        return self._filtered(lambda each: turn - each.turn <= after)

    def lines(self) -> Iterator[str]:
        """Yield a text line that shows the active entities to the model."""
        mentioned: dict[str, list[str]] = {}
        referents = [entity for entity in self.all_active() if entity.type not in OF_THE_USER]
        for entity in referents[:_MOST_RENDERED]:
            unsure = "" if entity.confidence is Confidence.CONFIRMED else " (inferred)"
            mentioned.setdefault(entity.type, []).append(f"{escape_line(entity.spelling, 60)}{unsure}")
        if mentioned:
            yield "Mentioned lately: " + "; ".join(
                f"{escape_line(type_, 30)} {', '.join(values)}" for type_, values in mentioned.items()
            )

    def _filtered(self, is_kept: Callable[[ActiveEntity], bool]) -> EntityLayer:
        groups = {name: tuple(filter(is_kept, group)) for name, group in self.active.items()}
        return self._with({name: group for name, group in groups.items() if group})

    def _with(self, active: _Active) -> EntityLayer:
        return self if active == self.active else self.replaced(active=active)


def _is_new_subject(known: Iterable[ActiveEntity], named: Collection[str], turn: int) -> bool:
    """Return whether a message's values of an entity type, ``named``, replace the active entities of the type, ``known``.

    They do if they are at most ``MOST_VALUES``, none is active, and no confirmed entity was named in the message's ``turn``.
    """
    if any(each.value in named for each in known) or len(named) > MOST_VALUES:
        return False  # a long list of values names no subject
    return not any(each.turn >= turn and each.confidence is Confidence.CONFIRMED for each in known)


def _replace(active: _Active, type_: str, named: Mapping[str, ActiveEntity], turn: int) -> None:
    known = {each.value: each.confidence for each in active.get(type_, ())}
    if known and not known.keys() & named.keys():
        for name in BELONGS_TO.get(type_, frozenset()) & active.keys():
            if all(each.turn < turn for each in active[name]):
                del active[name]
    active[type_] = tuple(
        each.replaced(confidence=Confidence.CONFIRMED) if known.get(value) is Confidence.CONFIRMED else each
        for value, each in named.items()
    )[-MOST_VALUES:]


class EntityState(LayerAccessor[EntityLayer]):
    """Active entities of an agent, to read and change."""

    KIND = EntityLayer

    def set(self, type_: str, value: str, *, confirmed: bool = True) -> ActiveEntity:
        """Set the active entity of a type, which replaces the previous entities of the type.

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
                turn=self._store.get(ConversationLayer).turn_count,
            )
            self._keep(self.layer.with_mentions([entity]))
            return entity

    def confirm(self, type_: str, value: str | None = None) -> None:
        """Confirm the active entities of a type. With ``value``, confirm this one, and remove the others of the type."""
        with self._changing():
            chosen = tuple(
                each.replaced(confidence=Confidence.CONFIRMED)
                for each in self.layer.active.get(type_, ())
                if value is None or each.value == value
            )
            if chosen:
                self._keep(self.layer.replaced(active={**self.layer.active, type_: chosen}))

    def drop(self, *types: str) -> None:
        """Remove the entities of the given types. Without types, keep only the entities that describe the user."""
        with self._changing():
            self._keep(self.layer.without(types or None))

    def active(self) -> list[ActiveEntity]:
        """Return the active entities, the most recently named first."""
        return self.layer.all_active()

    # Events of a turn; they do not raise

    def begin_turn(self, *, expires_after: int, is_new_subject: bool) -> None:
        """Remove the entities that were not named for ``expires_after`` turns.

        At a new subject, only the entities that describe the user are kept.
        """
        layer = self.layer.expired(self._store.get(ConversationLayer).turn_count, expires_after)
        self._store.put_if_readable(layer.without() if is_new_subject else layer)

    def take_mentions(self, found: Iterable[Entity], origin: Origin, message: str) -> None:
        """Set the active entities to those that a message named, type by type. Prices and quantities are left out."""
        turn = self._store.get(ConversationLayer).turn_count
        entities = [
            ActiveEntity(
                type=each.type,
                value=each.value[:200],
                text=each.text[:200],
                confidence=Confidence.CONFIRMED if origin is Origin.USER else Confidence.INFERRED,
                origin=origin,
                message=message,
                turn=turn,
            )
            for each in found
            if is_referent(each)
        ]
        if entities:
            self._store.put_if_readable(self.layer.with_mentions(entities))

    def remove_source(self, message: str) -> None:
        """Remove the entities that the message with the ``tracking_id`` ``message`` named."""
        self._store.put_if_readable(self.layer.without_source(message))
