"""Truncation of messages that are too large for the history, and access to their full texts.

Long texts and tool results are shortened, large arguments of tool calls are removed, and images and
other media are replaced by short notes. With a tool, the model can read the full text of a message.
"""

from __future__ import annotations

import itertools
import re
import weakref
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, cast

from strands import tool
from strands.types.content import Message

from strands_manga_memory.conversation.importance import WEIGHTS
from strands_manga_memory.conversation.truncation import (
    CUT_MARKER,
    cut_marker,
    excerpt_text,
    truncate_text,
)
from strands_manga_memory.language.dialogue_acts import SMALL_TALK_ACTS, DialogueAct, dialogue_act
from strands_manga_memory.language.search import split_passages
from strands_manga_memory.language.text_features import TextFeatures, text_features
from strands_manga_memory.messages import blocks_of, result_texts, spoken_text
from strands_manga_memory.messages.injection import LEFT_OUT, READER
from strands_manga_memory.messages.message_parts import PLACEHOLDER, media_kind
from strands_manga_memory.messages.provider_format import media_note
from strands_manga_memory.stores.codec import as_json

if TYPE_CHECKING:
    from strands.agent.agent import Agent

Count = Callable[[Message], int]

_OTHER_THAN_WORD = re.compile(r"\W+")


def short_name(message: Message) -> str:
    """Return the short name of a message, with which the model can request the full text.

    A truncated message shows its short name: the first 8 letters and digits of its tracking id.
    """
    return (_OTHER_THAN_WORD.sub("", message.get("tracking_id") or ""))[:8]


def shows_short_name(messages: Iterable[Message]) -> bool:
    """Return whether at least one message shows a short name.

    The model can request the full text of a truncated message by its short name.
    """
    texts = (
        text for message in messages for text in _strings(message["content"]) if READER in text
    )
    return any(found[2] for text in texts for found in CUT_MARKER.finditer(text))


def is_truncated(message: Message) -> bool:
    """Return whether parts of a message were removed to save tokens.

    A truncated message contains a note such as ``[... 900 characters cut ...]``.
    """
    texts = _strings(message["content"])
    return any(
        text == PLACEHOLDER or CUT_MARKER.search(text) or _LEFT_OUT.search(text) for text in texts
    )


def size_limit(sizes: Iterable[int], excess: int, floor: int) -> int:
    """Return the size to which large content blocks must be truncated to free enough tokens.

    Blocks above this size are truncated to it, and smaller blocks stay whole.

    Example: 60 tokens are to be freed from blocks with 100, 80 and 10 tokens. The result is 60. The
    first block then loses 40 tokens, the second 20, and the third none.

    Args:
        sizes: Sizes of the blocks before truncation, each above ``floor``.
        excess: Number of tokens to free.
        floor: Lower limit of the result, even if too few tokens are freed with it.
    """
    left = excess
    ordered = sorted(sizes, reverse=True)
    for number, size in enumerate(ordered, start=1):
        following = ordered[number] if number < len(ordered) else floor
        if left <= number * (size - following):
            return max(floor, size - -(-left // number))
        left -= number * (size - following)
    return floor


class MessageTruncator:
    """Makes the messages of a history smaller, until they have at most a given number of tokens.

    Locked messages stay unchanged, such as messages that the application has pinned (protected from
    eviction). Other messages are replaced by smaller copies in the dictionary ``messages``.

    Args:
        messages: The messages, keyed by position in the history. Changed in place.
        sizes: Tokens of each message, keyed by position. Changed in place.
        count: Function that returns the tokens of a message.
        locked: Positions of the locked messages.
    """

    def __init__(
        self,
        messages: dict[int, Message],
        sizes: dict[int, int],
        count: Count,
        locked: frozenset[int],
    ) -> None:
        self.messages = messages
        self.tokens = sum(sizes.values())
        self.locked_tokens = sum(map(sizes.__getitem__, locked))
        self._sizes = sizes
        self._count = count
        self._locked = locked

    def remove(self, positions: Collection[int]) -> None:
        """Remove messages that belong together, such as a tool call and its result.

        All of them stay if one of them is locked.
        """
        for at in positions if self._locked.isdisjoint(positions) else ():
            del self.messages[at]
            self.tokens -= self._sizes.pop(at)

    def truncate(self, kind: str, positions: Iterable[int], target: int, floor: int) -> None:
        """Truncate the largest texts, tool results or tool inputs, until all messages fit a target.

        The largest content blocks are truncated to about the same size. Smaller blocks and locked
        messages stay whole.

        Args:
            kind: ``"toolResult"``, ``"text"`` or ``"toolUse"``. ``guardContent`` and
                ``citationsContent`` count as ``"text"``.
            positions: Positions of the messages whose blocks may be truncated.
            target: Total tokens to reach for all messages.
            floor: Smallest size of a truncated block, in tokens.
        """
        if self.tokens <= target:
            return
        pieces: list[tuple[int, int, int]] = []
        for at in positions:
            for index, block in enumerate(
                self.messages[at]["content"] if at not in self._locked else ()
            ):
                if kind in block or (kind == "text" and not _OTHER_TEXTS.isdisjoint(block)):
                    size = self._text_tokens(_text_of(block))
                    if size > floor:
                        pieces.append((at, index, size))
        if not pieces:
            return
        cap = size_limit([size for _, _, size in pieces], self.tokens - target, floor)
        for at, index, size in reversed(
            pieces
        ):  # a note next to a block moves the blocks behind it
            if size > cap:
                whole = cast("dict[str, Any]", self.messages[at]["content"][index])
                self._replace(
                    at,
                    index,
                    _TRUNCATE[kind](whole, cap, self._text_tokens, short_name(self.messages[at])),
                )

    def replace_media(self, positions: Iterable[int], target: int) -> None:
        """Replace images, documents, video and audio by notes, until all messages fit a target.

        Media in tool results are replaced, too. Messages that must not change (locked), such as
        pinned messages, keep their media.

        Args:
            positions: Positions of the messages whose media may be replaced. The media of the first
                position are replaced first.
            target: Total tokens to reach for all messages.
        """
        for at in positions:
            for index, block in enumerate(
                self.messages[at]["content"] if at not in self._locked else ()
            ):
                if self.tokens <= target:
                    return
                noted = _without_media(cast("dict[str, Any]", block))
                if noted != block:
                    self._replace(at, index, [noted])

    def _text_tokens(self, text: str) -> int:
        return self._count({"role": "user", "content": [{"text": text}]})

    def _replace(self, at: int, index: int, blocks: Sequence[Any]) -> None:
        message = self.messages[at]
        content: Sequence[Any] = [
            *message["content"][:index],
            *blocks,
            *message["content"][index + 1 :],
        ]
        smaller = cast("Message", {**message, "content": content})
        size = self._count(smaller)
        if size < self._sizes[at]:
            self.tokens += size - self._sizes[at]
            self.messages[at], self._sizes[at] = smaller, size


# --- Blocks ---------------------------------------------------------------------------------------

_OTHER_TEXTS = frozenset({"guardContent", "citationsContent"})
_LEFT_OUT = re.compile(LEFT_OUT)
_INPUT_NOTE_TOKENS = 40
"""Tokens that are reserved for the note about a shortened tool input."""
_MOST_KEYS_NAMED = 80
"""Maximum characters of the list of left-out keys in the note."""


def _text_of(block: Any) -> str:
    if "toolResult" in block:
        return result_text(block["toolResult"])
    if "toolUse" in block:
        return as_json(block["toolUse"]["input"])
    return spoken_text(block) or ""


def truncate_result(
    block: dict[str, Any], tokens: int, count: Callable[[str], int], name: str
) -> list[dict[str, Any]]:
    """Truncate the text of a tool result block to about ``tokens`` tokens.

    The texts and JSON values of the result become one text. The id, the status and media stay
    unchanged.
    """
    result = block["toolResult"]
    text = truncate_text(result_text(result), tokens, count, name)
    texts = [{"text": text}] if text else []
    return [{**block, "toolResult": {**result, "content": [*texts, *media_of(result)]}}]


def _truncate_text_block(
    block: dict[str, Any], tokens: int, count: Callable[[str], int], name: str
) -> list[dict[str, Any]]:
    text = truncate_text(_text_of(block), tokens, count, name)
    if "guardContent" in block:
        guarded = block["guardContent"]
        return [{**block, "guardContent": {**guarded, "text": {**guarded["text"], "text": text}}}]
    return [{"text": text}]


def _truncate_input(
    block: dict[str, Any], tokens: int, count: Callable[[str], int], name: str
) -> list[dict[str, Any]]:
    """Remove the largest arguments of a tool call, until its input has about ``tokens`` tokens.

    A text block before the call names the removed arguments. The other arguments stay whole: a
    model imitates its earlier calls, and might write a truncation marker into a file.
    """
    use = block["toolUse"]
    members = use["input"] if isinstance(use["input"], dict) else {}
    room = tokens - _INPUT_NOTE_TOKENS
    kept: set[str] = set()
    for key in sorted(members, key=lambda key: len(as_json(members[key]))):
        room -= count(as_json({key: members[key]}))
        if room < 0:
            break
        kept.add(key)
    shorter = {key: value for key, value in members.items() if key in kept}
    left_out = ", ".join([str(key) for key in members if key not in kept])[:_MOST_KEYS_NAMED]
    gone = len(as_json(use["input"])) - len(as_json(shorter))
    note = f"Input of {use['name']} not shown: {left_out}{cut_marker(gone, name)}"
    return (
        [{"text": note}, {**block, "toolUse": {**use, "input": shorter}}] if gone > 0 else [block]
    )


_TRUNCATE: dict[str, Callable[..., list[dict[str, Any]]]] = {
    "text": _truncate_text_block,
    "toolResult": truncate_result,
    "toolUse": _truncate_input,
}


def _without_media(block: dict[str, Any]) -> dict[str, Any]:
    if "toolResult" in block:
        result = block["toolResult"]
        return {
            **block,
            "toolResult": {
                **result,
                "content": [_without_media(item) for item in blocks_of(result["content"])],
            },
        }
    return {"text": media_note(block)} if media_kind(block) else block


def _strings(value: Any) -> Iterator[str]:
    """Yield all strings in a message, except those in JSON values of tool results."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for kind, item in value.items():
            if kind != "json":
                yield from _strings(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _strings(item)


# --- Short forms ----------------------------------------------------------------------------------

_MOST_CONDENSED = 600
"""Maximum characters of a shortened tool result, or of the passages kept of a long text."""

_LONG_TEXT = 2_000
"""Size in UTF-8 bytes above which a user's text is reduced to its important passages."""

_MOST_PASSAGES = 400
"""Number of last passages of a long text that are considered."""

_LONGEST_SMALL_TALK = 200
"""Maximum characters of a text that may count as small talk."""


def condensed_message(message: Message) -> Message | None:
    """Return a short form of a user message or of a message with tool results.

    The short form stays in the history if there is no room for the full message. These rules apply:

    - A tool result becomes an excerpt of about 600 characters. Short notes replace its media.
    - Of a long text of the user, only the important passages stay, such as a wish or a correction.
    - In a message with several content blocks, ``[…]`` replaces each text that is only small talk.

    The result is None if these rules do not make the message shorter, or if the message is the
    assistant's or was truncated before.
    """
    content = cast("list[Any]", message["content"])
    short: list[Any] = []
    for block in content if message["role"] == "user" else ():
        if "toolResult" in block:
            short.append(_condensed_result(block["toolResult"], short_name(message)))
        elif [*block] == ["text"] and isinstance(block["text"], str):
            is_small_talk = len(content) > 1 and _is_small_talk(block["text"])
            short.append(
                {
                    "text": PLACEHOLDER
                    if is_small_talk
                    else _important_passages(block["text"], message)
                }
            )
        else:
            return None
    if all(block.get("text") == PLACEHOLDER for block in short):
        return None
    is_shorter = bool(short) and short != content and not is_truncated(message)
    return cast("Message", {**message, "content": short}) if is_shorter else None


def _is_small_talk(text: str) -> bool:
    """Return whether a user's text is only small talk, or has no recognizable content.

    The result is False for any text of more than 200 characters.
    """
    if len(text) > _LONGEST_SMALL_TALK:
        return False
    act = dialogue_act(text, "user")
    return act in SMALL_TALK_ACTS or (
        act == DialogueAct.UNMATCHED and text_features(text)[0] == TextFeatures()
    )


def _important_passages(text: str, message: Message) -> str:
    """Return the important passages of a user's long text, such as wishes and corrections.

    A truncation marker shows the number of removed characters. If no important passage is short
    enough, the text is truncated to about 600 characters. A text of at most 2,000 bytes, or without
    a recognized purpose, stays unchanged.
    """
    if len(text.encode(errors="replace")) <= _LONG_TEXT:
        return text
    name = short_name(message)
    passages = split_passages(text)
    first = max(0, len(passages) - _MOST_PASSAGES)
    acts = {at: dialogue_act(passages[at], "user") for at in range(first, len(passages))}
    important = [
        at
        for at, act in acts.items()
        if act != DialogueAct.UNMATCHED and act not in SMALL_TALK_ACTS
    ]
    kept: list[int] = []
    room = _MOST_CONDENSED
    for at in sorted(important, key=lambda at: (getattr(WEIGHTS, acts[at]), at), reverse=True):
        if len(passages[at]) <= room:
            kept.append(at)
            room -= len(passages[at])
    if not kept:
        return (
            text
            if dialogue_act(text, "user") == DialogueAct.UNMATCHED
            else truncate_text(text, _MOST_CONDENSED, len, name)
        )
    kept.sort()
    gaps = [
        after - before for before, after in zip([-1, *kept], [*kept, len(passages)], strict=True)
    ]
    widest = gaps.index(max(gaps))
    head, tail = (
        "".join(passages[at] for at in part).strip() for part in (kept[:widest], kept[widest:])
    )
    short = f"{head}{cut_marker(len(text) - len(head) - len(tail), name)}{tail}"
    return short if len(short) < len(text) else text


def _condensed_result(result: Any, name: str) -> dict[str, Any]:
    notes = [{"text": media_note(block)} for block in media_of(result) if media_kind(block)]
    text = result_text(result)
    if not text.strip():
        return {"toolResult": {**result, "content": notes or result["content"]}}
    return {
        "toolResult": {
            **result,
            "content": [{"text": excerpt_text(text, _MOST_CONDENSED, name)}, *notes],
        }
    }


# --- Tool results ---------------------------------------------------------------------------------


def results_of(message: Message) -> Iterator[Any]:
    """Return an iterator over the tool results in a message."""
    return (block["toolResult"] for block in message["content"] if "toolResult" in block)


def result_text(result: Any) -> str:
    """Return a tool result as one text: its texts and JSON values, joined by line breaks."""
    return "\n".join(result_texts(result, as_json))


def media_of(result: Any) -> list[dict[str, Any]]:
    """Return the media of a tool result: all its content blocks that are neither text nor JSON."""
    return [
        block
        for block in blocks_of(result["content"])
        if "text" not in block and "json" not in block
    ]


# --- Full texts of truncated messages -------------------------------------------------------------

PAGE = 4_000
"""Maximum characters that one call of the tool ``read_cut_message`` returns."""


class FullTextArchive:
    """Full texts of an agent's truncated messages, which the model can read with a tool.

    The model requests a text by the short name that the truncated message shows.

    Args:
        log: Function that returns the untruncated messages of the conversation. None if no session
            stores the messages.
        latest: Latest messages of the conversation, untruncated if possible.

    Attributes:
        log: The argument ``log``. Without a log, only the latest messages can be read.
        has_tool: Whether the agent has the tool. The conversation manager saves this value, so that
            a restored agent has the tool from the start: a later change of its tools would
            invalidate the provider's prompt cache.
    """

    def __init__(
        self, log: Callable[[], Iterable[Message]] | None, latest: Iterable[Message]
    ) -> None:
        self.has_tool = False
        self.log = log
        self._latest = latest

    def add_tool(self, agent: Agent, messages: Iterable[Message]) -> None:
        """Give an agent the tool that reads full texts, if one of its messages needs the tool.

        The tool is needed if a truncated message shows a short name, with which the model can
        request the full text. An agent that had the tool before a restart (``has_tool``) always
        gets the tool.
        """
        if READER in agent.tool_names:
            return
        self.has_tool = self.has_tool or shows_short_name(messages)
        if self.has_tool:
            # Strands' registry is part of a reference cycle, which must not hold the conversation.
            reader = type(self).read_cut_message.__get__(weakref.proxy(self))
            agent.tool_registry.register_tool(reader)

    @tool(name=READER)
    def read_cut_message(self, name: str, offset: int = 0) -> str:
        """Read the full text of an earlier message that was shortened in the conversation.

        Args:
            name: The name given where the message was shortened.
            offset: Character to begin with; each call returns up to 4,000 characters.
        """
        # The log is searched first, because a message may have been redacted there.
        log = self.log() if self.log is not None else ()
        for message in itertools.chain(log, self._latest):
            if name and short_name(message) == name:
                return _page("\n".join(filter(None, texts_of(message))), offset)
        return f"There is no message with the name {name!r}."


def texts_of(message: Message) -> list[str]:
    """Return one text for each content block of a message: its text, tool input or tool result.

    The text of an image or another medium is empty.
    """
    return list(map(_text_of, message["content"]))


def _page(text: str, offset: int) -> str:
    start = max(0, offset)
    page = text[start : start + PAGE]
    end = start + len(page)
    more = (
        f"\n[characters {start} to {end} of {len(text)}; go on with offset={end}]"
        if end < len(text)
        else ""
    )
    return page + more
