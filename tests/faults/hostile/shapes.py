"""Shapes: messages with any value at one place, which an agent accepts or never gets."""

import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from strands import Agent

from strands_manga_memory import ConversationScope, MangaMemory
from strands_manga_memory.messages import for_model, is_message
from strands_manga_memory.session import agent_conversation
from strands_manga_memory.stores.codec import dump
from strands_manga_memory.testing import ScriptedModel
from tests.faults.hostile import planted
from tests.histories import problems

LEAVES = [*planted.LEAVES[:-1], lambda: planted.nested(400)]
"""What may stand anywhere; Strands writes values of some 450 levels at most into its traces."""


def conversation() -> list[Any]:
    """Return messages with every kind of block that is read here."""
    usage = {"inputTokens": 5, "outputTokens": 3, "totalTokens": 8}
    thought = {"reasoningContent": {"reasoningText": {"text": "hm", "signature": "s"}}}
    call = {
        "toolUse": {
            "toolUseId": "t1",
            "name": "look_up",
            "input": {"title": "Titan", "volumes": [3]},
        }
    }
    found = [
        {"text": "volume 3: 12 in stock, ASIN B07X123456. " * 20},
        {"json": {"price": 12.5, "items": [{"id": 1}, {"id": 2}]}},
        {"image": {"format": "png", "source": {"bytes": b"x"}}},
    ]
    guarded = {"guardContent": {"text": {"text": "guarded", "qualifiers": ["query"]}}}
    cited = {"citationsContent": {"content": [{"text": "cited"}], "citations": [{"title": "t"}]}}
    document = {"document": {"format": "pdf", "name": "d", "source": {"bytes": b"y"}}}
    result = {"toolResult": {"toolUseId": "t1", "status": "success", "content": found}}
    contents: list[Any] = [
        [{"text": "I look for volume 3 of Titan."}],
        [{"text": "I look."}, thought, call],
        [result],
        [{"text": "It is there."}, guarded, cited],
        [{"text": "and this one? " * 20}, document, {"cachePoint": {"type": "default"}}],
        [{"text": "That one is a thing of horror."}],
    ]
    messages: list[Any] = [
        {"role": "assistant" if at % 2 else "user", "content": content, "tracking_id": f"m{at}"}
        for at, content in enumerate(contents)
    ]
    messages[0]["metadata"] = {"custom": {"a": 1}, "usage": usage, "metrics": {"latencyMs": 1}}
    return messages


def shapes(*, first: int = 0, step: int = 1) -> Iterator[tuple[int, Any]]:
    """Yield every ``step``-th pair of a place in the conversation and a value for it."""
    number = 0
    for at, message in enumerate(conversation()):
        for place in range(len(list(planted.places([message])))):
            for leaf in (None, *LEAVES):
                for beside in (False, True):
                    number += 1
                    if number % step == first:
                        yield at, _changed(at, place, leaf, beside=beside)


def _changed(at: int, place: int, leaf: Callable[[], Any] | None, *, beside: bool) -> Any:
    """Return a message with a place of it replaced, removed, or added to."""
    held = [conversation()[at]]
    holder, key = list(planted.places(held))[place]
    if holder is held:
        return leaf() if leaf else {}
    if leaf is None:
        del holder[key]
    elif not beside:
        holder[key] = leaf()
    elif isinstance(holder, dict):
        holder["x"] = leaf()
    else:
        holder.insert(key, leaf())
    return held[0]


def lived(at: int, value: Any, memory: MangaMemory, *, max_tokens: int) -> bool:
    """Let agents live with a value in a message's place, or find it in a store; tell which.

    Raises:
        AssertionError: A restored agent has what is no message, or a history that no provider
            takes, or the log misses one.
    """
    scope = ConversationScope("u", uuid.uuid4().hex)

    def agent(messages: list[Any] | None = None) -> Any:
        arguments = memory.agent_kwargs(
            user_id="u", session_id=scope.session_id, task_state=True, max_tokens=max_tokens
        )
        return Agent(model=ScriptedModel(), messages=messages, callback_handler=None, **arguments)

    messages = [value if number == at else message for number, message in enumerate(conversation())]
    accepted = is_message(value)
    if accepted:
        agent(messages)("and the next volume?")
    else:
        with pytest.MonkeyPatch.context() as patched:
            name = f"m{at}"
            patched.setattr(
                agent_conversation,
                "dump",
                lambda said: dump(value if said.get("tracking_id") == name else said),
            )
            agent(conversation())._session_manager.flush()
    other = agent()
    other("and now?")
    assert all(map(is_message, other.messages)), "an agent has what is no message"
    roles = {message["role"] for message in other.messages}
    assert roles > {"user", "assistant"} or not problems(for_model(other.messages)), (
        "a history of which no valid request can be made"
    )
    assert len(list(memory.session(scope).history())) == len(messages) + (4 if accepted else 2)
    return accepted
