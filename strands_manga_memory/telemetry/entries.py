"""Entries: events that wait to be handed on, and which of them are told as one."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

from opentelemetry.context import Context

from strands_manga_memory.telemetry.events import Event

Entry = tuple[Event, int, float | None, Mapping[str, Any], Mapping[str, float], Context | None]
"""An event, when it ended in nanoseconds, its seconds, attributes and numbers, and the context of its span."""

_ROW_NS = 2_000_000
"""Between the ends of two values of one read."""


def taken(entries: deque[Entry]) -> Entry:
    """Take the oldest entry, with those like it that follow within a few milliseconds if they are told as one.

    Raises:
        IndexError: There is none.
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
