"""State of a guarded tool between calls: policy, circuit breaker, argument schema, statistics."""

from __future__ import annotations

import json
import logging
import math
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Hashable, Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any, Literal, TypedDict, cast

from jsonschema.exceptions import SchemaError, best_match
from jsonschema.validators import Draft202012Validator, validator_for
from referencing import Registry
from strands.tools.mcp import MCPAgentTool
from strands.types.tools import AgentTool, ToolSpec

from strands_manga_memory.arguments import Clock, FiniteSeconds, PositiveInt, checked
from strands_manga_memory.call_state import declares_read_only
from strands_manga_memory.circuit_breaker import BreakerEvent, CircuitBreaker, Health, Permit
from strands_manga_memory.exceptions import logged_errors
from strands_manga_memory.mcp.answers import ToolFailure
from strands_manga_memory.mcp.classify import (
    OK,
    TOOL_ERROR,
    CallOutcome,
    Classify,
    Outcome,
    Verdict,
    classify,
)
from strands_manga_memory.mcp.client import keep_exceptions
from strands_manga_memory.mcp.supervisor import ServerState, ServerSupervisor
from strands_manga_memory.telemetry import BREAKER_TRANSITION, record_event

logger = logging.getLogger(__name__)

GRACE = 0.25
"""Seconds that a cancelled tool has to end before it is abandoned."""


@checked
@dataclass(frozen=True)
class BreakerPolicy:
    """Settings of a tool's circuit breaker, and the longest duration of a call.

    An open breaker rejects calls. After a wait, it allows one trial call, the probe.

    Args:
        failures: Number of failures in a row that open the breaker. Default 5.
        reset_after: Seconds an open breaker waits before it allows a probe. Default 30.
        timeout: Seconds a call may take. Default 2. Give slow tools a policy of their own.
        tool_errors: Meaning of a result with ``isError``. ``"failure"`` (default) counts the result
            as a failure, ``"ignore"`` does not. Use ``"ignore"`` for tools that report findings as
            errors.
        users: Number of different users who must get errors before errors open the breaker. Default
            2, because one user's errors may come from wrong arguments, such as unknown order ids.
            If fewer users have called the tool, the errors of all of them suffice, but the first
            call of another user closes the breaker again. Timeouts, other failures and errors of
            unknown users always count.
        classify: Function that takes a ``CallOutcome`` and returns a ``Verdict``, or None to apply
            the built-in rules. Default: the built-in rules.
        read_only: Whether the tool only reads, so that an earlier result may replace a failed call.
            Default None: the tool's ``readOnlyHint`` decides.

    Raises:
        ValueError: A number is out of range, or another argument is invalid. The message names the
            argument.
    """

    failures: PositiveInt = 5
    reset_after: FiniteSeconds = 30.0
    timeout: FiniteSeconds = 2.0
    _: KW_ONLY
    tool_errors: Literal["failure", "ignore"] = "failure"
    users: PositiveInt = 2
    classify: Classify | None = None
    read_only: bool | None = None

    @property
    def lease(self) -> float:
        """Seconds to wait for the end of a probe (trial call) before the next probe is allowed."""
        return self.timeout + GRACE + 1.0


class ToolStatus(TypedDict):
    """Health, breaker state and call statistics of one tool.

    Attributes:
        server: Name of the tool's MCP server, or None.
        server_state: ``up``, ``down`` or ``reconnecting``; None without a server.
        health: ``healthy``, ``degraded`` or ``unavailable``. A tool is unavailable if its breaker
            is open or its server is not up. It is degraded if its breaker is half open, or has
            counted at least half of the failures that open it.
        state: State of the breaker: ``closed``, ``open`` or ``half_open``.
        retry_after_s: Seconds until a call may be allowed; 0 for immediately.
        failures_in_a_row: Number of failures in a row.
        calls: Number of calls that reached the tool.
        failures: Number of failed calls, keyed by error code, including rejected calls and failures
            that the breaker ignores.
        rejected: Number of calls that were rejected, for example because the breaker was open.
        fallbacks: Number of calls that got the result of a fallback tool.
        stale: Number of calls that got an earlier result.
        latency_ms: Mean, median (``p50``) and percentiles of the durations of the last 512 calls,
            in milliseconds, without calls that the breaker ignores, such as cancelled ones. All
            values are None without calls.
        last_error: Error code, text without secrets, and age in seconds of the last failure, or
            None. Calls that an open breaker rejects do not replace it.
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
    """Statistics of the calls of one tool, with the durations of the last 512 calls.

    Args:
        clock: Function that returns monotonic seconds.
    """

    def __init__(self, *, clock: Clock = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._counts = {"calls": 0, "rejected": 0, "fallbacks": 0, "stale": 0}
        self._failures: Counter[str] = Counter()
        self._seconds: deque[float] = deque(maxlen=512)
        self._last_error: tuple[str, str, float] | None = None
        self._in_flight: dict[tuple[str, int], float] = {}

    def begin(self, request_id: str) -> tuple[str, int]:
        """Record the start of a tool call, and return the key to pass to ``end``."""
        with self._lock:
            self._counts["calls"] += 1
            key = (request_id, self._counts["calls"])  # a retried request has the same id
            self._in_flight[key] = self._clock()
        return key

    def end(self, key: tuple[str, int], verdict: Verdict, text: str = "") -> float:
        """Record the end of a tool call, and return the duration of the call in seconds.

        ``key`` is the result of ``begin``. ``text`` is the error text of the call, without secrets.
        An empty text leaves ``last_error`` of the statistics unchanged.
        """
        now = self._clock()
        with self._lock:
            began = self._in_flight.pop(key, now)
            if verdict.outcome is not Outcome.IGNORED:
                self._seconds.append(now - began)
            if verdict.outcome is not Outcome.SUCCESS:
                self._failures[verdict.code] += 1
                if text:
                    self._last_error = (verdict.code, text, now)
        return now - began

    def count_rejection(self, code: str, text: str = "") -> None:
        """Count a call that was rejected before it reached the tool, in total and by error code."""
        with self._lock:
            self._counts["rejected"] += 1
            self._failures[code] += 1
            if text:
                self._last_error = (code, text, self._clock())

    def count_substitute(self, *, stale: bool) -> None:
        """Count a failed call for which the agent got a substitute result.

        ``stale`` is True for an earlier result of the tool, and False for the result of a fallback
        tool.
        """
        with self._lock:
            self._counts["stale" if stale else "fallbacks"] += 1

    def statistics(self) -> dict[str, Any]:
        """Return the statistics of a tool's calls, as in ``ToolStatus``."""
        with self._lock:
            now, seconds = self._clock(), sorted(self._seconds)
            last = self._last_error
            return {
                **self._counts,
                "failures": dict(self._failures),
                "latency_ms": summarize_latency(seconds),
                "last_error": (
                    None
                    if last is None
                    else {"code": last[0], "text": last[1], "age_s": round(now - last[2], 3)}
                ),
                "in_flight": {
                    key[0]: round(now - began, 3) for key, began in self._in_flight.items()
                },
            }


def summarize_latency(seconds: list[float]) -> dict[str, float | None]:
    """Return mean and percentiles, in milliseconds, of durations in ascending order."""

    def rank(share: float) -> float | None:
        return round(1000 * seconds[math.ceil(share * len(seconds)) - 1], 3) if seconds else None

    mean = round(1000 * sum(seconds) / len(seconds), 3) if seconds else None
    return {"mean": mean, "p50": rank(0.5), "p95": rank(0.95), "p99": rank(0.99)}


class ArgumentSchema:
    """JSON Schema of a tool's arguments, against which calls are checked before they are sent.

    If the schema is invalid or refers to another document, which is never read, all arguments are
    accepted, and the server checks them.

    Args:
        schema: JSON Schema of the arguments. Default draft: 2020-12, as in MCP.
        name: Name of the tool, for logs.
    """

    def __init__(self, schema: Mapping[str, Any], *, name: str = "") -> None:
        self._name = name
        self._validator: Any = None
        try:
            dialect = validator_for(schema, default=Draft202012Validator)
            dialect.check_schema(dict(schema))
            # An empty registry keeps jsonschema from fetching documents that a server's schema
            # refers to.
            self._validator = dialect(schema, registry=Registry())
        except (SchemaError, RecursionError, TypeError, ValueError) as error:
            logger.debug(
                "tool=<%s>, error=<%s> | the input schema is not valid, arguments are not checked",
                name,
                error,
            )

    def find_error(self, arguments: Any) -> str | None:
        """Return a description of an error in the tool's arguments, or None if they are valid."""
        if self._validator is None:
            return None
        try:
            found = best_match(self._validator.iter_errors(arguments))
        except Exception as error:  # noqa: BLE001 - a foreign schema may raise anything; the server checks the arguments
            logger.debug(
                "tool=<%s>, error=<%s> | the input schema cannot be used, arguments are not"
                " checked",
                self._name,
                error,
            )
            return None
        if found is None:
            return None
        place = "/".join(str(part) for part in found.absolute_path)
        return f"{place}: {found.message[:300]}" if place else found.message[:300]


def canonical_json(value: Any) -> str:
    """Return JSON text with sorted keys, so that equal values have equal texts.

    Raises:
        TypeError: The value cannot be represented in JSON.
        ValueError: The value contains NaN, an infinity, or a cycle.
    """
    return json.dumps(
        value, sort_keys=True, ensure_ascii=False, separators=(",", ":"), allow_nan=False
    )


class Guard:
    """State of one guarded tool: circuit breaker, argument schema, call statistics, and server.

    Args:
        remote_name: Name of the tool at its MCP server. Default: the name in ``spec``.
        clock: Function that returns monotonic seconds.
        on_event: Function that is called with a ``BreakerEvent`` at each change of the breaker's
            state.
    """

    def __init__(
        self,
        spec: ToolSpec,
        policy: BreakerPolicy,
        *,
        remote_name: str | None = None,
        server: ServerSupervisor | None = None,
        clock: Clock = time.monotonic,
        on_event: Callable[[BreakerEvent], None] | None = None,
    ) -> None:
        self.policy = policy
        self.tool_name = spec["name"]
        self.remote_name = remote_name or spec["name"]
        self.server = server
        self.server_name = server.name if server else None
        key = f"{self.server_name or ''}/{self.remote_name}"
        self.breaker = CircuitBreaker(
            policy.failures,
            policy.reset_after,
            lease=policy.lease,
            name=key,
            clock=clock,
            on_event=self._changed,
        )
        self.schema = ArgumentSchema(spec["inputSchema"].get("json", {}), name=self.tool_name)
        self.log = CallLog(clock=clock)
        self.alternatives: tuple[str, ...] = ()
        self._callers: set[Hashable] = set()  # at most ``policy.users``, as are the reporters
        self._reporters: set[Hashable] = set()
        self._has_other_failures = False
        self._on_event = on_event
        self.read_only = declares_read_only(spec) if policy.read_only is None else policy.read_only

    @classmethod
    def for_tool(cls, tool: AgentTool, policy: BreakerPolicy, **settings: Any) -> Guard:
        """Create the guard of a tool. ``settings`` are further arguments of ``Guard``.

        The guards of all tools of an MCP client share one ``ServerSupervisor``, which restores the
        connection to the server.
        """
        if not isinstance(tool, MCPAgentTool):
            return cls(tool.tool_spec, policy, **settings)
        keep_exceptions(tool.mcp_client)
        server = ServerSupervisor.of(tool.mcp_client, clock=settings["clock"])
        return cls(
            tool.tool_spec, policy, remote_name=tool.mcp_tool.name, server=server, **settings
        )

    def _changed(self, event: BreakerEvent) -> None:
        change = {
            "tool": event.name,
            "from": str(event.before),
            "to": str(event.after),
            "reason": event.reason,
        }
        record_event(BREAKER_TRANSITION, attributes=change, counts={"transitions": 1})
        if self._on_event is not None:
            self._on_event(event)

    def classify_call(self, call: CallOutcome) -> Verdict:
        """Return the outcome of an ended call, such as a failure of the tool or of its server.

        The policy's classifier decides. Without one, or if it returns None, built-in rules decide.
        """
        if self.policy.classify is not None:
            with logged_errors(
                logger, f"the classifier of {self.tool_name} failed, the built-in rules apply"
            ):
                verdict = self.policy.classify(call)
                if verdict is not None:
                    outcome = Outcome(verdict.outcome)
                    return OK if outcome is Outcome.SUCCESS else Verdict(outcome, str(verdict.code))
        return classify(call, tool_errors=self.policy.tool_errors)

    def acquire_permit(self, user: Hashable | None) -> Permit | None:
        """Return a permit of the tool's circuit breaker, or None if the breaker rejects the call.

        The first call of a new user closes an open breaker if only errors of earlier users have
        opened it, and there are fewer than ``policy.users`` earlier users.
        """
        permit = self.breaker.try_acquire()
        is_new = user is not None and user not in self._callers
        may_be_of_users = self._reporters and not self._has_other_failures
        if permit is None and is_new and may_be_of_users and len(self._callers) < self.policy.users:
            self.breaker.reset()
            permit = self.breaker.try_acquire()
        return permit

    def report_outcome(self, verdict: Verdict, permit: Permit, user: Hashable | None) -> None:
        """Report the outcome of a user's call to the circuit breaker of the tool.

        ``BreakerPolicy.users`` decides whether the errors of few users open the breaker.
        """
        if user is not None and len(self._callers) < self.policy.users:
            self._callers.add(user)
        if verdict.outcome is Outcome.SUCCESS:
            self._reporters.clear()
            self._has_other_failures = False
            permit.success()
        elif verdict.outcome is not Outcome.TOOL_FAILURE:
            permit.ignore()
        elif self._concerns_all(verdict, user) or permit.is_probe:
            permit.failure()
        else:
            may_open = self.breaker.failures + 1 >= self.policy.failures
            (permit.ignore if may_open else permit.failure)()

    def _concerns_all(self, verdict: Verdict, user: Hashable | None) -> bool:
        if verdict != TOOL_ERROR or user is None:
            self._has_other_failures = True
            return True
        if len(self._reporters) < self.policy.users:
            self._reporters.add(user)
        return len(self._reporters) >= len(self._callers)

    def describe_failure(self, code: str, reason: str, **details: Any) -> ToolFailure:
        """Return the description of a failed call, with the state of the tool's breaker and server.

        ``details`` are further fields of ``ToolFailure``.
        """
        return ToolFailure(
            code=code,
            reason=reason,
            tool=self.tool_name,
            server=self.server_name,
            state=str(self.breaker.state),
            health=str(self._health()),
            failures=self.breaker.failures,
            retry_after=self._retry_after(),
            **details,
        )

    def status(self) -> ToolStatus:
        """Return the health, breaker state and call statistics of the tool."""
        retry_after = self._retry_after()
        status = {
            "server": self.server_name,
            "server_state": str(self.server.state) if self.server else None,
            "health": str(self._health()),
            "state": str(self.breaker.state),
            "retry_after_s": round(retry_after, 3) if math.isfinite(retry_after) else None,
            "failures_in_a_row": self.breaker.failures,
        }
        return cast("ToolStatus", {**status, **self.log.statistics()})

    def _health(self) -> Health:
        unreachable = self.server is not None and self.server.state is not ServerState.UP
        return Health.UNAVAILABLE if unreachable else self.breaker.health

    def _retry_after(self) -> float:
        return max(self.breaker.retry_after, self.server.retry_after if self.server else 0.0)
