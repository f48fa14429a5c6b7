"""Tokens of whole requests: counted when they are sent, and compared with the usage that the model reports."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from strands.hooks import AfterModelCallEvent
from strands.middleware import InvokeModelContext
from strands.types.content import ContentBlock, Message

from strands_manga_memory.conversation.budget import Calibration
from strands_manga_memory.conversation.token_counter import TokenCounter, tokens_of
from strands_manga_memory.messages.tokens import prompt_tokens
from strands_manga_memory.messages.turn_context import injected_count, opening_position, with_injected, without_injected

_OPEN_REQUESTS = 16


class RequestMeter:
    """Counts the tokens of requests, and adjusts a calibration by the usage that the model reports for them."""

    __slots__ = ("_calibration", "_counted", "_counter", "_prompt")

    def __init__(self, counter: TokenCounter, calibration: Calibration) -> None:
        self._counter = counter
        self._calibration = calibration
        self._counted: dict[int, tuple[int, type]] = {}
        self._prompt: tuple[Any, int] = (None, 0)

    def sending(self, context: InvokeModelContext, history_tokens: int, added: Sequence[ContentBlock]) -> None:
        """Count the tokens of a request: its prompt and tools, its history, and the blocks ``added`` for it."""
        tokens = self._prompt_tokens(context) + history_tokens
        if added:
            tokens += self._counter.count({"role": "user", "content": [*added]})
        if len(self._counted) >= _OPEN_REQUESTS:  # cancelled ones are never answered
            self._counted.clear()
        self._counted[id(context.invocation_state)] = tokens, type(context.model)

    def answered(self, event: AfterModelCallEvent) -> None:
        """Compare the usage reported for a request, if there is any, with the count."""
        counted, model_class = self._counted.pop(id(event.invocation_state), (0, type(None)))
        if event.stop_response is None:
            return
        usage: Any = (event.stop_response.message.get("metadata") or {}).get("usage") or {}
        self._calibration.observe(counted, prompt_tokens(usage, model_class))

    def _prompt_tokens(self, context: InvokeModelContext) -> int:
        """Count system prompt and tool specifications, again only when the prompt or the names of the tools have changed."""
        prompt = context.system_prompt
        text = prompt if isinstance(prompt, str) else "\n".join(block.get("text", "") for block in prompt or [])
        key = (text, *[spec["name"] for spec in context.tool_specs])
        if self._prompt[0] != key:
            parts = ("name", "description", "inputSchema")
            specs = [{part: spec.get(part) for part in parts} for spec in context.tool_specs]
            self._prompt = key, tokens_of(self._counter, text, json.dumps(specs, default=str) if specs else "")
        return self._prompt[1]


class Added(NamedTuple):
    """Blocks that were added to the history for one request.

    Attributes:
        before: Blocks before the user's words in the message that opened the turn.
        after: Blocks at the end of the last message.
    """

    before: list[ContentBlock]
    after: list[ContentBlock]


def without_added(context: InvokeModelContext) -> tuple[list[Message], Added]:
    """Return the messages of a request without the blocks that were added for this request, and those blocks.

    Blocks that other plugins added to tool results move before the user's words: Llama and Mistral on Bedrock refuse text
    next to tool results.
    """
    messages = list(context.messages)
    opening = opening_position(messages)
    before: list[ContentBlock] = []
    after: list[ContentBlock] = []
    if messages and context.dynamic_trailing_blocks:
        messages[-1], after = _split_end(messages[-1], context.dynamic_trailing_blocks)
    if opening is not None:
        message = messages[opening]
        before = message["content"][: injected_count(message)]
        messages[opening] = without_injected(message)
        if opening < len(messages) - 1:
            before, after = [*before, *after], []
    if not before and not after:
        return context.messages, Added(before, after)
    _restore_id(messages, context.agent.messages, opening)
    return messages, Added(before, after)


def _split_end(message: Message, count: int) -> tuple[Message, list[ContentBlock]]:
    end = max(0, len(message["content"]) - count)
    return {**message, "content": message["content"][:end]}, message["content"][end:]


def _restore_id(messages: list[Message], history: Sequence[Message], opening: int | None) -> None:
    """Give messages that a plugin may have built again without their tracking ids those ids."""
    for at in {opening, len(messages) - 1} if len(history) == len(messages) else ():
        if at is not None and (id_ := history[at].get("tracking_id")):
            messages[at] = {**messages[at], "tracking_id": id_}


def with_added(messages: list[Message], added: Added) -> list[Message]:
    """Return the messages of a request with the blocks that were added for it."""
    if added.after:
        messages = [*messages[:-1], {**messages[-1], "content": [*messages[-1]["content"], *added.after]}]
    return with_injected(messages, added.before) if added.before else messages
