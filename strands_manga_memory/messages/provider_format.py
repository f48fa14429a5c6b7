"""Conversion of a history to a format that every model provider accepts, and size of a prompt.

Bedrock Converse, Anthropic, OpenAI and Gemini each reject some histories that an agent can have. A
rejected history makes every later request fail, so the format satisfies the rules of all providers.
Only this module knows these rules:

- The first message is the user's, and roles alternate.
- Each tool call has one result, in the next message, which contains only results (Llama and Mistral
  on Bedrock).
- Ids of tool calls are unique in the request, and consist of letters, digits, ``_`` and ``-``.
- No text is blank, and no message and no tool result is empty.
- Media are few and small, and documents have distinct names.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import Any, cast

from strands.types.content import Message

from strands_manga_memory.messages.message_parts import (
    CONVERSATION_START,
    CUT_TEXT,
    MEDIA,
    NO_OUTPUT,
    PLACEHOLDER,
    blocks_of,
    is_user_input,
    media_kind,
    spoken_text,
    text_of,
)

_NOT_IN_ID = re.compile(r"[^A-Za-z0-9_-]")
_MOST_IN_ID = 40
"""Most characters of a tool call's id. The limit is OpenAI's."""


def for_model(messages: list[Message]) -> list[Message]:
    """Return the messages of a request in a format that every model provider accepts.

    Consecutive messages of one role are merged, except for the last of several user messages: a
    placeholder message of the assistant precedes it, so that the model answers only this message.
    Placeholder messages also precede a history that starts with the assistant, and separate tool
    results from the user's next text. An empty message gets a placeholder as its text.

    Each tool call gets exactly one result: its last result, or an error if it has none. Other
    results are left out. A repeated id of a tool call gets a suffix, in the call and in the result.

    ``messages`` is never modified. If no change is needed, ``messages`` itself is returned.
    Unchanged messages are not copied.
    """
    if not messages:
        return messages
    if all(map(_is_plain_text, messages)):
        shown = _alternate_roles(messages)
    else:
        shown = _alternate_roles(
            limit_media(_pair_results([_with_valid_blocks(message) for message in messages]))
        )
    return messages if shown == messages else shown


def _with_content(owner: Any, content: list[Any]) -> Any:
    return owner if owner.get("content") == content else {**owner, "content": content}


# --- Blocks ---------------------------------------------------------------------------------------


def _is_plain_text(message: Message) -> bool:
    content = message["content"]
    block: Any = content[0] if len(content) == 1 else None
    return isinstance(block, dict) and [*block] == ["text"] and _has_content(block["text"])


_BETWEEN = frozenset({"reasoningContent", "cachePoint"})
"""Blocks that providers accept only next to blocks of other kinds."""

_ROLES = {"toolUse": "assistant", "reasoningContent": "assistant", "toolResult": "user"}
"""Role of the messages in which providers accept a block, by the kind of the block."""


def _with_valid_blocks(message: Message) -> Message:
    content, role = message["content"], message["role"]
    kept = [valid for block in content if (valid := _valid_block(block, role)) is not None]
    # Reasoning must come before a block of another kind, and a cache point after one.
    others = [at for at, block in enumerate(kept) if _BETWEEN.isdisjoint(block)]
    first, last = (others[0], others[-1]) if others else (len(kept), -1)
    kept = [
        block
        for at, block in enumerate(kept)
        if (at < last or "reasoningContent" not in block)
        and (at > first or "cachePoint" not in block)
    ]
    if any("document" in block for block in kept) and not any("text" in block for block in kept):
        kept.insert(0, {"text": PLACEHOLDER})  # Bedrock accepts documents only with a text
    return cast("Message", _with_content(message, kept or [{"text": PLACEHOLDER}]))


def _valid_block(block: Any, role: str) -> Any:
    """Convert a block to a format that providers accept, or return None to leave it out."""
    if not isinstance(block, dict) or not block or "SDK_UNKNOWN_MEMBER" in block:
        return None
    if any(kind in block and role != allowed for kind, allowed in _ROLES.items()):
        return None
    if "toolUse" in block:
        use = block["toolUse"]
        given = use.get("input")
        valid_input = given if isinstance(given, dict) else {"input": given}
        return {**block, "toolUse": {**use, "input": valid_input}}
    if "toolResult" in block:
        return _valid_result(block)
    if media_kind(block.get("guardContent")):
        return block
    text = spoken_text(block)
    return block if text is None or _has_content(text) else None


def _has_content(text: Any) -> bool:
    return isinstance(text, str) and text.strip() != ""


def _valid_result(block: dict[str, Any]) -> dict[str, Any]:
    result = block["toolResult"]
    status = "error" if result.get("status") == "error" else "success"
    items = map(_valid_result_block, blocks_of(result.get("content")))
    content = [item for item in items if item is not None]
    valid_result = {**result, "status": status, "content": content or [{"text": NO_OUTPUT}]}
    return {**block, "toolResult": valid_result}


_KINDS_OF_RESULTS = (*MEDIA, "json", "cachePoint", "citationsContent", "guardContent")
"""Kinds of blocks in tool results that Strands passes to providers, besides text."""


def _valid_result_block(block: dict[str, Any]) -> dict[str, Any] | None:
    if "text" in block:
        return block if _has_content(block["text"]) else None
    if not block or any(isinstance(block.get(kind), dict) for kind in _KINDS_OF_RESULTS):
        return block or None
    shown = block.get("json", block)
    return {"text": text_of(shown, lambda value: json.dumps(value, ensure_ascii=False))}


# --- Tool calls and results -----------------------------------------------------------------------


def _unique_names(max_characters: int, suffix: str) -> Callable[[str], str]:
    """Return a function that truncates names, such as ids of tool calls, and makes them unique.

    Example: with the ``suffix`` ``_{}``, the second ``call`` becomes ``call_2``.
    """
    used: set[str] = set()
    numbers: dict[str, int] = {}

    def unique(name: str) -> str:
        base = shown = name[:max_characters]
        while shown in used:
            numbers[base] = numbers.get(base, 1) + 1
            end = suffix.format(numbers[base])
            shown = base[: max_characters - len(end)] + end
        used.add(shown)
        return shown

    return unique


def _pair_results(messages: list[Message]) -> list[Message]:
    """Give each tool call in a history exactly one result, in the next message.

    A call without a result gets an error as its result. Results without a call are removed.
    """
    calls = _calls_with_results(messages)
    shown: list[Message] = []
    for at, message in enumerate(messages):
        content: list[Any] = message["content"]
        if at in calls:
            new_ids = iter([id_ for id_, _ in calls[at]])
            content = [
                _with_id(block, "toolUse", next(new_ids)) if "toolUse" in block else block
                for block in content
            ]
            results = []
            for id_, found in calls[at]:
                place, result = found.popleft() if found else _NO_RESULT
                results.append((place, _with_id(result, "toolResult", id_)))
            results.sort(key=itemgetter(0))
            shown.append(_with_content(message, content))
            following = messages[at + 1 : at + 2]
            shown.append(_result_message([result for _, result in results], following))
            continue
        if any("toolResult" in block for block in content):
            content = [block for block in content if block.keys().isdisjoint(_OF_RESULTS)]
        if content:
            shown.append(_with_content(message, content))
    return shown


def _calls_with_results(messages: list[Message]) -> dict[int, list[tuple[str, deque[Any]]]]:
    """Return a new unique id and the results of each tool call, by position of its message.

    A result belongs to the latest earlier message with a call of the same id. Results are queued
    with their positions. Calls of one message with the same id share a queue.
    """
    unique = _unique_names(_MOST_IN_ID, "_{}")
    calls: dict[int, list[tuple[str, deque[Any]]]] = {}
    latest: dict[str, deque[Any]] = {}
    for at, message in enumerate(messages):
        ids = [
            str(each["toolUse"].get("toolUseId"))
            for each in message["content"]
            if "toolUse" in each
        ]
        latest |= {id_: deque(maxlen=count) for id_, count in Counter(ids).items()}
        if ids:
            calls[at] = [(unique(_NOT_IN_ID.sub("_", id_) or "call"), latest[id_]) for id_ in ids]
        for index, block in enumerate(message["content"]):
            if "toolResult" not in block:
                continue
            id_ = str(block["toolResult"].get("toolUseId"))
            if id_ in latest:
                latest[id_].append(((at, index), block))
    return calls


_OF_RESULTS = frozenset({"toolResult", "cachePoint"})
"""Blocks that are moved to the message with the results of a call."""

_NO_RESULT = (-1, 0), {"toolResult": {"status": "error", "content": [{"text": CUT_TEXT}]}}


def _with_id(block: Any, kind: str, id_: str) -> Any:
    return {**block, kind: {**block[kind], "toolUseId": id_}}


def _result_message(results: list[Any], following: Sequence[Message]) -> Message:
    """Return the user message with the results of tool calls, to insert after the calls.

    If the next message (``following``) has tool results, its cache points are kept.
    """
    for message in following:
        if message["role"] == "user" and not is_user_input(message):
            cache_points = [block for block in message["content"] if "cachePoint" in block]
            return cast("Message", _with_content(message, [*results, *cache_points]))
    return {"role": "user", "content": results}


# --- Roles ----------------------------------------------------------------------------------------


def _alternate_roles(messages: list[Message]) -> list[Message]:
    if not messages or messages[0]["role"] != "user":
        messages = [{"role": "user", "content": [{"text": CONVERSATION_START}]}, *messages]
    shown: list[Message] = []
    for at, message in enumerate(messages):
        before = shown[-1] if shown else None
        after = messages[at + 1] if at + 1 < len(messages) else None
        if before is None or before["role"] != message["role"]:
            shown.append(message)
        elif needs_placeholder(before, message, after):
            shown += [{"role": "assistant", "content": [{"text": PLACEHOLDER}]}, message]
        else:
            shown[-1] = {**before, "content": [*before["content"], *message["content"]]}
    return shown


def needs_placeholder(before: Message | None, message: Message, after: Message | None) -> bool:
    """Return whether a placeholder message must be inserted before a message in a request.

    A placeholder takes the place of a missing message of the other role. It is needed in three
    cases: the history starts with the assistant, the user writes a text after tool results, or the
    message is the last of several consecutive user messages.
    """
    if before is None:
        return message["role"] == "assistant"
    if before["role"] != "user" or not is_user_input(message):
        return False
    return not is_user_input(before) or after is None or after["role"] != "user"


def placeholder_count(messages: Sequence[Message]) -> int:
    """Count the placeholder messages that must be added to a history before a model gets it."""
    around: list[Message | None] = [None, *messages, None]
    return sum(map(needs_placeholder, around, messages, around[2:]))


# --- Media ----------------------------------------------------------------------------------------

# Bedrock Converse accepts 20 images and 5 documents. Providers limit a request to 20 to 50 MB,
# including media in base64.
MOST_IMAGES = 20
MOST_DOCUMENTS = 5
MOST_BYTES = 15_000_000
"""Most bytes of all media in a request. Encoded in base64, they have 20 MB."""

_MOST_IN_NAME = 180
_NOT_IN_NAME = re.compile(r"[^A-Za-z0-9\s()\[\]-]")
_SPACE = re.compile(r"\s+")
_NOT_IN_NOTE = re.compile(r'["\[\]\s]+')


def media_note(block: dict[str, Any]) -> str:
    """Return the note that replaces a removed medium, such as ``[image, 48 KB, not kept]``."""
    kind = media_kind(block)
    medium = block[kind]
    parts = [kind]
    if isinstance(medium, dict):
        if name := _NOT_IN_NOTE.sub(" ", str(medium.get("name") or ""))[:80].strip():
            parts[0] += f' "{name}"'
        if size := media_bytes(medium):
            parts.append(
                f"{size / 1_000_000:.1f} MB" if size >= 1_000_000 else f"{max(1, size // 1_000)} KB"
            )
    return f"[{', '.join(parts)}, not kept]"


def media_bytes(medium: Any) -> int:
    """Return the number of bytes in an image or other medium; 0 for a reference, such as a URL."""
    source = medium.get("source") if isinstance(medium, dict) else None
    value = source.get("bytes") if isinstance(source, dict) else None
    return len(value) if isinstance(value, bytes | bytearray | str) else 0


def limit_media(messages: Sequence[Message]) -> list[Message]:
    """Replace the oldest media of a request by notes, if it exceeds the limits of model providers.

    The numbers of images and documents, and the total bytes of all media, are limited. The newest
    medium stays even if it is too large, because some providers accept more. Documents with equal
    names get different names.
    """
    left: dict[str, float] = {"image": MOST_IMAGES, "document": MOST_DOCUMENTS}
    room: float = math.inf
    unique = _unique_names(_MOST_IN_NAME, " ({})")

    def limited(block: dict[str, Any]) -> dict[str, Any]:
        nonlocal room
        kind = media_kind(block)
        left[kind] = left.get(kind, math.inf) - 1
        size = media_bytes(block[kind])
        if left[kind] < 0 or size > room:
            room = room if left[kind] < 0 else 0
            return {"text": media_note(block)}
        room = max(0, min(room, MOST_BYTES) - size)
        return block

    def named(block: dict[str, Any]) -> dict[str, Any]:
        document = block.get("document")
        if not isinstance(document, dict):
            return block
        base = _SPACE.sub(" ", _NOT_IN_NAME.sub("-", str(document.get("name") or "")))
        base = base[:_MOST_IN_NAME].strip()
        name = unique(base if base.strip("- ") else "document")
        return {**block, "document": {**document, "name": name}}

    newest_first = [_map_media(message, limited, step=-1) for message in reversed(messages)]
    return [_map_media(message, named) for message in reversed(newest_first)]


def _map_media(
    owner: Any, change: Callable[[dict[str, Any]], dict[str, Any]], step: int = 1
) -> Any:
    """Apply ``change`` to each medium in a message and in its tool results.

    With ``step=-1``, the last medium is changed first.
    """
    after = []
    for block in owner["content"][::step]:
        if "toolResult" in block:
            block = {**block, "toolResult": _map_media(block["toolResult"], change, step)}
        elif "guardContent" in block and media_kind(block["guardContent"]):
            guarded = change(block["guardContent"])
            block = block if guarded is block["guardContent"] else guarded
        elif media_kind(block):
            block = change(block)
        after.append(block)
    return _with_content(owner, after[::step])


# --- Token usage ----------------------------------------------------------------------------------

_CACHED_TOKENS = ("cacheReadInputTokens", "cacheWriteInputTokens")
_CACHED_TOKENS_APART = frozenset(
    {"strands.models.anthropic.AnthropicModel", "strands.models.bedrock.BedrockModel"}
)
"""Model classes whose provider reports cached tokens in addition to ``inputTokens``."""


def prompt_tokens(usage: Mapping[str, Any], model_class: type) -> int:
    """Return the number of tokens of a whole prompt, including cached tokens; 0 if not reported.

    Cached tokens are added to ``inputTokens`` in any of these cases:

    - ``model_class`` is known to report them separately.
    - There are more cached tokens than ``inputTokens``.
    - ``inputTokens`` and ``outputTokens`` do not add up to ``totalTokens``.

    Args:
        usage: ``metadata.usage`` of a message. A missing value counts as 0.
        model_class: Class of the model that answered.
    """
    names = ("inputTokens", "outputTokens", "totalTokens", *_CACHED_TOKENS)
    tokens, output, total, *cached = [usage.get(name) or 0 for name in names]
    classes = [f"{base.__module__}.{base.__qualname__}" for base in model_class.__mro__]
    are_apart = (
        not _CACHED_TOKENS_APART.isdisjoint(classes)
        or sum(cached) > tokens
        or tokens + output != total
    )
    return tokens + sum(cached) if are_apart else tokens
