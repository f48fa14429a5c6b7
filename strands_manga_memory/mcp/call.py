"""Call: one call of a guarded tool, from the check of its arguments to its result."""

from __future__ import annotations

import json
import threading
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable, Mapping
from typing import Any, Protocol, cast

from strands.interrupt import InterruptException
from strands.middleware import ToolResultEvent
from strands.types.exceptions import MCPClientInitializationError
from strands.types.tools import ToolResult

from strands_manga_memory.deadline import END, DeadlineError
from strands_manga_memory.mcp.answers import Problem, error_result
from strands_manga_memory.mcp.breaker import CircuitBreaker, Permit
from strands_manga_memory.mcp.classify import (
    BAD_ANSWER,
    BAD_ARGUMENTS,
    CANCELLED,
    ELICITATION,
    NO_SERVER,
    OK,
    SERVER_ERROR,
    STREAM_DROPPED,
    TIMEOUT,
    TOOL_ERROR,
    UNKNOWN_TOOL,
    CallOutcome,
    Outcome,
    Verdict,
    error_text,
    rpc_code,
)
from strands_manga_memory.mcp.guard import Guard
from strands_manga_memory.telemetry import BREAKER_CHECK, note

_PARTIAL_EVENTS = 20
_LET_THROUGH, _REJECTED = {"outcome": "let_through"}, {"outcome": "rejected"}
_PARTIAL_CHARACTERS = 500
_BLOCKED = Verdict(Outcome.IGNORED, "server_blocked")
_CALLER_IS_WRONG = {BAD_ARGUMENTS.code, UNKNOWN_TOOL.code}
_NO_SIDE_EFFECTS = {TOOL_ERROR.code, *_CALLER_IS_WRONG}
_PASSED_ON = (OK, CANCELLED, ELICITATION)


class Events(Protocol):
    """The events of a stream until a deadline: ``Pump`` or ``Inline``."""

    async def next(self) -> Any:
        """Return the next event or ``END``; raise ``DeadlineError`` once the deadline has passed."""

    async def close(self) -> None:
        """Stop the stream."""


class Call:
    """One call of one tool, without what may stand in for its result.

    Args:
        guard: Of the tool.
        request_id: The ``toolUseId``.
        arguments: The input.
        cancel_signal: Set once the agent is cancelled; None: it cannot be.

    Attributes:
        result: The last event, once the call is over; None if the tool asked for an interrupt instead.
        verdict: What the call said; None if it was rejected or interrupted.
        unavailable: Why something else may stand in for the result; None if nothing may.
    """

    __slots__ = ("_guard", "_partial", "arguments", "cancel_signal", "request_id", "result", "unavailable", "verdict")

    def __init__(self, guard: Guard, request_id: str, arguments: Any, cancel_signal: threading.Event | None = None) -> None:
        self._guard = guard
        self.cancel_signal = cancel_signal
        self._partial: deque[Any] = deque(maxlen=_PARTIAL_EVENTS)
        self.request_id = request_id
        self.arguments = arguments
        self.result: ToolResultEvent | None = None
        self.verdict: Verdict | None = None
        self.unavailable: Problem | None = None

    def progressed(self, progress: float, total: float | None, message: str | None) -> None:
        """Note progress: a partial result, in case there is no other."""
        if self._guard.server is not None:
            self._guard.server.answered()
        text = self._guard.redact(message) if message else None
        self._partial.append({"progress": progress, "total": total, "message": text})

    def _check(self) -> bool:
        """Tell whether the arguments fit the tool's schema; if not, ``result`` says what is wrong."""
        wrong = self._guard.schema.problem(self.arguments)
        if wrong is not None:
            self._reject(BAD_ARGUMENTS.code, f"The arguments of {self._guard.tool_name} are wrong: {wrong}.", retryable=False)
        return wrong is None

    async def _permit(self) -> Permit | None:
        """Return leave to call the tool; None: rejected, ``result`` says why, and something else may stand in."""
        guard, server, breaker = self._guard, self._guard.server, self._guard.breaker
        if guard.shared is not None:
            await guard.shared.refresh()
        # An open breaker needs no connection yet; a probe does.
        if (
            server is not None
            and not server.is_up
            and breaker.retry_after <= 0
            and not await server.ready(guard.policy.timeout)
        ):
            self._reject(NO_SERVER.code, f"The server {guard.server_name} of {guard.tool_name} cannot be reached.")
            return None
        start = time.perf_counter()
        permit = breaker.try_acquire()
        note(BREAKER_CHECK, time.perf_counter() - start, _REJECTED if permit is None else _LET_THROUGH)
        if permit is not None and permit.is_probe and guard.shared is not None and not await guard.shared.may_probe():
            permit.ignore()
            permit = None
        if permit is None:
            self._reject("circuit_open", f"{guard.tool_name} is unavailable: {_why_open(breaker)}.")
        return permit

    async def events(self, start: Callable[[], Events], *, check: bool = True) -> AsyncGenerator[Any, None]:
        """Call the tool, or not; yield its events but the last, which becomes ``result``.

        Args:
            start: Calls the tool.
            check: Whether to check the arguments first.
        """
        if check and not self._check():
            return
        permit = await self._permit()
        if permit is None:
            return
        guard, server = self._guard, self._guard.server
        generation = server.generation if server else 0
        number = server.asked(guard.remote_name) if server else 0
        key = guard.log.begin(self.request_id)
        stream: Events | None = None
        outcome: CallOutcome | None = None
        event: Any = None
        last: Any = None
        try:
            stream = start()
            while True:
                event = await stream.next()
                if event is END:
                    event = ToolResultEvent(last) if last is not None else None
                    break
                if isinstance(event, ToolResultEvent):
                    break
                yield event
                if isinstance(event, dict) and "tool_interrupt_event" in event:
                    return
                last = event
                self._partial.append(event)
            outcome = self._answer(event)
        except DeadlineError:
            event = None
            outcome = CallOutcome(tool=guard.remote_name, timed_out=True, cancelled=self._is_cancelled)
        except InterruptException:
            raise
        except Exception as error:  # noqa: BLE001 - a tool may raise anything; the model is told
            event = None
            outcome = CallOutcome(tool=guard.remote_name, exception=error, cancelled=self._is_cancelled)
        finally:
            if outcome is None:  # interrupted, cancelled or abandoned: it says nothing
                permit.ignore()
                guard.log.end(key, CANCELLED)
                if server is not None:
                    server.withdrawn(number)
            else:
                # Before the stream is closed, which may take as long as the grace: others need not wait for that.
                self._finish(outcome, event, permit, self._judge(outcome, number, generation), key)
            if stream is not None:
                await stream.close()
        if guard.shared is not None and self.verdict is not None:
            await guard.shared.record(self.verdict, was_probe=permit.is_probe)

    def _finish(
        self, outcome: CallOutcome, event: ToolResultEvent | None, permit: Permit, verdict: Verdict, key: tuple[str, int]
    ) -> None:
        guard = self._guard
        self.verdict = verdict
        if verdict.outcome is Outcome.SUCCESS:
            permit.success()
        elif verdict.outcome is Outcome.TOOL_FAILURE:
            permit.failure()
        else:
            permit.ignore()
        if event is not None and verdict in _PASSED_ON:
            guard.log.end(key, verdict)
            self.result = event
            return
        text = guard.redact(_said(outcome))
        duration = guard.log.end(key, verdict, text)
        if verdict == CANCELLED:
            self.result = result_event(_cancelled(self.request_id), outcome.exception)
            return
        problem = self._problem(outcome, verdict, duration)
        self.result = result_event(error_result(problem, said=outcome.result, text=text), outcome.exception)
        failed_probe = permit.is_probe and verdict.outcome is Outcome.TOOL_FAILURE
        if guard.read_only and (failed_probe or verdict.outcome is Outcome.SERVER_FAILURE):
            self.unavailable = problem

    def _answer(self, event: ToolResultEvent | None) -> CallOutcome:
        if event is None:
            return CallOutcome(tool=self._guard.remote_name, exception=RuntimeError("the tool returned no result"))
        result = event.tool_result
        return CallOutcome(
            tool=self._guard.remote_name,
            result=result if isinstance(result, dict) else None,
            exception=event.exception or getattr(result, "exception", None),
            cancelled=self._is_cancelled,
        )

    def _judge(self, outcome: CallOutcome, number: int, generation: int) -> Verdict:
        guard, server = self._guard, self._guard.server
        verdict = guard.judge(outcome)
        if server is None:
            return verdict
        if verdict == NO_SERVER:
            server.lost(generation)
            server.withdrawn(number)
        elif verdict == BAD_ANSWER and rpc_code(outcome.exception) == STREAM_DROPPED:
            if server.dropped():
                return Verdict(Outcome.IGNORED, verdict.code)
        elif verdict == TIMEOUT:
            if server.blocked_by_another(number):
                return _BLOCKED
        elif verdict == CANCELLED or outcome.timed_out:
            server.withdrawn(number)
        else:
            server.answered()
        return verdict

    def _problem(self, outcome: CallOutcome, verdict: Verdict, duration: float) -> Problem:
        guard, code = self._guard, verdict.code
        reason = _REASONS.get(code, "{tool} failed.")
        sent = not isinstance(outcome.exception, MCPClientInitializationError)
        return guard.problem(
            code,
            reason.format(tool=guard.tool_name, server=guard.server_name, timeout=guard.policy.timeout),
            request_id=self.request_id,
            duration=duration,
            retryable=code not in _CALLER_IS_WRONG,
            side_effects_unknown=sent and not guard.read_only and code not in _NO_SIDE_EFFECTS,
            partial=[_plain(event) for event in self._partial],
        )

    def _reject(self, code: str, reason: str, *, retryable: bool = True) -> None:
        problem = self._guard.problem(code, reason, request_id=self.request_id, retryable=retryable)
        self._guard.log.rejected(code, reason if retryable else self._guard.redact(reason))
        self.result = result_event(error_result(problem))
        self.unavailable = problem if retryable else None

    @property
    def _is_cancelled(self) -> bool:
        return self.cancel_signal is not None and self.cancel_signal.is_set()


_REASONS = {
    TIMEOUT.code: "{tool} did not answer within {timeout:g} s.",
    NO_SERVER.code: "The connection to the server {server} of {tool} was lost.",
    BAD_ARGUMENTS.code: "{tool} did not accept the arguments.",
    UNKNOWN_TOOL.code: "The server {server} does not know {tool}.",
    SERVER_ERROR.code: "The server {server} answered the call of {tool} with an error of its own.",
    BAD_ANSWER.code: "The server {server} gave no answer to the call of {tool} that can be understood.",
    _BLOCKED.code: "{tool} did not answer within {timeout:g} s: another tool keeps the server {server} busy.",
}


def result_event(result: Mapping[str, Any], exception: BaseException | None = None) -> ToolResultEvent:
    """Return the event that ends a call."""
    return ToolResultEvent(cast("ToolResult", result), exception=exception if isinstance(exception, Exception) else None)


def _why_open(breaker: CircuitBreaker) -> str:
    if breaker.reason == "manual":
        return "it has been taken out of use"
    if breaker.reason == "shared":
        return "other processes found that it fails"
    return f"it failed {breaker.failures} times in a row" if breaker.failures else "it fails or is slow too often"


def _cancelled(request_id: str) -> dict[str, Any]:
    text = "Tool execution cancelled; what it had begun may have gone on"
    return {"toolUseId": request_id, "status": "error", "content": [{"text": text}], "cancelled": True}


def _said(outcome: CallOutcome) -> str:
    if outcome.result is not None:
        return error_text(outcome.result)
    error = outcome.exception
    return f"{type(error).__name__}: {error}" if error is not None else ""


def _plain(event: Any) -> Any:
    """Return an event of a tool as JSON, cut to a few hundred characters."""
    value = event.get("tool_stream_event", event) if isinstance(event, Mapping) else event
    value = value.get("data", value) if isinstance(value, Mapping) else value
    try:
        text = json.dumps(value, ensure_ascii=False, default=str)
    except (TypeError, ValueError, RecursionError):  # it holds itself, or keys that are no text
        text = json.dumps(repr(value), ensure_ascii=False)
    if len(text) <= _PARTIAL_CHARACTERS:
        return json.loads(text)
    return value[:_PARTIAL_CHARACTERS] if isinstance(value, str) else text[:_PARTIAL_CHARACTERS]
