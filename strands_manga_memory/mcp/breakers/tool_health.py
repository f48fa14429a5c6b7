"""Statistics of the calls of a tool: counts, durations and failures."""

from __future__ import annotations

import math
import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from typing import Any, TypedDict

from strands_manga_memory.mcp.breakers.classify import Outcome, Verdict


class ToolStatus(TypedDict):
    """Health, breaker state and call statistics of one tool.

    Attributes:
        server: Name of the tool's server, or None.
        server_state: ``up``, ``down`` or ``reconnecting``; None without a server.
        health: ``healthy``, ``degraded`` (breaker half open, or closed with at least half of the failures that open it) or
            ``unavailable`` (breaker open, or server not up).
        state: State of the breaker: ``closed``, ``open`` or ``half_open``.
        retry_after_s: Seconds until a call may be allowed; 0 for immediately, None if the breaker was opened manually.
        failures_in_a_row: Consecutive failures.
        calls: Number of calls that reached the tool.
        failures: Number of failed calls, keyed by error code, including failures that do not count for the breaker.
        rejected: Number of calls that were rejected, for example because the breaker was open.
        fallbacks: Number of calls that a fallback tool answered instead.
        stale: Number of calls that an earlier result answered instead.
        latency_ms: Mean, median (``p50``) and percentiles of the durations of the last 512 calls, in milliseconds. None without
            calls.
        last_error: Error code, redacted text and age in seconds of the last failure, or None.
        in_flight: Seconds since the start of each running call, keyed by request id.
    """

    server: str | None
    server_state: str | None
    health: str
    state: str
    retry_after_s: float | None
    failures_in_a_row: int
    calls: int
    failures: dict[str, int]
    rejected: int
    fallbacks: int
    stale: int
    latency_ms: dict[str, float | None]
    last_error: dict[str, Any] | None
    in_flight: dict[str, float]


class CallLog:
    """Counts of the calls of one tool and durations of its last calls.

    Args:
        clock: Monotonic seconds.
    """

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._counts = {"calls": 0, "rejected": 0, "fallbacks": 0, "stale": 0}
        self._failures: Counter[str] = Counter()
        self._seconds: deque[float] = deque(maxlen=512)
        self._last_error: tuple[str, str, float] | None = None
        self._in_flight: dict[tuple[str, int], float] = {}

    def begin(self, request_id: str) -> tuple[str, int]:
        """Record the start of a call and return the key to pass to ``end``."""
        with self._lock:
            self._counts["calls"] += 1
            key = (request_id, self._counts["calls"])  # a retried request has the same id
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
        """Count a call that was rejected before it reached the tool, for example by an open circuit breaker."""
        with self._lock:
            self._counts["rejected"] += 1
            self._failures[code] += 1
            if text:
                self._last_error = (code, text, self._clock())

    def stood_in(self, *, stale: bool) -> None:
        """Count a call of the tool that an earlier result answered (``stale`` is true), or a fallback tool."""
        with self._lock:
            self._counts["stale" if stale else "fallbacks"] += 1

    def facts(self) -> dict[str, Any]:
        """Return the statistics of the tool's calls."""
        with self._lock:
            now, seconds = self._clock(), sorted(self._seconds)
            last = self._last_error
            return {
                **self._counts,
                "failures": dict(self._failures),
                "latency_ms": latency(seconds),
                "last_error": None if last is None else {"code": last[0], "text": last[1], "age_s": round(now - last[2], 3)},
                "in_flight": {key[0]: round(now - began, 3) for key, began in self._in_flight.items()},
            }


def latency(seconds: list[float]) -> dict[str, float | None]:
    """Return the mean and the percentiles of sorted durations, in milliseconds."""

    def rank(share: float) -> float | None:
        return round(1000 * seconds[math.ceil(share * len(seconds)) - 1], 3) if seconds else None

    mean = round(1000 * sum(seconds) / len(seconds), 3) if seconds else None
    return {"mean": mean, "p50": rank(0.5), "p95": rank(0.95), "p99": rank(0.99)}
