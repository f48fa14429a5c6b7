"""Query of a memory search: the user's own words of the current turn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from strands.memory import InjectionQueryContext
from strands.types.content import Message

from strands_manga_memory.language.dialogue_acts import SMALL_TALK_ACTS, dialogue_act
from strands_manga_memory.messages import is_turn_start
from strands_manga_memory.messages.injection import message_text, strip_own_blocks


def extract_user_query(context: InjectionQueryContext, **_: Any) -> str | None:
    """Return the user's words of the current turn, without the blocks that this package injects into a request.

    Pass it to a ``MemoryManager`` that you build yourself. Strands' default query is the whole last message, with the text
    that plugins added to it: cart, preferences, phone numbers.

    Args:
        context: The messages of the request, as Strands passes them.

    Returns:
        The query; None if the user wrote no text, or only a greeting, thanks or a farewell: Strands then skips the search.

    Example:
        ``MemoryManager(stores=[store], injection={"query": extract_user_query})``
    """
    return user_query(context.messages)


def user_query(messages: Sequence[Message]) -> str | None:
    """Return the user's words in the message that opened the last turn; None if they are small talk, or there are none."""
    opening = next(filter(is_turn_start, reversed(messages)), None)
    words = "" if opening is None else strip_own_blocks(message_text(opening)).strip()
    return words if words and dialogue_act(words, "user") not in SMALL_TALK_ACTS else None
