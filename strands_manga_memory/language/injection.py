"""What a request to the model is told beside the conversation: texts for one call, or for the stable system side.

Every plugin that adds something uses these two functions. Each adds a block of its own, in the order in which the plugins were
given to the agent; none touches the agent's messages, so nothing has to be taken off again.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from html import escape
from typing import Any, cast

from strands.middleware import InvokeModelContext
from strands.types.content import ContentBlock, Message, SystemContentBlock

from strands_manga_memory.language.tokens import shortened

_MARKUP = re.compile("[&<>]")


def with_trailing_text(context: InvokeModelContext, text: str) -> InvokeModelContext:
    """Return the request with ``text`` as a further trailing block of the last user message, behind the cache point.

    The request is returned as it is if ``text`` is empty, or if the last message is not the user's.
    """
    if not text or not context.messages or context.messages[-1]["role"] != "user":
        return context
    block: ContentBlock = {"text": text}
    last: Message = {**context.messages[-1], "content": [*context.messages[-1]["content"], block]}
    return context.replace(messages=[*context.messages[:-1], last], dynamic_trailing_blocks=context.dynamic_trailing_blocks + 1)


def with_system_text(context: InvokeModelContext, text: str) -> InvokeModelContext:
    """Return the request with ``text`` as a further system block, before a cache point that ends the prompt."""
    if not text:
        return context
    prompt = context.system_prompt
    blocks = [{"text": prompt}] if isinstance(prompt, str) else list(cast("Sequence[dict[str, Any]]", prompt or ()))
    at = len(blocks) - (bool(blocks) and "cachePoint" in blocks[-1])
    return context.replace(system_prompt=cast("list[SystemContentBlock]", [*blocks[:at], {"text": text}, *blocks[at:]]))


def as_data(text: object, most: int = 100) -> str:
    """Return a text in one line of at most ``most`` characters, without control characters and markup.

    What was said once must not act as an instruction now: line breaks, invisible characters and tags go.
    """
    line = str(text)
    if line.isascii() and line.isprintable() and not _MARKUP.search(line):
        return shortened(line, most)
    plain = "".join(" " if sign.isspace() else sign for sign in line if sign.isspace() or sign.isprintable())
    return escape(shortened(unicodedata.normalize("NFC", plain), most), quote=False)
