"""Graph of two agents that resumes after a restart. Only the graph has a session manager."""

from __future__ import annotations

from strands.models import Model
from strands.multiagent import GraphBuilder

from strands_manga_memory import ConversationScope, MangaMemory
from strands_manga_memory.testing import ScriptedModel

model: Model = ScriptedModel()


def main() -> None:
    """Run the graph once, and print the stored result."""
    scope = ConversationScope("hanako", "graph-1")
    with MangaMemory.open() as memory:
        asked = {"user_id": scope.user_id, "session_id": scope.session_id}
        builder = GraphBuilder()
        for name in ("finder", "writer"):
            agent = memory.agent(
                model, agent_id=name, session=False, callback_handler=None, **asked
            )
            builder.add_node(agent, name)
        builder.add_edge("finder", "writer")
        builder.set_graph_id("shop")
        builder.set_max_node_executions(10)
        builder.set_session_manager(memory.session(scope))
        result = builder.build()("Which volume of 寄生獣 comes next?")
        print(result.status.value, [node.node_id for node in result.execution_order])


if __name__ == "__main__":
    main()
