"""The amount of work that a trim is, and whether an event loop can wait for it."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable, Sequence
from enum import Enum
from typing import TypeVar

from strands.types.content import Message

from strands_manga_memory.conversation.importance.weighing.notes import Notes
from strands_manga_memory.conversation.tokens.ledger import same_objects, size_of

logger = logging.getLogger(__name__)

_T = TypeVar("_T")

_LARGE = 50_000
"""Messages of more characters and bytes together are counted, and chosen from, in a thread."""

_NOTHING: tuple[Sequence[Message], int] = ((), 0)


class Work(Enum):
    """What there is to do: nothing, something, or something that may take a second."""

    NONE = 0
    SHORT = 1
    LONG = 2

    async def done(self, work: Callable[[], _T]) -> _T:
        """Do it, and return what comes of it: in a thread if it may take a second."""
        return await asyncio.to_thread(work) if self is Work.LONG else work()


class Workload:
    """Says how much work it is to have messages within a budget; it need not count the beginning of a history again."""

    __slots__ = ("_counted", "_is_over", "_notes")

    def __init__(self, notes: Notes, is_over: Callable[[Sequence[Message], int], bool]) -> None:
        self._notes = notes
        self._is_over = is_over
        self._counted = _NOTHING

    def of(self, messages: Sequence[Message], beside: int = 0, *, anew: bool = True) -> tuple[Work, int]:
        """Return what there is to do to have messages within the budget, with ``beside`` other tokens, and their tokens.

        They are not counted if that alone is long work, and their size is not looked at if there is nothing to do. Unless they
        are looked at ``anew``, those that were counted before are not.
        """
        counted, tokens = _NOTHING if anew else self._counted
        before = counted[:-1]
        if not same_objects(messages[: len(before)], before):
            before, tokens = _NOTHING
        known, new = self._notes.counted(messages[len(before) :])
        tokens += known
        if any(size > _LARGE for size in itertools.accumulate(map(size_of, new))):
            return Work.LONG, 0
        try:
            tokens += self._notes.total(new)
            if not self._is_over(messages, tokens + beside):
                return Work.NONE, tokens
        except Exception:
            logger.debug("the messages could not be counted", exc_info=True)
            return Work.SHORT, 0
        return Work.LONG if _size(messages) > _LARGE else Work.SHORT, tokens

    async def off_loop(self, messages: Sequence[Message], work: Callable[[], _T]) -> _T:
        """Do work on messages, and return what comes of it: in a thread if it may take a second, as counting them may."""
        return await self.of(messages)[0].done(work)

    def holds_up(self, messages: Sequence[Message]) -> bool:
        """Whether work on messages must not be done here: it may take long, and an event loop would wait for it."""
        return on_event_loop() and self.of(messages)[0] is Work.LONG

    def counted(self, messages: Sequence[Message], tokens: int) -> None:
        """Take note that messages have so many tokens; of the last one nothing, as Strands may add to it."""
        self._counted = messages, tokens - self._notes.total(messages[-1:])

    def forget(self) -> None:
        """Count all of a history the next time."""
        self._counted = _NOTHING


def _size(messages: Sequence[Message]) -> int:
    blocks = (block for message in messages for block in message["content"])
    return sum(size_of(block.get("text", block) if isinstance(block, dict) else block) for block in blocks)  # most are texts


def on_event_loop() -> bool:
    """Whether this thread runs an event loop."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
