"""One conversation in its pages. Each page gets the whole state, then each change."""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
import os
import re
import time
from collections.abc import AsyncGenerator
from contextlib import suppress
from typing import Any

from mangaassist.assistant.shop import Shop
from mangaassist.web.visitors import Visitor
from strands_manga_memory import MangaMemoryError

logger = logging.getLogger(__name__)

Event = dict[str, Any]

MOST_TURNS, MOST_PAGES = 3, 8
_MOST_WAITING = 1_000
"""Most events that wait for a page.
A page with more is disconnected, and loads the whole state again.
"""


_READ_AGAIN = (0.5, 1.5, 4.0)
"""Seconds between the reads of the memories after a turn."""


class BusyError(Exception):
    """A visitor has too many turns under way, or too many pages open."""


class Chat:
    """One conversation. All methods run on the server's event loop.

    Args:
        shop: The squad.
        visitor: Owner of the conversation.
    """

    def __init__(self, shop: Shop, visitor: Visitor) -> None:
        self.visitor = visitor
        self._shop = shop
        self._numbers = itertools.count(1)
        self._turns: list[Event] = []
        self._views: dict[str, Any] = {}
        self._agent = ""
        self._known = ""
        self._memories: list[Event] = []
        self._pages: set[asyncio.Queue[str | None]] = set()
        self._running: set[asyncio.Task[None]] = set()
        self._refreshing: asyncio.Task[None] | None = None
        self._opened: asyncio.Task[None] | None = None
        self._used = time.monotonic()

    def used(self) -> None:
        """Record a use of the chat."""
        self._used = time.monotonic()

    def is_idle(self, seconds: float) -> bool:
        """Return whether no page is open, no turn runs, and the last use is ``seconds`` ago."""
        return not self._pages and not self._running and time.monotonic() - self._used > seconds

    async def opened(self) -> None:
        """Read the earlier turns once; after an error of a store, again."""
        if self._opened is None or (
            self._opened.done() and (self._opened.cancelled() or self._opened.exception())
        ):
            self._opened = asyncio.create_task(self._open())
        await asyncio.shield(self._opened)

    async def _open(self) -> None:
        user, session = self.visitor.user_id, self.visitor.session_id
        turns = await self._shop.history(user, session)
        self._views = await asyncio.to_thread(self._shop.views, user, session)
        await self._read_known()
        for past in turns:
            turn = self._new_turn(past.question)
            turn.update(agent=past.agent, answer=past.answer, done=True)
            self._agent = past.agent

    async def _read_known(self) -> None:
        """Read the memories of the visitor."""
        user, session = self.visitor.user_id, self.visitor.session_id
        self._known = await asyncio.to_thread(self._shop.known, user)
        self._memories = await asyncio.to_thread(self._shop.memories, user, session)

    async def _refresh_known(self) -> None:
        """Send the memories again when those of the last message are stored."""
        before = self._memories
        for seconds in _READ_AGAIN:
            await asyncio.sleep(seconds)
            with suppress(MangaMemoryError):
                await self._read_known()
            if self._memories != before:
                self._publish({"type": "known", "known": self._known, "memories": self._memories})
                return

    async def delete_memory(self, memory_id: str) -> None:
        """Delete a memory of the visitor, and send the others to the pages.

        Raises:
            ValueError: The id is not that of a memory.
        """
        await asyncio.to_thread(self._shop.delete_memory, self.visitor.user_id, memory_id)
        await self._read_known()
        self._publish({"type": "known", "known": self._known, "memories": self._memories})

    def start_turn(self, text: str) -> None:
        """Start a turn.

        Raises:
            BusyError: Too many turns are under way.
        """
        if len(self._running) >= MOST_TURNS:
            raise BusyError("Your earlier messages are still being answered.")
        turn = self._new_turn(text)
        self._publish({"type": "turn", "turn": turn})
        task = asyncio.create_task(self._answer(turn))
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def in_the_middle(self, question: str) -> None:
        """Wait up to 5 seconds for a begun answer whose question is stored.

        Asks ``question`` if no answer is under way.

        Raises:
            BusyError: Too many turns are under way.
        """
        if not self._running:
            self.start_turn(question)
        turn = self._turns[-1]
        for _ in range(100):
            is_stored = not self._shop.memory.stats()["unsaved_messages"]
            if (len(turn["answer"]) > 40 and is_stored) or turn["done"]:
                return
            await asyncio.sleep(0.05)

    async def finished(self) -> None:
        """Wait until no turn is under way."""
        while self._running:
            await asyncio.wait(self._running)

    async def time_of(self, number: object) -> int:
        """Return the time of a turn's question in the logs, in milliseconds since 1970.

        Raises:
            BusyError: An answer is under way.
            LookupError: There is no such turn, or the logs do not have it.
        """
        if self._running:
            raise BusyError("An answer is on its way. Please wait for its end.")
        answered = [turn for turn in self._turns if turn["agent"]]
        later = next(
            (at for at, turn in enumerate(reversed(answered)) if turn["id"] == number is not True),
            None,
        )
        turns = await self._shop.history(self.visitor.user_id, self.visitor.session_id)
        if (
            later is None
            or later >= len(turns)
            or turns[-1 - later].question != answered[-1 - later]["question"]
        ):
            raise LookupError(number)
        return turns[-1 - later].at

    async def events(self) -> AsyncGenerator[str, None]:
        """Yield the whole state, then each change, as JSON, until the page or conversation ends.

        Raises:
            BusyError: Too many pages are open.
        """
        await self.opened()
        if len(self._pages) >= MOST_PAGES:
            raise BusyError("This conversation is open in too many pages.")
        page: asyncio.Queue[str | None] = asyncio.Queue(_MOST_WAITING)
        self._pages.add(page)
        try:
            yield _json(self._all())
            while (event := await page.get()) is not None:
                yield event
        finally:
            self._pages.discard(page)

    def _all(self) -> Event:
        return {
            "type": "all",
            "user": self.visitor.user_id,
            "turns": self._turns,
            "views": self._views,
            "agent": self._agent,
            "known": self._known,
            "memories": self._memories,
            "model": self._shop.played_by,
            "worker": os.getpid(),
            **self._tools(),
        }

    def update_view(self, agent: str, view: dict[str, Any]) -> None:
        """Replace the view of an agent, and send its changes to the pages."""
        self._views[agent], self._agent = view, agent
        self._publish({"type": "view", "agent": agent, "view": view})
        turn = next((turn for turn in reversed(self._turns) if not turn["done"]), None)
        if turn is not None:
            turn["used"] = used_in(view["added_texts"])
        if turn is not None and (quotes := quoted_in(view["added_texts"])) != turn["quotes"]:
            turn["quotes"] = quotes
            self._publish({"type": "quotes", "id": turn["id"], "quotes": quotes})

    def publish_tool_status(self) -> None:
        """Send the status of the tools to the pages."""
        self._publish({"type": "tools", **self._tools()})

    def end(self) -> None:
        """Disconnect all pages. They reconnect to the visitor's current conversation."""
        for page in list(self._pages):
            self._send_away(page)

    def _new_turn(self, question: str) -> Event:
        turn: Event = {
            "id": next(self._numbers),
            "question": question,
            "agent": "",
            "answer": "",
            "quotes": [],
            "done": False,
        }
        self._turns.append(turn)
        return turn

    async def _answer(self, turn: Event) -> None:
        user, session = self.visitor.user_id, self.visitor.session_id
        try:
            async for piece in self._shop.ask(user, session, turn["question"]):
                turn["agent"] = piece.agent
                if piece.answer is None:
                    turn["answer"] += piece.text
                    self._publish(
                        {"type": "text", "id": turn["id"], "agent": piece.agent, "text": piece.text}
                    )
                else:
                    turn["answer"] = piece.answer
            await self._read_known()
        except Exception as error:  # what it says may be private
            logger.error("error=<%s> | a turn failed", type(error).__name__)
            turn["answer"] = turn["answer"] or "Sorry, something went wrong. Please try again."
        turn["done"] = True
        self._publish(
            {"type": "done", "turn": turn, "known": self._known, "memories": self._memories}
        )
        self.publish_tool_status()
        if self._refreshing is not None:
            self._refreshing.cancel()
        self._refreshing = asyncio.create_task(self._refresh_known())

    def _tools(self) -> Event:
        return {"tools": self._shop.servers.status(), "fault": self._shop.servers.fault}

    def _publish(self, event: Event) -> None:
        data = _json(event)  # as it is now
        for page in list(self._pages):
            if page.qsize() < _MOST_WAITING - 1:
                page.put_nowait(data)
            else:
                self._send_away(page)

    def _send_away(self, page: asyncio.Queue[str | None]) -> None:
        self._pages.discard(page)
        if not page.full():
            page.put_nowait(None)


_MEMORIES = {
    "user memory": ("<user_preferences>", "<user_memory>"),
    "recall of earlier messages": ("<recalled_history>",),
    "state of the task": ("<conversation_state>",),
}
"""Tags of injected texts in a request, keyed by the name of the memory."""


def used_in(texts: list[str]) -> list[str]:
    """Return the names of the memories whose texts are in a request."""
    request = "\n".join(texts)
    return [name for name, tags in _MEMORIES.items() if any(tag in request for tag in tags)]


_QUOTES = re.compile(r"<recalled_history>\n(.*?)</recalled_history>", re.DOTALL)


def quoted_in(texts: list[str]) -> list[str]:
    """Return the messages that recall quoted in a request, without the introduction."""
    found = next(filter(None, map(_QUOTES.search, texts)), None)
    return [] if found is None else [line for line in found[1].splitlines() if line.startswith("[")]


def _json(event: Event) -> str:
    """Return an event as JSON. Lone surrogates become escapes, so that the event can be sent."""
    return json.dumps(event, ensure_ascii=False).encode("utf-8", "backslashreplace").decode()
