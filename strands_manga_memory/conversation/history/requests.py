"""What whole requests cost: counted when they are sent, compared with the usage the model reports."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from strands.hooks import AfterModelCallEvent
from strands.middleware import InvokeModelContext
from strands.types.content import ContentBlock, Message

from strands_manga_memory.conversation.tokens.calibration import Calibration
from strands_manga_memory.conversation.tokens.token_counter import TokenCounter, tokens_of
from strands_manga_memory.language.texts.marks import is_quote
from strands_manga_memory.language.texts.usage import prompt_tokens

_OPEN_REQUESTS = 16


class Requests:
    """Counts requests on their way to the model, and teaches a calibration what the model makes of them."""

    __slots__ = ("_calibration", "_counted", "_counter", "_prompt")

    def __init__(self, counter: TokenCounter, calibration: Calibration) -> None:
        self._counter = counter
        self._calibration = calibration
        self._counted: dict[int, tuple[int, type]] = {}
        self._prompt: tuple[Any, int] = (None, 0)

    def quoted(self, added: Sequence[ContentBlock]) -> int:
        """Return the tokens of what is quoted from earlier in the conversation."""
        quotes = [block for block in added if is_quote(block.get("text", ""))]
        return self._counter.count({"role": "user", "content": quotes}) if quotes else 0

    def sending(self, context: InvokeModelContext, history_tokens: int, added: list[ContentBlock]) -> None:
        """Take note of a request: its prompt and tools, its history, and what was ``added`` to the last message."""
        tokens = self._prompt_tokens(context) + history_tokens
        if added:
            tokens += self._counter.count({"role": "user", "content": added})
        if len(self._counted) >= _OPEN_REQUESTS:  # cancelled ones are never answered
            self._counted.clear()
        self._counted[id(context.invocation_state)] = tokens, type(context.model)

    def answered(self, event: AfterModelCallEvent) -> None:
        """Compare the usage reported for a request, if there is any, with what was counted."""
        counted, model_class = self._counted.pop(id(event.invocation_state), (0, type(None)))
        if event.stop_response is None:
            return
        usage: Any = (event.stop_response.message.get("metadata") or {}).get("usage") or {}
        self._calibration.observe(counted, prompt_tokens(usage, model_class))

    def _prompt_tokens(self, context: InvokeModelContext) -> int:
        """Count system prompt and tool specifications, anew only when the prompt or the names of the tools have changed."""
        prompt = context.system_prompt
        text = prompt if isinstance(prompt, str) else "\n".join(block.get("text", "") for block in prompt or [])
        key = (text, *[spec["name"] for spec in context.tool_specs])
        if self._prompt[0] != key:
            parts = ("name", "description", "inputSchema")
            specs = [{part: spec.get(part) for part in parts} for spec in context.tool_specs]
            self._prompt = key, tokens_of(self._counter, text, json.dumps(specs, default=str) if specs else "")
        return self._prompt[1]


def without_added(context: InvokeModelContext) -> tuple[list[Message], list[ContentBlock]]:
    """Return the messages of a request without the blocks added to the last one for this call only, and those blocks."""
    messages = context.messages
    if not context.dynamic_trailing_blocks or not messages:
        return messages, []
    content = messages[-1]["content"]
    end = max(0, len(content) - context.dynamic_trailing_blocks)
    last: Message = {**messages[-1], "content": content[:end]}
    if context.agent.messages and (id_ := context.agent.messages[-1].get("tracking_id")):
        last["tracking_id"] = id_  # whoever added the blocks may have built the message anew, without it
    return [*messages[:-1], last], content[end:]


def with_added(messages: list[Message], added: list[ContentBlock]) -> list[Message]:
    """Put the blocks back at the end of the last message."""
    if not added:
        return messages
    return [*messages[:-1], {**messages[-1], "content": [*messages[-1]["content"], *added]}]
