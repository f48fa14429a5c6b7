"""The amount of work that a trim is, and whether an event loop can wait for it."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable, Sequence
from enum import Enum
from typing import NamedTuple

from strands.types.content import Message

from strands_manga_memory.conversation.importance.weighing.notes import Notes
from strands_manga_memory.conversation.tokens.ledger import same_objects, size_of

logger = logging.getLogger(__name__)

_LARGE = 50_000
"""Messages of more characters and bytes together are counted, and chosen from, in a thread."""


class Work(Enum):
    """What there is to do: nothing, something, or something that may take a second."""

    NONE = 0
    SHORT = 1
    LONG = 2


class Counted(NamedTuple):
    """The beginning of a history that was counted, and its tokens."""

    messages: Sequence[Message]
    tokens: int


NOT_COUNTED = Counted((), 0)


def counted(messages: Sequence[Message], tokens: int | None, notes: Notes) -> Counted:
    """Return a history of so many tokens, but for its last message, which Strands may add to; nothing if they are not known."""
    if tokens is None or not messages:
        return NOT_COUNTED
    return Counted(messages[:-1], tokens - notes.total(messages[-1:]))


def work_on(
    messages: Sequence[Message], notes: Notes, is_over: Callable[[int], bool], known: Counted = NOT_COUNTED
) -> tuple[Work, int]:
    """Return what there is to do to have messages within the budget, and their tokens.

    They are not counted if that alone is long work, and their size is not looked at if there is nothing to do.

    Args:
        messages: The messages.
        notes: What is known of them.
        is_over: Whether they are over the budget with so many tokens.
        known: What need not be looked at again if the messages begin with it.
    """
    before = known if same_objects(messages[: len(known.messages)], known.messages) else NOT_COUNTED
    tokens, new = notes.counted(messages[len(before.messages) :])
    tokens += before.tokens
    if any(size > _LARGE for size in itertools.accumulate(map(size_of, new))):
        return Work.LONG, 0
    try:
        tokens += notes.total(new)
        if not is_over(tokens):
            return Work.NONE, tokens
    except Exception:
        logger.debug("the messages could not be counted", exc_info=True)
        return Work.SHORT, 0
    return Work.LONG if _size(messages) > _LARGE else Work.SHORT, tokens


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
