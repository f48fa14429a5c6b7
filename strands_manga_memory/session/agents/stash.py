"""Stash: what Strands' context manager put aside, given back to it from the log, which has the originals."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable, Coroutine, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from strands import Agent
from strands.types.content import Message

from strands_manga_memory.exceptions import StoreError
from strands_manga_memory.messages import tool_result_ids
from strands_manga_memory.stores.encoding.codec import dump

logger = logging.getLogger(__name__)

_REFERENCES = re.compile(r"\[refs?: ([^\]\n\\]{1,1000})\]")
"""How a message names what was put aside; a reference is a ``toolUseId`` or ``tracking_id``, an underscore and a number."""


def give_back(agent: Agent, history: Callable[[], Iterable[Message]]) -> None:
    """Fill the stash of an agent with what its messages refer to, unless its stash outlives the process by itself.

    Nothing is read where its messages refer to nothing. What cannot be read is left out: an answer without it beats no agent.
    """
    manager = agent.context_manager
    if manager is None or manager.stash is None or manager.stash_is_durable:
        return
    wanted = references(agent.messages)
    if not wanted:
        return
    stash = manager.stash
    try:
        originals = [message for message in history() if wanted & {message.get("tracking_id"), *tool_result_ids(message)}]
    except StoreError as error:
        logger.warning("error=<%s> | what was put aside cannot be read just now, it is not restored", type(error).__name__)
        return

    async def store() -> None:
        for message in originals:
            await stash.store_message(message)

    _run(store())


def replacement(agent: Agent | None, message: Message) -> Callable[[], None] | None:
    """Return a function that puts a redacted message in place of the original in an agent's stash; None without a stash.

    The function may do I/O, and runs off an event loop.
    """
    manager = agent.context_manager if agent is not None else None
    stash = manager.stash if manager is not None else None
    return None if stash is None else lambda: asyncio.run(stash.store_message(message))


def references(messages: Iterable[Message]) -> set[str | None]:
    """Return the ``toolUseId`` and ``tracking_id`` of what messages refer to."""
    found: set[str | None] = set()
    for message in messages:
        for names in _REFERENCES.findall(dump(message["content"]).decode()):
            found |= {name.strip().rpartition("_")[0] for name in names.split(",")}
    return found


def _run(work: Coroutine[Any, Any, None]) -> None:
    """Run it to its end, whether this thread has an event loop or not."""
    with ThreadPoolExecutor(1) as thread:
        thread.submit(asyncio.run, work).result()
