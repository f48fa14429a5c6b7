"""Graph, Swarm and agents as tools: the orchestrator has the session, a killed graph resumes.

    uv run examples/multi_agent.py                      # a SQLite file, no server
    uv run examples/multi_agent.py --backend services   # Valkey and a DynamoDB emulator

The graph runs in a process of its own, which is killed before its last node. Another process
resumes it there.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import signal
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from mangaassist import services
from strands import Agent
from strands.hooks import BeforeNodeCallEvent
from strands.multiagent import GraphBuilder, Swarm
from strands.multiagent.graph import Graph

from strands_manga_memory import ConversationScope, MangaMemory
from strands_manga_memory.testing import ScriptedModel

SCOPE = ConversationScope("hanako", "order-17")
NODES = ("find", "check", "offer")
TASK = "Find me the third volume of 『Yotsuba&!』."


def node(memory: MangaMemory, name: str, replies: list[Any] | None = None) -> Agent:
    """Return an agent for a node, with its own budget and without a session manager."""
    kwargs = memory.agent_kwargs(
        user_id=SCOPE.user_id, session_id=SCOPE.session_id, agent_id=name, session=False
    )
    return Agent(
        name=name,
        description=f"can {name}",
        model=ScriptedModel(replies or [f"{name}: done"]),
        callback_handler=None,
        **kwargs,
    )


def graph(memory: MangaMemory) -> Graph:
    """Return three nodes in a row; the session manager belongs to the graph."""
    builder = GraphBuilder()
    for name in NODES:
        builder.add_node(node(memory, name), name)
    for one, following in itertools.pairwise(NODES):
        builder.add_edge(one, following)
    builder.set_graph_id("order")  # orchestrators of one session need different ids
    builder.set_execution_timeout(60)
    builder.set_session_manager(memory.session(SCOPE))
    return builder.build()


def answered(built: Graph) -> list[str]:
    """Return the nodes whose model was called in this process."""
    executors: dict[str, Any] = {name: one.executor for name, one in built.nodes.items()}
    return [name for name, executor in executors.items() if executor.model.requests]


def work_until_killed(memory: MangaMemory) -> None:
    """Run the graph and kill this process before the last node."""

    def die(event: BeforeNodeCallEvent) -> None:
        if event.node_id == NODES[-1]:
            os.kill(os.getpid(), signal.SIGKILL)

    built = graph(memory)
    built.hooks.add_callback(BeforeNodeCallEvent, die)
    built(TASK)


def killed_graph(memory: MangaMemory, hot: str, durable: str) -> dict[str, Any]:
    """Run the graph in a process that is killed, and resume it here."""
    command = [sys.executable, __file__, "--worker", hot, durable]
    killed = subprocess.run(command, timeout=100, check=False).returncode == -signal.SIGKILL
    again = graph(memory)
    result = again(TASK)
    order = [one.node_id for one in result.execution_order]
    print(f"graph   killed={killed}, asked again: {answered(again)}, all in order: {order}")
    return {"killed": killed, "asked_again": answered(again), "order": order}


def swarm(memory: MangaMemory) -> list[str]:
    """Run a swarm whose first agent hands over to the second; return the names of the agents."""
    use = {
        "toolUse": {
            "toolUseId": "h1",
            "name": "handoff_to_agent",
            "input": {"agent_name": "seller", "message": "sell it"},
        }
    }
    agents = [node(memory, "finder", [[use], "handed over"]), node(memory, "seller", ["sold"])]
    result = Swarm(agents, session_manager=memory.session(SCOPE), id="team", execution_timeout=60)(
        TASK
    )
    history = [one.node_id for one in result.node_history]
    print(f"swarm   {history}")
    return history


def agents_as_tools(memory: MangaMemory) -> list[str]:
    """Run an agent that uses another one as a tool; return the messages that a restart restores."""
    use = {"toolUse": {"toolUseId": "t1", "name": "expert", "input": {"input": "Which volume?"}}}

    def shopkeeper(replies: list[Any]) -> Agent:
        kwargs = memory.agent_kwargs(**{**vars(SCOPE), "agent_id": "shopkeeper"})
        expert = node(memory, "expert", ["Volume 3."])
        return Agent(
            model=ScriptedModel(replies), tools=[expert.as_tool()], callback_handler=None, **kwargs
        )

    shopkeeper([[use], "It is volume 3."])(TASK)
    restored = [next(iter(message["content"][0])) for message in shopkeeper([]).messages]
    print(f"tools   restored: {restored}")
    return restored


def main() -> int:
    """Run all three; return 0 on success."""
    parser = argparse.ArgumentParser(description="Graph, Swarm and agents as tools.")
    parser.add_argument("--backend", choices=["embedded", "services"], default="embedded")
    parser.add_argument(
        "--json", action="store_true", help="print one JSON object on the last line"
    )
    parser.add_argument("--worker", nargs=2, metavar=("HOT", "DURABLE"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        work_until_killed(MangaMemory.open(*arguments.worker))
        return 1  # it was not killed
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="multi-agent-")))
        backend = (
            stack.enter_context(services.services(folder))
            if arguments.backend == "services"
            else services.embedded(folder)
        )
        os.environ.update(backend.environment)
        memory = MangaMemory.open(backend.hot, backend.durable)
        report: dict[str, Any] = {
            "backend": backend.name,
            "graph": killed_graph(memory, backend.hot, backend.durable),
            "swarm": swarm(memory),
            "tools": agents_as_tools(memory),
        }
        memory.close()
    report["passed"] = (
        report["graph"] == {"killed": True, "asked_again": [NODES[-1]], "order": list(NODES)}
        and report["swarm"] == ["finder", "seller"]
        and report["tools"] == ["text", "toolUse", "toolResult", "text"]
    )
    if arguments.json:
        print(json.dumps(report))
    return 0 if report["passed"] else 1


if __name__ == "__main__":
    sys.exit(main())
