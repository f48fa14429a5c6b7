"""Texts as rules read them: never more at a time than is read within a few milliseconds. Pure.

A regular expression runs to its end without letting any other thread of the process run, the event loop's included. So what
users and tools send is read as an excerpt, where its beginning and its end say enough, or else piece by piece.
"""

from __future__ import annotations

from collections.abc import Iterator

MOST = 8_000
"""Characters of an excerpt."""

PIECE = 2_000
"""Characters of a piece."""


def excerpt(text: str, most: int = MOST) -> str:
    """Return the beginning and the end of a text, at most ``most`` characters together; a text that has no more as it is.

    Three quarters are of the beginning. What is pasted stands between what is said of it.
    """
    tail = most // 4
    return text if len(text) <= most else f"{text[: most - tail - 1]}\n{text[-tail:]}"


def pieces_of(text: str) -> Iterator[str]:
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
