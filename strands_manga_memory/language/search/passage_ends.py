"""Where a text that is to be cut can be cut between passages: sentences, lines of lists and tables, blocks of code. Pure."""

from __future__ import annotations

from strands_manga_memory.language.search.passages import passages
from strands_manga_memory.lazy import expression

_SPARED = 0.25
"""At most so much of what may stay is given up for it: a text without such places, as JSON, is cut anywhere."""

_ENDS = expression(r"[.!?。！？][\"')\]”’」』）】]*\s*\Z|\n\Z")


def whole_head(text: str, size: int) -> int:
    """Return how many characters to take from the beginning of a text, at most ``size``."""
    if size >= len(text):
        return len(text)
    end = best = 0
    for passage in passages(text[:size]):
        end += len(passage)
        if end < size and _ENDS.search(passage[-64:]):
            best = end
    return best if size - best <= size * _SPARED else size


def whole_tail(text: str, size: int) -> int:
    """Return how many characters to take from the end of a text, at most ``size``."""
    if size >= len(text):
        return len(text)
    left = size + 1
    for passage in passages(text[len(text) - left :]):
        left -= len(passage)
        if _ENDS.search(passage[-64:]):
            return left if size - left <= size * _SPARED else size
    return size
