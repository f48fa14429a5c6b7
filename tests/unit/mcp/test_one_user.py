"""What one user alone gets to hear from a tool shuts nobody else out."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from strands import Agent, tool
from strands.middleware import ExecuteToolStage

from strands_manga_memory import BreakerPolicy, guard_tool
from strands_manga_memory.mcp import BreakerMiddleware, user_of_call
from strands_manga_memory.testing import ScriptedModel


@tool
def get_order(order_id: str) -> dict[str, Any]:
    """Return an order."""
    if order_id == "known":
        return {"status": "success", "content": [{"text": "shipped"}]}
    return {"status": "error", "isError": True, "content": [{"text": f"no such order: {order_id}"}]}


async def ask(guarded: Any, user: str, order: str) -> str:
    use = {"toolUseId": "t", "name": "get_order", "input": {"order_id": order}}
    events = [event async for event in guarded.stream(use, {"user_id": user})]
    return str(events[-1])


async def test_five_unknown_orders_of_one_user_open_no_breaker() -> None:
    guarded = guard_tool(get_order, BreakerPolicy(users=2))
    for number in range(20):
        await ask(guarded, "u1", f"x{number}")
    assert "shipped" in await ask(guarded, "u2", "known")


@tool
def look_up(order_id: str) -> str:
    """Return an order."""
    if order_id != "known":
        raise KeyError(f"no such order: {order_id}")
    return "shipped"


@tool
def reports(order_id: str) -> dict[str, Any]:
    """Return an order."""
    if order_id == "known":
        return {"status": "success", "content": [{"text": "shipped"}]}
    return {"status": "error", "content": [{"text": f"no such order: {order_id}"}]}


LOCAL = pytest.mark.parametrize("local", [look_up, reports], ids=["raises", "returns"])


@LOCAL
async def test_errors_of_a_local_tool_count_no_more_than_those_of_a_server(local: Any) -> None:
    """Whatever way a tool that answers in time says so, and whether or not anybody thought of a policy."""
    guarded = guard_tool(local)
    for number in range(20):
        await ask(guarded, "u1", f"x{number}")
    assert "shipped" in await ask(guarded, "u2", "known")
    for number in range(10):
        await ask(guarded, f"u{number % 2}", f"x{number}")
    assert "circuit_open" in await ask(guarded, "u3", "known")


@LOCAL
@pytest.mark.parametrize("guard", ["guard_tool", "middleware"])
def test_a_tool_whose_users_are_not_known_still_opens_its_breaker(local: Any, guard: str) -> None:
    """An agent without a session, in a process that names no user."""

    def calls(**state: Any) -> str:
        use = {"name": local.tool_name, "input": {"order_id": "x"}}
        model = ScriptedModel([*([{"toolUse": {"toolUseId": f"t{number}", **use}}] for number in range(7)), "done"])
        agent = Agent(model=model, tools=[guard_tool(local) if guard == "guard_tool" else local], callback_handler=None)
        if guard == "middleware":
            agent.add_middleware(ExecuteToolStage, BreakerMiddleware())
        agent("where is it?", invocation_state=state)
        return str(agent.messages)

    assert "circuit_open" in calls()
    assert "circuit_open" not in calls(user_id="u1")


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
    from strands_manga_memory.mcp.call import known_user

    assert known_user(user_of_call(state)) == user


def test_how_many_users_is_checked() -> None:
    with pytest.raises(ValueError, match="users must be a positive whole number"):
        BreakerPolicy(users=0)
