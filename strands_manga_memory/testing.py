"""Helpers for your tests: a scripted model and a manual clock."""

from __future__ import annotations

import asyncio
import copy
import json
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

from pydantic import BaseModel
from strands.models import Model
from strands.types.content import Messages, SystemContentBlock
from strands.types.streaming import StreamEvent
from strands.types.tools import ToolChoice, ToolSpec

from strands_manga_memory.conversation.history import History
from strands_manga_memory.conversation.token_counter import count_content

Reply = str | list[dict[str, Any]] | BaseException
"""Answer of a scripted model: text, content blocks (``text``, ``toolUse``, ``reasoningContent``),
or an error to raise.
"""

_Output = TypeVar("_Output", bound=BaseModel)


@dataclass(frozen=True)
class Request:
    """Request that a ``ScriptedModel`` received.

    The values are copies from the time of the call.
    """

    messages: Messages
    tool_specs: list[ToolSpec] | None
    system_prompt: str | None
    system_prompt_content: list[SystemContentBlock] | None


class ScriptedModel(Model):
    """Model that answers from a script and records its requests.

    Example::

        model = ScriptedModel(["Yes, we have it."])
        agent = Agent(model=model)
        agent("Is it in stock?")
        assert model.requests[0].messages[0]["content"] == [{"text": "Is it in stock?"}]

    Args:
        replies: Answers in order, or a function that returns the answer to the messages of a
            request. An answer is a text, a list of content blocks, or an error to raise. After the
            last answer of a list, the model answers ``"ok"``.
        stateful: Value of ``Model.stateful``. Default False.
        delay: Seconds to wait before each answer. Default 0.
        usage: Function that counts the input tokens of a request's messages. Default: one token per
            4 characters of content.

    Attributes:
        requests: Requests of all calls, oldest first.
    """

    def __init__(
        self,
        replies: Iterable[Reply] | Callable[[Messages], Reply] = (),
        *,
        stateful: bool = False,
        delay: float = 0.0,
        usage: Callable[[Messages], int] | None = None,
    ) -> None:
        script: Iterator[Reply] = iter(() if callable(replies) else replies)
        self._reply = replies if callable(replies) else lambda _: next(script, "ok")
        self._stateful = stateful
        self._delay = delay
        self._usage = usage or _tokens
        self.config: dict[str, Any] = {"model_id": "scripted", "context_window_limit": 200_000}
        self.requests: list[Request] = []

    @property
    def stateful(self) -> bool:
        """Whether the model claims that its provider stores the conversation."""
        return self._stateful

    def update_config(self, **model_config: Any) -> None:
        """Change the configuration of the model."""
        self.config.update(model_config)

    def get_config(self) -> dict[str, Any]:
        """Return the configuration of the model."""
        return self.config

    async def structured_output(
        self,
        output_model: type[_Output],
        prompt: Messages,
        system_prompt: str | None = None,
        **kwargs: Any,
    ) -> AsyncGenerator[dict[str, _Output | Any], None]:
        """Parse the next reply of the script as JSON, and yield it as a Pydantic object.

        The object is yielded in a dict, as ``{"output": ...}``.
        """
        text = self._blocks(prompt)[0]["text"]
        yield {"output": output_model.model_validate_json(text)}

    async def stream(
        self,
        messages: Messages,
        tool_specs: list[ToolSpec] | None = None,
        system_prompt: str | None = None,
        *,
        tool_choice: ToolChoice | None = None,
        system_prompt_content: list[SystemContentBlock] | None = None,
        **kwargs: Any,
    ) -> AsyncIterable[StreamEvent]:
        """Record the request of the model call, and stream the next reply of the script."""
        request = Request(History(messages), tool_specs, system_prompt, system_prompt_content)
        self.requests.append(copy.deepcopy(request))
        if self._delay:
            await asyncio.sleep(self._delay)
        blocks = self._blocks(messages)
        yield {"messageStart": {"role": "assistant"}}
        for index, block in enumerate(blocks):
            for event in _block_events(block, index):
                yield event
        calls_tools = any("toolUse" in block for block in blocks)
        yield {"messageStop": {"stopReason": "tool_use" if calls_tools else "end_turn"}}
        tokens = self._usage(messages)
        usage = {"inputTokens": tokens, "outputTokens": 8, "totalTokens": tokens + 8}
        yield {"metadata": {"usage": usage, "metrics": {"latencyMs": 1}}}  # type: ignore[typeddict-item]

    def _blocks(self, messages: Messages) -> list[dict[str, Any]]:
        reply = self._reply(messages)
        if isinstance(reply, BaseException):
            raise reply
        return [{"text": reply}] if isinstance(reply, str) else reply


def _tokens(messages: Messages) -> int:
    return sum(count_content(message, lambda text: -(-len(text) // 4)) for message in messages)


def _block_events(block: dict[str, Any], index: int) -> Iterator[StreamEvent]:
    start: Any = {}
    deltas: list[Any]
    if "toolUse" in block:
        use = block["toolUse"]
        start = {"toolUse": {"toolUseId": use["toolUseId"], "name": use["name"]}}
        deltas = [{"toolUse": {"input": json.dumps(use["input"], ensure_ascii=False)}}]
    elif "reasoningContent" in block:
        text = block["reasoningContent"]["reasoningText"]
        deltas = [{"reasoningContent": {key: value}} for key, value in text.items()]
    else:
        deltas = [{"text": block["text"]}]
    yield {"contentBlockStart": {"contentBlockIndex": index, "start": start}}
    for delta in deltas:
        yield {"contentBlockDelta": {"contentBlockIndex": index, "delta": delta}}
    yield {"contentBlockStop": {"contentBlockIndex": index}}


class FakeClock:
    """Clock for tests. Calling the clock returns the time, which only ``advance`` changes."""

    def __init__(self, now: float = 1_000_000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        """Return the current time of the test clock in seconds."""
        return self.now

    def advance(self, seconds: float) -> None:
        """Move the test clock forward by ``seconds``."""
        self.now += seconds
