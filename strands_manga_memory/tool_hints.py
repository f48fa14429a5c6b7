"""Hints about the effects of a tool, from its specification. Pure functions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def declares_read_only(spec: Mapping[str, Any]) -> bool:
    """Return whether a tool's annotations declare it read-only, and not destructive at the same time."""
    hints = spec.get("annotations")
    return isinstance(hints, Mapping) and hints.get("readOnlyHint") is True and hints.get("destructiveHint") is not True
