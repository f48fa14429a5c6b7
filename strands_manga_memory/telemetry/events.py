"""Events: what is told of, and the metrics and spans each becomes. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

_FAST = (1e-6, 2.5e-6, 5e-6, 1e-5, 2.5e-5, 5e-5, 1e-4, 2.5e-4, 5e-4, 1e-3, 5e-3, 1e-2)
_STORES = (1e-4, 3e-4, 5e-4, 8e-4, 1e-3, 2e-3, 3e-3, 5e-3, 8e-3, 1e-2, 2e-2, 5e-2, 0.1, 0.25, 0.5, 1.0, 2.0, 5.0)
_SLOW = (0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
_LAGS = (0.05, 0.25, 1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 1800.0, 3600.0, 14400.0, 86400.0)
_RETURNS = (30.0, 60.0, 120.0, 300.0, 600.0, 1200.0, 1800.0, 2700.0, 3600.0, 7200.0, 14400.0, 28800.0, 86400.0)

CONVERSATION = "manga_memory.conversation.hash"
"""The attribute that tells conversations apart, on spans only: a hash of the storage name."""


@dataclass(frozen=True)
class Metric:
    """A metric: a histogram if it has ``buckets``, what stands at this moment if it ``is_gauge``, else a counter.

    Args:
        name: By the semantic conventions, or with the prefix ``manga_memory.``.
        unit: ``s``, ``{message}``, ``{token}``, ...
        description: One sentence.
        buckets: Upper bounds, in the unit; the deadlines and percentiles of the memory layer are among them.
        is_gauge: Whether it is read when somebody exports.
    """

    name: str
    unit: str
    description: str
    buckets: tuple[float, ...] = ()
    is_gauge: bool = False


@dataclass(frozen=True)
class Event:
    """A kind of thing that happens.

    Args:
        name: In process and, unless it names a store call, of the span.
        duration: The histogram of its seconds; None: it takes no time.
        counts: Counters and further histograms by the number of the event that they take.
        labels: Attributes that metrics carry; few values each. Spans carry all.
        has_span: Whether it becomes a span.
        in_a_row: Whether those right after one another are told as one: how long they took together.
    """

    name: str
    duration: Metric | None = None
    counts: Mapping[str, Metric] = field(default_factory=lambda: MappingProxyType({}))
    labels: tuple[str, ...] = ()
    has_span: bool = True
    in_a_row: bool = False


STORE_CALL = Event(
    "store",
    Metric("db.client.operation.duration", "s", "Duration of a call of a tier's store.", _STORES),
    labels=("db.system.name", "db.operation.name", "db.collection.name", "manga_memory.tier", "error.type"),
)
SERIALIZATION = Event(
    "serialization",
    Metric("manga_memory.serialization.duration", "s", "Time to seal or unseal the values of one read or write.", _FAST),
    labels=("operation",),
    has_span=False,
    in_a_row=True,
)
BREAKER_CHECK = Event(
    "breaker.check",
    Metric("manga_memory.breaker.check.duration", "s", "Time a breaker takes to let a call through or reject it.", _FAST),
    labels=("outcome",),
    has_span=False,
)
TURN = Event(
    "turn",
    Metric("manga_memory.turn.duration", "s", "Duration of a turn, the model's time included.", _SLOW),
    {"layer": Metric("manga_memory.layer.duration", "s", "Time a turn spent in the memory layer.", _STORES)},
)
RESTORE = Event(
    "restore", Metric("manga_memory.restore.duration", "s", "Duration of reading a conversation.", _STORES), labels=("outcome",)
)
MERGE = Event(
    "merge",
    counts={"merges": Metric("manga_memory.merges", "{merge}", "What others had said in a conversation that was live here.")},
    has_span=False,
)
COLLISION = Event(
    "collision",
    counts={"collisions": Metric("manga_memory.collisions", "{write}", "Writes refused as another writer was first.")},
    labels=("manga_memory.tier",),
    has_span=False,
)
DEADLINE = Event(
    "deadline",
    counts={
        "missed": Metric(
            "manga_memory.deadlines.missed", "{wait}", "Waits for a tier that took as long as they may, or longer."
        )
    },
    labels=("manga_memory.tier",),
    has_span=False,
)
FLUSH = Event(
    "flush",
    Metric("manga_memory.flush.lag", "s", "Age of the oldest message when the durable tier got it.", _LAGS),
    has_span=False,
)
RETURN = Event(
    "return", Metric("manga_memory.return.gap", "s", "Time between two turns of a conversation.", _RETURNS), has_span=False
)
TRIM = Event(
    "trim",
    counts={
        "messages": Metric("manga_memory.trim.messages", "{message}", "Messages that left the history."),
        "shortened": Metric("manga_memory.trim.shortened", "{message}", "Messages that were shortened."),
        "tokens": Metric("manga_memory.trim.tokens", "{token}", "Tokens that left the history."),
    },
)
SUMMARY = Event(
    "summary", Metric("manga_memory.summary.duration", "s", "Duration of writing a summary.", _SLOW), labels=("error.type",)
)
RECALL = Event(
    "recall",
    Metric("manga_memory.recall.duration", "s", "Duration of a recall of memories.", _STORES),
    {"records": Metric("manga_memory.recall.records", "{record}", "Memories that recalls returned.")},
    labels=("operation", "error.type"),
)
HANDOFF = Event(
    "handoff", Metric("manga_memory.handoff.duration", "s", "Duration of finalizing a session.", _SLOW), labels=("error.type",)
)
BREAKER_TRANSITION = Event(
    "breaker.transition",
    counts={"transitions": Metric("manga_memory.breaker.transitions", "{transition}", "Changes of state of breakers.")},
    labels=("tool", "from", "to", "reason"),
)

TOOL_LOOP = Event(
    "tool.loop",
    counts={
        "loops": Metric("manga_memory.tool.loops", "{loop}", "Calls that were made again and again, with the same result.")
    },
    labels=("tool",),
    has_span=False,
)
STUCK_WAIT = Event(
    "wait.stuck",
    counts={"waits": Metric("manga_memory.wait.stuck", "{wait}", "Requests that waited for one another, or for too long.")},
    labels=("reason",),
    has_span=False,
)
STATE_DRIFT = Event(
    "state.drift",
    counts={
        "fields": Metric("manga_memory.state.drift", "{field}", "What an agent took for so, and was otherwise, unannounced.")
    },
    labels=("field",),
    has_span=False,
)

SUMMARY_RUNS = Metric("manga_memory.summary.runs", "{summary}", "Summaries by outcome: written, failed, rested.")
"""Counted by the summarizing managers themselves."""

BACKLOG = Metric("manga_memory.writer.backlog", "{work}", "Pieces of background work that wait or run.", is_gauge=True)
TIER_UP = Metric("manga_memory.tier.up", "{tier}", "Whether a tier answers: 1, or 0.", is_gauge=True)
GAUGES = (BACKLOG, TIER_UP)

EVENTS = (
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
)


def metrics() -> list[Metric]:
    """Return every metric of the package, by name."""
    every = [metric for event in EVENTS for metric in (event.duration, *event.counts.values()) if metric is not None]
    return sorted([*every, *GAUGES, SUMMARY_RUNS], key=lambda metric: metric.name)
