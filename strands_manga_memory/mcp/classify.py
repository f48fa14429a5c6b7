"""Classification of ended tool calls: success, failure of the tool, or failure of its server.

Cancelled calls and timeouts are recognized first. Every other call is classified by the first of
these sources that exists:

1. The text of an MCP result with ``isError``, because servers on the 1.x SDK report every error by
   such a result.
2. The exception of the call, with its JSON-RPC code.
3. The text of a Strands result with the status ``error``, because Strands converts exceptions of
   MCP calls to results.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import anyio
from strands.interrupt import InterruptException
from strands.types.exceptions import (
    CheckpointException,
    ConcurrencyException,
    ContextWindowOverflowException,
    EventLoopException,
    IdempotencyAbortedError,
    MaxTokensReachedException,
    MCPClientInitializationError,
    ModelThrottledException,
    ProviderTokenCountError,
    SessionException,
    SnapshotException,
    StructuredOutputException,
)


class Outcome(StrEnum):
    """Outcome of a tool call, which decides whether the tool's circuit breaker counts a failure."""

    SUCCESS = "success"
    """The tool works."""
    TOOL_FAILURE = "tool_failure"
    """The tool failed. Counts against its breaker."""
    SERVER_FAILURE = "server_failure"
    """The connection to the server is lost.
    Counts against no tool. The server must be reconnected.
    """
    IGNORED = "ignored"
    """Not counted, for example because the call was cancelled, interrupted or invalid."""


@dataclass(frozen=True)
class Verdict:
    """Classification of an ended tool call.

    Attributes:
        outcome: Meaning of the call for the tool's circuit breaker.
        code: Short reason, such as ``timeout``.
    """

    outcome: Outcome
    code: str


@dataclass(frozen=True, kw_only=True)
class CallOutcome:
    """Result, exception or timeout with which a tool call ended.

    Args:
        tool: Name of the tool at its server.
        result: The tool result, if there is one.
        exception: Exception that the tool raised, or that Strands turned into the result.
        timed_out: Whether the deadline passed before the tool ended.
        cancelled: Whether the agent was cancelled before the end.
    """

    tool: str
    result: Mapping[str, Any] | None = None
    exception: BaseException | None = None
    timed_out: bool = False
    cancelled: bool = False


Classify = Callable[[CallOutcome], Verdict | None]
"""Custom classifier. The built-in rules classify a call for which it returns None."""

OK = Verdict(Outcome.SUCCESS, "ok")
CANCELLED = Verdict(Outcome.IGNORED, "cancelled")
TIMEOUT = Verdict(Outcome.TOOL_FAILURE, "timeout")
TOOL_ERROR = Verdict(Outcome.TOOL_FAILURE, "tool_error")
NO_SERVER = Verdict(Outcome.SERVER_FAILURE, "server_unavailable")
OF_THE_AGENT = Verdict(Outcome.IGNORED, "agent_error")
BAD_ARGUMENTS = Verdict(Outcome.IGNORED, "invalid_arguments")
UNKNOWN_TOOL = Verdict(Outcome.IGNORED, "unknown_tool")
ELICITATION = Verdict(Outcome.IGNORED, "elicitation_required")
BAD_ANSWER = Verdict(Outcome.TOOL_FAILURE, "protocol_error")
SERVER_ERROR = Verdict(Outcome.TOOL_FAILURE, "server_error")
SERVER_BLOCKED = Verdict(Outcome.IGNORED, "server_blocked")

STREAM_DROPPED = -32000
"""Code of several connection errors, including a stream that ended without an answer."""

_BY_CODE = {
    -32001: TIMEOUT,
    -32042: ELICITATION,
    -32601: UNKNOWN_TOOL,  # the method or the tool, and, from the 2.x client, HTTP 404
    -32602: BAD_ARGUMENTS,
    -32603: SERVER_ERROR,  # also every HTTP status of 400 and more, except 404
    -32700: BAD_ANSWER,
}

_ABOUT_THE_AGENT = (
    CheckpointException,
    ConcurrencyException,
    ContextWindowOverflowException,
    IdempotencyAbortedError,
    MaxTokensReachedException,
    ModelThrottledException,
    ProviderTokenCountError,
    SessionException,
    SnapshotException,
    StructuredOutputException,
)
"""Exceptions of an agent that a tool runs, such as errors of the agent's model or session."""

_CONNECTION_LOST = (
    anyio.BrokenResourceError,
    anyio.ClosedResourceError,
    anyio.EndOfStream,
    BrokenPipeError,
    ConnectionAbortedError,
    ConnectionResetError,
    MCPClientInitializationError,
)
"""Exceptions of the 1.x client for a lost connection.
The 2.x client raises an error with a code and a text instead.
"""

_CONTROL_FLOW = (InterruptException, asyncio.CancelledError, GeneratorExit, KeyboardInterrupt)

# Codes -32000 and -32600 have many meanings; only the text tells them apart.
_NO_SERVER_TEXT = re.compile(
    r"^connection closed$|connection to the mcp server was closed|client session (is|was)"
    r" not|session (not found|terminated)",
    re.IGNORECASE,
)
_TIMEOUT_TEXT = re.compile(r"\btimed out\b", re.IGNORECASE)
_UNKNOWN_TOOL_TEXT = re.compile(
    r"^(MCP error -32602: )?(Unknown tool\b|Tool \S+ not found)", re.IGNORECASE
)
_BAD_ARGUMENTS_TEXT = re.compile(
    r"^(MCP error -32602: )?(Input validation error|Invalid arguments for tool)\b", re.IGNORECASE
)
MOST_CHARACTERS = 10_000
"""Maximum examined characters of an error text, because the rules run on the event loop."""

_DECORATED_ARGUMENTS_TEXT = (  # error of a function decorated with @tool
    "Validation failed for input parameters"
)
_FAILED_PREFIX = "Tool execution failed: "
"""First words of the error result that Strands makes of an exception of an MCP client."""


def classify(call: CallOutcome, *, tool_errors: str = "failure") -> Verdict:
    """Classify an ended tool call by the built-in rules. The function raises no exception.

    Args:
        call: Result, exception or timeout with which the call ended.
        tool_errors: Meaning of an error that the server reported (``isError``). ``failure``: a
            failure of the tool. ``ignore``: neither success nor failure.
    """
    try:
        result, exception = call.result or {}, call.exception
        if result.get("cancelled") is True or (
            exception is not None and is_control_flow(exception)
        ):
            return CANCELLED
        if call.timed_out:
            return CANCELLED if call.cancelled else TIMEOUT
        if result.get("status") == "error" and result.get("isError") is True:
            return _reported(call, result, tool_errors=tool_errors)
        if exception is not None:
            verdict = CANCELLED if call.cancelled else _raised(exception)
            is_of_client = error_text(result).startswith(_FAILED_PREFIX)
            return BAD_ANSWER if verdict == TOOL_ERROR and is_of_client else verdict
        return _untyped(error_text(result)) if result.get("status") == "error" else OK
    except Exception:  # noqa: BLE001 - reading a broken result or exception may raise
        return TOOL_ERROR


def error_text(result: Mapping[str, Any]) -> str:
    """Return the error text of a failed tool result: its text blocks, at most 10,000 characters."""
    content = result.get("content")
    texts: list[str] = []
    left = MOST_CHARACTERS
    for block in content if isinstance(content, list | tuple) else ():
        if left <= 0:
            break
        if isinstance(block, dict) and "text" in block:
            texts.append(safe_str(block["text"])[:left])
            left -= len(texts[-1]) + 1
    return "\n".join(texts)


def safe_str(value: object) -> str:
    """Return the first 10,000 characters of ``str(value)``, or the type's name if ``str`` fails."""
    try:
        return str(value)[:MOST_CHARACTERS]
    except BaseException:  # noqa: BLE001 - ``__str__`` is foreign code
        return type(value).__name__


def is_control_flow(exception: BaseException) -> bool:
    """Return whether an exception of a tool is a cancellation or an interrupt, not a failure."""
    if isinstance(exception, BaseExceptionGroup):
        return exception.subgroup(_CONTROL_FLOW) is not None
    return isinstance(exception, _CONTROL_FLOW)


def rpc_code(exception: BaseException | None) -> int | None:
    """Return the JSON-RPC error code of an MCP exception, or None for other exceptions."""
    try:
        code = getattr(getattr(exception, "error", None), "code", None)
        return code if isinstance(code, int) else None
    except Exception:  # noqa: BLE001 - the property is foreign code
        return None


def _reported(call: CallOutcome, result: Mapping[str, Any], *, tool_errors: str) -> Verdict:
    text = error_text(result).removeprefix(f"Error executing tool {call.tool}: ")
    if _UNKNOWN_TOOL_TEXT.match(text):
        return UNKNOWN_TOOL
    if _BAD_ARGUMENTS_TEXT.match(text) or re.match(
        rf"\d+ validation errors? for {re.escape(call.tool)}Arguments\b", text
    ):
        return BAD_ARGUMENTS
    return Verdict(Outcome.IGNORED, TOOL_ERROR.code) if tool_errors == "ignore" else TOOL_ERROR


def _raised(exception: BaseException) -> Verdict:
    while (
        isinstance(exception, EventLoopException) and exception.original_exception is not exception
    ):
        exception = exception.original_exception
    if isinstance(exception, _ABOUT_THE_AGENT):
        return OF_THE_AGENT
    if isinstance(exception, _CONNECTION_LOST):
        return NO_SERVER
    if isinstance(exception, ExceptionGroup) and exception.split(_CONNECTION_LOST)[1] is None:
        return NO_SERVER
    if isinstance(exception, TimeoutError):
        return TIMEOUT
    code, text = rpc_code(exception), safe_str(exception)
    if isinstance(exception, ValueError) and text.startswith(_DECORATED_ARGUMENTS_TEXT):
        return BAD_ARGUMENTS
    if (code is not None or isinstance(exception, RuntimeError)) and _NO_SERVER_TEXT.search(text):
        return NO_SERVER
    if code is None:
        return TOOL_ERROR
    return _BY_CODE.get(code, BAD_ANSWER if code in (STREAM_DROPPED, -32600) else SERVER_ERROR)


def _untyped(text: str) -> Verdict:
    if text.startswith("MCP Elicitation required: "):
        return ELICITATION
    if not text.startswith(_FAILED_PREFIX):
        return TOOL_ERROR
    message = text.removeprefix(_FAILED_PREFIX)
    if _NO_SERVER_TEXT.search(message):
        return NO_SERVER
    return TIMEOUT if _TIMEOUT_TEXT.search(message) else SERVER_ERROR
