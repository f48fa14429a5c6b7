"""Common parts of the fault campaigns: distinguishable turns, and rules of messages."""

import json
import re
import threading
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from strands import Agent, tool
from strands.agent.conversation_manager import ConversationManager, NullConversationManager
from strands.types.content import Message

from strands_manga_memory.messages import for_model
from strands_manga_memory.session import TieredSessionManager
from strands_manga_memory.stores import open_hot_store, open_table
from strands_manga_memory.testing import ScriptedModel
from tests import histories

KINDS = ("text", "japanese", "tool", "parallel", "sequential")
"""The turns a worker makes. Their user texts are ``<tag> <kind>``."""

_NOT_IN_ID = re.compile(r"[^A-Za-z0-9_-]")
_TURN = re.compile(r"\S+ (text|japanese|tool|parallel|sequential|answer)\b")
_JAPANESE = "ワンピースの最新刊はいつ発売されますか？予約したいです。"


@dataclass(frozen=True)
class Stores:
    """Where the workers keep their conversations; ``hot`` is None for a durable tier alone."""

    hot: str | None
    durable: str

    def manager(self, session: str, **settings: Any) -> TieredSessionManager:
        """Return a session manager with stores of its own."""
        hot = open_hot_store(self.hot) if self.hot else None
        return TieredSessionManager(session, hot=hot, durable=open_table(self.durable), **settings)


@tool
def lookup(query: str) -> str:
    """Look a manga up."""
    return f"第108巻 for {query}"


def reply(messages: Sequence[Message]) -> str | list[dict[str, Any]]:
    """Answer a turn by the tag and kind of its user's text."""
    tag, kind = next(
        text.split()[:2]
        for message in reversed(messages)
        if message["role"] == "user"
        for text in reversed(
            texts(message)
        )  # a conversation manager may have put two of them into one message
        if _TURN.match(text)
    )
    # A request holds ids as providers take them, without the dots of a tag.
    start = _NOT_IN_ID.sub("_", f"{tag}-")
    done = sum(
        _NOT_IN_ID.sub("_", id_).startswith(start)
        for message in messages
        for id_ in result_ids(message)
    )
    calls = {"tool": (1,), "parallel": (3,), "sequential": (1, 1)}.get(kind, ())
    made = 0
    for count in calls:
        if done == made:
            return [
                {
                    "toolUse": {
                        "toolUseId": f"{tag}-{made + i}",
                        "name": "lookup",
                        "input": {"query": f"{tag} {i}"},
                    }
                }
                for i in range(count)
            ]
        made += count
    return f"{tag} answer {_JAPANESE}" if kind == "japanese" else f"{tag} answer"


def texts(message: Message) -> list[str]:
    """Return the text blocks of a message."""
    return [block["text"] for block in message["content"] if "text" in block]


def use_ids(message: Message) -> list[str]:
    """Return the ids of the tool calls a message makes."""
    return [block["toolUse"]["toolUseId"] for block in message["content"] if "toolUse" in block]


def result_ids(message: Message) -> list[str]:
    """Return the ids of the tool calls a message answers."""
    return [b["toolResult"]["toolUseId"] for b in message["content"] if "toolResult" in b]


def new_agent(
    manager: TieredSessionManager,
    *,
    agent_id: str = "librarian",
    conversation_manager: ConversationManager | None = None,
    delay: float = 0.0,
    **more: Any,
) -> Agent:
    """Return an agent that restores from ``manager`` and answers with ``reply``."""
    return Agent(
        model=ScriptedModel(reply, delay=delay),
        tools=[lookup],
        agent_id=agent_id,
        session_manager=manager,
        conversation_manager=conversation_manager or NullConversationManager(),
        callback_handler=None,
        **more,
    )


def plain(messages: Iterable[Message]) -> list[dict[str, Any]]:
    """Return messages as plain JSON, without what a model's answer was measured to be."""
    return [
        json.loads(json.dumps({k: m[k] for k in ("role", "content") if k in m})) for m in messages
    ]


def problems(messages: Sequence[Message]) -> list[str]:
    """Return why a provider would refuse these messages before a user's message; [] if not."""
    found = histories.problems(messages)
    found += [f"message {at} is empty" for at, each in enumerate(messages) if not each["content"]]
    if messages and (messages[-1]["role"] == "user" or use_ids(messages[-1])):
        found.append(f"the last message is {_shown(messages[-1])}")
    return found


def next_request(messages: Sequence[Message]) -> list[Message]:
    """Return the messages of an agent's next request, in which a cut turn is closed."""
    return for_model([*messages, {"role": "user", "content": [{"text": "next text"}]}])


def request_problems(messages: Sequence[Message]) -> list[str]:
    """Return why a provider would refuse these messages as a request; [] if it would not."""
    if not messages or messages[-1]["role"] != "user":
        return ["the last message is not the user's"]
    return [p for p in problems(messages) if not p.startswith("the last message is")]


def marks(messages: Iterable[Message]) -> Counter[str]:
    """Count the unique parts of a turn's messages: texts, tool calls and results."""
    found: Counter[str] = Counter()
    for message in messages:
        found.update(
            f"{message['role']}:{match[0]}"
            for text in texts(message)
            if (match := _TURN.match(text))
        )
        found.update(f"use:{id_}" for id_ in use_ids(message))
        found.update(f"result:{id_}" for id_ in result_ids(message))
    return found


def wanted_marks(tag: str, kind: str) -> list[str]:
    """Return the marks of a whole turn."""
    calls = {"tool": 1, "parallel": 3, "sequential": 2}.get(kind, 0)
    tools = [f"{what}:{tag}-{i}" for i in range(calls) for what in ("use", "result")]
    return [f"user:{tag} {kind}", *tools, f"assistant:{tag} answer"]


def split_pairs(log: Sequence[Message]) -> list[str]:
    """Return the tool calls of a log whose results do not follow them at once."""
    return [
        f"{use_ids(message)} is followed by {result_ids(following)}"
        for message, following in zip(
            log, [*log[1:], {"role": "user", "content": []}], strict=False
        )
        if use_ids(message) and sorted(use_ids(message)) != sorted(result_ids(following))
    ]


def _shown(message: Message) -> str:
    return f"{message['role']}:{str(message['content'])[:60]}"


def writer_threads() -> int:
    """Return how many threads of the background writers there are."""
    return sum(thread.name == "strands-manga-memory-writer" for thread in threading.enumerate())


def bare_agent() -> Agent:
    """Return an agent that saves nothing, to compare with."""
    return Agent(
        model=ScriptedModel(reply),
        tools=[lookup],
        conversation_manager=NullConversationManager(),
        callback_handler=None,
    )
