"""Fields of a conversation that its window lists. Pure."""

from __future__ import annotations

import re

from strands_manga_memory.exceptions import CorruptRecordError
from strands_manga_memory.stores.hot import (
    body_field,
    message_field,
)

MAX_WINDOW = 100_000
"""Most messages of a window; a longer one is damaged."""

_WINDOW_PART = re.compile(rb"(x?)(\d{1,15})|(\d{1,15})-(\d{1,15})")


def window_fields(window: bytes, conversation: str) -> list[str]:
    """Return the fields of the messages that a window lists, in its order.

    Raises:
        CorruptRecordError: The text is not a window, or lists more than ``MAX_WINDOW`` messages.
    """
    names: list[str] = []
    for part in window.split(b",") if window else ():
        found = _WINDOW_PART.fullmatch(part)
        if found is None:
            raise _damaged(conversation, f"its window has the part {part[:40]!r}")
        body, number, first, last = found.groups()
        if number is not None:
            names.append(body_field(int(number)) if body else message_field(int(number)))
        elif int(first) > int(last) or int(last) - int(first) >= MAX_WINDOW:
            raise _damaged(conversation, f"its window has the part {part[:40]!r}")
        else:
            names.extend(message_field(seq) for seq in range(int(first), int(last) + 1))
        if len(names) > MAX_WINDOW:
            raise _damaged(conversation, f"its window lists more than {MAX_WINDOW} messages")
    return names


def _damaged(conversation: str, why: str) -> CorruptRecordError:
    return CorruptRecordError(f"record={conversation!r} is damaged: {why}", record=conversation)
