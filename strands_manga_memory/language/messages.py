"""The words of a message. Pure."""

from __future__ import annotations

from strands.types.content import Message

from strands_manga_memory.language.injection import harmless


def message_text(message: Message) -> str:
    """Return the texts of a message, guarded and cited ones too, one a line; without tool calls, results and reasoning."""
    texts = []
    for block in message["content"]:
        if "text" in block:
            texts.append(block["text"])
        elif "guardContent" in block:
            texts.append(block["guardContent"]["text"]["text"])
        elif "citationsContent" in block:
            texts += [item["text"] for item in block["citationsContent"].get("content", []) if "text" in item]
    return "\n".join(texts)


def quoted(text: str) -> str:
    """Return a text in which nothing can end a quotation marked by tags; other signs stay as they are, for values."""
    return harmless(text)
