"""Keeper: what the keepers of the layers have in common, and what those of one coordinator share."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import ClassVar, Generic, TypeVar

from strands_manga_memory.language.entities import EntityTypes
from strands_manga_memory.state.layers.kept import KeptLayers
from strands_manga_memory.state.layers.layer import Layer
from strands_manga_memory.state.statistics import Timings

_Layer = TypeVar("_Layer", bound=Layer)


@dataclass(frozen=True)
class Shared:
    """What the keepers of one coordinator share; ``clock`` counts monotonic seconds, ``wall`` those since 1970."""

    types: EntityTypes
    clock: Callable[[], float]
    wall: Callable[[], float]
    layers: KeptLayers = field(default_factory=KeptLayers)
    timings: Timings = field(default_factory=Timings)


class Keeper(Generic[_Layer]):
    """Reads and changes one layer that is stored."""

    KIND: ClassVar[type[Layer]]

    def __init__(self, shared: Shared) -> None:
        self._shared = shared
        self._layers = shared.layers

    @property
    def layer(self) -> _Layer:
        """The layer as it is now; it is a value, and what is done makes another one."""
        return self._layers.get(self.KIND)  # type: ignore[return-value]

    def _changing(self) -> AbstractContextManager[None]:
        return self._layers.changing(self.KIND)

    def _keep(self, layer: _Layer) -> None:
        start = time.perf_counter()
        self._layers.put(layer)
        self._layers.write()
        self._shared.timings.add("update", start)
