"""Shortening and splitting of long texts, so that regular expressions read them within milliseconds.

A regular expression blocks all threads until it ends, including the event loop. Texts of users and tools are therefore reduced
to their beginning and end, or are read piece by piece.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

MOST = 8_000
"""Most characters of an excerpt."""

PIECE = 2_000
"""Most characters of a piece."""

_AT_ONCE, _BEYOND = 4_000, 500
"""Characters of a part in which matches may begin, and characters behind the part into which matches may extend."""


def head_and_tail(text: str, most: int = MOST, gap: str = "\n") -> str:
    """Return the beginning and the end of a text. The middle, where pasted material usually is, is left out.

    Args:
        text: Text to shorten.
        most: Largest number of characters of the result. Three quarters of them are the beginning.
        gap: Text in place of the middle.
    """
    tail = most // 4
    return text if len(text) <= most else f"{text[: most - tail - len(gap)]}{gap}{text[-tail:]}"


def split_pieces(text: str) -> Iterator[str]:
    """Yield the lines of a text. A line of over 2,000 characters is split, after a space or a full stop if possible."""
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
    """Yield the matches of a pattern in a text, as ``finditer`` does.

    A text of over 4,500 characters is searched in parts, so that the time grows only linearly with its length. Matches that
    look ahead more than 500 characters may then be missed.
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
    """Apply ``change`` to a text in parts of at most 4,000 characters, and return the joined results.

    ``change`` must replace each character on its own, because a part does not show its neighbours.
    """
    if len(text) <= _AT_ONCE:
        return change(text)
    return "".join(change(text[at : at + _AT_ONCE]) for at in range(0, len(text), _AT_ONCE))
