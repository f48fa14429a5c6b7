"""State of a guarded tool between its calls: circuit breaker, argument schema and call statistics."""

from __future__ import annotations

import json
import logging
import math
import time
from collections.abc import Callable, Hashable, Mapping
from typing import Any, cast

from jsonschema.exceptions import SchemaError, ValidationError, best_match
from jsonschema.validators import Draft202012Validator, validator_for
from referencing import Registry
from strands.tools.mcp import MCPAgentTool
from strands.types.tools import AgentTool, ToolSpec

from strands_manga_memory.call_state import declares_read_only
from strands_manga_memory.circuit_breaker import BreakerEvent, CircuitBreaker, Health, Permit
from strands_manga_memory.exceptions import logged_errors
from strands_manga_memory.mcp.breakers.breaker_policy import BreakerPolicy
from strands_manga_memory.mcp.breakers.classify import TOOL_ERROR, CallOutcome, Outcome, Verdict, classify
from strands_manga_memory.mcp.breakers.tool_health import CallLog, ToolStatus
from strands_manga_memory.mcp.calls.answers import CUT, ToolFailure, redact_secrets
from strands_manga_memory.mcp.calls.client import keep_exceptions
from strands_manga_memory.mcp.calls.supervisor import ServerState, ServerSupervisor
from strands_manga_memory.telemetry import BREAKER_TRANSITION, note

logger = logging.getLogger(__name__)


class ArgumentSchema:
    """Input schema of a tool, against which the arguments of calls are checked.

    An invalid schema, or one that refers to another document, accepts all arguments, because the server checks them too.
    References to other documents are never followed.

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
            # An empty registry keeps jsonschema from fetching documents that a server's schema refers to.
            self._validator = dialect(schema, registry=Registry())
        except (SchemaError, RecursionError, TypeError, ValueError) as error:
            logger.debug("tool=<%s>, error=<%s> | the input schema is not valid, arguments are not checked", name, error)

    def problem(self, arguments: Any) -> str | None:
        """Return a description of an error in the arguments, or None if the arguments are valid."""
        if self._validator is None:
            return None
        try:
            found: ValidationError | None = next(self._validator.iter_errors(arguments), None)
            if found is None:
                return None
            found = best_match(self._validator.iter_errors(arguments)) or found
        except Exception as error:  # noqa: BLE001 - a foreign schema may raise anything; the server checks the arguments
            logger.debug(
                "tool=<%s>, error=<%s> | the input schema cannot be used, arguments are not checked", self._name, error
            )
            return None
        place = "/".join(str(part) for part in found.absolute_path)
        return f"{place}: {found.message[:300]}" if place else found.message[:300]


def canonical_json(value: Any) -> str:
    """Return the JSON text of a value with sorted keys and without optional spaces.

    Raises:
        TypeError: The value is not JSON.
        ValueError: The value contains NaN, an infinity, or a cycle.
    """
    return json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


class Guard:
    """State of one guarded tool: circuit breaker, argument schema, call statistics, and server.

    Args:
        spec: Specification of the tool.
        policy: Policy of the tool's breaker.
        remote_name: Name of the tool at its server. Default: the name in ``spec``.
        server: Supervisor of the tool's server, or None.
        redact: Function that removes secrets from error texts.
        clock: Monotonic seconds.
        on_event: Called with each ``BreakerEvent``.
    """

    def __init__(
        self,
        spec: ToolSpec,
        policy: BreakerPolicy,
        *,
        remote_name: str | None = None,
        server: ServerSupervisor | None = None,
        redact: Callable[[str], str] = redact_secrets,
        clock: Callable[[], float] = time.monotonic,
        on_event: Callable[[BreakerEvent], None] | None = None,
    ) -> None:
        self.policy = policy
        self.tool_name = spec["name"]
        self.remote_name = remote_name or spec["name"]
        self.server = server
        self.server_name = server.name if server else None
        key = f"{self.server_name or ''}/{self.remote_name}"
        self.breaker = CircuitBreaker(
            policy.failures, policy.reset_after, lease=policy.lease, name=key, clock=clock, on_event=self._changed
        )
        self.schema = ArgumentSchema(spec["inputSchema"].get("json", {}), name=self.tool_name)
        self.log = CallLog(clock=clock)
        self.alternatives: tuple[str, ...] = ()
        self._reporters: set[Hashable] = set()
        self._redact = redact
        self._on_event = on_event
        self.read_only = declares_read_only(spec) if policy.read_only is None else policy.read_only

    @classmethod
    def of(cls, tool: AgentTool, policy: BreakerPolicy, **settings: Any) -> Guard:
        """Create the guard (circuit breaker, argument schema and statistics) of a tool.

        The guards of all MCP tools of one client share the supervisor of the server's connection.
        """
        if not isinstance(tool, MCPAgentTool):
            return cls(tool.tool_spec, policy, **settings)
        keep_exceptions(tool.mcp_client)
        server = ServerSupervisor.of(tool.mcp_client, clock=settings["clock"])
        return cls(tool.tool_spec, policy, remote_name=tool.mcp_tool.name, server=server, **settings)

    def _changed(self, event: BreakerEvent) -> None:
        change = {"tool": event.name, "from": str(event.before), "to": str(event.after), "reason": event.reason}
        note(BREAKER_TRANSITION, attributes=change, counts={"transitions": 1})
        if self._on_event is not None:
            self._on_event(event)

    def judge(self, call: CallOutcome) -> Verdict:
        """Classify an ended call of the tool by the classifier of the breaker's policy.

        The built-in rules apply if there is no classifier, or if it fails or returns None.
        """
        if self.policy.classify is not None:
            with logged_errors(logger, f"the classifier of {self.tool_name} failed, the built-in rules apply"):
                verdict = self.policy.classify(call)
                if verdict is not None:
                    return Verdict(Outcome(verdict.outcome), str(verdict.code))
        return classify(call, tool_errors=self.policy.tool_errors)

    def settle(self, verdict: Verdict, permit: Permit, user: Hashable | None) -> None:
        """Report the classification of a user's call to the breaker.

        Errors of one user may be caused by wrong arguments, for example by order ids that do not exist. Such errors open the
        breaker only after ``policy.users`` different users got one. Timeouts and errors of unknown users always count.
        """
        if verdict.outcome is Outcome.SUCCESS:
            self._reporters.clear()
            permit.success()
        elif verdict.outcome is not Outcome.TOOL_FAILURE:
            permit.ignore()
        elif permit.is_probe or self._concerns_all(verdict, user):
            permit.failure()
        else:
            may_open = self.breaker.failures + 1 >= self.policy.failures
            (permit.ignore if may_open else permit.failure)()

    def _concerns_all(self, verdict: Verdict, user: Hashable | None) -> bool:
        if verdict != TOOL_ERROR or user is None:
            return True
        if len(self._reporters) < self.policy.users:
            self._reporters.add(user)
        return len(self._reporters) >= self.policy.users

    def redact(self, text: str) -> str:
        """Return an error text without secrets, or ``[cut]`` if the redaction fails."""
        with logged_errors(logger, f"the redaction of an error text of {self.tool_name} failed, the text was removed"):
            return self._redact(text) if text else ""
        return CUT

    def problem(self, code: str, reason: str, **details: Any) -> ToolFailure:
        """Return a description of a failed call for the model, with the current state of the breaker and the server."""
        return ToolFailure(
            code=code,
            reason=reason,
            tool=self.tool_name,
            server=self.server_name,
            state=str(self.breaker.state),
            health=str(self._health()),
            failures=self.breaker.failures,
            retry_after=self._retry_after(),
            alternatives=self.alternatives,
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
        return cast("ToolStatus", {**status, **self.log.facts()})

    def _health(self) -> Health:
        unreachable = self.server is not None and self.server.state is not ServerState.UP
        return Health.UNAVAILABLE if unreachable else self.breaker.health

    def _retry_after(self) -> float:
        return max(self.breaker.retry_after, self.server.retry_after if self.server else 0.0)
