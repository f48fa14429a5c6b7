"""Copies: of conversation managers, one for each agent that is made from a template, and of lists of messages.

Strands copies the history deeply twice for each model call.
"""

from __future__ import annotations

import copy
from typing import Any, Self

from strands.types.content import Message

_OF_ONE_CONVERSATION = frozenset({"log", "recent_log"})


class Template:
    """Base class of objects whose deep copy is a new object, built with the same arguments.

    State that an object gained after construction, such as its agent, locks, threads and caches, is not copied. An argument
    that is such an object itself is copied too; other arguments, such as models, functions and stores, are shared. ``log`` and
    ``recent_log`` are left out: they return the messages of one conversation, and a copy serves another.
    """

    _made_with: tuple[tuple[Any, ...], dict[str, Any]]

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        """Remember the arguments."""
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
