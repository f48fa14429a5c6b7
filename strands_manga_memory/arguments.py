"""Checks of arguments: each returns what it was given, or refuses it by name."""

from __future__ import annotations

from typing import Any


def positive(name: str, value: object) -> int:
    """Return a positive whole number.

    Raises:
        ValueError: It is none.
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"{name} must be a positive whole number, got {value!r:.80}")
    return value


def with_method(name: str, value: Any, method: str) -> Any:
    """Return an object that has a method of this name.

    Raises:
        ValueError: It has none.
    """
    if not callable(getattr(value, method, None)):
        raise ValueError(f"{name} must have a method {method}(message), got {value!r:.80}")
    return value
