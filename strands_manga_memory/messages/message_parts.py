"""Parts of messages, such as text, tool calls and tool results, and the turns of a history.

Strands accepts messages with blocks of any shape, so the functions that read messages tolerate
malformed blocks.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, cast

from strands.hooks import AfterToolCallEvent
from strands.types.content import Message
from strands.types.tools import ToolResult

PLACEHOLDER = "[\u2026]"
"""Text in place of a missing message of the other role in a request.
It is one token in common vocabularies.
"""

INTERRUPTED_TEXT = "Tool was interrupted."
"""Text of the tool result that Strands adds when an agent is invoked after an unanswered tool
call.
"""

CUT_TEXT = "[This turn was interrupted before it was finished.]"
"""Text in place of the answer of an interrupted turn, or of the missing result of a tool call."""

CONVERSATION_START = "[conversation start]"
"""Text of the user message that precedes a history if the history starts with the assistant."""

NO_OUTPUT = "[no output]"
"""Text of a tool result without content."""


# --- Parts of messages ----------------------------------------------------------------------------

MEDIA = ("image", "document", "video", "audio")
"""Keys of the content blocks that contain media."""


def id_of(message: Message) -> str:
    """Return the tracking id of a message, or an empty text if the message has none."""
    return message.get("tracking_id") or ""


def custom_metadata(message: Message) -> dict[str, Any]:
    """Return the custom metadata of a message (``metadata.custom``), or an empty dict."""
    metadata: Any = message.get("metadata")
    custom = metadata.get("custom") if isinstance(metadata, dict) else None
    return custom if isinstance(custom, dict) else {}


_WITHIN_TURN = "within_turn"

GUARD = "guard"
"""Key of the data on a failed call of a guarded tool, in the ``metadata`` of its result."""


def guard_details(result: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the data that a tool guard added to the result of a failed call, such as ``code``.

    A guard is a wrapper of a tool with a deadline and a fallback. Empty for any other result.
    """
    metadata = result.get("metadata")
    details = metadata.get(GUARD) if isinstance(metadata, Mapping) else None
    return details if isinstance(details, Mapping) else {}


def tool_use_ids(message: Mapping[str, Any]) -> list[str]:
    """Return the ids of the tool calls in a message, in order."""
    return _ids(message, "toolUse")


def tool_result_ids(message: Mapping[str, Any]) -> list[str]:
    """Return the ids of the tool calls whose results are in a message, in order."""
    return _ids(message, "toolResult")


def _ids(message: Mapping[str, Any], kind: str) -> list[str]:
    found = []
    for block in message.get("content") or ():
        part = block.get(kind) if isinstance(block, dict) else None
        if isinstance(part, dict) and isinstance(id_ := part.get("toolUseId"), str | int):
            found.append(id_)
    return found  # type: ignore[return-value]  # Strands takes numbers for ids


def block_kinds(message: Mapping[str, Any]) -> set[str]:
    """Return the keys of all content blocks of a message, such as ``"text"``."""
    kinds: set[str] = set()
    for block in message.get("content") or ():
        if isinstance(block, dict):
            kinds.update(block)
    return kinds


def is_of_tools(message: Mapping[str, Any]) -> bool:
    """Return whether a message contains tool calls or tool results."""
    return not block_kinds(message).isdisjoint(("toolUse", "toolResult"))


def spoken_text(block: Mapping[str, Any]) -> str | None:
    """Return the text of a content block, or None if blocks of this kind have no text.

    Blocks of the kinds ``text``, ``guardContent`` and ``citationsContent`` have text. The text of a
    malformed block is empty.
    """
    if "text" in block:
        return _string(block["text"])
    if "guardContent" in block:
        guarded = block["guardContent"]
        return _string(guarded.get("text")) if isinstance(guarded, dict) else ""
    if "citationsContent" in block:
        cited = block["citationsContent"]
        parts = cited.get("content") if isinstance(cited, dict) else None
        return "".join(map(_string, parts)) if isinstance(parts, list) else ""
    return None


def _string(value: Any) -> str:
    text = value.get("text") if isinstance(value, dict) else value
    return text if isinstance(text, str) else ""


def blocks_of(content: Any) -> list[dict[str, Any]]:
    """Return the content of a tool result as a list of blocks.

    Each item of a list becomes a block. Content that is not a list becomes one block. A dict stays
    unchanged, a text becomes a text block, any other value a JSON block. ``None`` becomes no block.
    """
    return [
        item if isinstance(item, dict) else {"text" if isinstance(item, str) else "json": item}
        for item in (content if isinstance(content, list | tuple) else [content])
        if item is not None
    ]


def result_texts(result: Mapping[str, Any], written: Callable[[Any], str]) -> list[str]:
    """Return the texts of a tool result.

    JSON values are converted to text by the function ``written``. Other content, such as images, is
    left out.
    """
    found = []
    for block in blocks_of(result.get("content")):
        if "text" in block or "json" in block:
            value = block["text"] if "text" in block else block["json"]
            found.append(value if isinstance(value, str) and "text" in block else written(value))
    return found


def media_kind(block: Any) -> str:
    """Return the kind of a media block, such as ``"image"``, or an empty text for other blocks."""
    return next((kind for kind in MEDIA if kind in block), "") if isinstance(block, dict) else ""


def calls_tools(message: Message) -> bool:
    """Return whether a message contains at least one tool call."""
    return "toolUse" in block_kinds(message)


def is_repair(message: Message) -> bool:
    """Return whether a message has only the error results of interrupted tool calls.

    Strands adds such a message when an agent continues after a tool call without a result.
    """
    return bool(message["content"]) and all(
        "toolResult" in block and block["toolResult"]["content"] == [{"text": INTERRUPTED_TEXT}]
        for block in message["content"]
    )


def is_user_input(message: Message) -> bool:
    """Return whether a message is a user message without tool results."""
    return message["role"] == "user" and "toolResult" not in block_kinds(message)


def is_turn_start(message: Message) -> bool:
    """Return whether a message can begin a turn.

    It can if it is a user message without tool results, and Strands has not added it within a turn
    (see :func:`mark_within_turn`).
    """
    return is_user_input(message) and not custom_metadata(message).get(_WITHIN_TURN)


def mark_within_turn(message: Message) -> None:
    """Mark a user message that Strands adds in a turn, such as a request for structured output."""
    metadata: Any = message.setdefault("metadata", {})
    metadata["custom"] = {**custom_metadata(message), _WITHIN_TURN: True}


def starts_turn(message: Message, previous: Message | None) -> bool:
    """Return whether a message begins a turn, given the previous message of the history.

    It does if it can (``is_turn_start``) and the previous message cannot: of consecutive user
    messages, only the first begins a turn.
    """
    return is_turn_start(message) and (previous is None or not is_turn_start(previous))


def turns(messages: Sequence[Message]) -> list[range]:
    """Divide a history into turns, as ranges of message positions.

    Each message for which ``is_turn_start`` is true begins a range. Consecutive user messages are
    thus separate turns, unlike in ``starts_turn``. Messages before the first turn are a range, too.
    """
    bounds = [at for at, message in enumerate(messages) if at == 0 or is_turn_start(message)]
    return list(map(range, bounds, [*bounds[1:], len(messages)]))


def is_tool_pair(use: Message, result: Message) -> bool:
    """Return whether two messages belong together as tool calls and their results.

    The second message must have exactly one result for each tool call of the first.
    """
    ids = _ids(use, "toolUse")
    roles = use["role"], result["role"]
    return (
        bool(ids)
        and roles == ("assistant", "user")
        and sorted(ids) == sorted(_ids(result, "toolResult"))
    )


def fingerprint(value: Any) -> int:
    """Return a hash of a nested value, such as the content of a message, to detect changes.

    The hash is valid in this process only.
    """
    try:
        return hash(repr(value))  # implemented in C, and handles cycles
    except Exception:  # noqa: BLE001 - a foreign __repr__, deep nesting, or a number of thousands of digits
        return hash(tuple(islice(_parts(value), _MOST_PARTS)))


_MOST_PARTS = 1_000_000
"""Most parts of a value that are hashed. A value that contains itself has endlessly many."""


def _parts(value: Any) -> Iterator[tuple[type, Any]]:
    """Yield the type and content of each item of a nested value, to compute the value's hash.

    For example, ``["a"]`` yields ``(list, 1)``, for the type and length, and ``(str, "a")``.
    """
    remaining = [value]
    while remaining:
        one = remaining.pop()
        if isinstance(one, dict | list | tuple):
            yield type(one), len(one)
            remaining += [*one.keys(), *one.values()] if isinstance(one, dict) else one
        elif isinstance(one, int):
            yield type(one), hex(one)  # unlike repr(), without a limit of digits
        else:
            yield type(one), one if isinstance(one, str | bytes) else text_of(one, repr)


def text_of(value: Any, written: Callable[[Any], str] = str) -> str:
    """Convert a value to text with the function ``written``.

    If the function raises an error, the result is the name of the value's type, such as
    ``<Order>``.
    """
    try:
        return written(value)
    except Exception:  # noqa: BLE001 - a foreign __str__
        return f"<{type(value).__name__}>"


def leaves(value: Any) -> Iterator[Any]:
    """Yield the values in nested mappings and lists, without None and empty texts."""
    if isinstance(value, dict | list | tuple):
        for item in value.values() if isinstance(value, dict) else value:
            yield from leaves(item)
    elif value not in (None, ""):
        yield value


def content_fingerprint(message: Message) -> int:
    """Return a hash of the role and the content of a message, to detect changes.

    The hash is valid in this process only.
    """
    hashed: list[Any] = [message["role"]]
    for block in message["content"]:
        result: Any = block.get("toolResult")
        parts: Any = result.get("content") if isinstance(result, dict) else None
        if isinstance(parts, list):
            hashed.append(fingerprint({**block, "toolResult": {**result, "content": len(parts)}}))
        else:
            parts = [block]
        hashed += map(_block_fingerprint, parts)
    return hash(tuple(hashed))


def _block_fingerprint(block: Any) -> Any:
    # CPython caches the hash of a text and of bytes.
    if isinstance(block, dict) and len(block) == 1 and isinstance(text := block.get("text"), str):
        return text
    if media_kind(block):
        return hash(tuple(islice(_parts(block), _MOST_PARTS)))
    return fingerprint(block)


def is_message(value: Any) -> bool:
    """Return whether a value is a message that Strands can process.

    Messages from stores and files are checked, because an invalid message makes every turn fail.
    The check includes the role, the tracking id, the list of blocks, the ids and names in tool
    blocks, and, in an assistant message, the types of the texts. Inputs and results of tools are
    not checked.
    """
    match value:
        case {"role": str(role), "content": list(blocks)}:
            has_valid_id = isinstance(value.get("tracking_id"), str | None)
            is_of_model = role == "assistant"
            return has_valid_id and all(_is_block(each, is_of_model=is_of_model) for each in blocks)
    return False


_ANY_CALL = {"toolUseId": "", "name": "", "input": None}


def _is_block(block: Any, *, is_of_model: bool) -> bool:
    if not isinstance(block, dict) or (
        is_of_model and not isinstance(block.get("text"), str | None)
    ):
        return False
    match block.get("toolUse", _ANY_CALL), block.get("toolResult", _ANY_CALL):
        case {"toolUseId": str() | int(), "name": str(), "input": _}, {"toolUseId": str() | int()}:
            return True
    return False


# --- Tool results of an agent ---------------------------------------------------------------------


def separate_result(event: AfterToolCallEvent[Any]) -> None:
    """Hook that copies the result of a tool call, so that no other call has the same dict.

    A tool may return one dict for two calls. Strands would write the id of the second call into
    both results.
    """
    id_ = str(event.tool_use["toolUseId"])
    content = copy.deepcopy(event.result["content"])
    event.result = cast("ToolResult", {**event.result, "toolUseId": id_, "content": content})


def call_key(agent: Any, tool_use: Mapping[str, Any]) -> str:
    """Return a key for a tool call, unique among the calls of the agent's last message.

    The key is the id of the call. If several calls have the same id, those after the first get a
    suffix, such as ``#2``.
    """
    id_, messages = str(tool_use["toolUseId"]), agent.messages
    content = messages[-1]["content"] if messages and messages[-1]["role"] == "assistant" else ()
    uses = [block["toolUse"] for block in content if "toolUse" in block]
    alike = [use for use in uses if str(use.get("toolUseId")) == id_]
    same = (at for at, use in enumerate(alike) if use is tool_use)
    equal = (at for at, use in enumerate(alike) if use == tool_use)
    position = next(same, next(equal, 0))
    return f"{id_}#{position + 1}" if position else id_
