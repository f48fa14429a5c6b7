"""Marks: what this package writes into a history in the place of words. They are nobody's words. Pure."""

from __future__ import annotations

import re

from strands_manga_memory.messages.placeholders import CUT_TEXT, STUB

__all__ = ["CUT", "CUT_TEXT", "LEFT_OUT", "QUOTES", "READER", "STUB", "is_quote", "without_marks"]

QUOTES = "<recalled_history>"
"""How a text begins that quotes earlier messages."""

READER = "read_cut_message"
"""The tool that returns a message of which something was cut."""

CUT = rf"\[\.\.\. (\d{{1,12}}) characters cut(?:; {READER}\('(\w{{1,8}})'\))? \.\.\.\]"
"""The pattern of what stands where a text was cut: how much of it, and the name by which it can be read."""

LEFT_OUT = r'\[(?:image|document|video|audio)(?: "[^"\[\]]{1,80}")?(?:, [0-9.]{1,12} [KM]B)?, not kept\]'
"""The pattern of the note that stands for a removed medium, such as ``[image, 48 KB, not kept]``."""

_MARKS = re.compile(
    rf"{re.escape(CUT_TEXT)}|{re.escape(STUB)}|{CUT}|{LEFT_OUT}|\[shortened; full text: [^\]]{{0,300}}\]|\[blank text\]"
)


def is_quote(text: str) -> bool:
    """Whether a text quotes earlier messages."""
    return text.lstrip().startswith(QUOTES)


def without_marks(text: str) -> str:
    """Return what was said in a text: the text without marks; one that has none as it is."""
    if "[" not in text:
        return text
    said, marks = _MARKS.subn("", text)
    return said.strip() if marks else text
