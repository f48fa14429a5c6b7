"""Checks of arguments. A check raises an error that names the argument if the argument is invalid.

Every check except ``filled`` returns the valid argument.
"""

from __future__ import annotations

import math
from typing import Any, TypeVar

_T = TypeVar("_T")


def positive(name: str, value: object) -> int:
    """Check that the argument ``name`` is a positive whole number, and return the number.

    Raises:
        ValueError: ``value`` is not a positive whole number.
    """
    return whole(name, value, least=1)


def whole(name: str, value: object, *, least: int) -> int:
    """Check that the argument ``name`` is a whole number of at least ``least``, and return the number.

    Raises:
        ValueError: ``value`` is not a whole number, or is below ``least``.
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        expected = "a positive whole number" if least == 1 else f"a whole number of {least} or more"
        raise ValueError(f"{name} must be {expected}, got {value!r:.80}")
    return value


def filled(name: str, value: object) -> None:
    """Check that the argument ``name`` is a string that is not blank.

    Raises:
        ValueError: ``value`` is not a string, or is blank.
    """
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"{name} must be a text that is not empty, got {value!r:.80}")


def seconds(name: str, value: object) -> float:
    """Check that the argument ``name`` is a number of seconds above 0, and return the number.

    Raises:
        ValueError: ``value`` is not a number above 0.
    """
    if isinstance(value, bool) or not isinstance(value, int | float) or math.isnan(value) or value <= 0:
        raise ValueError(f"{name} must be a positive number of seconds, got {value!r:.80}")
    return value


def not_negative(name: str, value: float) -> float:
    """Check that the argument ``name`` is a number of seconds of at least 0, and return the number.

    Raises:
        ValueError: ``value`` is below 0.
    """
    if value < 0:
        raise ValueError(f"{name} must be 0 or more seconds, got {value!r:.80}")
    return value


def of_kind(name: str, value: object, kind: type[_T], words: str = "") -> _T:
    """Check that the argument ``name`` is an instance of ``kind``, and return the argument.

    ``words`` is the description of the type in the error. Default: the name of ``kind``.

    Raises:
        ValueError: ``value`` has another type.
    """
    if not isinstance(value, kind):
        raise ValueError(f"{name} must be {words or f'a {kind.__name__}'}, got {value!r:.80}")
    return value


def function(name: str, value: _T, words: str = "a function") -> _T:
    """Check that the argument ``name`` is callable, and return the argument.

    ``words`` is the description of the expected object in the error.

    Raises:
        ValueError: ``value`` is not callable.
    """
    if not callable(value):
        raise ValueError(f"{name} must be {words}, got {value!r:.80}")
    return value


def with_method(name: str, value: Any, method: str, words: str = "") -> Any:
    """Check that the argument ``name`` has a method, and return the argument.

    Args:
        name: Name of the argument.
        value: Object to check.
        method: Name of the method with its parameters, such as ``count(message)``. Only the name is checked.
        words: Description of the expected object in the error. Default: a description with the method's name.

    Raises:
        ValueError: ``value`` has no such method.
    """
    if not callable(getattr(value, method.partition("(")[0], None)):
        raise ValueError(f"{name} must {f'be {words}' if words else f'have a method {method}'}, got {value!r:.80}")
    return value
