"""Guarded tools in agents: Strands' features work, and no failure stops the agent."""

import asyncio
import json
from collections.abc import AsyncGenerator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import pytest
from mcp.types import ElicitResult
from strands import Agent, tool
from strands.background_tasks import BackgroundTasksConfig
from strands.middleware import ExecuteToolStage
from strands.tools.mcp import MCPClient
from strands.types.exceptions import ToolProviderException
from strands.types.tools import AgentTool, ToolContext

from strands_manga_memory import GuardedMCPTools, MangaMemory, guard_tool
from strands_manga_memory.mcp import BreakerMiddleware
from strands_manga_memory.testing import FakeClock, ScriptedModel
from tests import mcp_servers
from tests.integration.endless import endless_tool
from tests.integration.mcp_support import (
    Answer,
    Shop,
    agent_of,
    call,
    pass_time,
    policy,
    results_of,
    until,
)
from tests.servers import wait_until
from tests.support import stub_tool
from tests.unit.session.support import interrupt_answers, tool_use

pytestmark = pytest.mark.xdist_group("mcp agents")  # its servers and processes are started once


@pytest.fixture(scope="module")
def client() -> Iterator[MCPClient]:
    with mcp_servers.client_of("sdk", "stdio") as client:
        client.start()
        yield client


@tool
async def add(a: int, b: int) -> str:
    """Add two numbers."""
    return str(a + b)


@tool
async def stuck() -> str:
    """Never ends."""
    await asyncio.sleep(60)
    return "late"


may_end = asyncio.Event()


@tool
async def stubborn() -> str:
    """Ignores its cancellation."""
    while not may_end.is_set():
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(0.05)
    return "late"


broken = stub_tool("broken", OSError("disk full, password=hunter2"))


# --- one turn of an agent -------------------------------------------------------------------------


def test_sick_and_healthy_tools_in_parallel(client: MCPClient) -> None:
    guarded = GuardedMCPTools(client, policy(), overrides={"hang": policy(timeout=0.3)})
    uses = [
        ("hang", {}),
        ("boom", {}),
        ("ok", {"n": 2}),
        ("add", {"a": 1, "b": 2}),
        ("broken", {}),
        ("nothing", {}),
    ]
    agent = agent_of(guarded, guard_tool(add, policy()), guard_tool(broken, policy()), uses=uses)
    assert str(agent("go")).strip() == "done"
    results = results_of(agent)
    assert {name: answer.code for name, answer in results.items()} == {
        "hang": "timeout",
        "boom": "tool_error",
        "ok": None,
        "add": None,
        "broken": "tool_error",
        "nothing": None,
    }
    assert (results["ok"].text, results["add"].text) == ("ok 2", "3")
    assert "hunter2" not in results["broken"].text
    assert "disk full" in results["broken"].text


def test_a_cancelled_agent_counts_against_nobody(client: MCPClient) -> None:
    guarded = GuardedMCPTools(client, policy())
    hanging = guard_tool(stuck, policy())
    agent = agent_of(guarded, hanging, uses=[("hang", {}), ("stuck", {})])
    with ThreadPoolExecutor(1) as threads:
        turn = threads.submit(agent, "go")
        wait_until(
            lambda: guarded.status()["hang"]["in_flight"] and hanging.status()["in_flight"],
            "both calls",
        )
        agent.cancel()
        turn.result(timeout=20)
    assert guarded.status()["hang"]["failures"] == {"cancelled": 1}
    assert hanging.status()["failures"] == {"cancelled": 1}
    assert (guarded.status()["hang"]["failures_in_a_row"], hanging.breaker.failures) == (0, 0)


def test_two_agents_in_two_threads_share_one_client_and_its_breakers(client: MCPClient) -> None:
    guarded = GuardedMCPTools(client, policy(failures=4))
    turns = [[("ok", {"n": number}), ("boom", {})] for number in range(2)]

    def work(uses: list[tuple[str, dict[str, Any]]]) -> Agent:
        blocks = [tool_use(f"u{n}", name, **value) for n, (name, value) in enumerate(uses)]
        agent = Agent(model=ScriptedModel([blocks, "one", blocks, "two"]), tools=[guarded])
        agent("go")
        agent("again")
        return agent

    with ThreadPoolExecutor(2) as threads:
        agents = list(threads.map(work, turns))
    assert [results_of(agent)["ok"].text for agent in agents] == ["ok 0", "ok 1"]
    assert guarded.status()["boom"]["calls"] == 4
    assert guarded.status()["boom"]["state"] == "open"


def test_interrupts_reach_the_user_and_come_back() -> None:
    @tool(context=True)
    def order(tool_context: ToolContext) -> str:
        """Ask first."""
        return str(tool_context.interrupt("sure", reason="really?"))

    guarded = guard_tool(order)
    agent = agent_of(guarded, uses=[("order", {})])
    result = agent("go")
    assert result.stop_reason == "interrupt"
    assert [interrupt.reason for interrupt in result.interrupts] == ["really?"]
    assert guarded.breaker.failures == 0
    assert agent(interrupt_answers(result)).stop_reason == "end_turn"
    assert results_of(agent)["order"].text == "yes"


def test_streaming_tools_stream() -> None:
    @tool
    async def count() -> AsyncGenerator[Any, None]:
        """Count."""
        for number in range(3):
            yield number
        yield "done"

    seen: list[Any] = []
    agent = agent_of(guard_tool(count), uses=[("count", {})])
    agent.callback_handler = lambda **event: seen.append(
        event.get("tool_stream_event", {}).get("data")
    )
    agent("go")
    assert [data for data in seen if data is not None] == [0, 1, 2, "done"]
    assert results_of(agent)["count"].text == "done"


def test_what_a_tool_streamed_before_the_deadline_is_a_partial_result() -> None:
    @tool
    async def slow() -> AsyncGenerator[Any, None]:
        """Stream, then hang."""
        circle: list[Any] = []
        circle.append(circle)
        yield {"found": {3}}
        yield circle
        yield "x" * 5000
        yield found
        yield {"orders": list(range(100_000))}
        pass_time(20.0)
        await asyncio.sleep(60)

    found = {f"order {number}": "Dispatched from Osaka, expected on Tuesday" for number in range(8)}
    answer = asyncio.run(call(guard_tool(slow, policy())))
    assert answer.code == "timeout"
    partial = answer.details["partial"]
    assert partial[:2] == ['{"found": "{3}"}', "[[[[[[[...]]]]]]]"]
    assert json.loads(partial[3]) == found, "whole, up to 500 characters"
    assert [len(partial[at]) for at in (2, 4)] == [500, 500]
    json.dumps(answer.result)  # a session can keep it


def test_a_partial_result_has_no_secrets() -> None:
    @tool
    async def migrate() -> AsyncGenerator[Any, None]:
        """Migrate the orders."""
        yield "connected to postgres://shop:hunter2@db/orders"
        yield {"step": 2, "password": "hunter2"}
        yield "row " * 120 + "postgres://shop:hunter2@db/orders"  # longer than what is kept
        raise RuntimeError("the table is locked")

    agent = agent_of(guard_tool(migrate), uses=[("migrate", {})])
    agent("go")
    answer = results_of(agent)["migrate"]
    assert "connected to postgres" in answer.text
    assert "step" in answer.text
    assert "hunt" not in str(answer.result)


def test_background_tools_are_guarded(client: MCPClient) -> None:
    guarded = guard_tool(add)
    blocks = [tool_use("u1", "add", a=1, b=2)]
    agent = Agent(
        model=ScriptedModel([blocks, "started", "done"]),
        tools=[guarded],
        background_tasks=BackgroundTasksConfig(),
    )
    agent("go")
    assert guarded.status()["calls"] >= 1


# --- deadlines ------------------------------------------------------------------------------------


async def test_the_deadline_holds_even_if_the_tool_ignores_its_cancellation() -> None:
    guarded = guard_tool(stubborn, policy(timeout=0.1))
    may_end.clear()
    before = set(asyncio.all_tasks())
    assert (await call(guarded)).code == "timeout"
    left = set(asyncio.all_tasks()) - before
    assert left  # the tool is still at it, and nobody waits
    may_end.set()
    await asyncio.wait(left)


async def test_a_consumer_that_takes_its_time_does_not_use_up_the_tools() -> None:
    @tool
    async def chatty() -> AsyncGenerator[Any, None]:
        """Stream."""
        for number in range(3):
            await asyncio.sleep(0.01)
            yield number

    guarded = guard_tool(chatty, policy(timeout=30))
    events = []
    async for event in guarded.stream({"toolUseId": "t", "name": "chatty", "input": {}}, {}):
        events.append(event)
        pass_time(15.0)
    assert events[-1].tool_result["status"] == "success"


async def test_a_probe_that_hangs_ends_and_the_next_one_may_try() -> None:
    works = False

    @tool
    async def sometimes() -> str:
        """Hang or work."""
        if not works:
            await asyncio.sleep(60)
        return "works"

    clock = FakeClock()
    guarded = guard_tool(sometimes, policy(failures=1), clock=clock)
    for expected in ("timeout", "timeout"):
        hanging = asyncio.create_task(call(guarded))
        await until(lambda: guarded.status()["in_flight"])
        pass_time(20.0)
        assert (await hanging).code == expected
        assert guarded.breaker.state == "open"
        clock.advance(60.0)
    probe = asyncio.create_task(call(guarded))
    await until(lambda: guarded.status()["in_flight"])
    assert (await call(guarded)).details["state"] == "half_open"
    probe.cancel()
    await asyncio.wait({probe})
    works = True
    assert (await call(guarded)).status == "success"
    assert guarded.breaker.state == "closed"


# --- the server's tools change --------------------------------------------------------------------


@pytest.mark.parametrize("line", ["sdk", "legacy"])
def test_the_agents_tools_change_with_the_servers(line: str) -> None:
    heard: list[list[str]] = []
    with mcp_servers.client_of(
        line, "stdio", on_tools_changed=lambda before, tools: heard.append(before)
    ) as client:
        guarded = GuardedMCPTools(client, policy())
        agent = Agent(model=ScriptedModel(), tools=[add, guarded], hooks=[guarded])
        order = agent.tool_names
        breaker = agent.tool_registry.registry["ok"].breaker
        client.call_tool_sync("t1", "grow", {"name": "newer"})
        wait_until(lambda: "newer" in agent.tool_names, "the new tool")
        assert agent.tool_names == [*order, "newer"]
        assert agent.tool.newer()["status"] == "success"
        assert agent.tool_registry.registry["ok"].breaker is breaker
        client.call_tool_sync("t2", "shrink", {"name": "newer"})
        wait_until(lambda: "newer" not in agent.tool_names, "the end of the tool")
        assert agent.tool_names == order
        assert len(heard) == 2  # whoever listened before still hears


def test_an_agent_is_known_from_its_first_call_on() -> None:
    with mcp_servers.client_of("legacy", "stdio") as client:
        guarded = GuardedMCPTools(client, policy())
        agent = agent_of(guarded)
        agent.tool.ok(n=1)
        client.call_tool_sync("t1", "grow", {})
        wait_until(lambda: "grown" in agent.tool_names, "the new tool")
        assert agent.tool.grown()["status"] == "success"


# --- life of the client ---------------------------------------------------------------------------


def test_a_client_that_was_started_here_ends_with_the_last_agent() -> None:
    with mcp_servers.client_of("legacy", "stdio", prefix="shop") as client:
        guarded = GuardedMCPTools(
            client, policy(), overrides={"ok": policy(timeout=3), "shop_boom": policy(timeout=4)}
        )
        one, two = agent_of(guarded), agent_of(guarded)
        assert one.tool.shop_ok(n=1)["status"] == "success"
        assert "shop_ok" in guarded.status()
        timeouts = {each.tool_name: each.guard.policy.timeout for each in guarded.tools}
        assert (timeouts["shop_ok"], timeouts["shop_boom"], timeouts["shop_hang"]) == (3, 4, 10)
        one.tool_registry.cleanup()
        assert two.tool.shop_ok(n=2)["status"] == "success"
        two.tool_registry.cleanup()
        assert not client._is_session_active()
        three = agent_of(guarded)
        assert three.tool.shop_ok(n=3)["status"] == "success"
        three.tool_registry.cleanup()


def test_a_client_that_was_started_elsewhere_stays(client: MCPClient) -> None:
    agent = agent_of(GuardedMCPTools(client, policy()))
    agent.tool_registry.cleanup()
    assert client.call_tool_sync("t", "ok", {})["status"] == "success"


def test_a_server_that_cannot_be_reached_is_an_error_or_no_tools_as_the_client_says() -> None:
    with pytest.raises(ValueError, match="cannot load the tools"):
        agent_of(GuardedMCPTools(MCPClient(url="http://127.0.0.1:9/mcp")))
    found = agent_of(
        GuardedMCPTools(MCPClient(url="http://127.0.0.1:9/mcp", continue_on_error=True))
    ).tool_names
    assert found == []
    assert issubclass(ToolProviderException, Exception)


def test_elicitation_reaches_its_callback() -> None:
    asked: list[str] = []

    async def elicited(context: Any, params: Any) -> ElicitResult:
        asked.append(params.message)
        return ElicitResult(action="accept", content={"sure": True})

    with mcp_servers.client_of("legacy", "stdio", elicitation_callback=elicited) as client:
        shop = Shop(GuardedMCPTools(client, policy()))
        assert (asyncio.run(shop.call("asks")).text, asked) == ("accept", ["Are you sure?"])


def test_the_clients_own_progress_callback_still_hears() -> None:
    heard: list[float] = []

    async def progressed(progress: float, total: float | None, message: str | None) -> None:
        heard.append(progress)

    with mcp_servers.client_of("legacy", "stdio", progress_callback=progressed) as client:
        shop = Shop(GuardedMCPTools(client, policy()))

        async def crawl() -> Answer:
            crawling = asyncio.create_task(shop.call("crawls"))
            await until(lambda: heard == [1, 2, 3])
            pass_time(20.0)
            return await crawling

        assert asyncio.run(crawl()).code == "timeout"


# --- the facade and the middleware ----------------------------------------------------------------


def test_policy_of_a_missing_tool_is_logged(
    client: MCPClient, caplog: pytest.LogCaptureFixture
) -> None:
    overrides = {
        "flakey": policy(failures=1),
        "flaky": policy(failures=1),
        "get_backup": policy(failures=1),
    }

    get_backup = stub_tool("get_backup", "backup")
    guarded = GuardedMCPTools(
        client, overrides=overrides, fallbacks={"flaky": get_backup, "hangs": "ok"}
    )
    asyncio.run(guarded.load_tools())
    reported = [
        record.getMessage().partition(" | ")[0]
        for record in caplog.records
        if "does not exist" in record.getMessage()
    ]
    assert [each.partition("tool=")[2] for each in reported] == ["<flakey>", "<hangs>"]


def test_the_facade_gives_one_guard_a_client(tmp_path: Any, client: MCPClient) -> None:
    memory = MangaMemory.open(durable=f"sqlite:///{tmp_path}/s.db")
    guarded = memory.guard(client, policy(failures=1), stale_ttl=60)
    assert memory.guard(client) is guarded
    assert memory.guard(client, policy(failures=1), stale_ttl=60) is guarded
    with MangaMemory.open(durable=f"sqlite:///{tmp_path}/s.db") as other:
        found = other.guard(client, policy(failures=2))
        assert found is not guarded, "another facade cannot choose its policy"
    with pytest.raises(ValueError, match="guarded already"):
        memory.guard(client, policy(failures=2))

    def agent(user: str, session: str) -> Agent:
        kwargs = memory.agent_kwargs(user_id=user, session_id=session)
        return Agent(model=ScriptedModel(), tools=[guarded], **kwargs)

    mine, also_mine, theirs = agent("u1", "s1"), agent("u1", "s2"), agent("u2", "s1")
    mine.tool.repair()
    assert mine.tool.flaky(n=1)["status"] == "success"
    assert Answer(mine.tool.flaky(n="x")).code == "invalid_arguments"
    mine.tool.repair(works=False)
    assert Answer(mine.tool.flaky(n=1)).code == "tool_error"
    assert Answer(mine.tool.flaky(n=1)).details["stale"]
    assert Answer(also_mine.tool.flaky(n=1)).details["stale"]  # the same user
    assert Answer(theirs.tool.flaky(n=1)).code == "tool_error"  # it may have been u1's mistake
    assert Answer(theirs.tool.flaky(n=1)).code == "circuit_open"
    memory.close()


def test_middleware_guards_tools_made_elsewhere() -> None:
    middleware = BreakerMiddleware(policy(failures=2, timeout=0.2))
    agent = agent_of(add, stuck, broken)
    agent.add_middleware(ExecuteToolStage, middleware)
    assert agent.tool.add(a=1, b=2)["content"] == [{"text": "3"}]
    assert Answer(agent.tool.stuck()).code == "timeout"
    assert [Answer(agent.tool.broken()).code for _ in range(3)] == [
        "tool_error",
        "tool_error",
        "circuit_open",
    ]
    assert Answer(agent.tool.add(a="x", b=2)).status == "error"
    status = middleware.status()
    assert status["broken"]["calls"] == 2
    assert status["broken"]["state"] == "open"
    assert status["add"]["failures_in_a_row"] == 0


@pytest.mark.parametrize("by", ["guard", "middleware"])
def test_nobody_waits_for_the_thread_of_a_plain_function(by: str) -> None:
    endless, answered, ended = endless_tool()
    limits = policy(failures=1, timeout=0.2)
    agent = agent_of(guard_tool(endless, limits) if by == "guard" else endless)
    if by == "middleware":
        agent.add_middleware(ExecuteToolStage, BreakerMiddleware(limits))
    assert Answer(agent.tool.endless()).code == "timeout"
    assert not ended.is_set(), "the call waited for the tool"
    answered.set()


async def test_middleware_ends_a_call_whose_tool_ignores_its_cancellation() -> None:
    """An outer cancellation is neutral for the breaker."""
    middleware = BreakerMiddleware(policy(failures=2))
    may_end.clear()

    def begun() -> asyncio.Task[Any]:
        agent.add_middleware(ExecuteToolStage, middleware)
        return asyncio.create_task(agent.invoke_async("Begin."))

    def is_running() -> bool:
        return bool(middleware.status().get("stubborn", {}).get("in_flight"))

    agent = agent_of(stubborn, uses=[("stubborn", {})])
    before = set(asyncio.all_tasks())
    turn = begun()
    await until(is_running)
    pass_time(20.0)
    assert str(await turn).strip() == "done"
    assert results_of(agent)["stubborn"].code == "timeout"
    left = set(asyncio.all_tasks()) - before
    assert left, "the agent waited for the tool"
    may_end.set()
    await asyncio.wait(left)
    may_end.clear()
    agent = agent_of(stubborn, uses=[("stubborn", {})])
    turn = begun()
    await until(is_running)
    turn.cancel()
    await asyncio.wait({turn})
    assert turn.cancelled()
    may_end.set()
    assert middleware.status()["stubborn"]["failures"] == {"timeout": 1, "cancelled": 1}


def test_middleware_leaves_guarded_tools_to_their_guard(client: MCPClient) -> None:
    middleware = BreakerMiddleware()
    guarded = guard_tool(broken, policy(failures=1))
    agent = agent_of(guarded)
    agent.add_middleware(ExecuteToolStage, middleware)
    assert [Answer(agent.tool.broken()).code for _ in range(2)] == ["tool_error", "circuit_open"]
    assert middleware.status() == {}


def test_middleware_and_a_raw_client(client: MCPClient) -> None:
    middleware = BreakerMiddleware(policy(failures=1), overrides={"hang": policy(timeout=0.2)})
    agent = agent_of(*client.list_tools_sync())
    agent.add_middleware(ExecuteToolStage, middleware)
    assert Answer(agent.tool.hang()).code == "timeout"
    assert Answer(agent.tool.ok(n="x")).code == "invalid_arguments"
    assert Answer(agent.tool.ok(n=1)).status == "success"
    assert middleware.status()["ok"]["state"] == "closed"


# --- guard_tool -----------------------------------------------------------------------------------


def test_a_guarded_tool_is_the_tool_to_whoever_looks() -> None:
    guarded = guard_tool(add)
    assert isinstance(guarded, AgentTool)
    assert guarded.tool_name == add.tool_name
    assert guarded.tool_spec == add.tool_spec
    assert guarded.tool_type == add.tool_type
    assert guarded.supports_hot_reload == add.supports_hot_reload
    assert guarded.get_display_properties() == add.get_display_properties()


def test_what_cannot_be_guarded_is_refused() -> None:
    with pytest.raises(ValueError, match="must be MCPClient"):
        GuardedMCPTools(object())
    client = MCPClient(url="http://127.0.0.1:9/mcp")
    with pytest.raises(ValueError, match=r"overrides\['ok'\] must be BreakerPolicy, got 5"):
        GuardedMCPTools(client, overrides={"ok": 5})
    with pytest.raises(
        ValueError, match=r"fallbacks\['ok'\]\[0\] must be .*AgentTool or a text, got 5"
    ):
        GuardedMCPTools(client, fallbacks={"ok": [5]})
    with pytest.raises(ValueError, match="stale_ttl must be"):
        guard_tool(add, stale_ttl=0)


async def test_tools_that_fall_back_on_one_another_do_not_go_in_circles() -> None:
    @tool
    async def other() -> str:
        """Fail too."""
        raise OSError("down")

    one, two = guard_tool(broken, policy(failures=1)), guard_tool(other, policy(failures=1))
    one.set_fallbacks([two])
    two.set_fallbacks([one])
    await call(one)
    answer = await call(one)
    assert answer.code == "circuit_open"
    assert answer.details["alternatives"] == ["other"]
    assert two.breaker.failures == 1
    assert "other" in answer.text


def test_a_fallback_that_the_agent_lacks_is_not_recommended_to_the_model() -> None:
    other = stub_tool("other", OSError("down"))
    guarded = guard_tool(broken, policy(failures=1), fallbacks=[other])
    for tools, others in (([guarded], []), ([guarded, other], ["other"])):
        script: list[Any] = [[tool_use("c1", "broken")], "Sorry."]
        agent = Agent(model=ScriptedModel(script), tools=tools, callback_handler=None)
        agent("Try it.")
        result = agent.messages[2]["content"][0]["toolResult"]
        assert result["metadata"]["guard"]["alternatives"] == others


async def test_no_result_is_shared_between_users() -> None:
    @tool
    async def mine(fail: bool = False) -> str:
        """Read something of the user's."""
        if fail:
            raise OSError("down")
        return "secret of u1"

    guarded = guard_tool(mine, policy(failures=1, read_only=True, users=1), stale_ttl=60)
    states: list[dict[str, Any]] = [
        {"user_id": "u1", "tenant": "a"},
        {"user_id": "u2", "tenant": "a"},
        {"user_id": "u1", "tenant": "b"},
        {},
    ]
    assert (await call(guarded, state=states[0])).text == "secret of u1"
    await call(guarded, {"fail": True}, state=states[0])
    codes = [(await call(guarded, state=state)).details.get("stale") for state in states]
    assert codes == [True, None, None, None]


async def test_tools_that_change_something_never_answer_stale() -> None:
    @tool
    async def buy(fail: bool = False) -> str:
        """Buy."""
        if fail:
            raise OSError("down")
        return "bought"

    guarded = guard_tool(buy, policy(failures=1), stale_ttl=60)
    await call(guarded)
    await call(guarded, {"fail": True})
    assert (await call(guarded)).code == "circuit_open"
