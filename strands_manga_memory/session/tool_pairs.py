"""Tool calls and results that lack their other half: no model takes them. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from strands.types.content import Message

from strands_manga_memory.messages import tool_result_ids, tool_use_ids
from strands_manga_memory.session.core.showing import closing_notes, cut_results


def paired(messages: Iterable[Message]) -> list[Message]:
    """Return messages in which every tool call but those of the last one is answered by the next message, and nothing else is.

    Results of calls that the message before does not make go, with their message if it holds nothing else. A call without a
    result gets one that says that it was cut off; before a message of the user's own, a note of the assistant's follows it, so
    that roles alternate. What has its other half stays as it is, in the same objects.
    """
    kept: list[Message] = []
    for message in messages:
        calls = tool_use_ids(kept[-1]) if kept else []
        results = set(tool_result_ids(message))
        if results == set(calls):
            kept.append(message)
            continue
        content = [block for block in message["content"] if set(calls).issuperset(tool_result_ids({"content": [block]}))]
        if message["content"] and not content:
            continue
        if results.isdisjoint(calls):
            kept.extend(_notes(kept[-1], before=message["role"]) if calls else ())
        else:
            content = [*cut_results([call for call in calls if call not in results]), *content]
        kept.append({**message, "content": content} if content != message["content"] else message)
    return kept


def _notes(last: Message, *, before: str) -> list[Any]:
    """Return what answers all calls of a message, so that one of role ``before`` may follow."""
    notes = closing_notes(last, f"cut-{last.get('tracking_id') or ''}")
    return notes if before == "user" else notes[:1]
