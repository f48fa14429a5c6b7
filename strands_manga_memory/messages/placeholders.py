"""Placeholders: texts that stand in a history or a request where a message is missing. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from strands.types.content import Message

STUB = "[\u2026]"
"""Stands where a message was left out; one token in common vocabularies."""

CUT_TEXT = "[This turn was interrupted before it was finished.]"
"""Ends a turn that has no answer, and is the result of a tool call that has none."""

CONVERSATION_START = "[conversation start]"
"""The user's message before a history that starts with the assistant."""

NO_OUTPUT = "[no output]"
"""The text of a tool result without content."""


def is_stub(message: Message) -> bool:
    """Tell whether a message is the placeholder of a message that was left out."""
    content = message["content"]
    return len(content) == 1 and content[0].get("text") == STUB


def is_text(message: Message) -> bool:
    """Tell whether a message holds nothing but text."""
    for block in message["content"]:
        if len(block) != 1 or "text" not in block:
            return False
    return bool(message["content"])


def runs(messages: Sequence[Message], joins: Callable[[int, int], bool] = lambda one, other: True) -> list[list[int]]:
    """Return the positions of messages, those of one speaker with nothing but marks between together; such marks are left out.

    Where a tool call or result is beside it a mark stays; so it does before what the user asks now, and before what was
    answered by something that is shown: the answer is to that alone, and what was asked before had its own.

    Args:
        messages: A history.
        joins: Whether the message at a position may become one with the one at another position behind it; default: it may.
    """
    stubs = list(map(is_stub, messages))
    last = len(messages) - 1
    found: list[list[int]] = []
    mark: int | None = None
    for at, message in enumerate(messages):
        before = found[-1][-1] if found else None
        if mark is None or before is None:
            if stubs[at] and before is not None and at < last and is_text(messages[before]):
                mark = at
            else:
                found.append([at])
            continue
        goes_on = _goes_on(messages[before], message)
        if stubs[at]:
            goes_on = goes_on and at < last and messages[at + 1]["role"] != message["role"] and is_text(messages[at + 1])
        elif message["role"] == "user":
            goes_on = goes_on and at < last and stubs[at + 1]
        if goes_on and not stubs[at] and stubs[before]:
            found[-1] = [at]
        elif not goes_on or not (stubs[at] or joins(before, at)):
            found += [[mark], [at]]
        elif not stubs[at]:
            found[-1].append(at)
        mark = None
    return found


def _goes_on(before: Message, message: Message) -> bool:
    return message["role"] == before["role"] and is_text(before) and is_text(message)
