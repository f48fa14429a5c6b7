"""Tool hints: what a tool's specification declares of its effects. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def declares_read_only(spec: Mapping[str, Any]) -> bool:
    """Tell whether a tool's annotations say that it changes nothing; who says that it destroys as well does not say so."""
    hints = spec.get("annotations")
    return isinstance(hints, Mapping) and hints.get("readOnlyHint") is True and hints.get("destructiveHint") is not True
