"""A streaming chat over HTTP with FastAPI.

``agent_async`` reads the session without blocking the event loop. Saving does not block it either.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI, Header, Request
from fastapi.responses import StreamingResponse
from strands.models import Model

from strands_manga_memory import ConversationScope, MangaMemory
from strands_manga_memory.testing import ScriptedModel

model: Model = ScriptedModel(lambda messages: f"{len(messages)}通目です。")


@asynccontextmanager
async def opened(app: FastAPI) -> AsyncIterator[None]:
    """Open the memory while the server runs. Closing flushes the saved sessions."""
    async with (
        MangaMemory.from_env() as app.state.memory
    ):  # MANGA_MEMORY_HOT_URL, MANGA_MEMORY_DURABLE_URL
        yield


app = FastAPI(lifespan=opened)  # uvicorn web_streaming:app


@app.post("/chat/{session}")
async def chat(session: str, request: Request, x_user: str = Header()) -> StreamingResponse:
    """Stream the answer to the body's text. Take the user id from your login only."""
    memory: MangaMemory = app.state.memory
    scope = ConversationScope(x_user, session)
    agent = await memory.agent_async(model, scope=scope, callback_handler=None)
    text = (await request.body()).decode()

    async def answer() -> AsyncIterator[str]:
        async for event in agent.stream_async(text):
            if "data" in event:
                yield event["data"]

    return StreamingResponse(answer(), media_type="text/plain; charset=utf-8")
