"""Truncation of messages that are too large for the history, and access to their full texts.

Long texts and tool results are shortened, large arguments of tool calls are removed, and images and
other media are replaced by short notes. With a tool, the model can read the full text of a message.
"""

from __future__ import annotations

import re
import weakref
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import chain, pairwise
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
    """Return the first 8 letters and digits of a message's tracking id.

    A truncated message shows this name, with which the model can request the full text.
    """
    return (_OTHER_THAN_WORD.sub("", message.get("tracking_id") or ""))[:8]


def shows_short_name(messages: Iterable[Message]) -> bool:
    """Return whether any message shows the name with which the model can read its full text."""
    texts = (text for message in messages for text in _shown_texts(message))
    return any(found[2] for text in texts for found in CUT_MARKER.finditer(text))


def reads_full_text(message: Message) -> bool:
    """Return whether a message calls the tool that reads full texts of truncated messages."""
    return any(block.get("toolUse", {}).get("name") == READER for block in message["content"])


def is_truncated(message: Message) -> bool:
    """Return whether parts of a message were removed to save tokens.

    A truncated message contains a note such as ``[... 900 characters cut ...]``.
    """
    return any(
        text == PLACEHOLDER or CUT_MARKER.search(text) or _LEFT_OUT.search(text)
        for text in _shown_texts(message)
    )


def size_limit(sizes: Iterable[int], excess: int, floor: int) -> int:
    """Return the size, in tokens, to which large blocks must be truncated to free enough tokens.

    Content blocks above this size are truncated to it, and smaller blocks stay whole.

    Example: 60 tokens are to be freed from blocks with 100, 80 and 10 tokens. The result is 60. The
    first block then loses 40 tokens, the second 20, and the third none.

    Args:
        sizes: Sizes of the blocks before truncation, each above ``floor``.
        excess: Number of tokens to free.
        floor: Smallest result, even if it frees less than ``excess`` tokens.
    """
    left = excess
    ordered = sorted(sizes, reverse=True)
    for number, (size, following) in enumerate(pairwise([*ordered, floor]), start=1):
        if left <= number * (size - following):
            return max(floor, size - -(-left // number))
        left -= number * (size - following)
    return floor


class MessageTruncator:
    """Makes the messages of a history smaller, until they have at most a given number of tokens.

    The dicts ``messages`` and ``sizes`` (in tokens) are keyed by position in the history, and
    changed in place: smaller copies replace messages. Locked messages, such as pinned ones, stay.
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
        """Remove messages that belong together. If one of them is locked, all of them stay."""
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
        large = [at for at in positions if self._sizes[at] > floor]
        if self.tokens <= target or not large:
            return
        kinds = _TEXTS if kind == "text" else {kind}
        pieces = [
            (at, index, size)
            for at, index, block in self._changeable_blocks(large)
            if not kinds.isdisjoint(block)
            and (size := self._text_tokens(_block_text(block))) > floor
        ]
        cap = size_limit([size for _, _, size in pieces], self.tokens - target, floor)
        for at, index, size in reversed(pieces):  # an added note moves the blocks behind it
            if size > cap:
                block: Any = self.messages[at]["content"][index]
                rest = cap, self._text_tokens, short_name(self.messages[at])
                if kind == "toolUse":
                    smaller = _truncate_input(block, *rest)
                else:
                    smaller = [_with_block_text(block, truncate_text(_block_text(block), *rest))]
                self._replace(at, index, smaller)

    def replace_media(self, positions: Iterable[int], target: int) -> None:
        """Replace images, documents, video and audio by notes, until a token count is reached.

        Media in tool results are replaced, too. Locked messages keep their media.

        Args:
            positions: Positions of the messages whose media may be replaced, in the order of
                replacement.
            target: Total tokens to reach for all messages.
        """
        for at, index, block in self._changeable_blocks(positions):
            if self.tokens <= target:
                return
            noted = _without_media(block)
            if noted != block:
                self._replace(at, index, [noted])

    def _changeable_blocks(
        self, positions: Iterable[int]
    ) -> Iterator[tuple[int, int, dict[str, Any]]]:
        for at in positions:
            if at not in self._locked:
                for index, block in enumerate(self.messages[at]["content"]):
                    yield at, index, cast("dict[str, Any]", block)

    def _text_tokens(self, text: str) -> int:
        return self._count({"role": "user", "content": [{"text": text}]})

    def _replace(self, at: int, index: int, blocks: Sequence[Any]) -> None:
        message = self.messages[at]
        content: list[Any] = list(message["content"])
        content[index : index + 1] = blocks
        smaller = cast("Message", {**message, "content": content})
        size = self._count(smaller)
        if size < self._sizes[at]:
            self.tokens += size - self._sizes[at]
            self.messages[at], self._sizes[at] = smaller, size


# --- Blocks ---------------------------------------------------------------------------------------

_TEXTS = frozenset({"text", "guardContent", "citationsContent"})
_VALUES = frozenset({"text", "json"})
_LEFT_OUT = re.compile(LEFT_OUT)
_INPUT_NOTE_TOKENS = 40
"""Tokens that are reserved for the note about a shortened tool input."""
_MOST_KEYS_NAMED = 80
"""Maximum characters of the list of left-out keys in the note."""


def _block_text(block: Any) -> str:
    if "toolResult" in block:
        return result_text(block["toolResult"])
    if "toolUse" in block:
        return as_json(block["toolUse"]["input"])
    return spoken_text(block) or ""


def _with_block_text(block: dict[str, Any], text: str) -> dict[str, Any]:
    if "toolResult" in block:
        result = block["toolResult"]
        media = [item for item in blocks_of(result["content"]) if item.keys().isdisjoint(_VALUES)]
        content = [*([{"text": text}] if text else []), *media]
        return {**block, "toolResult": {**result, "content": content}}
    if "guardContent" in block:
        guarded = block["guardContent"]
        return {**block, "guardContent": {**guarded, "text": {**guarded["text"], "text": text}}}
    return {"text": text}


def _truncate_input(
    block: dict[str, Any], tokens: int, count: Callable[[str], int], name: str
) -> list[dict[str, Any]]:
    use = block["toolUse"]
    members = use["input"] if isinstance(use["input"], dict) else {}
    room = tokens - _INPUT_NOTE_TOKENS
    left_out = set()
    for key in sorted(members, key=lambda key: len(as_json(members[key]))):
        room -= count(as_json({key: members[key]}))
        if room < 0:
            # Not truncated: a model that sees a truncated argument may write it into a file.
            left_out.add(key)
    shorter = {key: value for key, value in members.items() if key not in left_out}
    gone = len(as_json(use["input"])) - len(as_json(shorter))
    if gone <= 0:
        return [block]
    names = ", ".join(str(key) for key in members if key in left_out)[:_MOST_KEYS_NAMED]
    note = f"Input of {use['name']} not shown: {names}{cut_marker(gone, name)}"
    return [{"text": note}, {**block, "toolUse": {**use, "input": shorter}}]


def _without_media(block: dict[str, Any]) -> dict[str, Any]:
    if "toolResult" in block:
        result = block["toolResult"]
        content = [_without_media(item) for item in blocks_of(result["content"])]
        return {**block, "toolResult": {**result, "content": content}}
    return {"text": media_note(block)} if media_kind(block) else block


def _shown_texts(message: Message) -> Iterator[str]:
    for block in message["content"]:
        if "toolResult" in block:
            # JSON values are left out.
            yield from result_texts(block["toolResult"], lambda value: "")
        else:
            yield spoken_text(block) or ""


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
    """Return a short form of a user message with text or tool results, or None.

    The short form stays in the history if there is no room for the full message. These rules apply:

    - A tool result becomes an excerpt of about 600 characters. Short notes replace its media.
    - Of a long text of the user, only the important passages stay, such as a wish or a correction.
    - In a message with several content blocks, ``[…]`` replaces each text that is only small talk.

    None if no rule applies, for messages of the assistant, and for truncated messages.
    """
    content = cast("list[Any]", message["content"])
    name = short_name(message)
    short: list[Any] = []
    for block in content if message["role"] == "user" else ():
        text = _block_text(block)
        if "toolResult" in block:
            excerpt = excerpt_text(text, _MOST_CONDENSED, name)
            short.append(
                _without_media(_with_block_text(block, excerpt) if text.strip() else block)
            )
        elif block != {"text": text}:
            return None
        elif len(content) > 1 and _is_small_talk(text):
            short.append({"text": PLACEHOLDER})
        else:
            short.append({"text": _important_passages(text, name)})
    if short == content or all(block.get("text") == PLACEHOLDER for block in short):
        return None
    return None if is_truncated(message) else cast("Message", {**message, "content": short})


def _is_small_talk(text: str) -> bool:
    if len(text) > _LONGEST_SMALL_TALK:
        return False
    act = dialogue_act(text, "user")
    is_empty = act == DialogueAct.UNMATCHED and text_features(text)[0] == TextFeatures()
    return is_empty or act in SMALL_TALK_ACTS


def _important_passages(text: str, name: str) -> str:
    """Return the passages of a user's long text with wishes, corrections and the like."""
    if len(text.encode(errors="replace")) <= _LONG_TEXT:
        return text
    passages = split_passages(text)
    important: list[tuple[float, int]] = []
    for at in range(max(0, len(passages) - _MOST_PASSAGES), len(passages)):
        act = dialogue_act(passages[at], "user")
        if act != DialogueAct.UNMATCHED and act not in SMALL_TALK_ACTS:
            important.append((getattr(WEIGHTS, act), at))
    kept: list[int] = []
    room = _MOST_CONDENSED
    for _, at in sorted(important, reverse=True):
        if len(passages[at]) <= room:
            kept.append(at)
            room -= len(passages[at])
    if not kept:
        has_purpose = dialogue_act(text, "user") != DialogueAct.UNMATCHED
        return truncate_text(text, _MOST_CONDENSED, len, name) if has_purpose else text
    kept.sort()
    gaps = [after - before for before, after in pairwise([-1, *kept, len(passages)])]
    widest = gaps.index(max(gaps))
    head = "".join(passages[at] for at in kept[:widest]).strip()
    tail = "".join(passages[at] for at in kept[widest:]).strip()
    short = f"{head}{cut_marker(len(text) - len(head) - len(tail), name)}{tail}"
    return short if len(short) < len(text) else text


# --- Tool results ---------------------------------------------------------------------------------


def results_of(message: Message) -> list[Any]:
    """Return the tool results in a message."""
    return [block["toolResult"] for block in message["content"] if "toolResult" in block]


def result_text(result: Any) -> str:
    """Return a tool result as one text: its texts and JSON values, joined by line breaks."""
    return "\n".join(result_texts(result, as_json))


# --- Full texts of truncated messages -------------------------------------------------------------

PAGE = 4_000
"""Maximum characters that one call of the tool ``read_cut_message`` returns."""


class FullTextArchive:
    """Full texts of an agent's truncated messages, which the model can read with a tool.

    The model requests a text by the short name that the truncated message shows.

    Args:
        log: Function that returns the untruncated messages of the conversation. None if no session
            stores the messages: only the latest messages can then be read.
        latest: Latest messages of the conversation, in full where possible.

    Attributes:
        has_tool: Whether the agent has the tool. The value is saved, so that a restored agent has
            the tool from its first request on. Adding the tool later would invalidate the
            provider's prompt cache.
    """

    def __init__(
        self, log: Callable[[], Iterable[Message]] | None, latest: Iterable[Message]
    ) -> None:
        self.has_tool = False
        self.log = log
        self._latest = latest

    def add_tool(self, agent: Agent, messages: Iterable[Message]) -> None:
        """Give an agent the tool that reads full texts, if a truncated message shows a short name.

        An agent that had the tool before a restart (``has_tool``) always gets the tool.
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
        for message in chain(log, self._latest):
            if name and short_name(message) == name:
                text = "\n".join(filter(None, texts_of(message)))
                start = max(0, offset)
                end = min(len(text), start + PAGE)
                more = f"\n[characters {start} to {end} of {len(text)}; go on with offset={end}]"
                return text[start:end] + (more if end < len(text) else "")
        return f"There is no message with the name {name!r}."


def texts_of(message: Message) -> list[str]:
    """Return one text for each content block of a message: its text, tool input or tool result.

    The text of an image or another medium is empty.
    """
    return list(map(_block_text, message["content"]))
