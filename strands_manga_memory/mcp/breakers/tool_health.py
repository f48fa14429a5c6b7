"""CallLog: what is known of the calls of one tool, and ToolStatus, the form in which it is shown."""

from __future__ import annotations

import math
import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from typing import Any, TypedDict

from strands_manga_memory.mcp.breakers.classify import Outcome, Verdict


class Latency(TypedDict):
    """Milliseconds of the last answered or failed calls; None before the first.

    Attributes:
        mean: Their mean.
        p50: Half took at most this.
        p95: 95 % took at most this.
        p99: 99 % took at most this.
    """

    mean: float | None
    p50: float | None
    p95: float | None
    p99: float | None


class CallFacts(TypedDict):
    """What is known of the calls of one tool.

    Attributes:
        calls: Calls that reached the tool.
        failures: Calls that failed, by code; those that count against nobody too.
        rejected: Calls that did not reach the tool: breaker open, server unavailable, wrong arguments.
        fallbacks: Rejected calls that another tool answered.
        stale: Rejected calls that an earlier result answered.
        latency_ms: Of the last 512 calls.
        last_error: Code, text (redacted) and age in seconds of the last failure; None if there was none.
        in_flight: Request id to seconds since the call began.
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
    """What is known of one tool.

    Attributes:
        server: Name of its server; None for tools that have none.
        server_state: ``up``, ``down`` or ``reconnecting``; None for tools that have no server.
        health: ``healthy``, ``degraded`` or ``unavailable``; ``unavailable`` also while the server is not up.
        state: ``closed``, ``open`` or ``half_open``.
        retry_after_s: Seconds until a call may be let through; 0 if it would be now, None if opened by hand.
        failures_in_a_row: What the breaker counts.
        schema_hash: Of the input schema: another one means another tool.
    """

    server: str | None
    server_state: str | None
    health: str
    state: str
    retry_after_s: float | None
    failures_in_a_row: int
    schema_hash: str


class CallLog:
    """Counts the calls of one tool and remembers how long the last ones took.

    Args:
        size: Calls whose duration is remembered.
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
        """Note that a call began; return what ``end`` takes."""
        with self._lock:
            self._calls += 1
            key = (request_id, self._calls)  # a request that is tried again has the same id
            self._in_flight[key] = self._clock()
        return key

    def end(self, key: tuple[str, int], verdict: Verdict, text: str = "") -> float:
        """Note how a call ended (``text`` is redacted); return how many seconds it took."""
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
        """Note that a call was not let through."""
        with self._lock:
            self._rejected += 1
            self._failures[code] += 1
            if text:
                self._last_error = (code, text, self._clock())

    def stood_in(self, *, stale: bool) -> None:
        """Note that a rejected call was answered by an earlier result, or by another tool."""
        with self._lock:
            if stale:
                self._stale += 1
            else:
                self._fallbacks += 1

    def facts(self) -> CallFacts:
        """Return what is known."""
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
    """Return mean and nearest-rank percentiles, in milliseconds, of sorted durations."""

    def rank(share: float) -> float | None:
        return round(1000 * seconds[math.ceil(share * len(seconds)) - 1], 3) if seconds else None

    mean = round(1000 * sum(seconds) / len(seconds), 3) if seconds else None
    return Latency(mean=mean, p50=rank(0.5), p95=rank(0.95), p99=rank(0.99))
