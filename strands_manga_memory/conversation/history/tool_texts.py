"""What a tool told, in whatever shape it did: as text, and what is no text. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from strands.types.content import Message

from strands_manga_memory.messages import blocks_of, result_texts
from strands_manga_memory.stores.encoding.values import as_json


def results_of(message: Message) -> Iterator[Any]:
    """Return the tool results in a message."""
    return (block["toolResult"] for block in message["content"] if "toolResult" in block)


def result_text(result: Any) -> str:
    """Return the texts and JSON of a tool result as one text."""
    return "\n".join(result_texts(result, as_json))


def media_of(result: Any) -> list[dict[str, Any]]:
    """Return the blocks of a tool result that are no text and no JSON."""
    return [block for block in blocks_of(result["content"]) if "text" not in block and "json" not in block]
