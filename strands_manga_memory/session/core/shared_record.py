"""Shared records: one as the values that an agent's own message has as well, and the form that they fill. Pure."""

from __future__ import annotations

import functools
import marshal
from collections.abc import Iterator
from typing import Any

from strands_manga_memory.stores.encoding.codec import dump

_NEVER_CHANGE = frozenset({str, int, float, bool, bytes, type(None)})


Shared = tuple[Any, ...]
"""The form of a record, and the values that fill it, in order. A plain tuple: no garbage collector looks at it for long.

Most messages have one of a few forms, and the agent that has the message has its values, too. They never change: whatever
becomes of the message, the record is made of them again.
"""


def made(shared: Shared) -> bytes:
    """Return the record."""
    form, *values = shared
    return dump(_filled(marshal.loads(form), iter(values)))  # noqa: S302 - made below


def shared_with(message: Any, record: bytes) -> Shared | None:
    """Return a record as the values of a message and its form; None if it is not that message's record."""
    values: list[Any] = []
    try:
        found = (_same(marshal.dumps(_emptied(message, values), 0)), *values)
        return found if made(found) == record else None
    except (RecursionError, RuntimeError, TypeError, ValueError):  # too deep, changed just now, or nothing that stays as it is
        return None


@functools.lru_cache(64)
def _same(form: bytes) -> bytes:
    """Return one and the same form for equal ones."""
    return form


def _emptied(value: Any, values: list[Any]) -> Any:
    if type(value) is dict:
        return {key: _emptied(item, values) for key, item in value.items()}
    if type(value) is list:
        return [_emptied(item, values) for item in value]
    if type(value) not in _NEVER_CHANGE:
        raise TypeError(f"{type(value)} may change")
    values.append(value)
    return None


def _filled(form: Any, values: Iterator[Any]) -> Any:
    if type(form) is dict:
        return {key: _filled(item, values) for key, item in form.items()}
    if type(form) is list:
        return [_filled(item, values) for item in form]
    return next(values)
