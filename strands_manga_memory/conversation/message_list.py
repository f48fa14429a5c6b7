"""A list of messages that copies itself quickly: Strands copies the history deeply twice for every call of a model."""

from __future__ import annotations

import copy
from typing import Any

from strands.types.content import Message

_ATOMS = frozenset({str, int, float, bool, bytes, type(None)})


class History(list[Message]):
    """A list of messages whose deep copy is made of dicts and lists in a third of the time; anything else in it as ever.

    It is a list in every other respect. An object that is in it twice is copied twice; if it contains itself, the copy is
    the general one.
    """

    __slots__ = ()

    def __deepcopy__(self, memo: dict[int, Any]) -> History:
        """Return a deep copy."""
        try:
            return History([_copied(message, memo) for message in self])
        except RecursionError:
            return History(copy.deepcopy(list(self), memo))


def copied_quickly(messages: list[Message]) -> list[Message]:
    """Return a plain list as a history; a list of another kind unchanged."""
    return History(messages) if type(messages) is list else messages


def _copied(value: Any, memo: dict[int, Any]) -> Any:
    kind = type(value)
    if kind is dict or kind is list:
        made = value.copy()
        for key, item in value.items() if kind is dict else enumerate(value):
            inner = type(item)
            if inner is list and len(item) == 1 and type(block := item[0]) is dict and type(block.get("text")) is str:
                made[key] = [block.copy() if len(block) == 1 else _copied(block, memo)]  # most messages, in fewer calls
            elif inner not in _ATOMS:
                made[key] = _copied(item, memo)
        return made
    return value if kind in _ATOMS else copy.deepcopy(value, memo)
