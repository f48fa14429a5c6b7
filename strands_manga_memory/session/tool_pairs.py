"""Tool results that answer nothing: no model takes them. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from strands.types.content import Message

from strands_manga_memory.messages import tool_result_ids, tool_use_ids


def without_orphans(messages: Iterable[Message]) -> list[Message]:
    """Return messages without results of calls that the message before does not make.

    What is no orphan stays as it is, in the same objects; a message that had nothing else goes.
    """
    kept: list[Message] = []
    for message in messages:
        calls = set(tool_use_ids(kept[-1])) if kept else set()
        if calls.issuperset(tool_result_ids(message)):
            kept.append(message)
            continue
        content = [block for block in message["content"] if calls.issuperset(tool_result_ids({"content": [block]}))]
        if content:
            kept.append({**message, "content": content})
    return kept
