"""What the end of a call says: the table of the rules."""

import asyncio
from types import SimpleNamespace
from typing import Any

import anyio
import pytest
from mcp.shared.exceptions import MCPError
from strands import tool
from strands.interrupt import Interrupt, InterruptException
from strands.types.exceptions import EventLoopException, MCPClientInitializationError

from strands_manga_memory.mcp import (
    BreakerPolicy,
    CallOutcome,
    Outcome,
    Verdict,
    classify,
    guard_tool,
)
from tests.integration.mcp_support import call

IGNORED, SUCCESS = Outcome.IGNORED, Outcome.SUCCESS
TOOL_ERROR = Verdict(Outcome.TOOL_FAILURE, "tool_error")
SERVER_ERROR = Verdict(Outcome.TOOL_FAILURE, "server_error")
PROTOCOL_ERROR = Verdict(Outcome.TOOL_FAILURE, "protocol_error")
TIMEOUT = Verdict(Outcome.TOOL_FAILURE, "timeout")
UNAVAILABLE = Verdict(Outcome.SERVER_FAILURE, "server_unavailable")
ARGUMENTS = Verdict(IGNORED, "invalid_arguments")
UNKNOWN = Verdict(IGNORED, "unknown_tool")
ELICITATION = Verdict(IGNORED, "elicitation_required")
CANCELLED = Verdict(IGNORED, "cancelled")


def error(text: str, **fields: Any) -> dict[str, Any]:
    return {"status": "error", "toolUseId": "t", "content": [{"text": text}], **fields}


def rpc(code: int, message: str) -> Exception:
    return MCPError(code=code, message=message)


RAISED = [
    (rpc(-32001, "Request 'tools/call' timed out"), TIMEOUT),
    (rpc(-32602, "Invalid params"), ARGUMENTS),
    (rpc(-32601, "Method not found"), UNKNOWN),
    (rpc(-32601, "Not Found"), UNKNOWN),
    (rpc(-32042, "URL elicitation required"), ELICITATION),
    (rpc(-32603, "Server returned an error response"), SERVER_ERROR),
    (rpc(-32700, "Parse error"), PROTOCOL_ERROR),
    (rpc(-32600, "Unexpected content type: text/html"), PROTOCOL_ERROR),
    (rpc(-32600, "Session not found"), UNAVAILABLE),
    (rpc(-32600, "Session terminated"), UNAVAILABLE),
    (rpc(-32000, "Connection closed"), UNAVAILABLE),
    (rpc(-32000, "SSE stream ended without a response"), PROTOCOL_ERROR),
    (rpc(-1, "anything"), SERVER_ERROR),
    (RuntimeError("Connection to the MCP server was closed"), UNAVAILABLE),
    (RuntimeError("anything"), TOOL_ERROR),
    (MCPClientInitializationError("the client session is not running"), UNAVAILABLE),
    (anyio.ClosedResourceError(), UNAVAILABLE),  # as the 1.x client says it
    (anyio.BrokenResourceError(), UNAVAILABLE),
    (anyio.EndOfStream(), UNAVAILABLE),
    (BrokenPipeError(), UNAVAILABLE),
    (ExceptionGroup("g", [ExceptionGroup("h", [anyio.ClosedResourceError()])]), UNAVAILABLE),
    (ExceptionGroup("g", [anyio.ClosedResourceError(), OSError()]), TOOL_ERROR),
    (TimeoutError(), TIMEOUT),
    (OSError("connection closed"), TOOL_ERROR),  # of a tool in this process, not of a server
    (ValueError("Validation failed for input parameters: n"), ARGUMENTS),
    (ValueError("no such order"), TOOL_ERROR),
    (EventLoopException(OSError("disk full"), {}), TOOL_ERROR),  # of a tool of an inner agent
    (asyncio.CancelledError(), CANCELLED),
    (GeneratorExit(), CANCELLED),
    (InterruptException(Interrupt(id="i", name="n")), CANCELLED),
]


@pytest.mark.parametrize(("exception", "verdict"), RAISED, ids=lambda value: str(value)[:40])
def test_exceptions(exception: BaseException, verdict: Verdict) -> None:
    assert classify(CallOutcome(tool="x", exception=exception)) == verdict


REPORTED = [
    ("Error executing tool x", TOOL_ERROR),
    ("Error executing tool x: boom", TOOL_ERROR),
    ("no such order", TOOL_ERROR),
    ("Unknown tool: x", UNKNOWN),
    ("Error executing tool x: 2 validation errors for xArguments\nn\n  Field required", ARGUMENTS),
    ("1 validation error for xArguments", ARGUMENTS),
    ("Error executing tool x: 1 validation error for Order", TOOL_ERROR),  # the tool's own trouble
    ("Input validation error: 'a' is not of type 'integer'", ARGUMENTS),
    ("MCP error -32602: Input validation error: Invalid arguments for tool x", ARGUMENTS),
    ("MCP error -32602: Tool x not found", UNKNOWN),
    ("the input validation error rate is high", TOOL_ERROR),
    ("Connection closed", TOOL_ERROR),  # the server answered, so it is there
    ("upstream timed out", TOOL_ERROR),
]


@pytest.mark.parametrize(("text", "verdict"), REPORTED)
def test_what_a_server_reports(text: str, verdict: Verdict) -> None:
    call = CallOutcome(tool="x", result=error(text, isError=True))
    assert classify(call) == verdict
    assert classify(call, tool_errors="ignore") == Verdict(IGNORED, verdict.code)


WITHOUT_EXCEPTION = [
    ("Tool execution failed: Connection closed", UNAVAILABLE),
    ("Tool execution failed: Connection to the MCP server was closed", UNAVAILABLE),
    ("Tool execution failed: Session terminated", UNAVAILABLE),
    ("Tool execution failed: Request 'tools/call' timed out", TIMEOUT),
    ("Tool execution failed: Server returned an error response", SERVER_ERROR),
    ("MCP Elicitation required: [x] with data []", ELICITATION),
    ("Error: OSError - disk full", TOOL_ERROR),
]


@pytest.mark.parametrize(("text", "verdict"), WITHOUT_EXCEPTION)
def test_texts_where_strands_leaves_nothing_else(text: str, verdict: Verdict) -> None:
    assert classify(CallOutcome(tool="x", result=error(text))) == verdict


def test_ends_that_need_no_text() -> None:
    assert classify(CallOutcome(tool="x", result={"status": "success", "content": []})) == Verdict(
        SUCCESS, "ok"
    )
    assert classify(CallOutcome(tool="x", result=None)) == Verdict(SUCCESS, "ok")
    assert classify(CallOutcome(tool="x", timed_out=True)) == TIMEOUT
    assert classify(CallOutcome(tool="x", timed_out=True, cancelled=True)) == CANCELLED
    assert classify(CallOutcome(tool="x", result=error("x", cancelled=True))) == CANCELLED
    assert classify(CallOutcome(tool="x", exception=OSError(), cancelled=True)) == CANCELLED


def test_an_mcp_error_of_the_1x_line_is_read_too() -> None:
    class McpError(Exception):
        error = SimpleNamespace(code=-32602, message="Invalid params")

    assert classify(CallOutcome(tool="x", exception=McpError())).code == "invalid_arguments"


def test_a_tools_own_classifier_is_asked_first() -> None:
    def judge(call: CallOutcome) -> Verdict | None:
        if call.result and "busy" in call.result["content"][0]["text"]:
            return Verdict(Outcome.IGNORED, "busy")
        if call.result and "bug" in call.result["content"][0]["text"]:
            raise KeyError("bug")
        return None

    guarded = guard_tool(
        tool(lambda text: error(text, isError=True), name="x", description="x"),
        BreakerPolicy(classify=judge),
    )
    codes = [asyncio.run(call(guarded, {"text": text})).code for text in ("busy", "broken", "bug")]
    assert codes == ["busy", "tool_error", "tool_error"]
    assert guarded.breaker.failures == 2


def test_an_answer_that_the_mcp_client_cannot_read_is_a_protocol_error() -> None:
    problem = ValueError("1 validation error for CallToolResult")
    ended = CallOutcome(
        tool="x", result=error(f"Tool execution failed: {problem}"), exception=problem
    )
    assert classify(ended) == PROTOCOL_ERROR
    own = CallOutcome(tool="x", result=error(f"Error: {problem}"), exception=problem)
    assert classify(own) == TOOL_ERROR
