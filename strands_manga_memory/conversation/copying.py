"""Copies of conversation managers: a template is copied for each agent that is made from it."""

from __future__ import annotations

from typing import Any, Self

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
        named = {name: _copied(value, memo) for name, value in kwargs.items() if name not in _OF_ONE_CONVERSATION}
        return type(self)(*(_copied(value, memo) for value in args), **named)


def _copied(value: Any, memo: dict[int, Any]) -> Any:
    if isinstance(value, Template):
        if id(value) not in memo:
            memo[id(value)] = value.__deepcopy__(memo)
        return memo[id(value)]
    return [_copied(item, memo) for item in value] if isinstance(value, list | tuple) else value
