"""Graph and Swarm: restarts after an interrupt or a crash, and tools of their nodes."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from typing import Any

import pytest
from strands import Agent, ToolContext, tool
from strands.hooks import AfterNodeCallEvent, BeforeNodeCallEvent
from strands.middleware import ExecuteToolContext, ExecuteToolStage, ToolResultEvent
from strands.multiagent import GraphBuilder, Swarm
from strands.multiagent.base import Status
from strands.multiagent.graph import Graph
from strands.types.tools import AgentTool, ToolGenerator, ToolSpec, ToolUse

from strands_manga_memory import BreakerPolicy, ConflictError, TieredSessionManager, guard_tool
from strands_manga_memory.conversation import ImportanceWeightedConversationManager
from strands_manga_memory.mcp import BreakerMiddleware
from strands_manga_memory.testing import ScriptedModel
from tests.faulty_stores import FaultyHotStore
from tests.support import stub_tool, tool_results
from tests.unit.session.support import (
    Stores,
    agent,
    everything_stored,
    interrupt_answers,
    quiet,
    same,
    texts,
    tool_use,
)


def graph(
    manager: TieredSessionManager | None, *, tools: Any = (), hooks: Any = None, **scripts: Any
) -> Graph:
    """A graph of three nodes in a row, first, second, third, each with its script."""
    builder = GraphBuilder()
    names = ("first", "second", "third")
    for name in names:
        model = ScriptedModel(scripts.get(name, [f"{name} is done"]))
        builder.add_node(Agent(model=model, agent_id=name, tools=list(tools)), name)
    builder.add_edge("first", "second")
    builder.add_edge("second", "third")
    builder.set_graph_id("tour")
    builder.set_execution_timeout(60)
    if manager is not None:
        builder.set_session_manager(manager)
    built = builder.build()
    for event, callback in (hooks or {}).items():
        built.hooks.add_callback(event, callback)
    return built


def order(built: Graph) -> list[str]:
    return [node.node_id for node in built.state.execution_order]


def asked(built: Graph, node: str) -> int:
    executor: Any = built.nodes[node].executor
    return len(executor.model.requests)


def test_a_graph_goes_on_after_a_crash(stores: Stores) -> None:
    """Another process restores the data of the moment of the crash."""
    seen: list[Graph] = []

    def look(event: BeforeNodeCallEvent) -> None:
        if event.node_id == "third":
            seen.append(graph(stores.manager()))

    live = graph(stores.manager(), hooks={BeforeNodeCallEvent: look})
    live("go around")
    (again,) = seen
    result = again("go around")
    assert result.status == Status.COMPLETED
    assert order(again) == ["first", "second", "third"]
    assert [asked(again, name) for name in ("first", "second", "third")] == [0, 0, 1]
    assert str(result.results["first"].result).strip() == "first is done"


def test_a_graph_goes_on_at_a_failed_node_and_keeps_the_status_failed(stores: Stores) -> None:
    """Each node has its own status. Strands reports a run with a failed node as failed."""
    with pytest.raises(RuntimeError, match="no model"):
        graph(stores.manager(), second=[RuntimeError("no model")])("go around")
    again = graph(stores.manager())
    result = again("go around")
    assert [asked(again, name) for name in ("first", "second", "third")] == [0, 1, 1]
    assert {node.status for node in result.results.values()} == {Status.COMPLETED}
    assert result.status == Status.FAILED


@tool(context=True)
def sign(what: str, tool_context: ToolContext) -> str:
    """Sign, if a human agrees."""
    answer = tool_context.interrupt("signature", reason={"what": what})
    return f"signed {what}" if answer == "yes" else "not signed"


def test_a_graph_interrupted_in_a_tool_goes_on_elsewhere(both: Stores) -> None:
    live = graph(both.manager(), tools=[sign], second=[[tool_use("s", "sign", what="contract")]])
    result = live("close the deal")
    assert result.status == Status.INTERRUPTED
    again = graph(both.manager(), tools=[sign], second=["signed it"])
    assert again(interrupt_answers(result, "yes")).status == Status.COMPLETED
    assert order(again) == ["first", "second", "third"]
    assert [asked(again, name) for name in ("first", "second", "third")] == [0, 1, 1]
    executor: Any = again.nodes["second"].executor
    found = executor.messages[2]["content"][0]["toolResult"]["content"]
    assert found == [{"text": "signed contract"}]


def test_a_graph_interrupted_in_a_hook_goes_on_elsewhere(both: Stores) -> None:
    def ask(event: BeforeNodeCallEvent) -> None:
        if event.node_id == "second" and event.interrupt("go on", reason="halfway") != "yes":
            event.cancel_node = "no"

    live = graph(both.manager(), hooks={BeforeNodeCallEvent: ask})
    result = live("go around")
    assert result.status == Status.INTERRUPTED
    again = graph(both.manager(), hooks={BeforeNodeCallEvent: ask})
    assert again(interrupt_answers(result, "yes")).status == Status.COMPLETED
    assert [asked(again, name) for name in ("first", "second", "third")] == [0, 1, 1]


def test_an_interrupted_graph_is_flushed_at_once(both: Stores) -> None:
    manager = both.manager(flush_every=100)
    live = graph(manager, tools=[sign], second=["fine", [tool_use("s", "sign", what="contract")]])
    live("first")
    quiet_manager(manager)
    result = live("close the deal")
    quiet_manager(manager)
    both.lose_hot()
    again = graph(both.manager(), tools=[sign], second=["signed it"])
    assert again(interrupt_answers(result, "yes")).status == Status.COMPLETED


def quiet_manager(manager: TieredSessionManager) -> None:
    from tests.servers import wait_until

    wait_until(lambda: manager._tiers.writer.backlog == 0, "the end of background work")


def test_a_finished_graph_starts_anew(both: Stores) -> None:
    graph(both.manager())("one")
    again = graph(both.manager())
    assert again("two").status == Status.COMPLETED
    assert [asked(again, name) for name in ("first", "second", "third")] == [1, 1, 1]
    again("three")
    assert [asked(again, name) for name in ("first", "second", "third")] == [2, 2, 2]


def test_two_processes_take_turns_on_a_graph(both: Stores) -> None:
    """The one that was idle while the other ran must not lose what it does later."""
    one = graph(
        both.manager(), tools=[sign], second=["fine", [tool_use("s", "sign", what="contract")]]
    )
    other = graph(both.manager())
    assert one("first run").status == Status.COMPLETED
    assert other("second run").status == Status.COMPLETED
    result = one("third run")
    assert result.status == Status.INTERRUPTED
    again = graph(both.manager(), tools=[sign], second=["signed it"])
    assert again(interrupt_answers(result, "yes")).status == Status.COMPLETED
    assert [asked(again, name) for name in ("first", "second", "third")] == [0, 1, 1]


def diamond(manager: TieredSessionManager, look: Any = None) -> Graph:
    builder = GraphBuilder()
    for name in ("start", "left", "right", "end"):
        builder.add_node(agent(None, ScriptedModel([name]), agent_id=name), name)
    for one, next_ in (("start", "left"), ("start", "right"), ("left", "end"), ("right", "end")):
        builder.add_edge(one, next_)
    builder.set_graph_id("diamond")
    builder.set_execution_timeout(60)
    builder.set_session_manager(manager)
    built = builder.build()
    if look is not None:
        built.hooks.add_callback(BeforeNodeCallEvent, look)
    return built


def test_nodes_that_run_side_by_side(both: Stores) -> None:
    seen: list[Graph] = []

    def look(event: BeforeNodeCallEvent) -> None:
        if event.node_id == "end":
            seen.append(diamond(both.manager()))

    diamond(both.manager(), look)("go")
    (again,) = seen
    assert again("go").status == Status.COMPLETED
    assert [asked(again, name) for name in ("start", "left", "right", "end")] == [0, 0, 0, 1]


def test_bytes_in_a_task_survive(both: Stores) -> None:
    seen: list[Graph] = []

    def look(event: BeforeNodeCallEvent) -> None:
        if event.node_id == "second":
            seen.append(graph(both.manager()))

    task: Any = [
        {"text": "what is it"},
        {"image": {"format": "png", "source": {"bytes": b"\x89PNG\xff"}}},
    ]
    graph(both.manager(), hooks={BeforeNodeCallEvent: look})(task)
    (again,) = seen
    assert again.state.task == task
    assert again(task).status == Status.COMPLETED
    assert [asked(again, name) for name in ("first", "second", "third")] == [0, 1, 1]


def swarm(
    manager: TieredSessionManager, scripts: dict[str, Any], *, tools: Any = (), look: Any = None
) -> Swarm:
    agents = [
        Agent(name=name, model=ScriptedModel(script), tools=list(tools))
        for name, script in scripts.items()
    ]
    built = Swarm(agents, session_manager=manager, id="team", execution_timeout=60)
    if look is not None:
        built.hooks.add_callback(BeforeNodeCallEvent, look)
    return built


def handoff(name: str) -> list[Any]:
    return [tool_use("h", "handoff_to_agent", agent_name=name, message="please go on")]


def test_a_swarm_goes_on_after_a_crash(stores: Stores) -> None:
    seen: list[Swarm] = []

    def look(event: BeforeNodeCallEvent) -> None:
        if event.node_id == "seller":
            seen.append(swarm(stores.manager(), {"finder": ["never"], "seller": ["sold"]}))

    live = swarm(
        stores.manager(),
        {"finder": [handoff("seller"), "handed over"], "seller": ["sold"]},
        look=look,
    )
    live("sell Akira")
    (again,) = seen
    result = again("sell Akira")
    assert result.status == Status.COMPLETED
    assert [node.node_id for node in result.node_history] == ["finder", "seller"]
    finder: Any = again.nodes["finder"].executor
    assert finder.model.requests == []


def test_a_swarm_interrupted_in_a_tool_goes_on_elsewhere(both: Stores) -> None:
    live = swarm(
        both.manager(),
        {"finder": [[tool_use("s", "sign", what="contract")]], "seller": []},
        tools=[sign],
    )
    result = live("sell Akira")
    assert result.status == Status.INTERRUPTED
    again = swarm(both.manager(), {"finder": ["signed it"], "seller": []}, tools=[sign])
    assert again(interrupt_answers(result, "yes")).status == Status.COMPLETED


def test_nodes_may_not_carry_a_session_manager(both: Stores) -> None:
    builder = GraphBuilder()
    with pytest.raises(ValueError, match=r"[Ss]ession"):
        builder.add_node(agent(both.manager()), "only")
    with pytest.raises(ValueError, match=r"[Ss]ession"):
        Swarm([agent(both.manager(), name="only")])


def test_an_agent_and_a_graph_of_one_id_do_not_cross(both: Stores) -> None:
    manager = both.manager()
    live = agent(manager, agent_id="tour")
    live("hello")
    graph(manager)("go around")
    live("again")
    manager.flush()
    assert same(agent(both.manager(), agent_id="tour").messages, live.messages)
    assert texts(both.manager().history("tour")) == ["hello", "ok", "again", "ok"]
    assert graph(both.manager())("go").status == Status.COMPLETED


def test_an_agent_that_uses_a_graph_as_a_tool(both: Stores) -> None:
    manager = both.manager()

    tour = stub_tool("tour", lambda: str(graph(manager)("go").status))
    live = agent(manager, ScriptedModel([[tool_use("t", "tour")], "done"]), tools=[tour])
    live("take the tour")
    assert live.messages[2]["content"][0]["toolResult"]["content"] == [{"text": "Status.COMPLETED"}]
    manager.flush()
    assert same(both.agent().messages, live.messages)


def test_a_graph_in_a_loop_that_is_running(both: Stores) -> None:
    async def run() -> Any:
        return await graph(both.manager()).invoke_async("go")

    assert asyncio.run(run()).status == Status.COMPLETED


def test_stores_that_are_down_do_not_stop_a_graph(both: Stores) -> None:
    both.hot = FaultyHotStore(both.hot)
    manager = both.manager(hot_deadline=0.2)
    live = graph(manager)

    def cut_off(event: AfterNodeCallEvent) -> None:
        both.hot.down = event.node_id == "first"

    live.hooks.add_callback(AfterNodeCallEvent, cut_off)
    assert live("go around").status == Status.COMPLETED
    both.hot.down = False
    manager.flush()


def test_an_orchestrators_state_is_not_kept_after_a_deletion(both: Stores) -> None:
    manager = both.manager()
    live = graph(manager, first=["the secret of Nausicaä"])
    live("go around")
    both.manager().delete_session()
    manager.flush()
    assert not graph(both.manager()).state.results
    live("go again")
    assert graph(both.manager())("on").status == Status.COMPLETED


def test_a_deletion_in_the_middle_of_a_run(both: Stores) -> None:
    def delete(event: BeforeNodeCallEvent) -> None:
        if event.node_id == "third" and asked(live, "third") == 0:
            both.manager().delete_session()

    manager = both.manager()
    live = graph(
        manager, first=["the secret of Nausicaä", "nothing"], hooks={BeforeNodeCallEvent: delete}
    )
    assert live("go around").status == Status.COMPLETED
    manager.flush()
    assert "Nausicaä".encode() not in everything_stored(both)
    live("go again")
    manager.flush()
    assert "Nausicaä".encode() not in everything_stored(both)
    assert b"nothing" in everything_stored(both)


def test_a_run_that_waits_for_a_human_is_not_overwritten(both: Stores) -> None:
    idle = graph(both.manager())
    idle("first")
    live = graph(both.manager(), tools=[sign], second=[[tool_use("s", "sign", what="contract")]])
    result = live("close the deal")
    with pytest.raises(ConflictError, match="interrupt"):
        idle("another run")
    again = graph(both.manager(), tools=[sign], second=["signed it"])
    assert again(interrupt_answers(result, "yes")).status == Status.COMPLETED


def test_an_agent_as_a_tool_has_no_session_of_its_own(both: Stores) -> None:
    inner = agent(None, ScriptedModel(["inner answer"] * 9), name="inner", description="helps")
    live = both.agent(
        ScriptedModel([[tool_use("i", "inner", input="help")], "done"]), tools=[inner.as_tool()]
    )
    live("ask it")
    quiet(live)
    assert same(both.agent(tools=[inner.as_tool()]).messages, live.messages)
    assert len(list(live._session_manager.history())) == 4


def budgeted(name: str, script: Any = None, **arguments: Any) -> Agent:
    """An agent for a node, with a budget of its own."""
    manager = ImportanceWeightedConversationManager(400)
    model = ScriptedModel(script or (lambda messages: f"{name} has read {len(messages)}"))
    return Agent(name=name, agent_id=name, model=model, conversation_manager=manager, **arguments)


def test_nodes_of_a_swarm_begin_anew_with_the_managers_they_have(both: Stores) -> None:
    """A swarm resets its nodes; managers must not continue old data."""
    finder = budgeted("finder", [handoff("seller"), "handed over"] * 3)
    seller = budgeted("seller", ["sold"] * 3)
    team = Swarm([finder, seller], session_manager=both.manager(), id="team", execution_timeout=60)
    for number in range(3):
        result = team(f"{number} " + "sell Akira " * 20)
        assert [node.node_id for node in result.node_history] == ["finder", "seller"]
    asked_of_seller: Any = seller.model
    assert [len(request.messages) for request in asked_of_seller.requests] == [1, 1, 1]
    assert all("sell Akira" in str(request.messages) for request in asked_of_seller.requests)


def test_an_agent_as_a_tool_that_keeps_its_context_has_a_session_of_its_own(both: Stores) -> None:
    manager = both.manager()

    def expert() -> Agent:
        return agent(
            manager,
            ScriptedModel(lambda messages: f"read {len(messages)}"),
            agent_id="expert",
            name="expert",
        )

    inner = expert()
    script = [[tool_use("i", "expert", input="help")], "done"]
    live = agent(
        manager,
        ScriptedModel(script * 2),
        agent_id="shop",
        tools=[inner.as_tool(preserve_context=True)],
    )
    live("ask it")
    live("ask it again")
    manager.flush()
    assert texts(inner.messages) == ["help", "read 1", "help", "read 3"]
    manager = both.manager()
    assert same(expert().messages, inner.messages)
    assert same(agent(manager, agent_id="shop").messages, live.messages)
    assert manager.agents() == ["expert", "shop"]


def test_an_agent_as_a_tool_that_forgets_may_not_have_a_session(both: Stores) -> None:
    with pytest.raises(ValueError, match=r"[Ss]ession"):
        agent(both.manager(), name="inner").as_tool()


def test_two_orchestrators_of_one_session_are_kept_apart(both: Stores) -> None:
    manager = both.manager()
    live = graph(manager)
    team = swarm(manager, {"finder": ["found"], "seller": []})
    assert live("go around").status == Status.COMPLETED
    assert team("find").status == Status.COMPLETED
    again = swarm(both.manager(), {"finder": ["found again"], "seller": []})
    assert again("find").status == Status.COMPLETED
    assert graph(both.manager())("on").status == Status.COMPLETED


NODES = tuple(f"node{number}" for number in range(6))
PATIENT = BreakerPolicy(timeout=60.0)


@tool(context=True)
def mark(tool_context: ToolContext, mine: str) -> str:
    """Write into the state of the agent, in a thread."""
    return _marked(tool_context, mine)


@tool(context=True)
async def mark_async(tool_context: ToolContext, mine: str) -> str:
    """Write into the state of the agent, on the loop, before and after a pause."""
    _marked(tool_context, mine)
    await asyncio.sleep(0.02)
    assert tool_context.invocation_state["messages"] is tool_context.agent.messages
    return _marked(tool_context, mine)


@tool(context=True)
def ask(tool_context: ToolContext, mine: str) -> str:
    """Ask the user."""
    return str(tool_context.interrupt("sure", reason=mine))


def _marked(context: ToolContext, mine: str) -> str:
    agent: Any = context.agent
    agent.state.set("marks", [*(agent.state.get("marks") or []), mine])
    seen = context.invocation_state["agent"], context.invocation_state["model"]
    assert seen == (agent, agent.model)
    context.invocation_state.setdefault("marked", []).append(mine)
    return mine


class Undecorated(AgentTool):
    """A tool that reads the invocation state itself, as MCP tools and agents used as tools do."""

    @property
    def tool_name(self) -> str:
        return "undecorated"

    @property
    def tool_type(self) -> str:
        return "python"

    @property
    def tool_spec(self) -> ToolSpec:
        schema = {"type": "object", "properties": {"mine": {"type": "string"}}}
        return {"name": "undecorated", "description": "Mark.", "inputSchema": {"json": schema}}

    async def stream(
        self, tool_use: ToolUse, invocation_state: dict[str, Any], **kwargs: Any
    ) -> ToolGenerator:
        await asyncio.sleep(0.01)
        agent = invocation_state["agent"]
        agent.state.set("marks", [tool_use["input"]["mine"]])
        yield ToolResultEvent(
            {
                "toolUseId": tool_use["toolUseId"],
                "status": "success",
                "content": [{"text": agent.agent_id}],
            }
        )


async def pausing(
    context: ExecuteToolContext, next_fn: Callable[[Any], AsyncGenerator[Any, None]]
) -> AsyncGenerator[Any, None]:
    """Middleware that waits for something before the tool may run."""
    await asyncio.sleep(0.01)
    async for event in next_fn(context):
        yield event


def _guard(used: AgentTool) -> dict[str, Any]:
    return {"tools": [guard_tool(used, PATIENT)]}


def _middleware(used: AgentTool) -> dict[str, Any]:
    return {"tools": [used], "inner": [BreakerMiddleware(PATIENT)]}


def _middleware_then_pause(used: AgentTool) -> dict[str, Any]:
    return {"tools": [used], "inner": [BreakerMiddleware(PATIENT), pausing]}


WAYS = [_guard, _middleware, _middleware_then_pause]


def _graph(way: Callable[[AgentTool], dict[str, Any]], used: AgentTool) -> Graph:
    """Nodes that all begin at once, each with an agent that uses the tool and says its own name."""
    builder = GraphBuilder()
    for name in NODES:
        settings = way(used)
        inner = settings.pop("inner", [])
        use = tool_use(f"use-{name}", used.tool_name, mine=name)
        node = Agent(model=ScriptedModel([[use], "done"]), agent_id=name, name=name, **settings)
        for middleware in inner:
            node.add_middleware(ExecuteToolStage, middleware)
        builder.add_node(node, name)
        builder.set_entry_point(name)
    builder.set_execution_timeout(60)
    return builder.build()


def _agent(graph: Graph, name: str) -> Any:
    return graph.nodes[name].executor


def _said(agent: Agent) -> list[str]:
    return [text["text"] for each in tool_results(agent.messages) for text in each["content"]]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("used", [mark, mark_async, Undecorated()], ids=lambda used: used.tool_name)
def test_tool_has_its_own_agent(
    way: Callable[[AgentTool], dict[str, Any]], used: AgentTool
) -> None:
    graph = _graph(way, used)
    shared: dict[str, Any] = {}
    assert graph("go", shared).status == Status.COMPLETED
    agents = {name: _agent(graph, name) for name in NODES}
    found = {name: set(agent.state.get("marks") or []) for name, agent in agents.items()}
    assert found == {name: {name} for name in NODES}
    assert {name: _said(a) for name, a in agents.items()} == {name: [name] for name in NODES}


@pytest.mark.parametrize("way", WAYS)
def test_all_see_the_invocation_state(way: Callable[[AgentTool], dict[str, Any]]) -> None:
    shared: dict[str, Any] = {}
    _graph(way, mark)("go", shared)
    assert sorted(shared["marked"]) == sorted(NODES)


@pytest.mark.parametrize("way", WAYS)
def test_each_node_asks_its_user_once(way: Callable[[AgentTool], dict[str, Any]]) -> None:
    graph = _graph(way, ask)
    result = graph("go")
    assert result.status == Status.INTERRUPTED
    assert sorted(interrupt.reason for interrupt in result.interrupts) == sorted(NODES)
    answers: Any = [
        {"interruptResponse": {"interruptId": interrupt.id, "response": f"yes, {interrupt.reason}"}}
        for interrupt in result.interrupts
    ]
    assert graph(answers).status == Status.COMPLETED
    assert {n: _said(_agent(graph, n)) for n in NODES} == {n: [f"yes, {n}"] for n in NODES}
