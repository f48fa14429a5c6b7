"""Tool calls and results that lack their other half: no model takes them. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from strands.types.content import Message

from strands_manga_memory.messages import is_of_tools, tool_result_ids, tool_use_ids
from strands_manga_memory.session.author.showing import closing_notes, cut_results, note_between


def paired(messages: Iterable[Message]) -> list[Message]:
    """Return messages in which every tool call but those of the last one is answered by the next message, and nothing else is.

    Results of calls that the message before does not make go, with their message if it holds nothing else. A call without a
    result gets one that says that it was cut off. Notes keep roles alternating where that would end it. What has its other half
    stays as it is, in the same objects.
    """
    messages = list(messages)
    if not any(map(is_of_tools, messages)):
        return messages
    kept: list[Message] = []
    has_gap = False
    for message in messages:
        calls = tool_use_ids(kept[-1]) if kept else []
        results = set(tool_result_ids(message))
        if results != set(calls):
            content = [block for block in message["content"] if set(calls).issuperset(tool_result_ids({"content": [block]}))]
            if message["content"] and not content:
                has_gap = True
                continue
            if not results.isdisjoint(calls):
                content = [*cut_results([call for call in calls if call not in results]), *content]
            message = {**message, "content": content} if content != message["content"] else message
        if calls and results.isdisjoint(calls):
            kept.extend(_notes(kept[-1], before=message["role"]))
        elif has_gap and kept and kept[-1]["role"] == message["role"]:
            kept.append(note_between(kept[-1], message))
        kept.append(message)
        has_gap = False
    return kept


def _notes(last: Message, *, before: str) -> list[Any]:
    """Return what answers all calls of a message, so that one of role ``before`` may follow."""
    notes = closing_notes(last, f"cut-{last.get('tracking_id') or ''}")
    return notes if before == "user" else notes[:1]
