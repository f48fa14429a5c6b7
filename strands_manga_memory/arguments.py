"""Checks of arguments: each returns what it was given, or refuses it by name."""

from __future__ import annotations

import math
from typing import Any, TypeVar

_T = TypeVar("_T")


def positive(name: str, value: object) -> int:
    """Return a positive whole number.

    Raises:
        ValueError: It is none.
    """
    return whole(name, value, least=1)


def whole(name: str, value: object, *, least: int) -> int:
    """Return a whole number of at least so much.

    Raises:
        ValueError: It is none.
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        what = "a positive whole number" if least == 1 else f"a whole number of {least} or more"
        raise ValueError(f"{name} must be {what}, got {value!r:.80}")
    return value


def filled(name: str, value: object) -> None:
    """Refuse what is no text, or a blank one.

    Raises:
        ValueError: It is that.
    """
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"{name} must be a text that is not empty, got {value!r:.80}")


def seconds(name: str, value: object) -> float:
    """Return a number of seconds above 0.

    Raises:
        ValueError: It is none.
    """
    if isinstance(value, bool) or not isinstance(value, int | float) or math.isnan(value) or value <= 0:
        raise ValueError(f"{name} must be a positive number of seconds, got {value!r:.80}")
    return value


def of_kind(name: str, value: object, kind: type[_T], words: str = "") -> _T:
    """Return an object of a kind, which ``words`` describe; default the name of the kind.

    Raises:
        ValueError: It is of another kind.
    """
    if not isinstance(value, kind):
        raise ValueError(f"{name} must be {words or f'a {kind.__name__}'}, got {value!r:.80}")
    return value


def function(name: str, value: _T, words: str = "a function") -> _T:
    """Return what can be called, which ``words`` describe.

    Raises:
        ValueError: It cannot be called.
    """
    if not callable(value):
        raise ValueError(f"{name} must be {words}, got {value!r:.80}")
    return value


def with_method(name: str, value: Any, method: str, words: str = "") -> Any:
    """Return an object that has a method, such as ``count(message)``.

    Args:
        name: Name of the argument.
        value: The object.
        method: The method, with what it is called with.
        words: What the object should be. Default: what has that method.

    Raises:
        ValueError: It has none.
    """
    if not callable(getattr(value, method.partition("(")[0], None)):
        raise ValueError(f"{name} must {f'be {words}' if words else f'have a method {method}'}, got {value!r:.80}")
    return value
