"""Objects that this package attaches to other objects, such as Strands' agents."""

from __future__ import annotations

from typing import Any


def attachments(owner: object) -> dict[str, Any]:
    """Return the objects that this package has attached to ``owner``, keyed by name. They live as long as ``owner``."""
    found: dict[str, Any] = vars(owner).setdefault("_strands_manga_memory", {})
    return found
