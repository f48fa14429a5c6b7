"""Values: what JSON cannot say, or cannot say as deeply nested, written as a list of nodes, and back unharmed. Pure.

JSON is read and written by recursion, and its depth is bounded by whatever the stack has left. A list of nodes is of the same
few levels whatever it stands for, so what could be written can be read.
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
"""Levels up to which a value is JSON: far fewer than any stack has room for."""

_MOST_BITS = 63
"""Larger whole numbers are no JSON: readers of JSON take them for other ones."""

_KEYS, _PLAIN = frozenset({str}), frozenset({str, bool, type(None)})


def is_json(value: Any, *, levels: int = MOST_LEVELS, bits: int = _MOST_BITS, exponents: int = 1 << 11) -> bool:
    """Tell whether JSON text of these levels, and numbers of these bits and binary exponents, stands for exactly this value."""
    level: list[Any] = [[value]]
    for left in reversed(range(levels + 1)):
        held: dict[int, Any] = {}  # one that holds itself twice would grow
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
    """Return ``value`` as JSON text; what JSON cannot hold is written as its type's name."""
    try:
        return json.dumps(
            value, default=lambda item: f"<{type(item).__name__}>", ensure_ascii=ensure_ascii, sort_keys=sort_keys
        )
    except (TypeError, ValueError, RecursionError):  # a key of another type, a number of thousands of digits, very many levels
        return json.dumps(nodes_of(value), ensure_ascii=ensure_ascii)


def is_nested_deeper(value: Any, levels: int) -> bool:
    """Tell whether a value has more levels than these."""
    level = [value]
    for _ in range(levels + 1):
        held = [item.values() if isinstance(item, Mapping) else item for item in level if _holder_of(item)]
        if not held:
            return False
        level = list({id(item): item for items in held for item in items}.values())  # one that holds itself twice would grow
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
"""What becomes of what a leaf holds, by the name of its type."""

_HOLDERS: dict[str, Callable[[list[Any]], Any]] = {
    "list": list,
    "tuple": tuple,
    "set": set,
    "frozenset": frozenset,
    "dict": lambda items: dict(zip(items[::2], items[1::2], strict=True)),
}
"""What becomes of the items of a container, by the name of its type."""


def nodes_of(value: Any) -> list[Any]:
    """Return a value as nodes, items before the container that holds them: the last one is the value.

    A node is a string, number, boolean or None; ``[type, text]``; ``["json", value]`` of a container that is JSON; or ``[type,
    index, index, ...]`` of the items of one that is not, those of a dict being its keys and values in turn.

    Raises:
        ValueError: The value contains itself.
    """
    nodes: list[Any] = []
    path: set[int] = set()
    work: list[tuple[Any, str, Iterator[Any], list[Any]]] = []

    def entered(item: Any) -> bool:
        """Append a leaf's node; open a container instead, and tell so."""
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
    """Return the value of ``nodes_of``.

    Raises:
        ValueError: They are no such nodes, or it is none of a stored value to use an item twice.
        LookupError: As above.
        TypeError: As above.
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
            values[index] = _Taken  # an item that two containers share would grow with every level
        if any(item is _Taken for item in items):
            raise ValueError("an item is in two places")
        taken += len(items)
        values.append(_HOLDERS[name](items))
    if taken != len(values) - 1:
        raise ValueError("there are items that nothing holds")
    return values[-1]


class _Taken:
    """In place of an item that a container has."""


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
    """Return a key or an item of a set; its text if what comes back of it has no hash, such as of a list that has one."""
    level = [item]
    while level:
        names = set(map(_holder_of, level))
        if not names <= {"", "tuple", "frozenset"}:
            return text_of(item)
        level = [inner for held in level if _holder_of(held) for inner in held]
    return item


def _leaf(item: Any) -> Any:
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
    """Tell whether a leaf's text stands for it: a subclass may write what its type does not read."""
    try:
        return _written(_OPENED[name](text)) == text
    except (ValueError, TypeError, ArithmeticError):
        return False
