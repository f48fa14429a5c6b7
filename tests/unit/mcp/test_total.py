"""Any result or error of a tool ends in a tool result and reaches the breaker."""

import asyncio
import signal
import sys
from collections.abc import AsyncGenerator, Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from strands import tool
from strands.interrupt import Interrupt, InterruptException
from strands.middleware import ExecuteToolContext, ExecuteToolStage, ToolResultEvent
from strands.types import exceptions as of_strands
from strands.types.tools import AgentTool, ToolGenerator, ToolSpec, ToolUse

from strands_manga_memory import BreakerPolicy, guard_tool
from strands_manga_memory.mcp import BreakerMiddleware, CallOutcome, GuardedTool, Outcome, classify
from tests.integration.mcp_support import agent_of, pass_time, results_of

USE: Any = {"toolUseId": "use", "name": "any", "input": {}}


class AnyTool(AgentTool):
    """A tool that streams what it is given, and raises the last of it if it is an exception."""

    def __init__(self, *events: Any, raises: BaseException | None = None) -> None:
        super().__init__()
        self.events = events
        self.raises = raises

    @property
    def tool_name(self) -> str:
        return "any"

    @property
    def tool_type(self) -> str:
        return "python"

    @property
    def tool_spec(self) -> ToolSpec:
        return {"name": "any", "description": "Anything.", "inputSchema": {"json": {}}}

    async def stream(
        self, tool_use: ToolUse, invocation_state: dict[str, Any], **kwargs: Any
    ) -> ToolGenerator:
        for event in self.events:
            yield event
        if self.raises is not None:
            raise self.raises


class Nasty:
    """An object that breaks whoever looks at it."""

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text("Nasty()")

    def _fail(self, *args: Any) -> Any:
        raise LookupError("do not look")

    __str__ = __repr__ = __len__ = __bool__ = __iter__ = __getattr__ = __eq__ = __contains__ = _fail
    __hash__ = None


class NastyDict(dict[str, Any]):
    """A tool result that breaks whoever looks at it by its own methods."""

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(f"NastyDict({dict.__repr__(self)})")

    def _fail(self, *args: Any) -> Any:
        raise LookupError("do not look")

    get = items = keys = __iter__ = __contains__ = __getitem__ = __len__ = __str__ = __repr__ = (
        _fail
    )


class NoTextError(Exception):
    def __str__(self) -> str:
        raise LookupError("do not look")

    __repr__ = __str__


class NoneTextError(Exception):
    def __str__(self) -> str:
        return None


class NastyError(Exception):
    @property
    def error(self) -> Any:
        raise LookupError("do not look")


class ExitsError(Exception):
    def __str__(self) -> str:
        raise SystemExit(3)


class Panic(BaseException):
    """As code in Rust raises."""


leaves = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=8),
    st.binary(max_size=4),
    st.builds(Nasty),
    st.builds(object),
)
anything = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
)
blocks = st.one_of(
    anything, st.fixed_dictionaries({"text": anything}), st.fixed_dictionaries({"json": anything})
)
errors = st.sampled_from(
    [
        ValueError("x"),
        NoTextError(),
        NoneTextError(),
        NastyError(),
        Panic("x"),
        TimeoutError(),
        ExceptionGroup("g", [OSError()]),
        RecursionError(),
        ExitsError(),
        BaseExceptionGroup("g", [Panic("x"), ValueError("x")]),
        RuntimeError(Nasty()),
        asyncio.CancelledError(),
        StopAsyncIteration(),
    ]
)
results = st.builds(
    lambda kind, fields: kind(fields),
    st.sampled_from([dict, NastyDict]),
    st.fixed_dictionaries(
        {
            "status": st.sampled_from(["error", "success"]) | anything,
            "content": anything | st.lists(blocks, max_size=3),
        },
        optional={
            "isError": anything,
            "cancelled": anything,
            "metadata": anything,
            "toolUseId": st.text(max_size=4),
        },
    ),
)
events = st.one_of(
    anything, results, st.builds(ToolResultEvent, results | anything), st.builds(NastyDict)
)


def ended(guarded: GuardedTool) -> Any:
    """Call the tool; return its result and what its statistics say."""

    async def run() -> list[Any]:
        return [event async for event in guarded.stream(USE, {})]

    last = asyncio.run(run())[-1]
    assert isinstance(last, ToolResultEvent)
    return last.tool_result


@settings(max_examples=75, deadline=None, suppress_health_check=list(HealthCheck))
@given(streamed=st.lists(events, max_size=3), raised=st.none() | errors)
def test_whatever_a_tool_returns_or_raises_the_call_ends_with_a_result_and_is_counted(
    streamed: list[Any], raised: BaseException | None
) -> None:
    guarded = guard_tool(
        AnyTool(*streamed, raises=raised),
        BreakerPolicy(1, read_only=True, timeout=30),
        stale_ttl=60,
    )
    result = ended(guarded)
    assert isinstance(result, dict)
    assert dict.__contains__(result, "content")
    status = guarded.status()
    assert (status["calls"], status["in_flight"]) == (1, {})
    counted = sum(status["failures"].values())
    failed = "cancelled" not in status["failures"] and dict.get(result, "status") == "error"
    assert counted == 1 or not failed
    if raised is not None and not any(isinstance(event, ToolResultEvent) for event in streamed):
        assert counted == 1
        assert guarded.breaker.failures == (0 if isinstance(raised, asyncio.CancelledError) else 1)


@settings(max_examples=50, deadline=None)
@given(
    result=st.none() | results,
    exception=st.none() | errors | anything,
    timed_out=st.booleans(),
    cancelled=st.booleans(),
)
def test_classify_is_total(result: Any, exception: Any, timed_out: bool, cancelled: bool) -> None:
    call = CallOutcome(
        tool="x", result=result, exception=exception, timed_out=timed_out, cancelled=cancelled
    )
    for tool_errors in ("failure", "ignore"):
        assert classify(call, tool_errors=tool_errors).outcome in Outcome


@pytest.mark.parametrize(
    "returned",
    ["text", 5, [], object(), {}, {"answer": 42}],
    ids=lambda value: type(value).__name__,
)
def test_what_is_no_tool_result_is_a_failure(returned: Any) -> None:
    guarded = guard_tool(AnyTool(returned), BreakerPolicy(failures=1, timeout=30))
    result = ended(guarded)
    assert result["status"] == "error"
    assert type(returned).__name__ in result["content"][0]["text"]
    assert guarded.breaker.state == "open"


async def test_exceptions_for_those_who_called_the_agent_go_through_and_count_for_nothing() -> None:
    for raised in (
        InterruptException(Interrupt(id="i", name="n")),
        KeyboardInterrupt(),
        GeneratorExit(),
    ):
        guarded = guard_tool(AnyTool(raises=raised), BreakerPolicy(failures=1, timeout=30))
        with pytest.raises(type(raised)):
            await anext(guarded.stream(USE, {}))
        assert (guarded.breaker.state, guarded.status()["in_flight"]) == ("closed", {})


@pytest.mark.parametrize("is_async", [False, True])
def test_a_tool_that_exits_the_program_has_failed(is_async: bool) -> None:
    @tool(name="any")
    def parse() -> str:
        """Parse arguments, as ``argparse`` does."""
        raise SystemExit(2)

    @tool(name="any")
    async def parse_async() -> str:
        """Parse arguments, as ``argparse`` does."""
        raise SystemExit(2)

    guarded = guard_tool(parse_async if is_async else parse, BreakerPolicy(failures=1, timeout=30))
    agent = agent_of(guarded, uses=[("any", {})])
    assert str(agent("parse")).strip() == "done"
    answer = results_of(agent)["any"]
    assert (answer.status, answer.code) == ("error", "tool_error")
    assert "SystemExit: 2" in answer.text
    assert guarded.breaker.state == "open"


async def test_a_signal_handler_that_exits_during_an_async_tool_ends_the_program() -> None:
    @tool(name="any")
    async def interrupted() -> None:
        """Get a signal."""
        signal.raise_signal(signal.SIGUSR1)

    guarded = guard_tool(interrupted, BreakerPolicy(failures=1, timeout=30))
    before = signal.signal(signal.SIGUSR1, lambda *_: sys.exit(3))
    try:
        with pytest.raises(SystemExit):
            await anext(guarded.stream(USE, {}))
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert guarded.breaker.state == "closed"


ABOUT_THE_AGENT: list[Exception] = [
    of_strands.ConcurrencyException("busy"),
    of_strands.ContextWindowOverflowException("too long"),
    of_strands.MaxTokensReachedException("too long"),
    of_strands.ModelThrottledException("too many"),
    of_strands.SessionException("no session"),
    of_strands.IdempotencyAbortedError("aborted"),
    of_strands.EventLoopException(of_strands.ModelThrottledException("too many"), {}),
]


@pytest.mark.parametrize("raised", ABOUT_THE_AGENT, ids=lambda error: type(error).__name__)
def test_what_strands_raises_about_an_agent_counts_for_no_tool(raised: Exception) -> None:
    @tool(name="any")
    def asks_another_agent() -> str:
        """Run an agent."""
        raise raised

    guarded = guard_tool(asks_another_agent, BreakerPolicy(failures=1, timeout=30))
    assert ended(guarded)["content"][1]["json"]["code"] == "agent_error"
    assert guarded.breaker.state == "closed"


def test_a_lost_connection_of_a_tool_without_a_server_is_its_own_failure() -> None:
    for raised in (BrokenPipeError(), of_strands.MCPClientInitializationError("not running")):
        guarded = guard_tool(AnyTool(raises=raised), BreakerPolicy(failures=1, timeout=30))
        assert ended(guarded)["content"][1]["json"]["code"] == "tool_error"
        assert guarded.breaker.state == "open"


# --- what comes after a result --------------------------------------------------------------------


Next = Callable[[Any], AsyncGenerator[Any, None]]


@tool
def add(a: int, b: int) -> str:
    """Add."""
    return str(a + b)


def test_middleware_inside_the_breaker_runs_to_its_end() -> None:
    audited: list[str] = []

    async def audit(context: ExecuteToolContext, next_fn: Next) -> AsyncGenerator[Any, None]:
        async for event in next_fn(context):
            yield event
        await asyncio.sleep(0)
        audited.append(context.tool_use["name"])

    async def replace(context: ExecuteToolContext, next_fn: Next) -> AsyncGenerator[Any, None]:
        async for event in next_fn(context):
            yield event
        yield ToolResultEvent(
            {
                "toolUseId": "use-0",
                "status": "success",
                "content": [{"text": "the last result wins"}],
            }
        )

    breaker = BreakerMiddleware(BreakerPolicy(timeout=30))
    agent = agent_of(add, uses=[("add", {"a": 1, "b": 2})])
    for middleware in (breaker, audit, replace):
        agent.add_middleware(ExecuteToolStage, middleware)
    agent("go")
    assert audited == ["add"]
    assert results_of(agent)["add"].text == "the last result wins"
    assert breaker.status()["add"]["failures"] == {}


def test_a_result_stays_one_if_what_comes_after_it_takes_too_long() -> None:
    ended: list[str] = []

    async def slow(context: ExecuteToolContext, next_fn: Next) -> AsyncGenerator[Any, None]:
        try:
            async for event in next_fn(context):
                yield event
            pass_time(60.0)  # longer than the tool may take
            await asyncio.sleep(0.01)
        finally:
            ended.append("cleaned up")

    breaker = BreakerMiddleware(BreakerPolicy(failures=1, timeout=30))
    agent = agent_of(add, uses=[("add", {"a": 1, "b": 2})])
    agent.add_middleware(ExecuteToolStage, breaker)
    agent.add_middleware(ExecuteToolStage, slow)
    agent("go")
    assert results_of(agent)["add"].text == "3"
    assert breaker.status()["add"]["state"] == "closed"
    assert ended == ["cleaned up"]


def test_an_error_after_the_result_is_told_as_without_the_breaker() -> None:
    async def failing(context: ExecuteToolContext, next_fn: Next) -> AsyncGenerator[Any, None]:
        async for event in next_fn(context):
            yield event
        raise OSError("the audit log is full")

    agent = agent_of(add, uses=[("add", {"a": 1, "b": 2})])
    agent.add_middleware(ExecuteToolStage, BreakerMiddleware(BreakerPolicy(timeout=30)))
    agent.add_middleware(ExecuteToolStage, failing)
    agent("go")
    assert "the audit log is full" in results_of(agent)["add"].text
