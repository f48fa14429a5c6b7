"""Delegated: an attribute of an object that one of its parts holds."""

from __future__ import annotations

from typing import Any, Generic, TypeVar, cast

_T = TypeVar("_T")


class Delegated(Generic[_T]):
    """An attribute that is read and set on the part of that name, where it has the same name."""

    def __init__(self, part: str) -> None:
        self._part = part
        self._name = ""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, instance: Any, owner: type | None = None) -> _T:
        """Return what the part holds."""
        return cast("_T", getattr(getattr(instance, self._part), self._name))

    def __set__(self, instance: Any, value: _T) -> None:
        """Have the part hold a value."""
        setattr(getattr(instance, self._part), self._name, value)
