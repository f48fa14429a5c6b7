"""What one user alone gets to hear from a tool shuts nobody else out."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from strands import tool

from strands_manga_memory import BreakerPolicy, guard_tool


@tool
def get_order(order_id: str) -> dict[str, Any]:
    """Return an order."""
    if order_id == "known":
        return {"status": "success", "content": [{"text": "shipped"}]}
    return {"status": "error", "isError": True, "content": [{"text": f"no such order: {order_id}"}]}


async def ask(guarded: Any, user: str, order: str) -> str:
    use = {"toolUseId": "t", "name": "get_order", "input": {"order_id": order}}
    return str([event async for event in guarded.stream(use, {"user_id": user})][-1])


@pytest.mark.parametrize(
    "policy",
    [
        None,
        BreakerPolicy(timeout=20.0),
        BreakerPolicy(users=2),
        replace(BreakerPolicy(read_only=True), reset_after=5.0),
    ],
)
async def test_five_wrong_orders_of_one_user_open_no_breaker(policy: BreakerPolicy | None) -> None:
    guarded = guard_tool(get_order, policy)
    await ask(guarded, "u2", "known")
    for number in range(20):
        await ask(guarded, "u1", f"x{number}")
    assert "shipped" in await ask(guarded, "u2", "known")


async def test_one_of_several_users_opens_the_breaker_of_a_policy_for_one_user() -> None:
    guarded = guard_tool(get_order, BreakerPolicy(users=1))
    await ask(guarded, "u2", "known")
    for number in range(5):
        await ask(guarded, "u1", f"x{number}")
    assert guarded.status()["state"] == "open"


@pytest.mark.parametrize("policy", [None, BreakerPolicy(users=9)])
async def test_breaker_of_the_only_caller_closes_for_others(policy: BreakerPolicy | None) -> None:
    guarded = guard_tool(get_order, policy)
    for number in range(5):
        await ask(guarded, "u1", f"x{number}")
    assert guarded.status()["state"] == "open"
    assert "shipped" in await ask(guarded, "u2", "known")
    for number in range(5):
        await ask(guarded, "u1", f"x{number}")
    assert guarded.status()["state"] == "closed"


async def test_breaker_opened_by_timeouts_stays_open_for_a_new_user() -> None:
    @tool
    async def stall() -> None:
        """Never answer."""
        await asyncio.sleep(60)

    guarded = guard_tool(stall, BreakerPolicy(2, timeout=0.01))
    use = {"toolUseId": "t", "name": "stall", "input": {}}
    for user in ("u1", "u1", "u2"):
        async for _ in guarded.stream(use, {"user_id": user}):
            pass
    assert guarded.status()["state"] == "open"
    assert guarded.status()["rejected"] == 1


@pytest.mark.parametrize("count", [1, 2, 3, 50])
async def test_errors_of_all_callers_but_at_most_three_open_the_breaker(count: int) -> None:
    """Five errors in a row are needed, of all users so far, and of three if there are more."""
    guarded = guard_tool(get_order, BreakerPolicy(users=3))
    users = [f"u{number}" for number in range(count)]
    for user in users:
        await ask(guarded, user, "known")
    needed = users[-3:]
    for number in range(10):
        await ask(guarded, needed[number % max(1, len(needed) - 1)], "x")
    assert guarded.status()["state"] == ("open" if count == 1 else "closed")
    await ask(guarded, needed[-1], "x")
    assert guarded.status()["state"] == "open"
