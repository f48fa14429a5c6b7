"""Copies of conversation managers and of message lists.

A conversation manager is copied for each agent that is built from the same settings. Message lists have a fast deep copy,
because Strands copies the history twice for each model call.
"""

from __future__ import annotations

import copy
from typing import Any, Self

from strands.types.content import Message

_OF_ONE_CONVERSATION = frozenset({"log", "recent_log"})


class Template:
    """Base class of objects whose deep copy is a new object with the same constructor arguments.

    State such as agent, locks, threads and caches is not copied. Arguments that are templates themselves are copied too. Other
    arguments, such as models, functions and stores, are shared with the copy.

    The arguments ``log`` and ``recent_log`` are not passed to the copy. They read one conversation, and the copy is for
    another.
    """

    _made_with: tuple[tuple[Any, ...], dict[str, Any]]

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        """Create the object and store its constructor arguments for deep copies."""
        made = super().__new__(cls)
        made._made_with = args, kwargs
        return made

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        args, kwargs = self._made_with
        named = {name: _copied_argument(value, memo) for name, value in kwargs.items() if name not in _OF_ONE_CONVERSATION}
        return type(self)(*(_copied_argument(value, memo) for value in args), **named)


def _copied_argument(value: Any, memo: dict[int, Any]) -> Any:
    if isinstance(value, Template):
        if id(value) not in memo:
            memo[id(value)] = value.__deepcopy__(memo)
        return memo[id(value)]
    return [_copied_argument(item, memo) for item in value] if isinstance(value, list | tuple) else value


# --- Histories ----------------------------------------------------------------------------------------------------------------


_ATOMS = frozenset({str, int, float, bool, bytes, type(None)})


class History(list[Message]):
    """List of messages with a faster deep copy, otherwise a plain list.

    An object that the list contains twice is copied twice. A list that contains itself is copied by ``copy.deepcopy``.
    """

    __slots__ = ()

    def __deepcopy__(self, memo: dict[int, Any]) -> History:
        """Return a deep copy of the list."""
        try:
            return History([_copied(message, memo) for message in self])
        except RecursionError:
            return History(copy.deepcopy(list(self), memo))


def copied_quickly(messages: list[Message]) -> list[Message]:
    """Convert a plain list to a ``History``, which is copied faster. Return a list of any other class unchanged."""
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
