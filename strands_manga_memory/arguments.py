"""Argument checks that return the checked value or raise an error with the name of the argument."""

from __future__ import annotations

import math
from typing import Any, TypeVar

_T = TypeVar("_T")


def positive(name: str, value: object) -> int:
    """Return a positive whole number.

    Raises:
        ValueError: ``value`` is not a positive whole number.
    """
    return whole(name, value, least=1)


def whole(name: str, value: object, *, least: int) -> int:
    """Return a whole number of at least ``least``.

    Raises:
        ValueError: ``value`` is not a whole number, or below ``least``.
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        expected = "a positive whole number" if least == 1 else f"a whole number of {least} or more"
        raise ValueError(f"{name} must be {expected}, got {value!r:.80}")
    return value


def filled(name: str, value: object) -> None:
    """Check that a value is a text that is not blank.

    Raises:
        ValueError: ``value`` is not a string, or blank.
    """
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"{name} must be a text that is not empty, got {value!r:.80}")


def seconds(name: str, value: object) -> float:
    """Return a number of seconds above 0.

    Raises:
        ValueError: ``value`` is not a number above 0.
    """
    if isinstance(value, bool) or not isinstance(value, int | float) or math.isnan(value) or value <= 0:
        raise ValueError(f"{name} must be a positive number of seconds, got {value!r:.80}")
    return value


def of_kind(name: str, value: object, kind: type[_T], words: str = "") -> _T:
    """Return an object of a type.

    Args:
        name: Name of the argument.
        value: Object to check.
        kind: Expected type.
        words: Description of the type in the error. Default: its name.

    Raises:
        ValueError: ``value`` has another type.
    """
    if not isinstance(value, kind):
        raise ValueError(f"{name} must be {words or f'a {kind.__name__}'}, got {value!r:.80}")
    return value


def function(name: str, value: _T, words: str = "a function") -> _T:
    """Return a callable.

    Args:
        name: Name of the argument.
        value: Object to check.
        words: Description of the callable in the error.

    Raises:
        ValueError: ``value`` is not callable.
    """
    if not callable(value):
        raise ValueError(f"{name} must be {words}, got {value!r:.80}")
    return value


def with_method(name: str, value: Any, method: str, words: str = "") -> Any:
    """Return an object with a method, such as ``count(message)``.

    Args:
        name: Name of the argument.
        value: Object to check.
        method: Name of the method, with its parameters.
        words: Description of the object in the error. Default: its method.

    Raises:
        ValueError: ``value`` has no such method.
    """
    if not callable(getattr(value, method.partition("(")[0], None)):
        raise ValueError(f"{name} must {f'be {words}' if words else f'have a method {method}'}, got {value!r:.80}")
    return value
