"""Agent in AWS Lambda, whose process is frozen or discarded between calls.

Pending writes would wait in a frozen process, so each call flushes before it returns. All calls of
a process share one memory. Each call builds its agent, because the next call may be of another user
or in another process.
"""

from __future__ import annotations

import os
from typing import Any

from strands.models import Model

from strands_manga_memory import ConversationScope, MangaMemory
from strands_manga_memory.testing import ScriptedModel

model: Model = ScriptedModel(["はい、あります。"])  # in production BedrockModel()
memory = MangaMemory.open(
    hot=os.environ.get("HOT_URL", "memory://"),  # redis://..., in the function's VPC
    durable=os.environ.get(
        "DURABLE_URL", "sqlite:////tmp/sessions.sqlite3"
    ),  # dynamodb://manga_memory?region=us-east-1
)


def handler(event: dict[str, Any], context: object) -> dict[str, Any]:
    """Answer one message of a user."""
    session = memory.session(ConversationScope(event["user"], event["session"]))
    agent = memory.agent(
        model,
        user_id=event["user"],
        session_id=event["session"],
        session_manager=session,
        callback_handler=None,
    )
    try:
        return {"answer": str(agent(event["text"])), "messages": len(agent.messages)}
    finally:
        session.close()  # flush to the durable tier before the process is frozen


if __name__ == "__main__":
    print(handler({"user": "hanako", "session": "s1", "text": "寄生獣はありますか?"}, None))
