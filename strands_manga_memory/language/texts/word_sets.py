"""words: the words of a text, as a set. Pure."""

from __future__ import annotations


def words(text: str = "") -> frozenset[str]:
    """Return the words of a text, separated by spaces."""
    return frozenset(text.split())
