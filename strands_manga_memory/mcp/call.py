"""Execution of one call of a guarded tool (tool with a circuit breaker)."""

from __future__ import annotations

import asyncio
import re
import signal
import threading
import time
import traceback
import uuid
from collections import deque
from collections.abc import AsyncGenerator, Callable, Mapping
from typing import Any, NamedTuple, cast

from strands.middleware import ToolResultEvent
from strands.types.exceptions import MCPClientInitializationError
from strands.types.tools import ToolResult

from strands_manga_memory.circuit_breaker import Permit
from strands_manga_memory.deadline import END, DeadlineError, DeadlineReader
from strands_manga_memory.lifecycle import attachments
from strands_manga_memory.mcp.answers import (
    PARTIAL_CHARACTERS,
    REASONS,
    ToolFailure,
    cancelled_result,
    error_result,
    progress_text,
    redact_secrets,
)
from strands_manga_memory.mcp.classify import (
    BAD_ANSWER,
    BAD_ARGUMENTS,
    CANCELLED,
    ELICITATION,
    NO_SERVER,
    OK,
    SERVER_BLOCKED,
    STREAM_DROPPED,
    TIMEOUT,
    TOOL_ERROR,
    UNKNOWN_TOOL,
    CallOutcome,
    Outcome,
    Verdict,
    error_text,
    is_control_flow,
    rpc_code,
    safe_str,
)
from strands_manga_memory.mcp.client import FailedResult
from strands_manga_memory.mcp.guard import GRACE, Guard
from strands_manga_memory.telemetry import BREAKER_CHECK, record_event

_PARTIAL_EVENTS = 20
_LET_THROUGH, _REJECTED = {"outcome": "let_through"}, {"outcome": "rejected"}
_MESSAGE_CHARACTERS = 4_000
"""Number of characters to which a progress message is truncated."""

_CALLER_IS_WRONG = {BAD_ARGUMENTS.code, UNKNOWN_TOOL.code}
_NO_SIDE_EFFECTS = {TOOL_ERROR.code, *_CALLER_IS_WRONG}
_PASSED_ON = (OK, CANCELLED, ELICITATION)


class Progress(NamedTuple):
    """Progress of a running tool, as the MCP server reported it."""

    progress: float
    total: float | None
    message: str | None

    def as_json(self) -> dict[str, Any]:
        """Return the progress of a running tool as JSON values, with secrets removed."""
        text = redact_secrets(self.message)[:PARTIAL_CHARACTERS] if self.message else None
        return {"progress": self.progress, "total": self.total, "message": text}


class Call:
    """One call of a guarded tool (tool with a circuit breaker).

    Args:
        guard: Circuit breaker, argument schema and statistics of the tool.
        request_id: The ``toolUseId``.
        agent: Agent that calls the tool, or None.
        user: User for whom the tool is called, or None if unknown.

    Attributes:
        cancel_signal: Event that is set when the agent is cancelled, or None.
        result: Final event of the call. None before the end, and after an interrupt by the tool.
        verdict: Classification of the call. None if the call was rejected or interrupted.
        replaceable_failure: Failure of the call, if a cached result or the result of a fallback
            tool may replace it; otherwise None.
    """

    def __init__(
        self,
        guard: Guard,
        request_id: str,
        arguments: Any,
        agent: Any = None,
        user: Any = None,
    ) -> None:
        self._guard, self._agent, self._user = guard, agent, user
        # Number of the server's connection, and of the call at its supervisor.
        self._generation = self._number = 0
        self.cancel_signal: threading.Event | None = getattr(agent, "cancel_signal", None)
        self._partial: deque[Any] = deque(maxlen=_PARTIAL_EVENTS)
        self.request_id = request_id
        self.arguments = arguments
        self.result: ToolResultEvent | None = None
        self.verdict: Verdict | None = None
        self.replaceable_failure: ToolFailure | None = None

    def record_progress(self, progress: float, total: float | None, message: str | None) -> None:
        """Record a progress message that the MCP server sent during the call.

        If the call fails, the error result shows the latest messages to the model.
        """
        if self._guard.server is not None:
            self._guard.server.record_answer()
        # Redacted later: a server may send thousands of messages, and only the last few reach the
        # model.
        self._partial.append(Progress(progress, total, message and message[:_MESSAGE_CHARACTERS]))

    async def _admit(self, *, check_arguments: bool) -> Permit | None:
        guard, server, breaker = self._guard, self._guard.server, self._guard.breaker
        wrong = guard.schema.find_error(self.arguments) if check_arguments else None
        if wrong is not None:
            self._reject(
                BAD_ARGUMENTS.code,
                f"The arguments of {guard.tool_name} are wrong: {wrong}.",
                retryable=False,
            )
            return None
        # Only a probe needs a connection, an open breaker does not.
        is_cut_off = server is not None and not server.is_up and breaker.retry_after <= 0
        if server and is_cut_off and not await server.ensure_connected(wait=guard.policy.timeout):
            self._reject(
                NO_SERVER.code,
                f"The server {guard.server_name} of {guard.tool_name} cannot be reached.",
            )
            return None
        start = time.perf_counter()
        permit = guard.acquire_permit(self._user)
        record_event(
            BREAKER_CHECK,
            time.perf_counter() - start,
            _REJECTED if permit is None else _LET_THROUGH,
        )
        if permit is None:
            why = "it fails or is slow too often"
            if breaker.failures:
                why = f"it failed {breaker.failures} times in a row"
            self._reject("circuit_open", f"{guard.tool_name} is unavailable: {why}.")
        return permit

    async def events(
        self, start: Callable[[], AsyncGenerator[Any, None]], *, check_arguments: bool
    ) -> AsyncGenerator[Any, None]:
        """Call the tool, and yield its events except for the last one.

        The last event is stored in ``result``. A rejected call yields no events. ``start`` calls
        the tool, and returns all events.
        """
        permit = await self._admit(check_arguments=check_arguments)
        if permit is None:
            return
        guard, server = self._guard, self._guard.server
        if server is not None:
            self._generation, self._number = (
                server.generation,
                server.record_call(guard.remote_name),
            )
        key = guard.log.begin(self.request_id)
        stream: DeadlineReader | None = None
        outcome: CallOutcome | None = None
        result: ToolResultEvent | None = None
        last: Any = None
        try:
            stream = DeadlineReader(start(), timeout=guard.policy.timeout, grace=GRACE)
            while (event := await stream.next()) is not END:
                if isinstance(event, ToolResultEvent):
                    result = event
                    break
                yield event
                if isinstance(event, dict) and dict.__contains__(event, "tool_interrupt_event"):
                    return
                last = event
                self._partial.append(event)
            if result is None and last is not None:
                result = ToolResultEvent(last)
            outcome = self._answer(result)
        except DeadlineError:
            outcome = self._outcome(timed_out=True)
        except BaseException as error:
            if _must_be_raised(error):
                raise
            result, outcome = None, self._outcome(exception=error)
        finally:
            # Before the stream is closed, which may take the whole grace period.
            self._end(outcome, result, permit, key)
            if stream is not None:
                await stream.close()

    def _end(
        self,
        outcome: CallOutcome | None,
        event: ToolResultEvent | None,
        permit: Permit,
        key: tuple[str, int],
    ) -> None:
        guard = self._guard
        if outcome is None:
            # interrupted, cancelled or abandoned
            permit.ignore()
            guard.log.end(key, CANCELLED)
            if guard.server is not None:
                guard.server.remove_call(self._number)
            return
        self.verdict = verdict = self._classify_and_report(outcome)
        guard.report_outcome(verdict, permit, self._user)
        if event is not None and verdict in _PASSED_ON:
            guard.log.end(key, verdict)
            self.result = event
            return
        if verdict == CANCELLED:
            guard.log.end(key, verdict)
            self.result = result_event(cancelled_result(self.request_id), outcome.exception)
            return
        text = redact_secrets(_error_text(outcome))
        reason = REASONS.get(verdict.code, "{tool} failed.").format(
            tool=guard.tool_name, server=guard.server_name, timeout=guard.policy.timeout
        )
        duration = guard.log.end(key, verdict, text or reason)
        failure = self._tool_failure(outcome, verdict.code, reason, duration)
        self.result = result_event(
            error_result(failure, original=outcome.result, text=text), outcome.exception
        )
        failed_probe = permit.is_probe and verdict.outcome is Outcome.TOOL_FAILURE
        if guard.read_only and (failed_probe or verdict.outcome is Outcome.SERVER_FAILURE):
            self.replaceable_failure = failure

    def _answer(self, event: ToolResultEvent | None) -> CallOutcome:
        if event is None:
            return self._outcome(exception=RuntimeError("the tool returned no result"))
        result, exception = event.tool_result, event.exception
        if not isinstance(result, dict) or "content" not in result:
            wrong = TypeError(
                f"the tool returned {type(result).__name__}, which is not a tool result"
            )
            return self._outcome(exception=exception if exception is not None else wrong)
        if exception is None and isinstance(result, FailedResult):
            exception = result.exception
        # Bypasses overridden methods of a subclass.
        plain: dict[str, Any] = dict(dict.items(cast("dict[str, Any]", result)))
        return self._outcome(result=plain, exception=exception)

    def _outcome(self, **how: Any) -> CallOutcome:
        cancelled = self.cancel_signal is not None and self.cancel_signal.is_set()
        return CallOutcome(tool=self._guard.remote_name, cancelled=cancelled, **how)

    def _classify_and_report(self, outcome: CallOutcome) -> Verdict:
        server, number = self._guard.server, self._number
        verdict = self._guard.classify_call(outcome)
        if server is None:
            # Without a supervisor, the tool itself has opened the lost connection.
            return TOOL_ERROR if verdict == NO_SERVER else verdict
        if verdict == NO_SERVER:
            server.report_loss(self._generation)
            server.remove_call(number)
        elif verdict == BAD_ANSWER and rpc_code(outcome.exception) == STREAM_DROPPED:
            if server.record_lost_answer():
                return Verdict(Outcome.IGNORED, verdict.code)
        elif verdict == TIMEOUT:
            if server.record_timeout(number):
                return SERVER_BLOCKED
        elif verdict == CANCELLED or outcome.timed_out:
            server.remove_call(number)
        else:
            server.record_answer()
        return verdict

    def _tool_failure(
        self, outcome: CallOutcome, code: str, reason: str, duration: float
    ) -> ToolFailure:
        was_sent = not isinstance(outcome.exception, MCPClientInitializationError)
        may_change = was_sent and not self._guard.read_only
        return self._failure(
            code,
            reason,
            duration=duration,
            retryable=code not in _CALLER_IS_WRONG,
            side_effects_unknown=may_change and code not in _NO_SIDE_EFFECTS,
            partial=[
                event.as_json() if isinstance(event, Progress) else progress_text(event)
                for event in self._partial
            ],
        )

    def _failure(self, code: str, reason: str, **details: Any) -> ToolFailure:
        guard, tools = self._guard, getattr(self._agent, "tool_names", None)
        others = [name for name in guard.alternatives if tools is None or name in tools]
        details |= {"request_id": self.request_id, "alternatives": others}
        return guard.describe_failure(code, reason, **details)

    def _reject(self, code: str, reason: str, *, retryable: bool = True) -> None:
        failure = self._failure(code, reason, retryable=retryable)
        text = "" if code == "circuit_open" else reason  # the cause stays the last error
        self._guard.log.count_rejection(code, text if retryable else redact_secrets(text))
        self.result = result_event(error_result(failure))
        self.replaceable_failure = failure if retryable else None


def result_event(
    result: Mapping[str, Any], exception: BaseException | None = None
) -> ToolResultEvent:
    """Return the final event of a tool call: its result and, if it failed, its exception."""
    return ToolResultEvent(
        cast("ToolResult", result),
        exception=exception if isinstance(exception, Exception) else None,
    )


def _error_text(outcome: CallOutcome) -> str:
    if outcome.result is not None:
        return error_text(outcome.result)
    error = outcome.exception
    return f"{type(error).__name__}: {safe_str(error)}" if error is not None else ""


def _must_be_raised(error: BaseException) -> bool:
    if isinstance(error, asyncio.CancelledError):
        task = asyncio.current_task()
        return task is None or task.cancelling() > 0
    if isinstance(error, SystemExit):
        # A signal handler may interrupt the code of an async tool to end the program.
        handlers = [signal.getsignal(number) for number in signal.valid_signals()]
        codes = [getattr(handler, "__code__", None) for handler in handlers]
        return any(frame.f_code in codes for frame, _ in traceback.walk_tb(error.__traceback__))
    return is_control_flow(error)


_NOBODY = ("", "")
_AGENT = "agent:"
_RANDOM_SESSION = re.compile(r"[0-9a-f]{0,8}")


def user_of_call(invocation_state: Mapping[str, Any]) -> tuple[str, str]:
    """Return the tenant and the user for whom a tool is called.

    A cached result is used only for the same tenant and user. The first of these sources that
    exists is used:

    1. The keys ``user_id`` and ``tenant`` of the invocation state.
    2. The id of the agent's session, or only the user in it if it contains a user.
    3. A random id for an agent without a session.
    4. A constant for all calls outside agents.
    """
    user = invocation_state.get("user_id")
    if isinstance(user, str):
        tenant = invocation_state.get("tenant")
        return (tenant if isinstance(tenant, str) else "", f"user:{user}")
    agent = invocation_state.get("agent")
    if agent is None:
        return _NOBODY
    session = str(getattr(agent, "session_id", ""))
    # Without a session manager, the id is too short to tell many users apart.
    if _RANDOM_SESSION.fullmatch(session):
        return ("", f"{_AGENT}{attachments(agent).setdefault('id', uuid.uuid4().hex)}")
    user, separator, _ = session.rpartition(":")
    # The storage id of a ConversationScope: tenant, user and session, each escaped.
    return (
        ("", f"scope:{user}") if separator and user.count(":") == 1 else ("", f"session:{session}")
    )


def known_user(user: tuple[str, str]) -> tuple[str, str] | None:
    """Return a result of ``user_of_call``, or None if it identifies no user.

    The id of a session identifies a user. The random id of an agent does not, nor does the constant
    for calls outside agents.
    """
    return None if user == _NOBODY or user[1].startswith(_AGENT) else user
