"""Marks that keep the place of messages left out, so that roles alternate although a question or an answer has gone."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from strands.types.content import Message

from strands_manga_memory.joining import may_join, parted
from strands_manga_memory.messages import id_of
from strands_manga_memory.messages.placeholders import STUB, is_stub, runs

__all__ = ["STUB", "as_said", "condensed", "is_between", "is_stub", "runs", "stub_of"]

_SHORT = 24
"""Texts of fewer characters stay messages of their own."""

_BETWEEN = "+"
"""How the id of a mark ends that is made of that of the message before it."""


def stub_of(message: Message) -> Message:
    """Return the mark that takes the place of a message: same role, same id, same custom metadata."""
    stub: Message = {"role": message["role"], "content": [{"text": STUB}]}
    if id_ := message.get("tracking_id"):
        stub["tracking_id"] = id_
    if custom := (message.get("metadata") or {}).get("custom"):  # it says what a message is for, not what it says
        stub["metadata"] = {"custom": custom}
    return stub


def as_said(messages: Iterable[Message]) -> list[Message]:
    """Return a history as it was said, message by message: joined ones taken apart, with marks between their parts.

    For whoever looks for a message by its ``tracking_id``. Messages that were not joined are the same objects.
    """
    said: list[Message] = []
    for message in messages:
        parts = parted(message) if "metadata" in message else (message,)
        for part in parts:
            if part is not parts[0]:
                said.append(_mark_after(said[-1]))
            said.append(part)
    return said


def _mark_after(message: Message) -> Message:
    role: Any = "assistant" if message["role"] == "user" else "user"
    return {"role": role, "content": [{"text": STUB}], "tracking_id": f"{id_of(message)}{_BETWEEN}"}


def is_between(message: Message) -> bool:
    """Whether a message is a mark that only stands between two others: of which message is not known."""
    return id_of(message).endswith(_BETWEEN) and is_stub(message)


def condensed(said: Sequence[Message]) -> list[list[int]]:
    """Return the positions of what is one message each in a history; of marks that it does without in none.

    See :func:`runs`. The last message stays alone, as Strands may add to it; so does one that has a neighbour of its own role,
    as somebody said them so, and a short one: "yes, at six" is a reply, and would be read as a part of something else.
    """
    roles = [None, *(message["role"] for message in said), None]

    def may(at: int) -> bool:
        return roles[at + 1] not in (roles[at], roles[at + 2]) and not _is_short(said[at])

    def joins(one: int, other: int) -> bool:
        return other < len(said) - 1 and may(one) and may(other) and may_join(said[one], said[other])

    return runs(said, joins)


def _is_short(message: Message) -> bool:
    return sum(len(block.get("text", "")) for block in message["content"]) < _SHORT
