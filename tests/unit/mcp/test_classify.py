"""What the end of a call says: the table of the rules."""

import asyncio
from types import SimpleNamespace
from typing import Any

import anyio
import pytest
from mcp.shared.exceptions import MCPError
from strands.interrupt import Interrupt, InterruptException
from strands.types.exceptions import MCPClientInitializationError

from strands_manga_memory.mcp import BreakerPolicy, CallOutcome, Outcome, Verdict, classify

TOOL, SERVER, IGNORED, SUCCESS = (
    Outcome.TOOL_FAILURE,
    Outcome.SERVER_FAILURE,
    Outcome.IGNORED,
    Outcome.SUCCESS,
)


def error(text: str, **fields: Any) -> dict[str, Any]:
    return {"status": "error", "toolUseId": "t", "content": [{"text": text}], **fields}


def rpc(code: int, message: str) -> Exception:
    return MCPError(code=code, message=message)


RAISED = [
    (rpc(-32001, "Request 'tools/call' timed out"), TOOL, "timeout"),
    (rpc(-32602, "Invalid params"), IGNORED, "invalid_arguments"),
    (rpc(-32601, "Method not found"), IGNORED, "unknown_tool"),
    (rpc(-32601, "Not Found"), IGNORED, "unknown_tool"),
    (rpc(-32042, "URL elicitation required"), IGNORED, "elicitation_required"),
    (rpc(-32603, "Server returned an error response"), TOOL, "server_error"),
    (rpc(-32700, "Parse error"), TOOL, "protocol_error"),
    (rpc(-32600, "Unexpected content type: text/html"), TOOL, "protocol_error"),
    (rpc(-32600, "Session not found"), SERVER, "server_unavailable"),
    (rpc(-32600, "Session terminated"), SERVER, "server_unavailable"),
    (rpc(-32000, "Connection closed"), SERVER, "server_unavailable"),
    (rpc(-32000, "SSE stream ended without a response"), TOOL, "protocol_error"),
    (rpc(-1, "anything"), TOOL, "server_error"),
    (RuntimeError("Connection to the MCP server was closed"), SERVER, "server_unavailable"),
    (RuntimeError("anything"), TOOL, "tool_error"),
    (
        MCPClientInitializationError("the client session is not running"),
        SERVER,
        "server_unavailable",
    ),
    (anyio.ClosedResourceError(), SERVER, "server_unavailable"),  # as the 1.x client says it
    (anyio.BrokenResourceError(), SERVER, "server_unavailable"),
    (anyio.EndOfStream(), SERVER, "server_unavailable"),
    (BrokenPipeError(), SERVER, "server_unavailable"),
    (
        ExceptionGroup("g", [ExceptionGroup("h", [anyio.ClosedResourceError()])]),
        SERVER,
        "server_unavailable",
    ),
    (ExceptionGroup("g", [anyio.ClosedResourceError(), OSError()]), TOOL, "tool_error"),
    (TimeoutError(), TOOL, "timeout"),
    (
        OSError("connection closed"),
        TOOL,
        "tool_error",
    ),  # of a tool in this process, not of a server
    (ValueError("Validation failed for input parameters: n"), IGNORED, "invalid_arguments"),
    (ValueError("no such order"), TOOL, "tool_error"),
    (asyncio.CancelledError(), IGNORED, "cancelled"),
    (GeneratorExit(), IGNORED, "cancelled"),
    (InterruptException(Interrupt(id="i", name="n")), IGNORED, "cancelled"),
]


@pytest.mark.parametrize(
    ("exception", "outcome", "code"), RAISED, ids=lambda value: str(value)[:40]
)
def test_exceptions(exception: BaseException, outcome: Outcome, code: str) -> None:
    assert classify(CallOutcome(tool="x", exception=exception)) == Verdict(outcome, code)


REPORTED = [
    ("Error executing tool x", TOOL, "tool_error"),
    ("Error executing tool x: boom", TOOL, "tool_error"),
    ("no such order", TOOL, "tool_error"),
    ("Unknown tool: x", IGNORED, "unknown_tool"),
    (
        "Error executing tool x: 2 validation errors for xArguments\nn\n  Field required",
        IGNORED,
        "invalid_arguments",
    ),
    ("1 validation error for xArguments", IGNORED, "invalid_arguments"),
    (
        "Error executing tool x: 1 validation error for Order",
        TOOL,
        "tool_error",
    ),  # the tool's own trouble
    ("Input validation error: 'a' is not of type 'integer'", IGNORED, "invalid_arguments"),
    (
        "MCP error -32602: Input validation error: Invalid arguments for tool x",
        IGNORED,
        "invalid_arguments",
    ),
    ("MCP error -32602: Tool x not found", IGNORED, "unknown_tool"),
    ("the input validation error rate is high", TOOL, "tool_error"),
    ("Connection closed", TOOL, "tool_error"),  # the server answered, so it is there
    ("upstream timed out", TOOL, "tool_error"),
]


@pytest.mark.parametrize(("text", "outcome", "code"), REPORTED)
def test_what_a_server_reports(text: str, outcome: Outcome, code: str) -> None:
    call = CallOutcome(tool="x", result=error(text, isError=True))
    assert classify(call) == Verdict(outcome, code)
    ignored = classify(call, tool_errors="ignore")
    assert ignored == Verdict(IGNORED, code)


WITHOUT_EXCEPTION = [
    ("Tool execution failed: Connection closed", SERVER, "server_unavailable"),
    (
        "Tool execution failed: Connection to the MCP server was closed",
        SERVER,
        "server_unavailable",
    ),
    ("Tool execution failed: Session terminated", SERVER, "server_unavailable"),
    ("Tool execution failed: Request 'tools/call' timed out", TOOL, "timeout"),
    ("Tool execution failed: Server returned an error response", TOOL, "server_error"),
    ("MCP Elicitation required: [x] with data []", IGNORED, "elicitation_required"),
    ("Error: OSError - disk full", TOOL, "tool_error"),
]


@pytest.mark.parametrize(("text", "outcome", "code"), WITHOUT_EXCEPTION)
def test_texts_where_strands_leaves_nothing_else(text: str, outcome: Outcome, code: str) -> None:
    assert classify(CallOutcome(tool="x", result=error(text))) == Verdict(outcome, code)


def test_ends_that_need_no_text() -> None:
    assert classify(CallOutcome(tool="x", result={"status": "success", "content": []})) == Verdict(
        SUCCESS, "ok"
    )
    assert classify(CallOutcome(tool="x", result=None)) == Verdict(SUCCESS, "ok")
    assert classify(CallOutcome(tool="x", timed_out=True)) == Verdict(TOOL, "timeout")
    assert classify(CallOutcome(tool="x", timed_out=True, cancelled=True)) == Verdict(
        IGNORED, "cancelled"
    )
    assert classify(CallOutcome(tool="x", result=error("x", cancelled=True))) == Verdict(
        IGNORED, "cancelled"
    )
    assert classify(CallOutcome(tool="x", exception=OSError(), cancelled=True)) == Verdict(
        IGNORED, "cancelled"
    )


def test_an_mcp_error_of_the_1x_line_is_read_too() -> None:
    class McpError(Exception):
        error = SimpleNamespace(code=-32602, message="Invalid params")

    assert classify(CallOutcome(tool="x", exception=McpError())).code == "invalid_arguments"


def test_a_tools_own_classifier_is_asked_first() -> None:
    from strands_manga_memory.mcp.guard import Guard

    def judge(call: CallOutcome) -> Verdict | None:
        if call.result and "busy" in call.result["content"][0]["text"]:
            return Verdict(Outcome.IGNORED, "busy")
        if call.result and "bug" in call.result["content"][0]["text"]:
            raise KeyError("bug")
        return None

    spec: Any = {"name": "x", "description": "", "inputSchema": {"json": {}}}
    guard = Guard(spec, BreakerPolicy(classify=judge))
    assert guard.classify_call(
        CallOutcome(tool="x", result=error("busy", isError=True))
    ) == Verdict(IGNORED, "busy")
    assert (
        guard.classify_call(CallOutcome(tool="x", result=error("broken", isError=True))).code
        == "tool_error"
    )
    assert (
        guard.classify_call(CallOutcome(tool="x", result=error("bug", isError=True))).code
        == "tool_error"
    )
