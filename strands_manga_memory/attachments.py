"""Objects of this package that belong to another object, such as an agent of Strands."""

from __future__ import annotations

from typing import Any


def attachments(owner: object) -> dict[str, Any]:
    """Return the objects that this package has attached to an object, keyed by name.

    They live as long as ``owner``.
    """
    found: dict[str, Any] = vars(owner).setdefault("_strands_manga_memory", {})
    return found
