"""``guard_tool`` takes every kind of tool, and policies do not affect each other."""

import asyncio
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from strands import Agent, tool
from strands.tools import ToolProvider
from strands.tools.mcp import MCPClient
from strands.types.tools import AgentTool
from strands_tools import file_read

from strands_manga_memory import BreakerPolicy, GuardedMCPTools, guard_tool
from strands_manga_memory.mcp import Outcome, Verdict
from strands_manga_memory.testing import ScriptedModel
from tests.support import stub_tool, tool_results
from tests.unit.session.support import tool_use

_FILE = str(Path(file_read.__file__))


in_stock = stub_tool("in_stock", lambda title: f"{title}: in stock")


class Shelf(ToolProvider):
    """A provider of one tool."""

    def __init__(self) -> None:
        self.consumers: set[Any] = set()

    async def load_tools(self, **kwargs: Any) -> Sequence[AgentTool]:
        return [in_stock]

    def add_consumer(self, consumer_id: Any, **kwargs: Any) -> None:
        self.consumers.add(consumer_id)

    def remove_consumer(self, consumer_id: Any, **kwargs: Any) -> None:
        self.consumers.discard(consumer_id)


def calling_agent(tools: list[Any], *calls: tuple[str, dict[str, Any]]) -> Agent:
    uses: list[Any] = [tool_use(f"t{at}", name, **given) for at, (name, given) in enumerate(calls)]
    return Agent(model=ScriptedModel([*([use] for use in uses), "done"]), tools=tools)


_ARGUMENTS: dict[str, dict[str, str]] = {
    "clerk": {"input": "How much?"},
    "file_read": {"path": "prices.txt", "mode": "view"},
    "in_stock": {"title": "Gyo"},
    "slack": {"action": "get_recent_events"},
    "slack_send_message": {"channel": "C1", "text": "Gyo"},
}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work in a folder with a list of prices."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "prices.txt").write_text("Gyo: 12 dollars")


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of slack
@pytest.mark.parametrize(
    ("kind", "names"),
    [
        (lambda: file_read, ["file_read"]),
        (lambda: "strands_tools.file_read", ["file_read"]),
        (lambda: _FILE, ["file_read"]),
        (lambda: {"name": "file_read", "path": _FILE}, ["file_read"]),
        (lambda: "strands_tools.slack:slack", ["slack"]),
        (lambda: import_module("strands_tools.slack"), ["slack", "slack_send_message"]),
        (lambda: [file_read, [in_stock]], ["file_read", "in_stock"]),
        (lambda: Shelf(), ["in_stock"]),
        (lambda: Agent(model=ScriptedModel(["12 dollars"]), name="clerk"), ["clerk"]),
    ],
    ids=[
        "module", "import path", "file", "name and path", "function of a module", "module of two",
        "list", "provider", "agent",
    ],
)  # fmt: skip
def test_each_kind_of_tool_is_guarded(kind: Callable[[], Any], names: list[str]) -> None:
    """An agent gets the same tools as without the guard, each with a breaker, and calls them."""
    agent = calling_agent([guard_tool(kind())])
    assert sorted(agent.tool_names) == names
    for name in names:
        result = getattr(agent.tool, name)(**_ARGUMENTS[name])
        assert result["status"] == "success", result
        assert agent.tool_registry.registry[name].status()["calls"] == 1


def test_a_failing_module_tool_opens_its_breaker() -> None:
    """Errors of a module tool reach the model, and open the breaker of that tool alone."""
    guarded = guard_tool([file_read, in_stock], BreakerPolicy(failures=2))
    failing = ("file_read", {"path": "missing.txt", "mode": "view"})
    calls = [failing, failing, failing, ("in_stock", _ARGUMENTS["in_stock"])]
    agent = calling_agent([guarded], *calls)
    agent("What does it cost?")
    results = tool_results(agent.messages)
    assert [result["status"] for result in results] == ["error", "error", "error", "success"]
    assert "No files found" in str(results[0])
    assert "circuit_open" in str(results[2])


def test_a_module_tool_is_a_fallback() -> None:
    """A module tool answers for a tool that is unavailable."""

    @tool
    def price(path: str, mode: str) -> str:
        """Fail."""
        raise OSError("down")

    guarded = guard_tool(price, BreakerPolicy(failures=1), fallbacks=[file_read])
    asked = ("price", _ARGUMENTS["file_read"])
    agent = calling_agent([guarded], asked, asked)
    agent("What does it cost?")
    assert "Gyo: 12 dollars" in str(tool_results(agent.messages)[1])


def test_a_provider_keeps_its_consumers_and_breakers() -> None:
    """The agents of a guarded provider are its consumers, and share the breakers of its tools."""
    shelf = Shelf()
    provider = guard_tool(shelf)
    one, two = calling_agent([provider]), calling_agent([provider])
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
        guard_tool(given(guard_tool(in_stock)))


def test_fallbacks_of_a_wrong_form_are_refused_with_the_right_form() -> None:
    """A guarded tool takes a list, and a guarded server a mapping from tool to fallbacks."""
    wrong: Any = {"in_stock": file_read}
    with pytest.raises(ValueError, match="fallbacks must be a list, got"):
        guard_tool(in_stock, fallbacks=wrong)
    client = MCPClient(url="http://localhost:1/mcp")
    with pytest.raises(ValueError, match=r"must be a mapping such as .'search_web'"):
        GuardedMCPTools(client, fallbacks=[in_stock])


def test_a_timeout_has_a_text_in_the_status() -> None:
    """The last error of a tool that exceeds its deadline says so, also while calls are rejected."""

    @tool
    async def slow() -> None:
        """Wait."""
        await asyncio.sleep(5)

    guarded = guard_tool(slow, BreakerPolicy(timeout=0.05, failures=1))
    agent = calling_agent([guarded])
    agent.tool.slow()
    agent.tool.slow()
    assert guarded.status()["rejected"] == 1
    assert guarded.status()["last_error"]["text"] == "slow did not answer within 0.05 s."


def test_a_success_with_another_code_reaches_the_model_unchanged() -> None:
    """A classifier may name a success as it likes."""
    policy = BreakerPolicy(classify=lambda call: Verdict(Outcome.SUCCESS, "sold_out"))
    agent = calling_agent([guard_tool(in_stock, policy)])
    result = agent.tool.in_stock(title="Gyo")
    assert (result["status"], result["content"]) == ("success", [{"text": "Gyo: in stock"}])
