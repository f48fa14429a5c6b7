"""Bounded reading of long texts: excerpts, pieces and stretches that a regular expression reads within milliseconds. Pure.

A regular expression runs to its end without letting any other thread run, the event loop included. Text of users and tools is
read as an excerpt where its beginning and its end suffice, and piece by piece elsewhere.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

MOST = 8_000
"""Characters of an excerpt."""

PIECE = 2_000
"""Characters of a piece."""

_AT_ONCE, _BEYOND = 4_000, 500
"""So many characters are searched for the beginnings of matches at once, which may end so many behind them."""


def head_and_tail(text: str, most: int = MOST) -> str:
    """Return the beginning and the end of a text, at most ``most`` characters together.

    Three quarters are of the beginning. What is pasted stands between what is said of it.
    """
    tail = most // 4
    return text if len(text) <= most else f"{text[: most - tail - 1]}\n{text[-tail:]}"


def split_pieces(text: str) -> Iterator[str]:
    """Yield the lines of a text; one of over 2,000 characters in pieces that end behind a space or a full stop if they can."""
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
    """Return the matches of a pattern as ``finditer`` does, but search a long text stretch by stretch.

    Of a text of over 4,500 characters those are found that need to look no further than 500 characters ahead.
    """
    return pattern.finditer(text) if len(text) <= _AT_ONCE + _BEYOND else _by_stretches(pattern, text)


def _by_stretches(pattern: re.Pattern[str], text: str) -> Iterator[re.Match[str]]:
    start = 0
    while start < len(text):
        end = start + _AT_ONCE
        for match in pattern.finditer(text, start, end + _BEYOND):
            if match.start() >= end:
                break
            if match.end() == end + _BEYOND:  # it may go on
                match = pattern.match(text, match.start()) or match
            yield match
            end = max(end, match.end())
        start = end


def map_stretches(change: Callable[[str], str], text: str) -> str:
    """Apply a change of single characters to a text, stretch by stretch."""
    if len(text) <= _AT_ONCE:
        return change(text)
    return "".join(change(text[at : at + _AT_ONCE]) for at in range(0, len(text), _AT_ONCE))
