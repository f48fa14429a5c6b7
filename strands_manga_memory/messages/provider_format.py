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
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from strands.types.content import Message

from strands_manga_memory.messages.message_parts import (
    CONVERSATION_START,
    CUT_TEXT,
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

    Consecutive messages of one role are merged. The last of several consecutive user messages stays
    separate, after a placeholder message of the assistant, so that the model answers only this
    message. Placeholders also fill empty messages, precede a history that starts with the
    assistant, and separate tool results from the user's next text.

    Each tool call gets exactly one result: its last result, or an error if it has none. Other
    results are left out. A repeated id of a tool call gets a suffix, in the call and in the result.

    ``messages`` is not changed, and is the result if nothing needs a change. Unchanged messages
    are not copied.
    """
    if not messages:
        return messages
    if all(map(_is_plain_text, messages)):
        shown = _alternating(messages)
    else:
        shown = _alternating(
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


def _with_valid_blocks(message: Message) -> Message:
    """Remove or replace the blocks of a message that model providers reject.

    A message without such blocks is returned unchanged.
    """
    content = message["content"]
    kept = [
        valid for block in content if (valid := _valid_block(block, message["role"])) is not None
    ]
    contents = [
        at
        for at, block in enumerate(kept)
        if "reasoningContent" not in block and "cachePoint" not in block
    ]
    kept = [
        block for at, block in enumerate(kept) if contents and _is_allowed_at(block, at, contents)
    ]
    if any("document" in block for block in kept) and not any("text" in block for block in kept):
        kept.insert(0, {"text": PLACEHOLDER})  # Bedrock accepts documents only with a text
    if not kept and not any("toolResult" in block for block in content if isinstance(block, dict)):
        kept = [{"text": PLACEHOLDER}]
    return cast("Message", _with_content(message, kept))


def _is_allowed_at(block: dict[str, Any], at: int, contents: Sequence[int]) -> bool:
    """Return whether providers accept a reasoning block or cache point at a position in a message.

    Reasoning must come before a block of another kind, and a cache point after one. Blocks of other
    kinds are accepted at each position.

    Args:
        block: The block.
        at: Position of the block in the message.
        contents: Positions of the message's blocks of other kinds.
    """
    if "reasoningContent" in block:
        return at < contents[-1]
    return "cachePoint" not in block or at > contents[0]


def _valid_block(block: Any, role: str) -> Any:
    """Convert a block of a message to a format that providers accept.

    The result is None if the block must be left out, such as a blank text.
    """
    if not isinstance(block, dict) or not block or "SDK_UNKNOWN_MEMBER" in block:
        return None
    if "toolUse" in block:
        return _valid_call(block) if role == "assistant" else None
    if "toolResult" in block:
        return _valid_result(block) if role == "user" else None
    if "reasoningContent" in block:
        return block if role == "assistant" else None
    guarded = block.get("guardContent")
    if isinstance(guarded, dict) and guarded and "text" not in guarded:
        return block  # an image
    text = spoken_text(block)
    return block if text is None or _has_content(text) else None


def _has_content(text: Any) -> bool:
    return isinstance(text, str) and bool(text) and not text.isspace()


def _valid_call(block: dict[str, Any]) -> dict[str, Any]:
    """Return a tool call whose input is a JSON object, as providers require.

    Any other input is wrapped in an object.
    """
    use = block["toolUse"]
    return (
        block
        if isinstance(use.get("input"), dict)
        else {**block, "toolUse": {**use, "input": {"input": use.get("input")}}}
    )


def _valid_result(block: dict[str, Any]) -> dict[str, Any]:
    """Convert a block with a tool result to a format that providers accept.

    A missing status or empty content is filled in. JSON that is not an object becomes text.
    """
    result = block["toolResult"]
    content = [
        valid
        for item in blocks_of(result.get("content"))
        if (valid := _valid_result_block(item)) is not None
    ]
    valid_result = {"status": "success", **result, "content": content or [{"text": NO_OUTPUT}]}
    return block if valid_result == result else {**block, "toolResult": valid_result}


def _valid_result_block(block: dict[str, Any]) -> dict[str, Any] | None:
    if "text" in block:
        return block if _has_content(block["text"]) else None
    if "json" in block and not isinstance(block["json"], dict):
        return {"text": text_of(block["json"], lambda value: json.dumps(value, ensure_ascii=False))}
    return block or None


# --- Tool calls and results -----------------------------------------------------------------------


class UniqueNames:
    """Generator of names that are unique in a request: ids of tool calls, or names of documents.

    Args:
        max_characters: Maximum number of characters of a name.
        suffix: Suffix of a repeated name, with ``{}`` for its number.
    """

    def __init__(self, max_characters: int, suffix: str) -> None:
        self._max_characters = max_characters
        self._suffix = suffix
        self._used: set[str] = set()
        self._next: dict[str, int] = {}

    def unique(self, base: str) -> str:
        """Return ``base`` as a name that no earlier call has returned.

        The name is truncated to the maximum length, and gets a number if it is taken.
        """
        base = base[: self._max_characters]
        name, number = base, self._next.get(base, 2)
        while name in self._used:
            suffix = self._suffix.format(number)
            name = base[: self._max_characters - len(suffix)] + suffix
            number += 1
        self._next[base] = number
        self._used.add(name)
        return name


class _Call:
    """Tool call in a request, with its unique id and its result.

    The result is an error message until a result of the call is found in the history.
    """

    def __init__(self, id_: str) -> None:
        self.id = id_
        self.place = (-1, 0)
        self.result: dict[str, Any] = {
            "toolResult": {"toolUseId": id_, "status": "error", "content": [{"text": CUT_TEXT}]},
        }


def _pair_results(messages: list[Message]) -> list[Message]:
    """Give each tool call in a history exactly one result, in the next message.

    Of several results, the last is used. A call without a result gets an error as its result.
    Results without a call are removed.
    """
    ids = UniqueNames(_MOST_IN_ID, "_{}")
    calls: dict[int, list[_Call]] = {}
    latest: dict[str, list[_Call]] = {}
    for at, message in enumerate(messages):
        uses = [block["toolUse"] for block in message["content"] if "toolUse" in block]
        if uses:
            given = [_NOT_IN_ID.sub("_", str(use.get("toolUseId"))) for use in uses]
            calls[at] = [_Call(ids.unique(id_ or "call")) for id_ in given]
            latest |= {str(use.get("toolUseId")): [] for use in uses}
            for use, call in zip(uses, calls[at], strict=True):
                latest[str(use.get("toolUseId"))].append(call)
        else:
            _assign_results(message, at, latest)
    shown: list[Message] = []
    for at, message in enumerate(messages):
        if at in calls:
            shown.append(_with_ids(message, calls[at]))
            shown.append(_result_message(messages, at, calls[at]))
        elif any("toolResult" in block for block in message["content"]):
            content = [
                block
                for block in message["content"]
                if "toolResult" not in block and "cachePoint" not in block
            ]
            if content:
                shown.append(cast("Message", {**message, "content": content}))
        elif message["content"]:
            shown.append(message)
    return shown


def _assign_results(message: Message, at: int, latest: dict[str, list[_Call]]) -> None:
    """Assign each tool result in a message to the earlier tool call with the same id.

    A model may use an id again. The result then belongs to the last message with calls of this id.
    Several calls of this message with the same id get their results in order. If there are more
    results than calls, the last results are used.

    Args:
        message: The message with the results.
        at: Position of the message.
        latest: Calls of the last message that used an id, keyed by the id.
    """
    found: dict[str, list[tuple[int, Any]]] = {}
    for index, block in enumerate(message["content"]):
        if "toolResult" in block:
            found.setdefault(str(block["toolResult"].get("toolUseId")), []).append((index, block))
    for id_, results in found.items():
        calls = latest.get(id_, [])
        for call, (index, block) in zip(calls, results[-len(calls) :], strict=False):
            call.place = (at, index)
            call.result = _with_id(block, "toolResult", call.id)


def _with_ids(message: Message, calls: Sequence[_Call]) -> Message:
    left = iter(calls)
    content = [
        _with_id(block, "toolUse", next(left).id) if "toolUse" in block else block
        for block in message["content"]
    ]
    return cast("Message", _with_content(message, content))


def _with_id(block: Any, kind: str, id_: str) -> Any:
    return {**block, kind: {**block[kind], "toolUseId": id_}}


def _result_message(messages: Sequence[Message], at: int, calls: Sequence[_Call]) -> Message:
    """Return the message with the results of ``calls``, the tool calls in the message at ``at``.

    It replaces the next message if that has tool results, whose cache points stay. Otherwise, it is
    an additional message.
    """
    content: list[Any] = [call.result for call in sorted(calls, key=lambda call: call.place)]
    following = messages[at + 1] if at + 1 < len(messages) else None
    if following is None or following["role"] != "user" or is_user_input(following):
        return cast("Message", {"role": "user", "content": content})
    content += [block for block in following["content"] if "cachePoint" in block]
    return cast("Message", _with_content(following, content))


# --- Roles ----------------------------------------------------------------------------------------


def _alternating(messages: list[Message]) -> list[Message]:
    """Make user and assistant alternate in a history, starting with the user.

    Providers require this. Consecutive messages of one role are merged into one. Messages that must
    not be merged are separated by a placeholder message of the other role.
    """
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
    """Count the placeholder messages that a request adds to a history.

    They make user and assistant alternate, as providers require.
    """
    around: list[Message | None] = [None, *messages, None]
    return sum(map(needs_placeholder, around, messages, around[2:]))


# --- Media ----------------------------------------------------------------------------------------

# Bedrock Converse accepts 20 images and 5 documents. Providers limit a request to 20 to 50 MB,
# including media in base64.
MOST_IMAGES = 20
MOST_DOCUMENTS = 5
MOST_BYTES = 15_000_000
"""Most bytes of all media in a request. Encoded in base64, they have 20 MB."""

_MOST_IN_NAME, _MOST_OF_GIVEN_NAME = 200, 180
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


def media_bytes(medium: dict[str, Any]) -> int:
    """Return the number of bytes in an image or other medium.

    The number is 0 if the medium is only a reference, such as a URL.
    """
    source = medium.get("source")
    value = source.get("bytes") if isinstance(source, dict) else None
    return len(value) if isinstance(value, bytes | bytearray | str) else 0


def limit_media(messages: Sequence[Message]) -> list[Message]:
    """Replace the oldest media of a request by notes, if it exceeds the limits of model providers.

    There are limits for images, documents, and bytes of all media. The newest medium stays even if
    it alone exceeds the limit of bytes, because some providers accept more. Documents with equal
    names get different names.
    """
    left = {"image": MOST_IMAGES, "document": MOST_DOCUMENTS}
    room: float = math.inf
    names = UniqueNames(_MOST_IN_NAME, " ({})")

    def limited(block: dict[str, Any]) -> dict[str, Any]:
        nonlocal room
        kind = media_kind(block)
        size = media_bytes(block[kind]) if isinstance(block[kind], dict) else 0
        is_allowed = left.get(kind, 1) > 0
        if not is_allowed or size > room:
            room = 0 if is_allowed else room
            return {"text": media_note(block)}
        room = max(0, min(room, MOST_BYTES) - size)
        if kind in left:
            left[kind] -= 1
        return block

    def named(block: dict[str, Any]) -> dict[str, Any]:
        document = block.get("document")
        if not isinstance(document, dict):
            return block
        base = _SPACE.sub(" ", _NOT_IN_NAME.sub("-", str(document.get("name") or "")))[
            :_MOST_OF_GIVEN_NAME
        ].strip()
        name = names.unique(base if base.strip("- ") else "document")
        return (
            block
            if name == document.get("name")
            else {**block, "document": {**document, "name": name}}
        )

    newest_first = [_map_media(message, limited, step=-1) for message in reversed(messages)]
    return [_map_media(message, named) for message in reversed(newest_first)]


def _map_media(
    owner: Any, change: Callable[[dict[str, Any]], dict[str, Any]], step: int = 1
) -> Any:
    """Apply the function ``change`` to each image or other medium in a message.

    Media in tool results are included. With ``step=-1``, the last medium is changed first.
    """
    after = []
    content = owner.get("content") or []
    for block in content[::step]:
        if "toolResult" in block:
            block = {**block, "toolResult": _map_media(block["toolResult"], change, step)}
        elif "guardContent" in block and media_kind(block["guardContent"]):
            guarded = change(block["guardContent"])
            block = block if guarded is block["guardContent"] else guarded
        elif media_kind(block):
            block = change(block)
        after.append(block)
    return _with_content(owner, after[::step]) if after else owner


# --- Token usage ----------------------------------------------------------------------------------

_CACHED_TOKENS_APART = frozenset(
    {"strands.models.anthropic.AnthropicModel", "strands.models.bedrock.BedrockModel"}
)
"""Model classes whose provider reports cached tokens in addition to ``inputTokens``."""


def prompt_tokens(usage: Mapping[str, Any], model_class: type) -> int:
    """Return the number of tokens of a whole prompt, including cached tokens; 0 if not reported.

    Some providers include cached tokens in ``inputTokens``. Others report them separately, so they
    must be added. They are added in these cases:

    - ``model_class`` is known to report them separately.
    - There are more cached tokens than ``inputTokens``.
    - ``inputTokens`` and ``outputTokens`` do not add up to ``totalTokens``.

    Args:
        usage: ``metadata.usage`` of a message. A missing value counts as 0.
        model_class: Class of the model that answered.
    """
    tokens = usage.get("inputTokens") or 0
    cached = (usage.get("cacheReadInputTokens") or 0) + (usage.get("cacheWriteInputTokens") or 0)
    classes = {f"{base.__module__}.{base.__qualname__}" for base in model_class.__mro__}
    are_apart = (
        not classes.isdisjoint(_CACHED_TOKENS_APART)
        or cached > tokens
        or tokens + (usage.get("outputTokens") or 0) != (usage.get("totalTokens") or 0)
    )
    return tokens + cached if are_apart else tokens
