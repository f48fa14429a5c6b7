"""Shorter forms of JSON texts: keys, identifiers and short values stay, long lists and long texts lose their rest."""

from __future__ import annotations

import json
import re
from typing import Any

_ITEMS_CUT = re.compile(r"\[\.\.\. (\d+) items cut \.\.\.\]")
_FORMS = ((2_000, 3), (500, 3), (200, 3), (80, 1))
"""Characters that each text may keep, and the fewest items of a list: the first form that fits is taken."""

_LONGEST_READ = 1_000_000
"""Characters; a longer text is not parsed, which would block for too long."""


def shorten_json(text: str, characters: int) -> str | None:
    """Shorten a JSON text to a number of characters, as JSON of the same structure.

    Each list keeps its first items; a last one counts those that are cut, also those of an earlier cut. Long texts lose
    their end. Every object keeps all of its keys.

    Args:
        text: The text.
        characters: Most characters of the result.

    Returns:
        The shorter JSON; None if ``text`` is no JSON object or list, or has no such short form.
    """
    if len(text) > _LONGEST_READ or text.lstrip()[:1] not in ("{", "["):
        return None
    try:
        value = json.loads(text)
        longest = min(_longest_list(value), characters)
        forms = (_with_most_items(value, (min(least, longest), longest), length, characters) for length, least in _FORMS)
        return next((form for form in forms if form is not None), None)
    except (ValueError, RecursionError):  # no JSON, or nested too deeply
        return None


def _with_most_items(value: Any, items: tuple[int, int], length: int, characters: int) -> str | None:
    """Return the form that fits and has the most items a list, between two numbers; None if no form fits."""
    (low, high), best = items, None
    while low <= high:
        middle = (low + high) // 2
        written = json.dumps(_shorter(value, middle, length), ensure_ascii=False)
        if len(written) <= characters:
            best, low = written, middle + 1
        else:
            high = middle - 1
    return best


def _longest_list(value: Any) -> int:
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    own = len(value) if isinstance(value, list) else 0
    return max(own, *map(_longest_list, items), 0)


def _shorter(value: Any, items: int, length: int) -> Any:
    if isinstance(value, dict):
        return {key: _shorter(item, items, length) for key, item in value.items()}
    if isinstance(value, str):
        return value if len(value) <= length else f"{value[:length]}[... {len(value) - length} characters cut ...]"
    if not isinstance(value, list) or len(value) <= items:
        return [_shorter(item, items, length) for item in value] if isinstance(value, list) else value
    earlier = _ITEMS_CUT.fullmatch(value[-1]) if isinstance(value[-1], str) else None
    cut = len(value) - items + (int(earlier[1]) - 1 if earlier else 0)
    return [*(_shorter(item, items, length) for item in value[:items]), f"[... {cut} items cut ...]"]
