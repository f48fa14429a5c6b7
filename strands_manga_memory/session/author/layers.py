"""Layers: what an agent's states are, beside what everybody has of them. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from strands_manga_memory.session.core.identity import Stamp
from strands_manga_memory.session.core.registers import WITH_WINDOW, Path, Register, States, changes, flattened, layer_of
from strands_manga_memory.stores.encoding.codec import dump

_Flat = Mapping[Path, bytes]


class Layers:
    """The layers that a process has changed since it last had what everybody has. Not thread-safe.

    A layer that an agent keeps as a whole is compared with the form in which the agent was last given it, so that what others
    changed meanwhile stays. A value that is set by itself is compared with what everybody has.
    """

    __slots__ = ("_depths", "_given", "_kept", "_set")

    def __init__(self) -> None:
        self._given: dict[str, _Flat] = {}
        self._kept: dict[str, _Flat] = {}
        self._depths: dict[str, int] = {}
        self._set: dict[Path, bytes] = {}

    def keep(self, layer: str, value: Mapping[str, Any], states: States, *, depth: int) -> None:
        """Take a whole layer as the agent has it now; ``states`` are what everybody has, for ``depth`` see ``flattened``."""
        self._depths[layer] = depth
        if layer not in self._given:
            self._given[layer] = flattened(layer, layer_of(states, layer), depth)
        now = flattened(layer, value, depth)
        self._kept[layer] = self._given[layer] if now == self._given[layer] else now

    def set(self, layer: str, values: Mapping[str, Any]) -> None:
        """Set some values of a layer."""
        self._set |= {(layer, key): dump(value) for key, value in values.items()}

    def registers(self, states: States, stamp: Stamp, *, with_window: bool = True) -> dict[Path, Register]:
        """Return what everybody's states lack, stamped; unless ``with_window``, without what goes with a window."""
        found: dict[Path, Register] = {}
        for layer, now in self._kept.items():
            if now is not self._given[layer] and (with_window or layer != WITH_WINDOW):
                found |= changes(self._given[layer], now, stamp)
        for path, data in self._set.items():
            known = states.get(path)
            if known is None or known.data != data:
                found[path] = Register(stamp, data)
        return found

    def offered(self, registers: Mapping[Path, Register]) -> None:
        """Take note that everybody has these of what was changed."""
        for layer in {path[0] for path in registers} & self._kept.keys():
            given = _changed(self._given[layer], registers, layer)
            self._given[layer] = self._kept[layer] if given == self._kept[layer] else given
        self._set = {path: data for path, data in self._set.items() if path not in registers or registers[path].data != data}

    def value(self, layer: str, states: States) -> dict[str, Any]:
        """Return a layer as it is with what was changed here; raise ``CorruptRecordError`` if it cannot be read."""
        changed = self.registers(states, _LATEST)
        mine = {path: register for path, register in changed.items() if path[0] == layer}
        return layer_of({**states, **mine} if mine else states, layer)

    def give(self, states: States) -> None:
        """Take note that the agent is given what everybody has, with what was changed here."""
        for layer, depth in self._depths.items():
            given = flattened(layer, layer_of(states, layer), depth)
            now = _changed(given, self.registers(states, _LATEST), layer)
            self._given[layer] = given
            self._kept[layer] = given if now == given else now


_LATEST = Stamp(1 << 62, "")


def _changed(flat: _Flat, registers: Mapping[Path, Register], layer: str) -> _Flat:
    """Return the dumps of a layer with what registers change of it."""
    now = {**flat, **{path: register.data for path, register in registers.items() if path[0] == layer}}
    return {path: data for path, data in now.items() if data is not None}
