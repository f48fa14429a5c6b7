"""Derived: the key of what is kept only to save time: whoever lacks it makes it anew, at the cost of that time."""

from __future__ import annotations

DERIVED = "#derived"
"""A conversation manager's state has it under this key. Where there is a hot tier, that alone keeps it."""
