"""Passages: the sentences, list items, table rows and code blocks of a text, and those of them that fit a question."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Collection, Sequence

from strands_manga_memory.language.search.terms import terms

GAP = " [...] "
"""What stands for passages that are left out between others."""

_FENCE = "```"
_SENTENCE_END = re.compile(r"[。！？]+[」』）】]*(?![」』）】とっ])|[.!?][\"')\]”’]?(?=\s)")
_LONGEST = 600
"""A passage of more characters is cut at a space, or where it must be."""

_MOST_MISSES = 50
"""Passages that were too long for what is left; after them an excerpt is full, so that a large text is not counted whole."""

_CONTEXT = 0.3
"""What a passage gains from the one before it: an answer often follows the sentence that names what it is about."""


def passages(text: str) -> list[str]:
    """Return the passages of a text, in order; joined, they are the text.

    A line is a passage of its own - a list item, a table row - and so is a fenced block of code with all its lines; a line of
    prose is split after each sentence, English or Japanese. None is longer than 600 characters.
    """
    found: list[list[str]] = []  # the pieces of each: a text of blank lines would be copied once a line
    code: list[str] = []
    for line in text.splitlines(keepends=True):
        is_fence = line.lstrip().startswith(_FENCE)
        if code or is_fence:
            code.append(line)
            if is_fence and len(code) > 1:
                found.append(code)
                code = []
        elif line.strip() or not found:
            found += [[sentence] for sentence in _sentences(line)]
        else:
            found[-1].append(line)
    if code:
        found.append(code)
    return [part for passage in found for part in _pieces("".join(passage))]


def _sentences(line: str) -> list[str]:
    found: list[str] = []
    start = 0
    for match in _SENTENCE_END.finditer(line):
        found.append(line[start : match.end()])
        start = match.end()
    if rest := line[start:]:
        if rest.strip() or not found:
            found.append(rest)
        else:
            found[-1] += rest
    return found


def _pieces(passage: str) -> list[str]:
    found, start = [], 0
    while len(passage) - start > _LONGEST:
        end = passage.rfind(" ", start + _LONGEST // 2, start + _LONGEST) + 1 or start + _LONGEST
        found.append(passage[start:end])
        start = end
    return [*found, passage[start:]] if start < len(passage) else found


def excerpt(
    text: str, asked: Collection[str], most: int, count: Callable[[str], int], known: Callable[[str], bool] | None = None
) -> str:
    """Return the passages of a text that fit a question best, in their order, in at most ``most`` tokens.

    Passages that share nothing with the question, nor follow one that does, are left out. If no passage shares a term with
    it, those at the beginning are taken.

    Args:
        text: What to quote from.
        asked: The terms of the question (``language.search.terms.query_terms``).
        most: Most tokens of what is returned.
        count: Counts the tokens of a text.
        known: Says which passages are left out whatever they share with it. Default none.
    """
    parts = passages(text)
    gap = count(GAP)
    left, misses = most - gap, 0
    chosen: set[int] = set()
    for at in _ranked(parts, frozenset(asked)):
        if known is not None and known(parts[at]):
            continue
        size = count(parts[at]) + gap * (2 - (at - 1 in chosen) - (at + 1 in chosen))
        if size <= left:
            left -= size
            chosen.add(at)
        elif (misses := misses + 1) > _MOST_MISSES:
            break
    return _joined(parts, sorted(chosen))


def _ranked(parts: Sequence[str], asked: frozenset[str]) -> list[int]:
    """Return the positions of the passages worth quoting, the best first."""
    shared = [asked.intersection(terms(part)) for part in parts]
    in_passages = Counter(term for found in shared for term in found)
    worth = {term: math.log1p(len(parts) / number) for term, number in in_passages.items()}
    own = [sum(worth[term] for term in sorted(found)) for found in shared]
    fit = [score + _CONTEXT * (own[at - 1] if at else 0.0) for at, score in enumerate(own)]
    if not any(own):
        return list(range(len(parts)))
    return sorted((at for at, score in enumerate(fit) if score > 0), key=lambda at: -fit[at])


def _joined(parts: Sequence[str], chosen: Sequence[int]) -> str:
    text, end = "", 0
    for at in chosen:
        if at != end:
            text = text.rstrip() + GAP
        text += parts[at]
        end = at + 1
    return text.rstrip() + (GAP.rstrip() if 0 < end < len(parts) else "")
