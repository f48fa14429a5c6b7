"""Entities that a conversation is about, such as an order id or a title."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import ClassVar

from pydantic import Field

from strands_manga_memory.exceptions import StateError
from strands_manga_memory.language.entities import Entity
from strands_manga_memory.language.text_features import normalized
from strands_manga_memory.messages.injection import escape_line
from strands_manga_memory.messages.texts import shorten_line
from strands_manga_memory.state.dialogue import Dialogue
from strands_manga_memory.state.session_state import StatePart, change
from strands_manga_memory.state.state_item import StateItem, item_of

EXPIRES_AFTER_TURNS = 20
MAX_VALUES = 5
"""Maximum number of active values of one entity type, such as two volumes to choose from."""

MAX_TYPES = 30
_MAX_RENDERED = 12
_QUOTATION_MARKS = "『』「」《》“”‘’\"' "

OF_THE_USER = frozenset({"email", "phone", "language"})
"""Entity types that describe the user.
They stay active after a change of subject, and no pronoun refers to them.
"""

_OF_TITLES, _OF_DAYS = frozenset({"volume", "asin", "isbn", "price"}), frozenset({"time"})
_DETAILS = {"series": _OF_TITLES, "title": _OF_TITLES, "date": _OF_DAYS, "weekday": _OF_DAYS}
"""Entity types whose values a new entity of another type (the key) removes."""


class ActiveEntity(StateItem):
    """Entity that the conversation is about, such as an order or a title.

    Attributes:
        type: Name of the entity type, such as ``"asin"``.
        value: Value in the standard form of its type, by which entities are compared.
        text: Value as written in the message.
        is_confirmed: True if the user named the entity, or the application set it. False if only
            the assistant or a tool named it.
        message: Id (``tracking_id``) of the message that named the entity; empty if the entity was
            set by ``ActiveEntities.set``.
        turn: Number of the last turn in which the entity was named.
    """

    type: str
    value: str = Field(min_length=1, max_length=200)
    text: str = Field(default="", max_length=200)
    is_confirmed: bool = False
    message: str = ""
    turn: int = 0

    @property
    def display_text(self) -> str:
        """Text that the model sees for the entity, such as ``One Piece`` for ``one piece``.

        It is ``text`` for a date or a reference (such as the name of a table), and if ``text``
        differs from ``value`` only in details such as case. Otherwise, it is ``value``.
        """
        written = self.text.strip(_QUOTATION_MARKS)
        is_shown = self.type in ("date", "reference") or self.value in (
            written.casefold(),
            normalized(written),
        )
        return (is_shown and written) or self.value


class ActiveEntities(StatePart):
    """Active entities: orders, titles and other things that recent messages named.

    An entity becomes active when a message names it. It is removed when a newer entity of the same
    type replaces it, when no message has named it for 20 turns, or when the user changes the
    subject ("forget that, show me ..."). A change of the subject does not remove entities that
    describe the user, such as a phone number.

    Attributes:
        groups: Active entities, keyed by type, in the order in which the types were first named.
    """

    KEY: ClassVar[str] = "manga_state.entities"
    VERSION: ClassVar[int] = 2

    groups: dict[str, tuple[ActiveEntity, ...]] = Field(default_factory=dict)

    def active(self) -> list[ActiveEntity]:
        """Return the active entities of the conversation, the most recently named first."""
        return sorted(chain(*self.groups.values()), key=lambda each: -each.turn)

    def lines(self) -> Iterator[str]:
        """Yield the text line that lists the active entities for the model, if there are any.

        Entities that describe the user, such as a phone number, are left out.
        """
        mentioned = defaultdict[str, list[str]](list)
        referents = [entity for entity in self.active() if entity.type not in OF_THE_USER]
        for entity in referents[:_MAX_RENDERED]:
            text = escape_line(entity.display_text, 60)
            mentioned[escape_line(entity.type, 30)].append(
                text if entity.is_confirmed else f"{text} (inferred)"
            )
        if mentioned:
            groups = (f"{type_} {', '.join(values)}" for type_, values in mentioned.items())
            yield "Mentioned lately: " + "; ".join(groups)

    @change
    def set(self, type_: str, value: str) -> ActiveEntity:
        """Set a confirmed value as the only active entity of its type; return the entity.

        Raises:
            StateError: There is no such entity type, or the value is not valid for the type.
        """
        types = self._store.types
        item_of({each.name: each for each in types}, "entity type", type_)
        canonical = types.value(type_, value)
        if canonical is None:
            raise StateError(f"value must be a valid {type_}, got {value!r:.80}")
        named = Entity(type_, canonical, shorten_line(value, 200), 0, 0)
        self.add_mentions([named], "", by_user=True)
        return self.groups[type_][-1]

    # Events of a turn; they do not raise

    def begin_turn(self, *, is_new_subject: bool) -> None:
        """Remove outdated entities when a new turn of the conversation begins.

        An entity is outdated if no message named it in the last 20 turns. If the user has changed
        the subject (``is_new_subject``), all entities are outdated, except those that describe the
        user, such as a phone number.
        """
        dialogue = self._store.get(Dialogue)
        # A fork at an earlier turn has the entities, but not the number of turns.
        turn = dialogue.turns = max([dialogue.turns, *(each.turn for each in self.active())])
        self._keep(
            lambda each: (
                turn - each.turn <= EXPIRES_AFTER_TURNS
                and (not is_new_subject or each.type in OF_THE_USER)
            )
        )

    def add_mentions(self, found: Iterable[Entity], message: str, *, by_user: bool) -> None:
        """Update the active entities with the entities in a message, such as an order id.

        Args:
            found: Entities in the message.
            message: Id (``tracking_id``) of the message.
            by_user: Whether the user wrote the message, and not a tool or the assistant.
        """
        turn = self._store.get(Dialogue).turns
        entities = [
            ActiveEntity(
                type=each.type,
                value=each.value[:200],
                text=each.text[:200],
                is_confirmed=by_user,
                message=message,
                turn=turn,
            )
            for each in found
        ]
        self.mention(entities, by_user=by_user)

    def mention(self, entities: Iterable[ActiveEntity], *, by_user: bool = True) -> None:
        """Replace active entities by newly named entities of the same types, such as ASINs.

        A new title or series also removes the volumes, ASINs, ISBNs and prices of the earlier
        title. A new date or weekday removes the time of the earlier day.

        Entities that the user named always replace those of their type. Entities that the assistant
        or a tool named (``by_user`` is False) do so except in three cases:

        - One of them is active already. It then counts as named in this turn.
        - There are more than ``MAX_VALUES`` (5) new entities of the type.
        - An active, confirmed entity of the type was named in the same turn.
        """
        named = defaultdict[str, dict[str, ActiveEntity]](dict)
        for entity in entities:
            named[entity.type][entity.value] = entity
        groups = dict(self.groups)
        for type_, new in named.items():
            known = {each.value: each for each in groups.get(type_, ())}
            turn = max(each.turn for each in new.values())
            again = known.keys() & new.keys()
            is_settled = any(each.turn >= turn and each.is_confirmed for each in known.values())
            # A long list names no subject.
            if not by_user and (again or is_settled or len(new) > MAX_VALUES):
                new = known | {value: known[value].replaced(turn=turn) for value in again}
            elif known and not again:
                for name in _DETAILS.get(type_, frozenset()) & groups.keys():
                    if all(each.turn < turn for each in groups[name]):
                        del groups[name]
            if new:
                groups[type_] = tuple(new.values())[-MAX_VALUES:]
        while len(groups) > MAX_TYPES:
            del groups[min(groups, key=lambda name: max(each.turn for each in groups[name]))]
        self.groups = groups

    def remove_source(self, message: str) -> None:
        """Remove the active entities that came from the message with the given ``tracking_id``."""
        self._keep(lambda each: each.message != message)

    def _keep(self, is_kept: Callable[[ActiveEntity], bool]) -> None:
        groups = {name: tuple(filter(is_kept, group)) for name, group in self.groups.items()}
        self.groups = {name: group for name, group in groups.items() if group}
