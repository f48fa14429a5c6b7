"""``guard_tool`` takes every kind of tool, and policies do not affect each other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from strands import Agent, tool
from strands.tools import ToolProvider
from strands.types.tools import AgentTool

from strands_manga_memory import BreakerPolicy, guard_tool
from strands_manga_memory.testing import ScriptedModel
from tests.integration.module_tools import price_lookup, stock

_PRICE, _STOCK = Path(price_lookup.__file__), "tests.integration.module_tools.stock"


class Shelf(ToolProvider):
    """A provider of one tool."""

    def __init__(self) -> None:
        self.consumers: set[Any] = set()

    async def load_tools(self, **kwargs: Any) -> Sequence[AgentTool]:
        return [stock.in_stock]

    def add_consumer(self, consumer_id: Any, **kwargs: Any) -> None:
        self.consumers.add(consumer_id)

    def remove_consumer(self, consumer_id: Any, **kwargs: Any) -> None:
        self.consumers.discard(consumer_id)


def _agent(tools: list[Any], *calls: tuple[str, dict[str, Any]]) -> Agent:
    uses: list[Any] = [
        {"toolUse": {"toolUseId": f"t{at}", "name": name, "input": given}}
        for at, (name, given) in enumerate(calls)
    ]
    return Agent(
        model=ScriptedModel([*([use] for use in uses), "done"]), tools=tools, callback_handler=None
    )


def _results(agent: Agent) -> list[dict[str, Any]]:
    return [
        block["toolResult"]
        for message in agent.messages
        for block in message["content"]
        if "toolResult" in block
    ]


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        (lambda: price_lookup, ["price_lookup"]),
        (lambda: "tests.integration.module_tools.price_lookup", ["price_lookup"]),
        (lambda: str(_PRICE), ["price_lookup"]),
        (lambda: {"name": "price_lookup", "path": str(_PRICE)}, ["price_lookup"]),
        (lambda: f"{_STOCK}:in_stock", ["in_stock"]),
        (lambda: stock, ["in_stock", "on_order"]),
        (
            lambda: [price_lookup, stock.in_stock, [stock.on_order]],
            ["in_stock", "on_order", "price_lookup"],
        ),
        (lambda: Shelf(), ["in_stock"]),
        (
            lambda: Agent(model=ScriptedModel(["12 dollars"]), name="clerk", callback_handler=None),
            ["clerk"],
        ),
    ],
    ids=[
        "module",
        "import path",
        "file",
        "name and path",
        "function of a module",
        "module of two",
        "list",
        "provider",
        "agent",
    ],
)
def test_each_kind_of_tool_is_guarded(kind: Callable[[], Any], names: list[str]) -> None:
    """An agent gets the same tools as without the guard, each with a breaker, and calls them."""
    agent = _agent([guard_tool(kind())])
    assert sorted(agent.tool_names) == names
    for name in names:
        given = {"input": "How much?"} if name == "clerk" else {"title": "Gyo"}
        result = getattr(agent.tool, name)(**given)
        assert result["status"] == "success", result
        assert agent.tool_registry.registry[name].status()["calls"] == 1


def test_a_failing_module_tool_opens_its_breaker() -> None:
    """Errors of a module tool reach the model, and open the breaker of that tool alone."""
    guarded = guard_tool([price_lookup, stock], BreakerPolicy(failures=2))
    failing = ("price_lookup", {"title": "unknown"})
    agent = _agent([guarded], failing, failing, failing, ("in_stock", {"title": "Gyo"}))
    agent("What does it cost?")
    results = _results(agent)
    assert [result["status"] for result in results] == ["error", "error", "error", "success"]
    assert "no such volume" in str(results[0])
    assert "circuit_open" in str(results[2])


def test_a_module_tool_is_a_fallback() -> None:
    """A module tool answers for a tool that is unavailable."""

    @tool
    def price(title: str) -> str:
        """Fail."""
        raise OSError("down")

    guarded = guard_tool(price, BreakerPolicy(failures=1), fallbacks=[price_lookup])
    agent = _agent([guarded], ("price", {"title": "Gyo"}), ("price", {"title": "Gyo"}))
    agent("What does it cost?")
    assert "Gyo: 12 dollars" in str(_results(agent)[1])


def test_a_provider_keeps_its_consumers_and_breakers() -> None:
    """The agents of a guarded provider are its consumers, and share the breakers of its tools."""
    shelf = Shelf()
    provider = guard_tool(shelf)
    one, two = _agent([provider]), _agent([provider])
    assert len(shelf.consumers) == 2
    assert one.tool_registry.registry["in_stock"] is two.tool_registry.registry["in_stock"]


@pytest.mark.parametrize("given", [5, print, [5]])
def test_what_an_agent_does_not_take_is_refused(given: Any) -> None:
    """A value that is no tool is refused with the kinds that are."""
    with pytest.raises(ValueError, match=r"tool must be a value that Agent"):
        guard_tool(given)


@pytest.mark.parametrize("given", [lambda one: [one], lambda one: one])
def test_a_guarded_tool_is_not_guarded_again(given: Callable[[Any], Any]) -> None:
    """A tool that is guarded already is refused, also in a list."""
    with pytest.raises(ValueError, match="guarded already"):
        guard_tool(given(guard_tool(stock.in_stock)))


def _errors_of_one_user(policy: BreakerPolicy | None, *others: str) -> str:
    @tool
    def order(number: str) -> str:
        """Look up an order."""
        if number == "known":
            return "shipped"
        raise LookupError(f"there is no order {number}")

    guarded = guard_tool(order, policy)
    for user in others:
        known = _agent([guarded], ("order", {"number": "known"}))
        known("Where is my order?", invocation_state={"user_id": user})
    agent = _agent([guarded], *(("order", {"number": str(number)}) for number in range(6)))
    agent("Where is my order?", invocation_state={"user_id": "u1"})
    return str(guarded.status()["state"])


@pytest.mark.parametrize(
    "policy",
    [
        None,
        BreakerPolicy(),
        BreakerPolicy(timeout=20.0),
        replace(BreakerPolicy(), reset_after=5.0),
        BreakerPolicy(read_only=True),
    ],
)
def test_errors_of_one_user_close_a_tool_for_nobody_else(policy: BreakerPolicy | None) -> None:
    """Five wrong order numbers of one user do not open the breaker."""
    assert _errors_of_one_user(policy, "u2") == "closed"


@pytest.mark.parametrize(
    ("policy", "others"),
    [(None, []), (BreakerPolicy(users=9), []), (BreakerPolicy(users=1), ["u2", "u3"])],
)
def test_errors_of_the_only_or_of_enough_users_open_the_breaker(
    policy: BreakerPolicy | None, others: list[str]
) -> None:
    """The only user of a tool opens its breaker, and one of several users with ``users=1``."""
    assert _errors_of_one_user(policy, *others) == "open"
