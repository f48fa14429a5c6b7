"""Turns and tool pairs: the structure of a history, what is wrong with one, and how it is mended."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from strands.types.content import ContentBlock, Message

CONVERSATION_START = "[conversation start]"
"""What the user is made to say before a history that starts with the assistant."""


def tool_use_ids(message: Message) -> list[str]:
    """Return the ids of the tool calls the message makes, in order."""
    return [block["toolUse"]["toolUseId"] for block in message["content"] if "toolUse" in block]


def tool_result_ids(message: Message) -> list[str]:
    """Return the ids of the tool calls the message answers, in order."""
    return [block["toolResult"]["toolUseId"] for block in message["content"] if "toolResult" in block]


def calls_tools(message: Message) -> bool:
    """Whether the message calls a tool."""
    for block in message["content"]:  # noqa: SIM110 - as below
        if "toolUse" in block:
            return True
    return False


def is_turn_start(message: Message) -> bool:
    """Whether a turn begins here: a message of the user's own. One that brings tool results, role user too, is none."""
    if message["role"] != "user":
        return False
    for block in message["content"]:  # noqa: SIM110 - a loop is twice as quick as any(), and this is asked for every message
        if "toolResult" in block:
            return False
    return True


def is_tool_pair(use: Message, result: Message) -> bool:
    """Whether ``result`` answers exactly the tool calls of ``use``."""
    ids = tool_use_ids(use)
    return (
        bool(ids) and use["role"] == "assistant" and result["role"] == "user" and sorted(ids) == sorted(tool_result_ids(result))
    )


def turns(messages: Sequence[Message]) -> list[range]:
    """Return the turns as ranges of positions. What precedes the first user message is a range of its own."""
    bounds = [at for at, message in enumerate(messages) if at == 0 or is_turn_start(message)]
    return [range(start, stop) for start, stop in pairwise([*bounds, len(messages)])]


class Exchange(NamedTuple):
    """Messages that stay or go as one, so that roles still alternate after it went: an answered turn and what leads to it.

    Attributes:
        core: Positions of the user message and of all that is in no cycle, the answer among them.
        cycles: Positions of tool calls and their results that can go alone, oldest first.
        unanswered: Positions of earlier turns that ended without an answer, oldest first; each can go alone.
    """

    core: tuple[int, ...]
    cycles: tuple[tuple[int, int], ...]
    unanswered: tuple[tuple[int, ...], ...]

    def positions(self) -> Iterator[int]:
        """All positions of the exchange, in no particular order."""
        yield from self.core
        for group in (*self.cycles, *self.unanswered):
            yield from group


def exchanges(messages: Sequence[Message]) -> list[Exchange]:
    """Return the history as exchanges, oldest first."""
    found = []
    waiting: list[range] = []
    for turn in turns(messages):
        last = messages[turn.stop - 1]
        answered = last["role"] == "assistant" and not calls_tools(last)
        if answered or turn.stop == len(messages):
            found.append(_exchange(messages, turn, waiting))
            waiting = []
        else:
            waiting.append(turn)
    return found


def _exchange(messages: Sequence[Message], turn: range, waiting: list[range]) -> Exchange:
    unanswered = tuple(tuple(earlier) for earlier in waiting) if waiting else ()
    if len(turn) < 4:  # too short for a call, its result and what follows
        return Exchange(tuple(turn), (), unanswered)
    cycles = []
    in_cycle: set[int] = set()
    at = turn.start + 1
    while at + 2 < turn.stop:
        if (
            is_tool_pair(messages[at], messages[at + 1])
            and messages[at - 1]["role"] == "user"
            and messages[at + 2]["role"] == "assistant"
            and all("toolResult" in block for block in messages[at + 1]["content"])
        ):
            cycles.append((at, at + 1))
            in_cycle.update(cycles[-1])
            at += 2
        else:
            at += 1
    core = tuple(at for at in turn if at not in in_cycle) if in_cycle else tuple(turn)
    return Exchange(core, tuple(cycles), unanswered)


def problems(messages: Sequence[Message]) -> list[str]:
    """Return why Bedrock, Anthropic or OpenAI would refuse this history, one line each; empty if none of them would.

    The rules: the first message is a user's own; roles alternate; tool calls are made by the assistant and answered, all of
    them and nothing else, by the next message; only the last message may hold calls without an answer.
    """
    found = []
    if messages and not is_turn_start(messages[0]):
        found.append(f"message 0 is not a plain user message but {_described(messages[0])}")
    role, open_calls = "", list[str]()
    for at, message in enumerate(messages):
        if message["role"] == role:
            found.append(f"messages {at - 1} and {at} are both of role {role}")
        role = message["role"]
        if not open_calls and len(content := message["content"]) == 1 and "text" in content[0]:
            continue  # as most messages are: nothing below concerns it
        uses, results = tool_use_ids(message), tool_result_ids(message)
        if uses and role != "assistant":
            found.append(f"message {at} calls tools but is of role {role}")
        if results and role != "user":
            found.append(f"message {at} holds tool results but is of role {role}")
        if len(set(uses)) < len(uses) or len(set(results)) < len(results):
            found.append(f"message {at} holds a toolUseId twice")
        if open_calls and sorted(open_calls) != sorted(results):
            found.append(f"message {at - 1} calls tools that message {at} does not answer one for one")
        if results and not open_calls:
            found.append(f"message {at} holds results of tools that message {at - 1} did not call")
        open_calls = uses
    return found


def _described(message: Message) -> str:
    return f"of role {message['role']}" + (" with tool results" if tool_result_ids(message) else "")


def mended(messages: list[Message]) -> list[Message]:
    """Return the history with everything :func:`problems` finds put right; the list itself if there is nothing.

    Tool calls and results without their other half go, with their message if it holds nothing else; neighbours of one role
    become one message with the content of both and the id of the first; a history that starts with the assistant gets a short
    user message before it. No message is changed in place.
    """
    if not problems(messages):
        return messages
    whole = _without_orphans(messages)
    joined: list[Message] = []
    if whole and whole[0]["role"] == "assistant":
        joined.append({"role": "user", "content": [{"text": CONVERSATION_START}]})
    for message in whole:
        if joined and joined[-1]["role"] == message["role"]:
            joined[-1] = {**joined[-1], "content": [*joined[-1]["content"], *message["content"]]}
        else:
            joined.append(message)
    return joined


def _without_orphans(messages: list[Message]) -> list[Message]:
    """Return the messages with only those tool calls and results that meet their other half in the neighbouring message."""
    kept = []
    for at, message in enumerate(messages):
        uses, results = tool_use_ids(message), tool_result_ids(message)
        if not uses and not results:
            kept.append(message)
            continue
        asked = tool_use_ids(messages[at - 1]) if at and messages[at - 1]["role"] == "assistant" else []
        is_last = at + 1 == len(messages)
        answered = tool_result_ids(messages[at + 1]) if not is_last and messages[at + 1]["role"] == "user" else []
        content = list(_paired(message, uses if is_last else answered, asked))
        if len(content) == len(message["content"]):
            kept.append(message)
        elif any("reasoningContent" not in block for block in content):
            kept.append({**message, "content": content})
    return kept


def _paired(message: Message, answered: list[str], asked: list[str]) -> Iterator[ContentBlock]:
    """The blocks of a message without the tool calls and results that have no other half, or that come twice."""
    seen = set()
    for block in message["content"]:
        if "toolUse" in block:
            id_, others = block["toolUse"]["toolUseId"], answered if message["role"] == "assistant" else []
        elif "toolResult" in block:
            id_, others = block["toolResult"]["toolUseId"], asked if message["role"] == "user" else []
        else:
            yield block
            continue
        if id_ in others and id_ not in seen:
            seen.add(id_)
            yield block
