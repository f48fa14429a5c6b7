"""Text that a request holds before the user's words in the message that opened the turn. Pure.

The message of a request says in its metadata how many such blocks it begins with. Strands sends no metadata to a model.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from strands.types.content import ContentBlock, Message

from strands_manga_memory.messages.message_parts import is_turn_start

INJECTED = "injected_blocks"
"""Name in a message's metadata of the number of blocks before the user's words."""


def opening_position(messages: Sequence[Message]) -> int | None:
    """Return the position of the message that opened the current turn; None if the request is not the user's to make.

    It is the last message of the user without tool results.
    """
    if not messages or messages[-1]["role"] != "user":
        return None
    return next((at for at in reversed(range(len(messages))) if is_turn_start(messages[at])), None)


def opening_id(messages: Sequence[Message]) -> str:
    """Return the tracking id of the message that opened the current turn; an empty text if there is none."""
    at = opening_position(messages)
    return "" if at is None else messages[at].get("tracking_id") or ""


def begins_turn(messages: Sequence[Message]) -> bool:
    """Tell whether a request is the first of its turn: its last message opened the turn."""
    return opening_position(messages) == len(messages) - 1


def injected_count(message: Message) -> int:
    """Return the number of blocks that a message of a request begins with and the user did not say."""
    metadata = message.get("metadata")
    count = metadata.get(INJECTED, 0) if isinstance(metadata, dict) else 0
    return min(count, len(message["content"])) if isinstance(count, int) else 0


def with_injected(messages: Sequence[Message], blocks: Sequence[ContentBlock]) -> list[Message]:
    """Return messages with further blocks directly before the user's words in the message that opened the turn."""
    at = opening_position(messages)
    if at is None or not blocks:
        return list(messages)
    opening = messages[at]
    count = injected_count(opening)
    content = [*opening["content"][:count], *blocks, *opening["content"][count:]]
    metadata = {**(opening.get("metadata") or {}), INJECTED: count + len(blocks)}
    changed = cast("Message", {**opening, "content": content, "metadata": metadata})
    return [*messages[:at], changed, *messages[at + 1 :]]


def without_injected(message: Message) -> Message:
    """Return a message of a request as the history has it; itself if nothing was injected."""
    count = injected_count(message)
    if not count:
        return message
    plain: dict[str, Any] = {**message, "content": message["content"][count:]}
    metadata = {key: value for key, value in plain.pop("metadata").items() if key != INJECTED}
    return cast("Message", {**plain, "metadata": metadata} if metadata else plain)
