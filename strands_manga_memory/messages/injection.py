"""Addition, escaping and removal of texts that this package puts into requests to a model, and the plain text of messages.

The added text consists of tagged blocks and of placeholders for removed content.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from typing import Any, cast

from strands.middleware import InvokeModelContext
from strands.types.content import Message, SystemContentBlock

from strands_manga_memory.messages.message_parts import CUT_TEXT, PLACEHOLDER, spoken_text
from strands_manga_memory.messages.text_excerpts import map_stretches
from strands_manga_memory.messages.tokens import shorten_line
from strands_manga_memory.messages.turn_context import CONTEXT_TAG

_MARKUP = re.compile("[&<>]")
_TO_ESCAPE_FIRST = re.compile("&(?!(?:amp|lt|gt);)")
"""Ampersands that do not begin an escape such as ``&lt;``."""
_TO_ESCAPE = re.compile("[<>\x00-\x08\x0b-\x1f\x7f]")
"""Characters to escape in ASCII text. Most texts have none and are returned unchanged."""

BLOCKS = (
    "context",
    "conversation",
    "conversation_facts",
    "conversation_state",
    "conversation_summary",
    "draft",
    "handoff",
    "instructions",
    "recalled_history",
    "user_memory",
    "user_preferences",
)
"""Names of the tags around blocks that this package adds to requests."""

_LIKE_OPEN = "<\uff1c\ufe64\u1438\u02c2\u2039\u276e\u27e8\u2329"
_LIKE_CLOSE = ">\uff1e\ufe65\u1433\u02c3\u203a\u276f\u27e9\u232a"
_ESCAPED = str.maketrans({**dict.fromkeys(_LIKE_OPEN, "&lt;"), **dict.fromkeys(_LIKE_CLOSE, "&gt;")})
_SLASH = "/\uff0f\u2044\u2215"
# Brackets of Japanese titles; they stay, unless something follows that makes them look like a tag.
_TITLE_AS_TAG = re.compile(rf"[\u3008\u300a](?=\s*(?:[{_SLASH}!?]|(?:{'|'.join(BLOCKS)})(?![a-z_])))", re.IGNORECASE)
_OWN_TAG = re.compile(rf"([{_LIKE_OPEN}\u3008\u300a])(?=[\s{_SLASH}]*(?:{'|'.join(BLOCKS)})(?![a-z_]))", re.IGNORECASE)
_OWN_BLOCK = re.compile(rf"<({'|'.join(BLOCKS)})(?: [^<>]{{0,200}})?>")
_INVISIBLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e"
    "\u2060-\u206f\u3164\ud800-\udfff\ufeff\uffa0\ufff0-\ufffb\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)


def with_system_text(context: InvokeModelContext, text: str) -> InvokeModelContext:
    """Return a request with text added at the end of its system prompt. A cache point at the end stays after this text."""
    if not text:
        return context
    prompt = context.system_prompt
    blocks = [{"text": prompt}] if isinstance(prompt, str) else list(cast("Sequence[dict[str, Any]]", prompt or ()))
    at = len(blocks) - (bool(blocks) and "cachePoint" in blocks[-1])
    return context.replace(system_prompt=cast("list[SystemContentBlock]", [*blocks[:at], {"text": text}, *blocks[at:]]))


def escape_line(text: object, most: int = 100) -> str:
    """Return a text as one line that cannot act as an instruction.

    Line breaks become spaces, tags are escaped, and invisible characters are removed.

    Args:
        text: Text to escape.
        most: Largest number of characters of the line, counted before escaping.
    """
    line = str(text)
    if line.isascii() and line.isprintable() and not _MARKUP.search(line):
        return shorten_line(line, most)
    plain = "".join(" " if sign.isspace() else sign for sign in line if sign.isspace() or sign.isprintable())
    return escape_tags(_TO_ESCAPE_FIRST.sub("&amp;", shorten_line(unicodedata.normalize("NFC", plain), most)))


def escape_tags(text: str) -> str:
    """Escape a text so that it cannot open or close a tagged block.

    ``<``, ``>`` and similar characters become ``&lt;`` and ``&gt;``. Line breaks stay. Invisible characters are removed.
    """
    if text.isascii() and _TO_ESCAPE.search(text) is None:
        return text
    visible = _INVISIBLE.sub("", text)
    return _TITLE_AS_TAG.sub("&lt;", map_stretches(lambda part: part.translate(_ESCAPED), visible))


def strip_own_blocks(text: str) -> str:
    """Return a text without the tagged blocks that this package adds to requests."""
    kept, start = [], 0
    unclosed: set[str] = set()
    for opening in _OWN_BLOCK.finditer(text):
        name = opening[1]
        if opening.start() < start or name in unclosed:
            continue
        closing = f"</{name}>"
        end = text.find(closing, opening.end())
        if end < 0:
            unclosed.add(name)  # searched once: a text of many opening tags takes linear time
            continue
        kept.append(text[start : opening.start()])
        start = end + len(closing)
    return "".join([*kept, text[start:]])


def escape_own_tags(text: str) -> str:
    """Escape tags that this package uses, such as ``<context>``, in a trusted text. Other tags stay."""
    return _OWN_TAG.sub("&lt;", _INVISIBLE.sub("", text))


QUOTES = "<recalled_history>"
"""Beginning of texts that quote earlier messages."""

READER = "read_cut_message"
"""Name of the tool that returns the full text of a truncated message."""

CUT = rf"\[\.\.\. (\d{{1,12}}) characters cut(?:; {READER}\('(\w{{1,8}})'\))? \.\.\.\]"
"""Pattern of the placeholder in a truncated text, with the number of removed characters and the id for the reading tool."""

LEFT_OUT = r'\[(?:image|document|video|audio)(?: "[^"\[\]]{1,80}")?(?:, [0-9.]{1,12} [KM]B)?, not kept\]'
"""Pattern of the note for a removed medium, such as ``[image, 48 KB, not kept]``."""

_MARKS = re.compile(rf"{re.escape(CUT_TEXT)}|{re.escape(PLACEHOLDER)}|{CUT}|{LEFT_OUT}|\[blank text\]")


def is_quote(text: str) -> bool:
    """Return whether a text begins with the tag of quoted earlier messages, or of the context block that plugins add."""
    return text.lstrip().startswith((QUOTES, CONTEXT_TAG))


def strip_placeholders(text: str) -> str:
    """Return a text without the placeholders that this package writes for removed content."""
    if "[" not in text:
        return text
    plain, count = _MARKS.subn("", text)
    return plain.strip() if count else text


def message_text(message: Message) -> str:
    """Return the plain text of a message: its ``text``, ``guardContent`` and ``citationsContent`` blocks, one per line.

    Placeholders for removed content are left out.
    """
    return strip_placeholders("\n".join(filter(None, map(spoken_text, message["content"]))))
