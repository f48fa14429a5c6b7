"""Marks that keep the place of messages left out, so that roles alternate although a question or an answer has gone."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from strands.types.content import Message

from strands_manga_memory.joining import may_join, parted
from strands_manga_memory.language.texts.marks import STUB
from strands_manga_memory.messages import id_of

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


def is_stub(message: Message) -> bool:
    """Whether the message is such a mark."""
    content = message["content"]
    return len(content) == 1 and content[0].get("text") == STUB


def is_text(message: Message) -> bool:
    """Whether the message is nothing but text, so that a mark can take its place."""
    for block in message["content"]:
        if len(block) != 1 or "text" not in block:
            return False
    return bool(message["content"])


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


def as_sent(messages: list[Message]) -> list[Message]:
    """Return what a model is sent: marks between two texts of one speaker go, and the texts become one message.

    A model that is shown marks as answers might answer with one. The list itself is returned if nothing in it is to be joined;
    no message is changed in place.
    """
    found = runs(messages)
    if len(found) == len(messages):
        return messages
    return [_of_run([messages[at] for at in run]) for run in found]


def _of_run(run: list[Message]) -> Message:
    return run[0] if len(run) == 1 else {**run[0], "content": [block for message in run for block in message["content"]]}
