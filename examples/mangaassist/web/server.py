"""Web server: routes, and the loop that sends the status of the tools to the pages."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import socket
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import anyio
import uvicorn
from sse_starlette import EventSourceResponse, ServerSentEvent
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import Route

from mangaassist.assistant.shop import Shop
from mangaassist.stock_server import FAULTS
from mangaassist.web.chat import BusyError, Chat
from mangaassist.web.guard import Guard
from mangaassist.web.visitors import Visitor, Visitors, new_session_id
from mangaassist.web.worker_supervisor import HOST
from strands_manga_memory import ConversationScope, MangaMemoryError

logger = logging.getLogger(__name__)

COOKIE = "mangaassist"
MOST_CHARACTERS = 2_000
_MOST_BYTES = 16_384
_YEAR = 365 * 24 * 3600
_STATUS_INTERVAL_SECONDS, _IDLE_SECONDS = 0.5, 60.0
"""Seconds between two reads of the tools' status, and seconds for which an unused conversation
stays loaded.
"""

_RECONNECT_MS = 500
_QUESTION = "Recommend me something to read."
"""Question for a kill in the middle of an answer, if no answer is under way."""

_UNREADABLE = (
    "Your conversation cannot be read just now. Nothing of it is lost; please try again in a"
    " moment."
)
_PAGES = {"/page.js": "text/javascript", "/page.css": "text/css"}
_FOLDER = Path(__file__).parent


class Web:
    """Web application.

    Args:
        shop: The squad; its ``on_change`` is replaced.
        visitors: Users and their sessions.
        port: Port of the server.
    """

    def __init__(self, shop: Shop, visitors: Visitors, *, port: int) -> None:
        self._shop = shop
        self._visitors = visitors
        self._chats: dict[Visitor, Chat] = {}
        shop.on_change = self._update_view
        self.app = Starlette(
            routes=[
                Route("/", self._page),
                *(Route(path, self._static) for path in _PAGES),
                Route("/events", self._events),
                Route("/messages", self._post_message, methods=["POST"]),
                Route("/sessions", self._begin_session, methods=["POST"]),
                Route("/fork", self._fork, methods=["POST"]),
                Route("/rewind", self._rewind, methods=["POST"]),
                Route("/forget", self._forget, methods=["POST"]),
                Route("/memories", self._delete_memory, methods=["POST"]),
                Route("/stock", self._break_stock, methods=["POST"]),
                Route("/kill", self._kill, methods=["POST"]),
            ],
            middleware=[Middleware(Guard, port=port)],
            lifespan=self._running,
        )

    @asynccontextmanager
    async def _running(self, app: Starlette) -> AsyncIterator[None]:
        polling = asyncio.create_task(self._poll_tool_status())
        try:
            yield
        finally:
            polling.cancel()
            with suppress(TimeoutError):
                async with asyncio.timeout(5):
                    await asyncio.gather(*(chat.finished() for chat in self._chats.values()))

    async def _poll_tool_status(self) -> None:
        """Send changes that no turn causes: a breaker becomes half-open, or a server reconnects."""
        before: object = None
        while True:
            await asyncio.sleep(_STATUS_INTERVAL_SECONDS)
            self._chats = {
                visitor: chat
                for visitor, chat in self._chats.items()
                if not chat.is_idle(_IDLE_SECONDS)
            }
            now = (self._shop.servers.status(), self._shop.servers.fault)
            if now != before:
                for chat in self._chats.values():
                    chat.publish_tool_status()
            before = now

    def _update_view(self, scope: ConversationScope, view: dict[str, Any]) -> None:
        chat = self._chats.get(Visitor(scope.user_id, scope.session_id))
        if chat is not None:
            chat.update_view(scope.agent_id, view)

    # --- routes -----------------------------------------------------------------------------------

    async def _page(self, request: Request) -> Response:
        response = FileResponse(_FOLDER / "page.html")
        if await asyncio.to_thread(self._visitors.find, request.cookies.get(COOKIE)) is None:
            token, _ = await asyncio.to_thread(self._visitors.welcome)
            response.set_cookie(COOKIE, token, max_age=_YEAR, httponly=True, samesite="lax")
        return response

    async def _static(self, request: Request) -> Response:
        path = request.url.path
        return FileResponse(_FOLDER / path.removeprefix("/"), media_type=_PAGES[path])

    async def _events(self, request: Request) -> Response:
        chat = self._chat(await self._visitor(request))
        stopping = (
            anyio.Event()
        )  # set when the server stops: the page is sent away, and its response completed

        async def events() -> AsyncGenerator[ServerSentEvent, None]:
            leaving = asyncio.create_task(stopping.wait())
            leaving.add_done_callback(lambda task: None if task.cancelled() else chat.end())
            try:
                async for data in chat.events():
                    yield ServerSentEvent(data, retry=_RECONNECT_MS)
            except BusyError as error:
                yield _problem(str(error), wait_ms=30_000)
            except MangaMemoryError as error:
                logger.error("error=<%s> | a conversation could not be read", type(error).__name__)
                yield _problem(_UNREADABLE, wait_ms=5_000)
            finally:
                leaving.cancel()

        return EventSourceResponse(
            events(), ping=15, shutdown_event=stopping, shutdown_grace_period=2
        )

    async def _post_message(self, request: Request) -> Response:
        visitor = await self._visitor(request)
        text = (await _json(request)).get("text")
        if not isinstance(text, str) or not text.strip() or len(text) > MOST_CHARACTERS:
            raise HTTPException(422, f"text must have 1 to {MOST_CHARACTERS:,} characters.")
        chat = self._chat(visitor)
        try:
            await chat.opened()
            chat.start_turn(
                text.strip().encode("utf-8", "replace").decode()
            )  # half a character could be shown to nobody
        except BusyError as error:
            raise HTTPException(429, str(error)) from error
        except MangaMemoryError as error:
            raise HTTPException(503, _UNREADABLE) from error
        return JSONResponse({}, status_code=202)

    async def _begin_session(self, request: Request) -> Response:
        await self._leave(await self._visitor(request), self._shop.finish)
        return JSONResponse({})

    async def _fork(self, request: Request) -> Response:
        """Move a visitor to a new session that begins with the turns up to one."""
        visitor, at = await self._turn(request)
        session = new_session_id()
        await asyncio.to_thread(self._shop.fork, visitor.user_id, visitor.session_id, session, at)
        await asyncio.to_thread(self._visitors.begin_session, visitor.user_id, session)
        self._chat(visitor).end()
        return JSONResponse({})

    async def _rewind(self, request: Request) -> Response:
        """Delete the turns after one from the visitor's session."""
        visitor, at = await self._turn(request)
        await asyncio.to_thread(self._shop.rewind, visitor.user_id, visitor.session_id, at)
        self._chats.pop(visitor).end()
        return JSONResponse({})

    async def _turn(self, request: Request) -> tuple[Visitor, int]:
        """Return the visitor, and the time of the turn that the request names."""
        visitor = await self._visitor(request)
        number = (await _json(request)).get("turn")
        chat = self._chat(visitor)
        try:
            await chat.opened()
            return visitor, await chat.time_of(number)
        except BusyError as error:
            raise HTTPException(429, str(error)) from error
        except LookupError as error:
            raise HTTPException(422, "turn must be the number of an answered turn.") from error
        except MangaMemoryError as error:
            raise HTTPException(503, _UNREADABLE) from error

    async def _forget(self, request: Request) -> Response:
        await self._leave(
            await self._visitor(request), lambda user, session: self._shop.forget(user)
        )
        return JSONResponse({})

    async def _delete_memory(self, request: Request) -> Response:
        """Delete one memory of the visitor."""
        visitor = await self._visitor(request)
        memory_id = (await _json(request)).get("delete")
        if not isinstance(memory_id, str):
            raise HTTPException(422, "delete must be the id of a memory.")
        chat = self._chat(visitor)
        try:
            await chat.opened()
            await chat.delete_memory(memory_id)
        except BusyError as error:
            raise HTTPException(429, str(error)) from error
        except ValueError as error:
            raise HTTPException(422, "delete must be the id of a memory.") from error
        except MangaMemoryError as error:
            raise HTTPException(503, _UNREADABLE) from error
        return JSONResponse({})

    async def _leave(self, visitor: Visitor, end: Callable[[str, str], object]) -> None:
        """Move a visitor to a new session, and end the old one."""
        await asyncio.to_thread(self._visitors.begin_session, visitor.user_id)
        chat = self._chat(visitor)
        await chat.finished()
        try:
            await asyncio.to_thread(end, visitor.user_id, visitor.session_id)
        finally:
            chat.end()

    async def _break_stock(self, request: Request) -> Response:
        await self._visitor(request)
        fault = (await _json(request)).get("fault")
        if fault not in FAULTS:
            raise HTTPException(422, f"fault must be one of {', '.join(FAULTS)}.")
        if not await asyncio.to_thread(self._shop.servers.set_fault, fault):
            raise HTTPException(
                503, "The stock server is down; the next question about stock brings it back."
            )
        return JSONResponse({})

    async def _kill(self, request: Request) -> Response:
        """Kill this process during an answer to the visitor. Its parent starts the next one."""
        chat = self._chat(await self._visitor(request))
        try:
            await chat.opened()
            await chat.in_the_middle(_QUESTION)
        except BusyError as error:
            raise HTTPException(429, str(error)) from error
        asyncio.get_running_loop().call_later(0.1, os.kill, os.getpid(), signal.SIGKILL)
        return JSONResponse({}, status_code=202)

    # --- who asks ---------------------------------------------------------------------------------

    async def _visitor(self, request: Request) -> Visitor:
        visitor = await asyncio.to_thread(self._visitors.find, request.cookies.get(COOKIE))
        if visitor is None:
            raise HTTPException(401, "Open the page first.")
        return visitor

    def _chat(self, visitor: Visitor) -> Chat:
        chat = self._chats.get(visitor)
        if chat is None:
            chat = self._chats[visitor] = Chat(self._shop, visitor)
        chat.used()
        return chat


def _problem(text: str, *, wait_ms: int) -> ServerSentEvent:
    return ServerSentEvent(json.dumps({"type": "problem", "text": text}), retry=wait_ms)


async def _json(request: Request) -> dict[str, Any]:
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > _MOST_BYTES:
            raise HTTPException(413, "The request is too large.")
    try:
        found = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise HTTPException(400, "The request is not JSON.") from error
    return found if isinstance(found, dict) else {}


def serve(
    shop: Shop, visitors: Visitors, listening: socket.socket, *, ready: Callable[[str], object]
) -> None:
    """Serve until SIGINT or SIGTERM. ``ready`` gets the address."""
    port = listening.getsockname()[1]
    config = uvicorn.Config(
        Web(shop, visitors, port=port).app,
        log_level="warning",
        server_header=False,
        timeout_graceful_shutdown=5,
    )

    async def run(server: uvicorn.Server) -> None:
        serving: Awaitable[None] = asyncio.ensure_future(server.serve(sockets=[listening]))
        ready(f"http://{HOST}:{port}/")
        await serving

    with suppress(KeyboardInterrupt):  # raised anew when all connections are closed
        asyncio.run(run(uvicorn.Server(config)))
