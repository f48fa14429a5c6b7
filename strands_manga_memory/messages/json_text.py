"""Functions that find JSON documents in a text, and convert them to compact JSON or plain text."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from strands_manga_memory.messages.texts import SENTENCE_END, shorten_line

_FAILURES = 200
_WASTE = 8
"""Limit of failed attempts to parse JSON: together, they read at most 8 times the text's length.
The rest of the text then counts as prose.
"""

_SHORTEST = 12
"""Least number of characters of a document.
Shorter documents, such as the reference ``[1]``, count as prose.
"""

_NESTED = 120
"""Least number of characters of a string that is searched for a document."""

_DEPTH = 40
"""Most levels of nesting. A note replaces deeper values."""

_OPENING = re.compile(r"[\[{]")
_BETWEEN = re.compile(r"[\s,]*")
_PYTHON_START = re.compile(r"[\[{(]'")
_PYTHON_TOKEN = re.compile(
    r"'(?:[^'\\\n]|\\.)*+'|\"(?:[^\"\\\n]|\\.)*+\"|\b(?:None|True|False)\b|(?<![\w.])[A-Za-z_][\w.]*+\(|[()]"
)
_PYTHON_WORDS = {"None": "null", "True": "true", "False": "false", ")": "]", "(": "["}
_ESCAPE = re.compile(r"\\(?:x([0-9a-fA-F]{2})|U([0-9a-fA-F]{8})|(['\"\\])|(.))")


class Number(str):
    """JSON number, kept as text in its original notation, so that no digit changes."""

    __slots__ = ()


@dataclass(frozen=True)
class Documents:
    """JSON documents that follow each other in a text, with only spaces or commas between them.

    Attributes:
        values: Parsed documents.
        start: Position of the first character of the first document.
        end: Position after the last character of the last document.
    """

    values: list[Any]
    start: int
    end: int


def find_json(text: str) -> tuple[str, list[Documents]]:
    """Find the JSON documents in a text.

    A text that is mostly Python notation, such as ``{'a': None}``, is first rewritten as JSON. A
    text that is one JSON string is first decoded.

    Returns:
        The text, possibly rewritten, and the documents in order, with positions in the returned
        text.
    """
    if text[:1] == '"' == text[-1:]:
        with suppress(ValueError):
            text = json.loads(text)
    found = _scan(text)
    if not is_mostly_json(found, text) and (start := _PYTHON_START.search(text)) is not None:
        outermost = len(text[: start.end() - 1].rstrip("[{( \n"))
        converted = text[:outermost] + _PYTHON_TOKEN.sub(
            lambda match: _token(match[0]), text[outermost:]
        )
        in_python = _scan(converted)
        if is_mostly_json(in_python, converted):
            return converted, in_python
    return text, found


def is_mostly_json(found: Sequence[Documents], text: str) -> bool:
    """Return whether JSON documents make up at least half of a text."""
    return 2 * sum(each.end - each.start for each in found) >= len(text)


def _scan(text: str) -> list[Documents]:
    found: list[Documents] = []
    decoder = json.JSONDecoder(parse_float=Number, parse_int=Number, parse_constant=Number)
    at, failures, wasted = 0, 0, 0
    while (opening := _OPENING.search(text, at)) is not None:
        start = opening.start()
        try:
            value, end = decoder.raw_decode(text, start)
        except json.JSONDecodeError as error:
            # An unterminated string is reported at its beginning, but the parser read to the end of
            # the text.
            wasted += (len(text) if "Unterminated" in error.msg else error.pos) - start
            failures += 1
            if failures > _FAILURES or wasted > _WASTE * len(text):
                break
            at = start + 1
            continue
        except (RecursionError, ValueError):
            break
        last = found[-1] if found else None
        if last is not None and _BETWEEN.fullmatch(text, last.end, start):
            found[-1] = Documents(last.values, last.start, end)
            last.values.append(value)
        else:
            found.append(Documents([value], start, end))
        at = end
    found = [each for each in found if each.end - each.start >= _SHORTEST]
    for each in found:
        each.values[:] = [_parse_nested(value, _DEPTH) for value in each.values]
    return found


def _parse_nested(value: Any, depth: int) -> Any:
    if isinstance(value, dict | list) and depth == 0:
        return "[... nested values ...]"
    if isinstance(value, dict):
        return {key: _parse_nested(member, depth - 1) for key, member in value.items()}
    if isinstance(value, list):
        return [_parse_nested(item, depth - 1) for item in value]
    if type(value) is str and len(value) >= _NESTED and value[:1] in "{[" and value[-1:] in "}]":
        try:
            inner = json.loads(value, parse_float=Number, parse_int=Number, parse_constant=Number)
        except (RecursionError, ValueError):
            return value
        return _parse_nested(inner, depth - 1)
    return value


def _token(token: str) -> str:
    if token[0] in "'\"":
        return json.dumps(_ESCAPE.sub(_unescaped, token[1:-1]), ensure_ascii=False)
    return _PYTHON_WORDS.get(token, "[")


def _unescaped(match: Any) -> str:
    if match[1] or match[2]:
        code = int(match[1] or match[2], 16)
        return chr(code) if code < 0x110000 else "\ufffd"
    return str(match[3] or {"n": "\n", "t": "\t", "r": "\r"}.get(match[4], match[0]))


def write_json(value: Any) -> str:
    """Write a JSON value on one line.

    Numbers keep their original notation, and non-ASCII characters are not escaped.
    """
    if isinstance(value, Number):
        return str(value)
    if isinstance(value, dict):
        return (
            "{"
            + ", ".join(f"{_quoted(key)}: {write_json(member)}" for key, member in value.items())
            + "}"
        )
    if isinstance(value, list):
        return "[" + ", ".join(map(write_json, value)) + "]"
    return _quoted(value)


_ENCODE = json.JSONEncoder(ensure_ascii=False).encode


def _quoted(value: Any) -> str:
    written = _ENCODE(value)
    try:
        written.encode()
    except UnicodeEncodeError:  # a lone surrogate, which cannot be sent or stored
        return json.dumps(value)
    return written


_ECHO = "query"
"""Member of a search result that repeats the arguments of the call."""

_LONG_STRING = 100
"""Length above which a string in a JSON value is shortened in its description."""


def describe_json(value: Any) -> str:
    """Describe a JSON value in plain text, such as ``title: Uzumaki, price: 19.90``.

    Each object in a list of objects has its own line. Fields without a value are left out. Long
    strings are truncated, and repeated sentences in a string are removed.
    """
    return "\n".join(_record_lines(value))


def _record_lines(value: Any) -> Iterator[str]:
    """Yield the lines of the text that ``describe_json`` returns for a JSON value.

    For example, ``{"shop": "A", "items": [{"id": 1}, {"id": 2}], "total": 2}`` becomes the lines
    ``shop: A, total: 2``, ``id: 1`` and ``id: 2``.
    """
    if isinstance(value, list) and _holds_records(value):
        yield from filter(None, map(_describe, value))
    elif isinstance(value, dict):
        nested = [member for member in value.values() if _holds_records(member)]
        echo = _ECHO if nested else None
        if line := _describe(
            {
                key: member
                for key, member in value.items()
                if key != echo and not _holds_records(member)
            }
        ):
            yield line
        for member in nested:
            yield from _record_lines(member)
    elif line := _describe(value):
        yield line


def _holds_records(value: Any) -> bool:
    members = value.values() if isinstance(value, dict) else ()
    return any(map(_holds_records, members)) or (
        isinstance(value, list) and any(isinstance(item, dict) for item in value)
    )


def _describe(value: Any) -> str:
    if isinstance(value, dict):
        described = ((key, _describe(member)) for key, member in value.items())
        return ", ".join(f"{key}: {text}" for key, text in described if text)
    if isinstance(value, list):
        parts = [text for item in value if (text := _describe(item))]
        return ("; " if _holds_records(value) else ", ").join(parts)
    if isinstance(value, str) and not isinstance(value, Number):
        sentences = dict.fromkeys(map(str.strip, SENTENCE_END.split(value)))
        return shorten_line(" ".join(sentences), _LONG_STRING)
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value)
