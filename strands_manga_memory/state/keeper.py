"""Keeper: what the keepers of the layers have in common; together they are the coordinator."""

from __future__ import annotations

import time
from collections.abc import Callable

from strands_manga_memory.language.entities import EntityTypes
from strands_manga_memory.state.conversation import ConversationLayer
from strands_manga_memory.state.entities import EntityLayer
from strands_manga_memory.state.goals import GoalsLayer
from strands_manga_memory.state.kept import KeptLayers
from strands_manga_memory.state.statistics import Timings


class Keeper:
    """Reads and puts the layers that are stored."""

    layers: KeptLayers
    types: EntityTypes
    _timings: Timings
    _clock: Callable[[], float]
    _wall: Callable[[], float]

    @property
    def conversation(self) -> ConversationLayer:
        """Phase, intent, slots, questions."""
        return self.layers.get(ConversationLayer)

    @property
    def entities(self) -> EntityLayer:
        """What is spoken of."""
        return self.layers.get(EntityLayer)

    @property
    def goals(self) -> GoalsLayer:
        """The active goal and those before."""
        return self.layers.get(GoalsLayer)

    def _keep(self, layer: ConversationLayer | EntityLayer | GoalsLayer) -> None:
        start = time.perf_counter()
        self.layers.put(layer)
        self.layers.write()
        self._timings.add("update", start)
