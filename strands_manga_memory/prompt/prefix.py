"""Comparison of the beginnings of two requests, which a provider's prompt cache can serve if they are equal."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from itertools import takewhile
from typing import Any, NamedTuple

from strands.middleware import InvokeModelContext
from strands.types.content import ContentBlock

from strands_manga_memory.messages.injection import injected_count
from strands_manga_memory.messages.texts import estimate_tokens


class MessageFingerprint(NamedTuple):
    """Hash of a message's content in a request, with the message's tracking id.

    Attributes:
        content: Hash of the role and the content blocks. Blocks that were added only for this request are left out.
        tracking_id: Strands' id of the message, or an empty string.
    """

    content: int
    tracking_id: str


def fingerprint_messages(context: InvokeModelContext) -> list[MessageFingerprint]:
    """Return the content hash and tracking id of each message of a request."""
    return [
        MessageFingerprint(
            hash((message["role"], *map(_block_text, _stored_blocks(context, at)))), message.get("tracking_id") or ""
        )
        for at, message in enumerate(context.messages)
    ]


def count_shared_messages(previous: Sequence[MessageFingerprint], current: Sequence[MessageFingerprint]) -> int:
    """Count the messages at the beginning of two requests that have equal content."""
    pairs = zip(previous, current, strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0].content == pair[1].content, pairs))


def count_repeated_tokens(
    context: InvokeModelContext,
    current: Sequence[MessageFingerprint],
    previous: Sequence[MessageFingerprint],
    shared: int,
) -> int:
    """Estimate the tokens of messages that repeat the previous request, but that the prompt cache cannot serve.

    These are the messages after the first difference between the two requests.

    Args:
        context: Current request.
        current: Fingerprints of the messages in the current request.
        previous: Fingerprints of the messages in the previous request.
        shared: Number of equal messages at the beginning of both requests.
    """
    known = {message.tracking_id for message in previous}
    end = next((at + 1 for at in reversed(range(shared, len(current))) if current[at].tracking_id in known), shared)
    return sum(estimate_tokens(_block_text(block)) for at in range(shared, end) for block in _stored_blocks(context, at))


def fingerprint(value: Any) -> str:
    """Return a short hash of a value, which is the same in every process."""
    text = json.dumps(value, sort_keys=True, ensure_ascii=False, default=repr)
    return hashlib.blake2b(text.encode(errors="surrogatepass"), digest_size=8).hexdigest()


def _stored_blocks(context: InvokeModelContext, at: int) -> Sequence[ContentBlock]:
    """Return the content blocks of message number ``at`` of a request, without blocks that were added only for this request."""
    message = context.messages[at]
    added = context.dynamic_trailing_blocks if at == len(context.messages) - 1 else 0
    return message["content"][injected_count(message) : len(message["content"]) - added]


def _block_text(block: ContentBlock) -> str:
    if "text" in block:  # the same object in every call, so Python has cached its hash
        return block["text"]
    return json.dumps(block, sort_keys=True, ensure_ascii=False, default=repr)
