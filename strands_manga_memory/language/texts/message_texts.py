"""message_text: the words of a message. Pure."""

from __future__ import annotations

from typing import Any

from strands.types.content import Message

from strands_manga_memory.language.texts.injection import harmless
from strands_manga_memory.language.texts.marks import without_marks


def message_text(message: Message) -> str:
    """Return what a message says, guarded and cited texts too, one a line; without tool calls, results, reasoning and marks."""
    texts: list[Any] = []
    for block in message["content"]:
        if "text" in block:
            texts.append(block["text"])
        elif "guardContent" in block:
            texts.append(block["guardContent"]["text"]["text"])
        elif "citationsContent" in block:
            texts += [item["text"] for item in block["citationsContent"].get("content", []) if "text" in item]
    return without_marks("\n".join(text for text in texts if isinstance(text, str)))  # blocks may be of any shape


def quoted(text: str) -> str:
    """Return a text in which nothing can end a quotation marked by tags; other signs stay as they are, for values."""
    return harmless(text)
