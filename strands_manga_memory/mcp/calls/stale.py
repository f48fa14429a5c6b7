"""Cache of the last good results of read-only tools, used while a tool is unavailable."""

from __future__ import annotations

import copy
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

Key = tuple[str, str, str, str, str]
"""Tenant, user, server, tool, and canonical JSON of the arguments."""


@dataclass(frozen=True)
class GoodResult:
    """Cached result and its age in seconds."""

    content: list[dict[str, Any]]
    age: float


class ResultCache:
    """Cache of the most recent results by key.

    Args:
        ttl: Seconds a result may be used.
        size: Most results. Default 1,024.
        max_bytes: Largest size of a result's text. Default 64 KB.
        clock: Monotonic seconds.

    Raises:
        ValueError: ``ttl`` is not over 0.
    """

    def __init__(
        self, ttl: float, *, size: int = 1024, max_bytes: int = 65_536, clock: Callable[[], float] = time.monotonic
    ) -> None:
        if not ttl > 0:
            raise ValueError(f"stale_ttl must be a number of seconds over 0, got {ttl!r:.80}")
        self._ttl = ttl
        self._size = size
        self._max_bytes = max_bytes
        self._clock = clock
        self._lock = threading.Lock()
        self._kept: OrderedDict[Key, tuple[float, list[dict[str, Any]]]] = OrderedDict()

    def keep(self, key: Key, result: Mapping[str, Any]) -> None:
        """Store a result. A result that is too large or has other content than text and JSON removes the previous one."""
        try:
            content = self._kept_of(result)
        except Exception:  # noqa: BLE001 - a tool may return anything
            content = None
        with self._lock:
            self._kept.pop(key, None)
            if content is not None:
                self._kept[key] = (self._clock(), content)
                while len(self._kept) > self._size:
                    self._kept.popitem(last=False)

    def _kept_of(self, result: Mapping[str, Any]) -> list[dict[str, Any]] | None:
        content = list(result.get("content") or ())
        plain = all(set(block) <= {"text", "json"} for block in content)
        fits = plain and sum(len(str(block)) for block in content) <= self._max_bytes
        return copy.deepcopy(content) if fits else None

    def find(self, key: Key) -> GoodResult | None:
        """Return the cached result within its TTL, or None."""
        with self._lock:
            found = self._kept.get(key)
            if found is None:
                return None
            age = max(0.0, self._clock() - found[0])
            if age > self._ttl:
                del self._kept[key]
                return None
            return GoodResult(copy.deepcopy(found[1]), age)
