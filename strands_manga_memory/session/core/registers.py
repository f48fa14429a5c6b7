"""Registers: layers of state, taken apart by key, so that two writers of one layer both keep what they changed. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from strands_manga_memory.session.core.identity import Stamp
from strands_manga_memory.stores.encoding.codec import dump, load_stored
from strands_manga_memory.stores.encoding.derived import DERIVED

Path = tuple[str, ...]
"""Where a value is: the layer, and the keys on the way to it."""


class Register(NamedTuple):
    """The latest value of a path. ``data`` is its dump; None if it was removed."""

    stamp: Stamp
    data: bytes | None


WITH_WINDOW = "#window"
"""The layer whose registers go with the window: of two copies the one with the later window has the later ones."""


States = Mapping[Path, Register]
"""All layers' registers."""


def is_derived(path: Path) -> bool:
    """Tell whether a register holds what whoever lacks it makes anew."""
    return path[0] == WITH_WINDOW and path[-1] == DERIVED


def goes_with_window(path: Path) -> bool:
    """Tell whether a register is one of those of the later window."""
    return path[0] == WITH_WINDOW and path[-1] != DERIVED


def flattened(layer: str, value: Mapping[str, Any], depth: int) -> dict[Path, bytes]:
    """Return the dumps of what a layer's value consists of, with ``depth`` (1 or more) levels of keys told apart."""
    flat: dict[Path, bytes] = {}
    level: list[tuple[Path, Any, int]] = [((layer,), value, depth)]
    while level:
        path, inner, left = level.pop()
        if left and isinstance(inner, Mapping) and (inner or len(path) == 1):
            level.extend(((*path, str(key)), item, left - 1) for key, item in inner.items())
        else:
            flat[path] = dump(inner)
    return flat


def changes(before: Mapping[Path, bytes], after: Mapping[Path, bytes], stamp: Stamp) -> dict[Path, Register]:
    """Return the registers of what was changed or removed between two forms of a layer."""
    changed = {path: Register(stamp, data) for path, data in after.items() if before.get(path) != data}
    return changed | {path: Register(stamp, None) for path in before.keys() - after.keys()}


def layer_of(states: States, layer: str) -> dict[str, Any]:
    """Return a layer's value; raise ``CorruptRecordError`` naming a register that cannot be read.

    Where one writer made a value of what another made an object, the later one stands.
    """
    value: dict[str, Any] = {}
    registers = sorted(
        (register.stamp, path, register.data) for path, register in states.items() if path[0] == layer and len(path) > 1
    )
    for _, path, data in registers:
        if data is not None:
            _put(value, path[1:], load_stored(data, "state " + "/".join(path)))
    return value


def _put(value: dict[str, Any], keys: Path, item: Any) -> None:
    for key in keys[:-1]:
        inner = value.get(key)
        if not isinstance(inner, dict):
            inner = value[key] = {}
        value = inner
    if not (item == {} and isinstance(value.get(keys[-1]), dict)):
        value[keys[-1]] = item
