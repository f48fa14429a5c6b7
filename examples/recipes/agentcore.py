"""An agent in the runtime of Bedrock AgentCore: each session has a process of its own, which ends after minutes of silence.

AgentCore says which session a request is of; the payload says which user, behind your login. What was said is in the durable
tier before the answer goes out, so it does not matter when the process ends.
"""

from __future__ import annotations

import asyncio
import os
from typing import Any

from bedrock_agentcore.runtime import BedrockAgentCoreApp, RequestContext
from strands.models import Model

from strands_manga_memory import ConversationScope, MangaMemory
from strands_manga_memory.testing import ScriptedModel

model: Model = ScriptedModel(lambda messages: f"{len(messages)}通目です。")  # in production BedrockModel()
memory = MangaMemory.open(durable=os.environ.get("DURABLE_URL", "sqlite:////tmp/sessions.sqlite3"))
app = BedrockAgentCoreApp()


@app.entrypoint
async def invoke(payload: dict[str, Any], context: RequestContext) -> dict[str, Any]:
    """Answer one prompt."""
    scope = ConversationScope(payload["user"], context.session_id or "default")
    session = memory.session(scope)
    await session.prefetch()
    agent = memory.agent(
        model, user_id=scope.user_id, session_id=scope.session_id, session_manager=session, callback_handler=None
    )
    try:
        return {"answer": str(await agent.invoke_async(payload["prompt"])).strip()}
    finally:
        await asyncio.to_thread(session.close)  # in the durable tier, off the event loop


if __name__ == "__main__":
    app.run()
