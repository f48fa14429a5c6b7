"""RepeatedCalls: notices that an agent goes round in circles: the same call, with the same result, again and again. Pure."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import Any

from strands_manga_memory.lazy import expression
from strands_manga_memory.stores.encoding.values import as_json

MOST_ALIKE = 3
"""So many calls of a task that are alike, in what they are given and in what comes of it, are a loop."""

_MOST_KEPT = 200
_MOMENT = expression(
    r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:\.\d{1,9})?)?(?:Z|[+-]\d\d:?\d\d)?"
    r"|\b\d{1,2}:\d\d:\d\d(?:\.\d{1,9})?\b|\b1[5-9]\d{8}(?:\d{3})?(?:\.\d{1,9})?\b"
    r"|\b[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}\b",
    re.IGNORECASE,
)
"""What tells one answer from another that says the same: a time to the second, or a UUID."""


class RepeatedCalls:
    """Counts the calls of one task by tool, arguments and result, wherever they stand: "a, b, a, b, a, b" is a loop, too."""

    def __init__(self, most: int = MOST_ALIKE) -> None:
        self._most = most
        self._counts: dict[str, int] = {}

    def clear(self) -> None:
        """Forget what was called; another task begins."""
        self._counts.clear()

    def is_loop(self, name: str, given: Mapping[str, Any], result: str) -> bool:
        """Count a call; tell whether it makes a loop: once for each, with the call that completes it."""
        text = as_json([name, dict(given), _MOMENT.sub("", result)], sort_keys=True)
        key = hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()
        self._counts[key] = count = self._counts.pop(key, 0) + 1
        if len(self._counts) > _MOST_KEPT:
            del self._counts[next(iter(self._counts))]
        return count == self._most
