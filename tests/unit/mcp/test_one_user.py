"""What one user alone gets to hear from a tool shuts nobody else out."""

from __future__ import annotations

from typing import Any

import pytest
from strands import tool

from strands_manga_memory import BreakerPolicy, guard_tool


@tool
def get_order(order_id: str) -> dict[str, Any]:
    """Return an order.

    Args:
        order_id: Its number.
    """
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


async def test_a_tool_that_fails_for_several_users_opens_it() -> None:
    guarded = guard_tool(get_order, BreakerPolicy(users=2))
    for number in range(10):
        await ask(guarded, f"u{number % 2}", f"x{number}")
    assert "circuit_open" in await ask(guarded, "u3", "known")


def test_how_many_users_is_checked() -> None:
    with pytest.raises(ValueError, match="users must be a whole number"):
        BreakerPolicy(users=0)
