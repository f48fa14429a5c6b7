"""Small parts: redaction, schemas, cached results, statistics, texts for the model."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from strands.tools import PythonAgentTool
from strands.tools.tool_provider import ToolProvider
from strands.types.tools import AgentTool, ToolSpec

from strands_manga_memory import guard_tool
from strands_manga_memory.mcp import redact_secrets, user_of_call
from strands_manga_memory.mcp.answers import (
    MOST_BYTES,
    MOST_RESULTS,
    CachedResult,
    ResultCache,
    ToolFailure,
    error_result,
    stale_result,
)
from strands_manga_memory.mcp.call import known_user
from strands_manga_memory.mcp.classify import CANCELLED, OK, TIMEOUT
from strands_manga_memory.mcp.guard import ArgumentSchema, CallLog, summarize_latency
from strands_manga_memory.testing import FakeClock
from tests.lines import rows
from tests.provider_formats import PROVIDERS, request_text
from tests.unit.session.support import tool_use


@pytest.mark.parametrize(("text", "secret"), rows("secrets"))
def test_secrets_are_cut(text: str, secret: str) -> None:
    assert secret not in redact_secrets(text)
    assert "[cut]" in redact_secrets(text)


@pytest.mark.parametrize(
    "text",
    [
        "no such order: ORD-48213",
        "寄生獣の新装版は在庫がありません",
        "Rate limit reached, retry after 7 s",
        "volume must be a number from 1 to 108",
        "unexpected token is missing",
        "see https://shop.example/help?page=2",
    ],
)
def test_what_helps_the_model_stays(text: str) -> None:
    assert redact_secrets(text) == text


def test_the_error_below_a_traceback_stays() -> None:
    frames = 'Traceback (most recent call last):\n  File "/srv/app.py", line 3\n    find()\n'
    assert redact_secrets(f"{frames}KeyError: 'ORD-1'") == "[cut]\nKeyError: 'ORD-1'"


def test_arguments_are_checked() -> None:
    schema = ArgumentSchema(
        {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    )
    assert schema.find_error({"n": 1}) is None
    assert schema.find_error({"n": "x"}) == "n: 'x' is not of type 'integer'"
    assert "'n' is a required property" in str(schema.find_error({}))
    assert schema.find_error([]) is not None


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "nonsense"},
        {"properties": 5},
        {"$ref": "http://127.0.0.1:9/schema.json"},
        {"$ref": "#/$defs/missing"},
        {"type": "object", "properties": {"n": {"pattern": "("}}},
    ],
)
def test_a_schema_that_cannot_be_used_lets_everything_pass(schema: dict[str, Any]) -> None:
    assert ArgumentSchema(schema).find_error({"n": "x"}) is None


KEY = ("tenant", "user", "server", "tool", "{}")


def test_a_good_result_stands_in_until_it_is_too_old() -> None:
    clock = FakeClock()
    kept = ResultCache(60, clock=clock)
    content = [{"text": "ok"}]
    kept.keep(KEY, {"content": content})
    content[0]["text"] = "changed since"
    clock.advance(59)
    found = kept.find(KEY)
    assert (found.content, found.age) == ([{"text": "ok"}], 59)
    clock.advance(2)
    assert kept.find(KEY) is None


def test_good_results_are_bounded() -> None:
    kept = ResultCache(60)
    keys = [(*KEY[:4], str(number)) for number in range(MOST_RESULTS + 1)]
    for key in keys:
        kept.keep(key, {"content": [{"text": "ok"}]})
    assert [key for key in keys if kept.find(key) is None] == keys[:1]
    kept.keep(keys[1], {"content": [{"text": "x" * (MOST_BYTES + 1)}]})
    assert (
        kept.find(keys[1]) is None
    )  # the last one is too large, and the one before is not the last
    kept.keep(keys[1], {"content": [{"text": "漫" * (MOST_BYTES // 2)}]})
    assert kept.find(keys[1]) is None, "a character has 3 bytes"
    kept.keep(keys[2], {"content": [{"image": {}}]})
    assert kept.find(keys[2]) is None


async def test_a_provider_may_have_unhashable_tools() -> None:
    class Unhashable(PythonAgentTool):
        __hash__ = None

    class Provider(ToolProvider):
        async def load_tools(self, **kwargs: Any) -> Sequence[AgentTool]:
            return [one]

        def add_consumer(self, consumer_id: Any, **kwargs: Any) -> None:
            pass

        def remove_consumer(self, consumer_id: Any, **kwargs: Any) -> None:
            pass

    spec: ToolSpec = {"name": "one", "description": "d", "inputSchema": {"json": {}}}
    one = Unhashable("one", spec, lambda *_, **__: None)
    guarded = guard_tool(Provider())
    assert await guarded.load_tools() == await guarded.load_tools(), "a tool keeps its breaker"


def test_calls_are_counted_and_timed() -> None:
    clock = FakeClock(0)
    log = CallLog(clock=clock)
    for seconds in range(1, 101):
        key = log.begin("t")
        clock.advance(seconds / 1000)
        log.end(key, OK)
    key, other = log.begin("a"), log.begin("b")
    clock.advance(2)
    assert log.statistics()["in_flight"] == {"a": 2, "b": 2}
    log.end(key, TIMEOUT, "too slow")
    log.end(other, CANCELLED)
    clock.advance(1)
    facts = log.statistics()
    assert (facts["calls"], facts["failures"], facts["in_flight"]) == (
        102,
        {"timeout": 1, "cancelled": 1},
        {},
    )
    assert facts["last_error"] == {"code": "timeout", "text": "too slow", "age_s": 1}


def test_percentiles_are_the_nearest_rank() -> None:
    assert summarize_latency([number / 1000 for number in range(1, 101)]) == {
        "mean": 50.5,
        "p50": 50,
        "p95": 95,
        "p99": 99,
    }
    assert summarize_latency([0.002]) == {"mean": 2, "p50": 2, "p95": 2, "p99": 2}
    assert summarize_latency([]) == {"mean": None, "p50": None, "p95": None, "p99": None}


def problem(**fields: Any) -> ToolFailure:
    known: dict[str, Any] = {
        "code": "circuit_open",
        "reason": "x is unavailable.",
        "request_id": "t",
        "tool": "x",
        "state": "open",
    }
    return ToolFailure(**{**known, "health": "unavailable", "failures": 5, **fields})


def test_a_problem_says_what_to_do() -> None:
    words = {
        "retry": problem(retry_after=12.2, alternatives=["y"]).as_text(),
        "closed by hand": problem(retry_after=float("inf")).as_text(),
        "arguments": problem(code="invalid_arguments", retryable=False).as_text(),
        "gone": problem(code="unknown_tool", retryable=False).as_text(),
        "effects": (
            problem(code="timeout", side_effects_unknown=True, partial=[{"progress": 1}]).as_text()
        ),
    }
    assert "within 13 s" in words["retry"]
    assert "Or use y." in words["retry"]
    assert "Do not call it again for now" in words["closed by hand"]
    assert "Correct the arguments" in words["arguments"]
    assert "try" not in words["gone"]
    assert "Do not repeat this call" in words["gone"]
    assert "check before you repeat it" in words["effects"]
    assert '{"progress": 1}' in words["effects"]


def test_model_is_sent_a_short_json_and_callers_get_all_data() -> None:
    """Breaker, server and times are in the metadata of the result."""
    original = {"isError": True, "structuredContent": {"password": "x"}, "metadata": {"cost": 2}}
    result = error_result(problem(retry_after=1.5, server="s", duration=0.25), original=original)
    assert result["isError"]
    assert "structuredContent" not in result
    assert result["content"][1]["json"] == {"code": "circuit_open", "retry_after_s": 1.5}
    assert result["metadata"] == {
        "cost": 2,
        "guard": {"code": "circuit_open", "reason": "x is unavailable.", "request_id": "t",
            "duration": 0.25, "tool": "x", "server": "s", "state": "open", "health": "unavailable",
            "failures": 5, "retry_after": 1.5, "retryable": True, "side_effects_unknown": False,
            "partial": [], "alternatives": []},
    }  # fmt: skip
    doubtful = error_result(problem(code="timeout", side_effects_unknown=True, alternatives=["y"]))
    assert doubtful["content"][1]["json"] == {
        "code": "timeout",
        "retry_after_s": 0.0,
        "side_effects_unknown": True,
        "alternatives": ["y"],
    }
    stale = stale_result(problem(retry_after=1.5), CachedResult([{"text": "3 copies"}], 12.0))
    assert stale["content"][2]["json"] == {
        "code": "circuit_open",
        "retry_after_s": 1.5,
        "stale": True,
        "age_s": 12.0,
    }
    assert stale["metadata"]["guard"]["age_s"] == 12.0
    assert problem(retry_after=float("inf")).as_json()["retry_after_s"] is None


@pytest.mark.parametrize("provider", PROVIDERS)
def test_no_provider_is_sent_the_metadata_of_a_failure(provider: str) -> None:
    result = error_result(problem(request_id="call-1", server="warehouse", retry_after=1.5))
    messages = [
        {"role": "user", "content": [{"text": "How many are there?"}]},
        {"role": "assistant", "content": [tool_use("call-1", "x")]},
        {"role": "user", "content": [{"toolResult": result}]},
    ]
    request = request_text(messages, provider)
    assert "retry_after_s" in request
    assert "warehouse" not in request


@pytest.mark.parametrize(
    ("state", "user"),
    [
        ({"user_id": "u1", "tenant": "t"}, ("t", "user:u1")),
        ({"agent": SimpleNamespace(session_id="t:u1:monday")}, ("", "scope:t:u1")),
        ({"agent": SimpleNamespace(session_id="t:u1:tuesday")}, ("", "scope:t:u1")),
        ({"agent": SimpleNamespace(session_id="monday")}, ("", "session:monday")),
        ({}, None),
    ],
)
def test_a_user_is_the_same_in_all_his_sessions(state: dict[str, Any], user: Any) -> None:
    assert known_user(user_of_call(state)) == user
