"""Wanted: which memories a recall asks for. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from strands_manga_memory.memory.recall.context import ended_at
from strands_manga_memory.memory.records.memory_records import MemoryRecord
from strands_manga_memory.memory.records.retention import DERIVED, MemoryType


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What a memory must be like to be returned.

    Attributes:
        types: Of one of these types; None: of any that is not made from others.
        min_importance: Of at least this importance.
        metadata: With these values in its metadata, or among a list there; texts whatever their case.
        since: Of a session that ended, or else learned, at that time or later, in seconds since 1970.
        until: The same, before that time.

    Raises:
        ValueError: A value is out of range.
    """

    types: frozenset[MemoryType] | None = None
    min_importance: float = 0.0
    metadata: Mapping[str, Any] = field(default_factory=dict)
    since: float | None = None
    until: float | None = None

    def __post_init__(self) -> None:
        checked_importance("min_importance", self.min_importance)
        if not isinstance(self.metadata, Mapping) or not all(isinstance(name, str) for name in self.metadata):
            raise ValueError(f"metadata must map names to values, got {self.metadata!r:.80}")
        for name in ("since", "until"):
            at = getattr(self, name)
            if at is not None and (isinstance(at, bool) or not isinstance(at, int | float)):
                raise ValueError(f"{name} must be seconds since 1970, or None, got {at!r:.80}")

    def has(self, record: MemoryRecord, now: float) -> bool:
        """Tell whether a memory is wanted; what has expired is not."""
        if record.expired(now) or record.importance < self.min_importance:
            return False
        if record.type in DERIVED if self.types is None else record.type not in self.types:
            return False
        at = ended_at(record)
        if (self.since is not None and at < self.since) or (self.until is not None and at >= self.until):
            return False
        return all(_is_among(value, record.metadata.get(name)) for name, value in self.metadata.items())


def _is_among(value: Any, there: Any) -> bool:
    return any(_plain(each) == _plain(value) for each in (there if isinstance(there, list | tuple) else [there]))


def _plain(value: Any) -> Any:
    return " ".join(value.casefold().split()) if isinstance(value, str) else value


def checked_type(value: MemoryType | str) -> MemoryType:
    """Return the type of this name, or refuse it."""
    try:
        return MemoryType(value)
    except ValueError:
        raise ValueError(f"type must be one of {', '.join(map(repr, map(str, MemoryType)))}, got {value!r:.80}") from None


def checked_importance(name: str, value: float) -> float:
    """Return an importance, or refuse what is not from 0 to 1."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise ValueError(f"{name} must be from 0 to 1, got {value!r:.80}")
    return float(value)
