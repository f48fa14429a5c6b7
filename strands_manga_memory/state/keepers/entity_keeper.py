"""EntityKeeper: sets, confirms and drops the entities that are spoken of."""

from __future__ import annotations

from strands_manga_memory.exceptions import StateError
from strands_manga_memory.messages.tokens import shorten_line
from strands_manga_memory.state.keepers.keeper import Keeper
from strands_manga_memory.state.layers.dialogue import ConversationLayer
from strands_manga_memory.state.layers.entity_layer import ActiveEntity, Confidence, EntityLayer, Origin


class EntityKeeper(Keeper[EntityLayer]):
    """Keeps the entities that are spoken of, such as an order id or a title."""

    KIND = EntityLayer

    def set(self, type_: str, value: str, *, confirmed: bool = True) -> ActiveEntity:
        """Make an entity the one that is spoken of, in place of the one of its type before.

        Raises:
            StateError: There is no such type, or the value is not valid for it.
        """
        types = self._shared.types
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
                turn=self._layers.get(ConversationLayer).turn_count,
            )
            self._keep(self.layer.heard([entity]))
            return entity

    def confirm(self, type_: str, value: str | None = None) -> None:
        """Confirm the active entity of a type; with ``value``, of several only this one stays."""
        with self._changing():
            self._keep(self.layer.confirmed(type_, value))

    def drop(self, *types: str) -> None:
        """Drop the active entities of these types; without types, of all that belong to the subject."""
        with self._changing():
            self._keep(self.layer.dropped(types or None))

    def active(self) -> list[ActiveEntity]:
        """Return what is spoken of, what was named last first."""
        return self.layer.all_active()
