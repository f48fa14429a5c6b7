"""EntityKeeper: what is done with the entities that are spoken of."""

from __future__ import annotations

from strands_manga_memory.exceptions import StateError
from strands_manga_memory.language.tokens import shortened
from strands_manga_memory.state.entities import ActiveEntity, Confidence, EntityLayer, Origin
from strands_manga_memory.state.keeper import Keeper


class EntityKeeper(Keeper):
    """Keeps the entities' layer."""

    def set_entity(self, type_: str, value: str, *, confirmed: bool = True) -> ActiveEntity:
        """Make an entity the one that is spoken of, in place of the one of its type before.

        Raises:
            StateError: There is no such type, or the value is not valid for it.
        """
        if type_ not in self.types:
            raise StateError(f"there is no entity type {type_!r}; there are: {', '.join(each.name for each in self.types)}")
        canonical = self.types.value(type_, value)
        if canonical is None:
            raise StateError(f"{value!r:.80} is no valid {type_}")
        with self.layers.changing(EntityLayer):
            entity = ActiveEntity(
                type=type_,
                value=canonical,
                text=shortened(value, 200),
                confidence=Confidence.CONFIRMED if confirmed else Confidence.INFERRED,
                origin=Origin.CODE,
                turn=self.conversation.turn_count,
            )
            self._keep(self.entities.heard([entity]))
            return entity

    def confirm_entity(self, type_: str, value: str | None = None) -> None:
        """Confirm the active entity of a type; with ``value``, of several only this one stays."""
        with self.layers.changing(EntityLayer):
            self._keep(self.entities.confirmed(type_, value))

    def drop_entities(self, *types: str) -> None:
        """Drop the active entities of these types; without types, of all that belong to the subject."""
        with self.layers.changing(EntityLayer):
            self._keep(self.entities.dropped(types or None))

    def active_entities(self) -> list[ActiveEntity]:
        """Return what is spoken of, what was named last first."""
        return self.entities.all_active()
