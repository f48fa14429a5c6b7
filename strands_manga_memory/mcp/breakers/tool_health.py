"""Statistics of the calls of a tool: counts, durations and failures."""

from __future__ import annotations

import math
import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from typing import Any, TypedDict

from strands_manga_memory.mcp.breakers.classify import Outcome, Verdict


class Latency(TypedDict):
    """Mean, median (``p50``) and percentiles of the durations of a tool's latest calls, in milliseconds. None without calls."""

    mean: float | None
    p50: float | None
    p95: float | None
    p99: float | None


class CallFacts(TypedDict):
    """Statistics of the calls of one tool.

    Attributes:
        calls: Number of calls that reached the tool.
        failures: Number of failed calls by code, including failures that do not count for the breaker.
        rejected: Number of calls that were rejected, for example because the breaker was open.
        fallbacks: Number of calls that a fallback tool answered instead.
        stale: Number of calls that an earlier result answered instead.
        latency_ms: Durations of the last 512 calls.
        last_error: Code, redacted text and age in seconds of the last failure, or None.
        in_flight: Seconds since the start of each running call, keyed by request id.
    """

    calls: int
    failures: dict[str, int]
    rejected: int
    fallbacks: int
    stale: int
    latency_ms: Latency
    last_error: dict[str, Any] | None
    in_flight: dict[str, float]


class ToolStatus(CallFacts):
    """Health, breaker state and call statistics of one tool.

    Attributes:
        server: Name of the tool's server, or None.
        server_state: ``up``, ``down`` or ``reconnecting``; None without a server.
        health: ``healthy``, ``degraded`` (breaker half open, or closed with at least half of the failures that open it) or
            ``unavailable`` (breaker open, or server not up).
        state: State of the breaker: ``closed``, ``open`` or ``half_open``.
        retry_after_s: Seconds until a call may be allowed; 0 for immediately, None if the breaker was opened manually.
        failures_in_a_row: Consecutive failures.
        schema_hash: Hash of the input schema. It changes when the arguments of the tool change.
    """

    server: str | None
    server_state: str | None
    health: str
    state: str
    retry_after_s: float | None
    failures_in_a_row: int
    schema_hash: str


class CallLog:
    """Counts of the calls of one tool and durations of its last calls.

    Args:
        size: Number of remembered durations.
        clock: Monotonic seconds.
    """

    def __init__(self, *, size: int = 512, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._calls = 0
        self._rejected = 0
        self._fallbacks = 0
        self._stale = 0
        self._failures: Counter[str] = Counter()
        self._seconds: deque[float] = deque(maxlen=size)
        self._last_error: tuple[str, str, float] | None = None
        self._in_flight: dict[tuple[str, int], float] = {}

    def begin(self, request_id: str) -> tuple[str, int]:
        """Record the start of a call and return the key to pass to ``end``."""
        with self._lock:
            self._calls += 1
            key = (request_id, self._calls)  # a retried request has the same id
            self._in_flight[key] = self._clock()
        return key

    def end(self, key: tuple[str, int], verdict: Verdict, text: str = "") -> float:
        """Record the end of a call and return its duration in seconds. ``text`` is the error text without secrets."""
        now = self._clock()
        with self._lock:
            began = self._in_flight.pop(key, now)
            if verdict.outcome is not Outcome.IGNORED:
                self._seconds.append(now - began)
            if verdict.outcome is not Outcome.SUCCESS:
                self._failures[verdict.code] += 1
                if text or verdict.outcome is not Outcome.IGNORED:
                    self._last_error = (verdict.code, text, now)
        return now - began

    def rejected(self, code: str, text: str = "") -> None:
        """Record a call that was rejected before it reached the tool."""
        with self._lock:
            self._rejected += 1
            self._failures[code] += 1
            if text:
                self._last_error = (code, text, self._clock())

    def stood_in(self, *, stale: bool) -> None:
        """Record a call that was answered with an earlier result if ``stale`` is true, otherwise by a fallback tool."""
        with self._lock:
            if stale:
                self._stale += 1
            else:
                self._fallbacks += 1

    def facts(self) -> CallFacts:
        """Return the statistics of the tool's calls."""
        with self._lock:
            now, seconds = self._clock(), sorted(self._seconds)
            last = self._last_error
            return {
                "calls": self._calls,
                "failures": dict(self._failures),
                "rejected": self._rejected,
                "fallbacks": self._fallbacks,
                "stale": self._stale,
                "latency_ms": latency(seconds),
                "last_error": None if last is None else {"code": last[0], "text": last[1], "age_s": round(now - last[2], 3)},
                "in_flight": {key[0]: round(now - began, 3) for key, began in self._in_flight.items()},
            }


def latency(seconds: list[float]) -> Latency:
    """Return the mean and the percentiles of sorted durations, in milliseconds."""

    def rank(share: float) -> float | None:
        return round(1000 * seconds[math.ceil(share * len(seconds)) - 1], 3) if seconds else None

    mean = round(1000 * sum(seconds) / len(seconds), 3) if seconds else None
    return Latency(mean=mean, p50=rank(0.5), p95=rank(0.95), p99=rank(0.99))
