"""Kinds of telemetry events, with the metrics and spans of each kind."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

_FAST = (1e-6, 5e-6, 1e-5, 5e-5, 1e-4, 5e-4, 1e-3, 5e-3, 1e-2)
_STORES = (1e-4, 3e-4, 8e-4, 1e-3, 3e-3, 8e-3, 2e-2, 5e-2, 0.1, 0.5, 1.0, 2.0, 5.0)
_SLOW = (0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
_LONG = (0.05, 1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 1800.0, 2700.0, 3600.0, 7200.0, 14400.0, 86400.0)


@dataclass(frozen=True)
class Metric:
    """Definition of an OpenTelemetry metric: a histogram, a counter or a gauge.

    Args:
        name: Name from the semantic conventions of OpenTelemetry, or with the prefix
            ``manga_memory.``.
        unit: Unit of the values, such as ``s``, ``{message}`` or ``{token}``.
        buckets: Upper bounds of a histogram's buckets, in ``unit``. Only a histogram has buckets.
    """

    name: str
    unit: str
    description: str
    buckets: tuple[float, ...] = ()


@dataclass(frozen=True)
class Event:
    """Kind of telemetry event, with its metrics and its span.

    Args:
        name: Name of the event in the statistics, such as ``turn``. Its span is
            ``manga_memory.turn``. Each call of a store has the name of its operation instead:
            ``hot.write`` in the statistics, ``write conversations`` as a span.
        duration: Histogram of the event's duration in seconds; None for events without a duration.
        counts: Metrics of the values that the event records besides its duration, keyed by the name
            of the value, such as ``tokens``.
        labels: Names of the attributes that the event's metrics have. The span has all attributes.
        has_span: Whether the event creates a span.
    """

    name: str
    duration: Metric | None = None
    counts: Mapping[str, Metric] = field(default_factory=dict)
    labels: tuple[str, ...] = ()
    has_span: bool = True


STORE_CALL = Event(
    "store",
    Metric("db.client.operation.duration", "s", "Duration of a call to a store.", _STORES),
    labels=(
        "db.system.name",
        "db.operation.name",
        "db.collection.name",
        "manga_memory.tier",
        "error.type",
    ),
)
SERIALIZATION = Event(
    "serialization",
    Metric(
        "manga_memory.serialization.duration",
        "s",
        "Time of one call to seal or unseal values.",
        _FAST,
    ),
    labels=("operation",),
    has_span=False,
)
BREAKER_CHECK = Event(
    "breaker.check",
    Metric(
        "manga_memory.breaker.check.duration",
        "s",
        "Time a breaker takes to let a call through or reject it.",
        _FAST,
    ),
    labels=("outcome",),
    has_span=False,
)
TURN = Event(
    "turn",
    Metric("manga_memory.turn.duration", "s", "Duration of a turn, including the model.", _SLOW),
    {
        "layer": Metric(
            "manga_memory.layer.duration", "s", "Time a turn spent in the memory layer.", _STORES
        )
    },
)
RESTORE = Event(
    "restore",
    Metric("manga_memory.restore.duration", "s", "Duration of reading a conversation.", _STORES),
    labels=("outcome",),
)
DEADLINE = Event(
    "deadline",
    counts={
        "missed": Metric(
            "manga_memory.deadlines.missed",
            "{wait}",
            "Waits for a tier that reached their deadline.",
        )
    },
    labels=("manga_memory.tier",),
    has_span=False,
)
FLUSH = Event(
    "flush",
    Metric(
        "manga_memory.flush.lag",
        "s",
        "Age of the oldest message in a flush to the durable tier.",
        _LONG,
    ),
    has_span=False,
)
TRIM = Event(
    "trim",
    counts={
        "messages": Metric(
            "manga_memory.trim.messages", "{message}", "Messages evicted from the history."
        ),
        "shortened": Metric(
            "manga_memory.trim.shortened", "{message}", "Messages that were truncated."
        ),
        "tokens": Metric("manga_memory.trim.tokens", "{token}", "Tokens evicted from the history."),
    },
)
SUMMARY = Event(
    "summary",
    Metric("manga_memory.summary.duration", "s", "Duration of writing a summary.", _SLOW),
    labels=("error.type",),
)
RECALL = Event(
    "recall",
    Metric("manga_memory.recall.duration", "s", "Duration of a recall of memories.", _STORES),
    {
        "records": Metric(
            "manga_memory.recall.records", "{record}", "Memories that recalls returned."
        )
    },
    labels=("operation", "error.type"),
)
HANDOFF = Event(
    "handoff",
    Metric("manga_memory.handoff.duration", "s", "Duration of finalizing a session.", _SLOW),
    labels=("error.type",),
)
BREAKER_TRANSITION = Event(
    "breaker.transition",
    counts={
        "transitions": Metric(
            "manga_memory.breaker.transitions", "{transition}", "Changes of state of breakers."
        )
    },
    labels=("tool", "from", "to", "reason"),
)

STUCK_WAIT = Event(
    "wait.stuck",
    counts={
        "waits": Metric(
            "manga_memory.wait.stuck", "{wait}", "Requests that waited too long for their turn."
        )
    },
    has_span=False,
)

SUMMARY_RUNS = Metric(
    "manga_memory.summary.runs", "{summary}", "Summaries by outcome: written, failed, rested."
)
"""Metric that the summarizing conversation managers count."""

BACKLOG = Metric("manga_memory.writer.backlog", "{work}", "Pending and running background tasks.")
TIER_UP = Metric("manga_memory.tier.up", "{tier}", "Whether a tier is available: 1 or 0.")

RECORDED = [
    metric
    for event in list(globals().values())
    if isinstance(event, Event)
    for metric in (event.duration, *event.counts.values())
    if metric is not None
]
"""Metrics of all kinds of events."""


def metrics() -> list[Metric]:
    """Return all metrics of the package, sorted by name."""
    return sorted([*RECORDED, BACKLOG, TIER_UP, SUMMARY_RUNS], key=lambda metric: metric.name)
