"""Agent in Bedrock AgentCore, where a session's process ends after minutes without requests.

AgentCore provides the session of a request; the payload has the user, from your login. The turn is
in the durable tier before the answer is returned, so the process may end at any time.
"""

from __future__ import annotations

import asyncio
import os
from typing import Any

from bedrock_agentcore.runtime import BedrockAgentCoreApp, RequestContext
from strands.models import Model

from strands_manga_memory import ConversationScope, MangaMemory
from strands_manga_memory.testing import ScriptedModel

model: Model = ScriptedModel(
    lambda messages: f"{len(messages)}通目です。"
)  # in production BedrockModel()
memory = MangaMemory.open(durable=os.environ.get("DURABLE_URL", "sqlite:////tmp/sessions.sqlite3"))
app = BedrockAgentCoreApp()


@app.entrypoint
async def invoke(payload: dict[str, Any], context: RequestContext) -> dict[str, Any]:
    """Answer one prompt."""
    scope = ConversationScope(payload["user"], context.session_id or "default")
    session = memory.session(scope)
    agent = await memory.agent_async(
        model, scope=scope, session_manager=session, callback_handler=None
    )
    try:
        return {"answer": str(await agent.invoke_async(payload["prompt"])).strip()}
    finally:
        await asyncio.to_thread(session.close)  # flushes to the durable tier, off the event loop


if __name__ == "__main__":
    app.run()
