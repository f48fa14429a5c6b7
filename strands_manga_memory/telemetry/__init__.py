"""Telemetry: OpenTelemetry spans and metrics, and statistics of this process (``MangaMemory.stats()``).

The package uses the OpenTelemetry API only, as Strands does: set up an SDK (``strands.telemetry.StrandsTelemetry`` or
your own) to receive the data. Events are queued and exported by a thread every second, so that no turn waits for an
exporter. ``flush()`` exports at once; ``MangaMemory.close()`` does too.

Names follow the semantic conventions: ``db.client.operation.duration`` with ``db.system.name``, ``db.operation.name``
and ``error.type`` for stores. Texts and ids are never included; spans carry a hash of the conversation's name.
``metrics()`` lists all metrics.
"""

from __future__ import annotations

from strands_manga_memory.telemetry.events import (
    BREAKER_CHECK,
    BREAKER_TRANSITION,
    COLLISION,
    DEADLINE,
    FLUSH,
    HANDOFF,
    MERGE,
    RECALL,
    RESTORE,
    RETURN,
    SERIALIZATION,
    STATE_DRIFT,
    STORE_CALL,
    STUCK_WAIT,
    SUMMARY,
    TOOL_LOOP,
    TRIM,
    TURN,
    Event,
    Metric,
    metrics,
)
from strands_manga_memory.telemetry.histogram import OperationStats
from strands_manga_memory.telemetry.recording import (
    EventRecorder,
    carried,
    flush,
    measured,
    missed,
    note,
    recorder,
    switch,
    within,
)
from strands_manga_memory.telemetry.stores import (
    ObservedCodec,
    ObservedStore,
    observed_hot_store,
    observed_table,
)
from strands_manga_memory.telemetry.turn_timing import timed

__all__ = [
    "BREAKER_CHECK",
    "BREAKER_TRANSITION",
    "COLLISION",
    "DEADLINE",
    "FLUSH",
    "HANDOFF",
    "MERGE",
    "RECALL",
    "RESTORE",
    "RETURN",
    "SERIALIZATION",
    "STATE_DRIFT",
    "STORE_CALL",
    "STUCK_WAIT",
    "SUMMARY",
    "TOOL_LOOP",
    "TRIM",
    "TURN",
    "Event",
    "EventRecorder",
    "Metric",
    "ObservedCodec",
    "ObservedStore",
    "OperationStats",
    "carried",
    "flush",
    "measured",
    "metrics",
    "missed",
    "note",
    "observed_hot_store",
    "observed_table",
    "recorder",
    "switch",
    "timed",
    "within",
]
