"""A2A server: each context of a client is a session that survives restarts of the server."""

from __future__ import annotations

from strands import Agent
from strands.models import Model
from strands.multiagent.a2a import A2AServer

from strands_manga_memory import MangaMemory
from strands_manga_memory.testing import ScriptedModel

model: Model = ScriptedModel(lambda messages: f"{len(messages)}通目です。")
memory = MangaMemory.open()


def build(context_id: str) -> Agent:
    """Return the restored agent of a context. Take the user from your authentication."""
    return memory.agent(
        model,
        user_id="a2a",
        session_id=context_id,
        name="librarian",
        description="Knows the catalogue of a manga shop.",
        callback_handler=None,
    )


server = A2AServer(
    agent_factory=build, http_url="http://127.0.0.1:9000", enable_a2a_compliant_streaming=True
)
app = server.to_starlette_app()  # uvicorn a2a_server:app --port 9000

if __name__ == "__main__":
    server.serve()
