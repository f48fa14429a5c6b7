"""A conversation as text: what a summarizer reads, and how much of it at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from strands.types.content import Message

from strands_manga_memory.conversation.history.stubs import is_stub
from strands_manga_memory.conversation.history.tool_texts import result_text
from strands_manga_memory.language.pii import redact_identifiers
from strands_manga_memory.messages import turns
from strands_manga_memory.stores.encoding.values import as_json

RESULT_CHARACTERS = 1_500
"""Most characters of one tool result in a transcript: head and tail."""

_SPEAKERS = {"user": "User", "assistant": "Assistant"}
_MEDIA = ("image", "document", "video", "audio")


def transcript(messages: Sequence[Message], *, most: int | None = RESULT_CHARACTERS) -> str:
    """Return messages as lines of text, without reasoning, media, marks and identifiers; of a tool result at most ``most``."""
    return "\n".join(redact_identifiers(line) for message in messages if not is_stub(message) for line in _lines(message, most))


def _lines(message: Message, most: int | None) -> Iterator[str]:
    speaker = _SPEAKERS[message["role"]]
    names = {}
    for block in message["content"]:
        if "text" in block:
            yield f"{speaker}: {block['text']}"
        elif "guardContent" in block:
            yield f"{speaker}: {block['guardContent']['text']['text']}"
        elif "citationsContent" in block:
            yield f"{speaker}: {''.join(item.get('text', '') for item in block['citationsContent'].get('content', []))}"
        elif "toolUse" in block:
            use = block["toolUse"]
            names[use["toolUseId"]] = use["name"]
            yield f"Tool call: {use['name']}({as_json(use['input'])})"
        elif "toolResult" in block:
            yield f"Tool result: {_cut(redact_identifiers(result_text(block['toolResult'])), most)}"
        else:
            yield from (f"{speaker}: [{kind}]" for kind in _MEDIA if kind in block)


def _cut(text: str, most: int | None) -> str:
    if most is None or len(text) <= most:
        return text
    return f"{text[: most * 2 // 3]} [... {len(text) - most} characters ...] {text[len(text) - most // 3 :]}"


def chunks(messages: Sequence[Message], *, most_tokens: int, count: Callable[[str], int]) -> list[list[Message]]:
    """Return the messages in chunks of whole turns of at most ``most_tokens`` each; a larger turn is a chunk of its own."""
    found: list[list[Message]] = []
    room = 0
    for turn in turns(messages):
        tokens = count(transcript(messages[turn.start : turn.stop]))
        if not found or tokens > room:
            found.append([])
            room = most_tokens
        found[-1] += messages[turn.start : turn.stop]
        room -= tokens
    return found


def cut_to(text: str, *, most_tokens: int, count: Callable[[str], int]) -> str:
    """Return a text with its middle left out, so that a summarizer's window can hold it."""
    tokens = count(text)
    if tokens <= most_tokens:
        return text
    kept = int(len(text) * most_tokens / tokens * 0.9)
    return f"{text[: kept // 2]}\n[...]\n{text[len(text) - kept // 2 :]}"
