"""Excerpt of a message: short forms of its tool results, or those of its several texts that state something."""

from __future__ import annotations

from typing import Any, cast

from strands.types.content import Message

from strands_manga_memory.conversation.history.shortening import is_shortened
from strands_manga_memory.conversation.history.tool_texts import media_of, result_text
from strands_manga_memory.conversation.history.truncation import excerpt_text
from strands_manga_memory.language.dialogue_acts import DialogueAct, dialogue_act
from strands_manga_memory.language.text_features import TextFeatures, text_features
from strands_manga_memory.messages.media_limits import media_kind, media_note
from strands_manga_memory.messages.placeholders import STUB, is_text

_MOST_CHARACTERS = 600

_SHORT = 200
"""A longer text is not idle, whatever it says."""

_COURTESY = frozenset({DialogueAct.GREETING, DialogueAct.FAREWELL, DialogueAct.ACKNOWLEDGEMENT})
_STATES_NOTHING = TextFeatures()


def gist_of(result: Message) -> Message | None:
    """Return a message of tool results in short form, or of texts without those that state nothing; None if truncated before.

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
    return act in _COURTESY or (act == DialogueAct.UNMATCHED and text_features(text)[0] == _STATES_NOTHING)


def _gist(result: Any) -> dict[str, Any]:
    notes = [{"text": media_note(block)} for block in media_of(result) if media_kind(block)]
    text = result_text(result)
    if not text.strip():
        return {"toolResult": {**result, "content": notes or result["content"]}}
    return {"toolResult": {**result, "content": [{"text": excerpt_text(text, _MOST_CHARACTERS)}, *notes]}}
