"""OpenTelemetry spans and metrics of this package.

The package uses only the OpenTelemetry API, as Strands does. To receive the data, set up an SDK,
for example ``strands.telemetry.StrandsTelemetry``. ``MangaMemory.stats()`` returns statistics of
the process without an SDK.

Events are queued. A thread exports them every second, so that no turn waits for an exporter.
``flush()`` and ``MangaMemory.close()`` export at once.

Names of metrics and attributes follow the semantic conventions of OpenTelemetry, such as
``db.client.operation.duration`` for calls of stores. Texts and ids are never included.
``metrics()`` lists all metrics.
"""

from __future__ import annotations

from strands_manga_memory.telemetry.events import (
    BREAKER_CHECK,
    BREAKER_TRANSITION,
    FLUSH,
    HANDOFF,
    RECALL,
    RESTORE,
    STORE_CALL,
    STUCK_WAIT,
    SUMMARY,
    TRIM,
    metrics,
)
from strands_manga_memory.telemetry.recording import (
    ObservedStore,
    OperationStats,
    count_missed_deadline,
    flush,
    in_current_context,
    measured,
    observed_codec,
    record_event,
    recorder,
    set_enabled,
    watch_deadline,
    with_turn_timing,
)

__all__ = [
    "BREAKER_CHECK",
    "BREAKER_TRANSITION",
    "FLUSH",
    "HANDOFF",
    "RECALL",
    "RESTORE",
    "STORE_CALL",
    "STUCK_WAIT",
    "SUMMARY",
    "TRIM",
    "ObservedStore",
    "OperationStats",
    "count_missed_deadline",
    "flush",
    "in_current_context",
    "measured",
    "metrics",
    "observed_codec",
    "record_event",
    "recorder",
    "set_enabled",
    "watch_deadline",
    "with_turn_timing",
]
