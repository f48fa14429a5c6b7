"""Serialization of values that JSON cannot represent or that are nested too deeply for JSON, as a list of nodes.

A node is a short JSON list or value that stores one part of the value. Nodes refer to each other by their positions in the
list. A list of nodes is therefore never deeply nested, and can always be read. Nested JSON is read and written recursively, so
the size of the stack limits its depth.
"""

from __future__ import annotations

import base64
import json
import logging
import math
from collections.abc import Callable, Iterator, Mapping
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any

from strands_manga_memory.messages import text_of

logger = logging.getLogger(__name__)

MOST_LEVELS = 100
"""Most levels of a value that is stored as JSON, far fewer than the stack allows."""

_MOST_BITS = 63
"""Most bits of an integer that is stored as JSON, because some JSON readers change larger integers."""

_KEYS, _PLAIN = frozenset({str}), frozenset({str, bool, type(None)})


def is_json(value: Any, *, levels: int = MOST_LEVELS, bits: int = _MOST_BITS, exponents: int = 1 << 11) -> bool:
    """Return whether JSON represents a value exactly.

    False for values that are nested too deeply, and for numbers that some JSON readers change: integers with more than ``bits``
    bits, and floats with too large exponents.
    """
    level: list[Any] = [[value]]
    for left in reversed(range(levels + 1)):
        held: dict[int, Any] = {}  # by id, because a value that contains itself would grow
        for holder in level:
            if holder and not left:
                return False
            if type(holder) is dict and not _KEYS.issuperset(map(type, holder)):
                return False
            for item in holder.values() if type(holder) is dict else holder:
                kind = type(item)
                if kind is dict or kind is list:
                    held[id(item)] = item
                elif kind not in _PLAIN and not (
                    (kind is int and item.bit_length() <= bits)
                    or (kind is float and math.isfinite(item) and abs(math.frexp(item)[1]) <= exponents)
                ):
                    return False
        if not held:
            return True
        level = list(held.values())
    return False


def as_json(value: Any, *, ensure_ascii: bool = True, sort_keys: bool = False) -> str:
    """Return a value as JSON text. An object without a JSON form is written as its type, such as ``"<date>"``."""
    try:
        return json.dumps(
            value, default=lambda item: f"<{type(item).__name__}>", ensure_ascii=ensure_ascii, sort_keys=sort_keys
        )
    except (TypeError, ValueError, RecursionError):  # a key of another type, a very long number, or deep nesting
        return json.dumps(nodes_of(value), ensure_ascii=ensure_ascii)


def is_nested_deeper(value: Any, levels: int) -> bool:
    """Return whether containers in a value are nested deeper than ``levels`` levels."""
    level = [value]
    for _ in range(levels + 1):
        held = [item.values() if isinstance(item, Mapping) else item for item in level if _holder_of(item)]
        if not held:
            return False
        level = list({id(item): item for items in held for item in items}.values())  # by id, against growth in cycles
    return True


_OPENED: dict[str, Callable[[Any], Any]] = {
    "json": lambda value: value,
    "bytes": base64.b64decode,
    "int": lambda text: int(text, 16),
    "float": float,
    "datetime": datetime.fromisoformat,
    "date": date.fromisoformat,
    "time": time.fromisoformat,
    "Decimal": Decimal,
}
"""Parsers of leaves, by name of type."""

_HOLDERS: dict[str, Callable[[list[Any]], Any]] = {
    "list": list,
    "tuple": tuple,
    "set": set,
    "frozenset": frozenset,
    "dict": lambda items: dict(zip(items[::2], items[1::2], strict=True)),
}
"""Constructors of containers, by name of type."""


def nodes_of(value: Any) -> list[Any]:
    """Convert a value to a list of nodes, from which ``value_of`` restores the value.

    A node stores one part of the value. Items come before their container. The last node is the whole value. These are the
    nodes:

    - A string, number, boolean or None is its own node.
    - A value such as a date or bytes is ``[type, text]``.
    - A container that JSON can represent is ``["json", value]``. Its items have no nodes of their own.
    - Any other container is ``[type, index, index, ...]``, with the positions of its items' nodes in the list. For a dict, the
      indexes alternate between keys and values.

    Raises:
        ValueError: The value contains itself.
    """
    nodes: list[Any] = []
    path: set[int] = set()
    work: list[tuple[Any, str, Iterator[Any], list[Any]]] = []

    def entered(item: Any) -> bool:
        """Append the node of an item to the list ``nodes``, and return False.

        A container that JSON cannot represent is pushed on ``work`` instead, because its items come first. Return True.
        """
        name = _holder_of(item)
        if not name or is_json(item):
            nodes.append(["json", item] if name else _leaf(item))
            return False
        if id(item) in path:
            raise ValueError(f"a {type(item).__name__} contains itself, it cannot be stored")
        path.add(id(item))
        work.append((item, name, _items(item), [name]))
        return True

    entered(value)
    while work:
        holder, _, rest, node = work[-1]
        for item in rest:
            if entered(item):
                break
            node.append(len(nodes) - 1)
        else:
            work.pop()
            path.discard(id(holder))
            nodes.append(node)
            if work:
                work[-1][3].append(len(nodes) - 1)
    return nodes


def value_of(nodes: Any) -> Any:
    """Return the value that ``nodes_of`` converted to a list of nodes.

    Raises:
        ValueError: A node is invalid, or is an item of two containers, or of none although it is not the last.
        LookupError: A node has an unknown type, or an index out of range.
        TypeError: A node has the wrong form.
    """
    values: list[Any] = []
    taken = 0
    for node in nodes:
        if not isinstance(node, list):
            values.append(node)
            continue
        name, *rest = node
        if name in _OPENED:
            values.append(_OPENED[name](*rest))
            continue
        items = []
        for index in rest:
            items.append(values[index])
            values[index] = _ItemPlaceholder  # a shared item would grow with every level
        if any(item is _ItemPlaceholder for item in items):
            raise ValueError("an item belongs to two containers")
        taken += len(items)
        values.append(_HOLDERS[name](items))
    if taken != len(values) - 1:
        raise ValueError("an item belongs to no container")
    return values[-1]


class _ItemPlaceholder:
    """Placeholder of a restored value that is already an item of a container.

    It reveals a list of nodes in which two containers have the same item, which is an error.
    """


def _holder_of(item: Any) -> str:
    if isinstance(item, Mapping):
        return "dict"
    return next((kind.__name__ for kind in (list, tuple, set, frozenset) if isinstance(item, kind)), "")


def _items(holder: Any) -> Iterator[Any]:
    if isinstance(holder, Mapping):
        return (part for key, value in holder.items() for part in (_hashable(key), value))
    if isinstance(holder, set | frozenset):
        return map(_hashable, sorted(holder, key=lambda item: text_of(item, repr)))
    return iter(holder)


def _hashable(item: Any) -> Any:
    """Return a dict key or set item that stays hashable after it is stored and restored.

    An item that is or contains a dict, list or set is converted to text. Other items are returned unchanged.
    """
    level = [item]
    while level:
        names = set(map(_holder_of, level))
        if not names <= {"", "tuple", "frozenset"}:
            return text_of(item)
        level = [inner for held in level if _holder_of(held) for inner in held]
    return item


def _leaf(item: Any) -> Any:
    """Return the stored form of a value that is not a container. A value of an unknown type is stored as its text."""
    if item is None or isinstance(item, bool):
        return item
    if isinstance(item, float):
        return float(item) if math.isfinite(item) else ["float", repr(float(item))]
    if isinstance(item, str):
        return str.__str__(item)
    if isinstance(item, int):
        return int(item) if item.bit_length() <= _MOST_BITS else ["int", f"{int(item):x}"]
    if isinstance(item, bytes | bytearray | memoryview):
        return ["bytes", base64.b64encode(item).decode("ascii")]
    for kind in (datetime, date, time, Decimal):
        if isinstance(item, kind) and _comes_back(kind.__name__, text := text_of(item, _written)):
            return [kind.__name__, text]
    logger.warning("type=<%s> | value has no stored form, its text is stored", type(item).__name__)
    return text_of(item)


def _written(item: Any) -> str:
    return str(item) if isinstance(item, Decimal) else item.isoformat()


def _comes_back(name: str, text: str) -> bool:
    """Return whether a text stays the same if it is parsed as a value of the type ``name`` and written again."""
    # a subclass may write a text that its base type cannot parse
    try:
        return _written(_OPENED[name](text)) == text
    except (ValueError, TypeError, ArithmeticError):
        return False
