"""Bounded reading of long texts: excerpts, pieces and stretches that a regular expression reads within milliseconds. Pure.

A regular expression blocks all threads, including the event loop, until it ends. Therefore texts of users and tools are
read as an excerpt of beginning and end, or piece by piece.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

MOST = 8_000
"""Most characters of an excerpt."""

PIECE = 2_000
"""Most characters of a piece."""

_AT_ONCE, _BEYOND = 4_000, 500
"""Characters that are searched for the beginnings of matches at once, and how far matches may extend beyond."""


def head_and_tail(text: str, most: int = MOST, gap: str = "\n") -> str:
    """Return the beginning and the end of a text, at most ``most`` characters in total.

    Three quarters come from the beginning. Pasted material is usually in the middle, in place of which is ``gap``.
    """
    tail = most // 4
    return text if len(text) <= most else f"{text[: most - tail - len(gap)]}{gap}{text[-tail:]}"


def split_pieces(text: str) -> Iterator[str]:
    """Yield the lines of a text. A line of over 2,000 characters is split after spaces or full stops if possible."""
    start = 0
    while start < len(text):
        end = text.find("\n", start, start + PIECE)
        if end >= 0:
            yield text[start:end]
            start = end + 1
            continue
        last = start + PIECE
        cut = last if last >= len(text) else max(text.rfind(" ", start, last), text.rfind("。", start, last)) + 1 or last
        yield text[start:cut]
        start = cut


def find_matches(pattern: re.Pattern[str], text: str) -> Iterator[re.Match[str]]:
    """Return the matches of a pattern, as ``finditer`` does; a long text is searched in parts, so that the time is linear.

    In a text of over 4,500 characters, matches that need more than 500 characters of lookahead may be missed.
    """
    return pattern.finditer(text) if len(text) <= _AT_ONCE + _BEYOND else _by_stretches(pattern, text)


def _by_stretches(pattern: re.Pattern[str], text: str) -> Iterator[re.Match[str]]:
    start = 0
    while start < len(text):
        end = start + _AT_ONCE
        for match in pattern.finditer(text, start, end + _BEYOND):
            if match.start() >= end:
                break
            if match.end() == end + _BEYOND:  # it may be longer
                match = pattern.match(text, match.start()) or match
            yield match
            end = max(end, match.end())
        start = end


def map_stretches(change: Callable[[str], str], text: str) -> str:
    """Apply a change of single characters to a text, stretch by stretch."""
    if len(text) <= _AT_ONCE:
        return change(text)
    return "".join(change(text[at : at + _AT_ONCE]) for at in range(0, len(text), _AT_ONCE))
