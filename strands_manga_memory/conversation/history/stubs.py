"""Marks that keep the place of messages left out, so that roles alternate although a question or an answer has gone."""

from __future__ import annotations

from strands.types.content import Message

from strands_manga_memory.language.texts.marks import STUB


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


def joined(messages: list[Message]) -> list[Message]:
    """Return what a model is sent: marks between two texts of one speaker go, and the texts become one message.

    A model that is shown marks as answers might answer with one. Where a tool call or result is beside it the mark stays; so it
    does before what the user asks now, and before what was answered by something that is shown: the answer is to that alone,
    and what was asked before had its own. The list itself is returned if it holds no marks; no message is changed in place.
    """
    stubs = list(map(is_stub, messages))
    if True not in stubs:
        return messages
    out: list[Message] = []
    pending: Message | None = None
    last = len(messages) - 1
    for at, (message, stub) in enumerate(zip(messages, stubs, strict=True)):
        if stub and pending is None and 0 < at < last and is_text(out[-1]):
            pending = message
            continue
        if pending is not None:
            stands_alone = message["role"] == "user" and not stub and not (at < last and stubs[at + 1])
            if message["role"] == out[-1]["role"] and is_text(message) and not stands_alone:
                if not stub:
                    out[-1] = {**out[-1], "content": [*out[-1]["content"], *message["content"]]}
                pending = None
                continue
            out.append(pending)
            pending = None
        out.append(message)
    return out
