"""The gist of a message: of a tool result the values that a later call may need, of several texts those that say something."""

from __future__ import annotations

from typing import Any, cast

from strands.types.content import Message

from strands_manga_memory.conversation.history.shortening import cut_marker, is_shortened
from strands_manga_memory.conversation.history.tool_texts import media_of, result_text
from strands_manga_memory.language.acts.act_rules import DialogueAct
from strands_manga_memory.language.acts.acts import dialogue_act
from strands_manga_memory.language.acts.traits import Traits, traits
from strands_manga_memory.language.texts.marks import STUB
from strands_manga_memory.lazy import expression
from strands_manga_memory.messages.media_limits import media_kind, media_note
from strands_manga_memory.messages.placeholders import is_text

_READ = 20_000
"""Of a longer result only so many characters are read."""

_MOST_CHARACTERS = 600

_SHORT = 200
"""A longer text is not idle, whatever it says."""

_COURTESY = frozenset({DialogueAct.GREETING, DialogueAct.FAREWELL, DialogueAct.ACKNOWLEDGEMENT})
_STATES_NOTHING = Traits()

_VALUE = expression(r'"((?:[^"\\\n]|\\.){2,60})"(?!\s*:)|(?<![\w"])([A-Za-z0-9][\w.:/@#+-]*+)')
_DIGIT = expression(r"\d")
_TRIVIAL = frozenset({"true", "false", "null", "none"})


def values(text: str) -> dict[str, None]:
    """Return the values in a text, in order, each once: strings of JSON that are no keys, and words with a digit."""
    found: dict[str, None] = {}
    for quoted, bare in _VALUE.findall(text[:_READ]):
        value = quoted or bare
        if bare and not _DIGIT.search(bare, 1):
            continue
        if len(value) > 2 and value.lower() not in _TRIVIAL:
            found[value] = None
    return found


def gist_of(result: Message) -> Message | None:
    """Return a message of tool results cut down to its values, of texts to those that say something; None if cut before.

    Notes take the place of images, documents and other media in results.
    """
    if is_shortened(result):
        return None
    if is_text(result):
        return without_idle_texts(result)
    content: list[Any] = [_gist(block["toolResult"]) for block in cast("list[Any]", result["content"])]
    return cast("Message", {**result, "content": content})


def without_idle_texts(message: Message) -> Message:
    """Return a message of several texts with marks in place of short ones that state nothing; itself if none or all do."""
    content = message["content"]
    if len(content) < 2 or not is_text(message):
        return message
    idle = [_is_idle(block["text"], message["role"]) for block in content]
    if all(idle) or not any(idle):
        return message
    kept = [{"text": STUB} if skip else block for skip, block in zip(idle, content, strict=True)]
    return cast("Message", {**message, "content": kept})


def _is_idle(text: str, role: str) -> bool:
    if len(text) > _SHORT:
        return False
    act = dialogue_act(text, role)
    return act in _COURTESY or (act == DialogueAct.UNMATCHED and traits(text)[0] == _STATES_NOTHING)


def _gist(result: Any) -> dict[str, Any]:
    notes = [{"text": media_note(block)} for block in media_of(result) if media_kind(block)]
    text = result_text(result)
    if not text.strip():
        return {"toolResult": {**result, "content": notes or result["content"]}}
    return {"toolResult": {**result, "content": [{"text": _short(text)}, *notes]}}


def _short(text: str) -> str:
    if text.lstrip()[:1] not in ("{", "["):
        return _ends(text)
    kept, size = [], 0
    for value in values(text):
        size += len(value) + 2
        if size > _MOST_CHARACTERS:
            break
        kept.append(value)
    short = ", ".join(kept) + cut_marker(max(0, len(text) - size))
    return short if len(short) < len(text) else text


def _ends(text: str) -> str:
    """Return the beginning and the end of prose."""
    if len(text) <= _MOST_CHARACTERS:
        return text
    head, tail = _MOST_CHARACTERS * 3 // 4, _MOST_CHARACTERS // 4
    return text[:head] + cut_marker(len(text) - head - tail) + text[-tail:]
