"""Queue entries: events that wait for export, and the aggregation of consecutive ones."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

from opentelemetry.context import Context

from strands_manga_memory.telemetry.events import Event

Entry = tuple[Event, int, float | None, Mapping[str, Any], Mapping[str, float], Context | None]
"""Event, its end in nanoseconds since 1970, its duration in seconds, attributes, numbers, and the context of its span.
"""

_ROW_NS = 2_000_000
"""Longest time between two events that are aggregated, in nanoseconds."""


def pop_entry(entries: deque[Entry]) -> Entry:
    """Remove and return the oldest entry. Consecutive events of an ``in_a_row`` kind are aggregated into one entry.

    Raises:
        IndexError: The queue is empty.
    """
    entry = entries.popleft()
    event, end, seconds, attributes, counts, context = entry
    if not event.in_a_row:
        return entry
    together = seconds or 0.0
    while entries:
        after, its_end, its_seconds, its_attributes, _, _ = entries[0]
        if after is not event or its_attributes is not attributes or its_end - end > _ROW_NS:
            break
        entries.popleft()
        end, together = its_end, together + (its_seconds or 0.0)
    return event, end, together, attributes, counts, context
