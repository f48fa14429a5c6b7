"""The common beginning of two requests to a model, which a provider's prompt cache can have. Pure."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from itertools import takewhile
from typing import Any, NamedTuple

from strands.middleware import InvokeModelContext
from strands.types.content import ContentBlock

from strands_manga_memory.messages.tokens import estimate_tokens
from strands_manga_memory.messages.turn_context import injected_count


class Mark(NamedTuple):
    """What tells a message of a request from others: what it says, and its tracking id."""

    said: int
    id: str


def marks(context: InvokeModelContext) -> list[Mark]:
    """Return a mark for each message of a request; what it says is the same number as long as the message says the same.

    Blocks that were added for this request do not count.
    """
    return [
        Mark(hash((message["role"], *map(_text, _lasting(context, at)))), message.get("tracking_id") or "")
        for at, message in enumerate(context.messages)
    ]


def shared(before: Sequence[Mark], now: Sequence[Mark]) -> int:
    """Return with how many messages that say the same both requests begin."""
    return sum(1 for _ in takewhile(lambda pair: pair[0].said == pair[1].said, zip(before, now, strict=False)))


def repeated_tokens(context: InvokeModelContext, now: Sequence[Mark], before: Sequence[Mark], same: int) -> int:
    """Return the tokens, by estimate, of the history of before this call that is no part of the common beginning."""
    known = {mark.id for mark in before}
    end = next((at + 1 for at in reversed(range(same, len(now))) if now[at].id in known), same)
    return sum(estimate_tokens(_text(block)) for at in range(same, end) for block in _lasting(context, at))


def fingerprint(value: Any) -> str:
    """Return a short text that tells one value from others, the same in each process."""
    text = json.dumps(value, sort_keys=True, ensure_ascii=False, default=repr)
    return hashlib.blake2b(text.encode(errors="surrogatepass"), digest_size=8).hexdigest()


def _lasting(context: InvokeModelContext, at: int) -> Sequence[ContentBlock]:
    message = context.messages[at]
    added = context.dynamic_trailing_blocks if at == len(context.messages) - 1 else 0
    return message["content"][injected_count(message) : len(message["content"]) - added]


def _text(block: ContentBlock) -> str:
    if "text" in block:  # the very object from call to call as long as the message stays, so its hash is known
        return block["text"]
    return json.dumps(block, sort_keys=True, ensure_ascii=False, default=repr)
