"""Functions that shorten texts, split texts, and estimate their number of tokens.

A search by a regular expression blocks all threads, including the event loop. Therefore, long texts
are reduced to their beginning and end, or are searched piece by piece.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from html import unescape

MAX_EXCERPT = 8_000
"""Default limit of ``head_and_tail``, in characters."""

PIECE = 2_000
"""Most characters of a piece of ``split_pieces``."""

_PART, _BEYOND = 4_000, 500
"""Characters of a part in which matches may begin, and characters behind the part into which
matches may extend.
"""


def head_and_tail(text: str, max_characters: int = MAX_EXCERPT, gap: str = "\n") -> str:
    """Shorten a text to ``max_characters`` characters by removing its middle.

    About three quarters of the result are from the beginning. ``gap`` replaces the middle, and is
    never shortened. A short text is returned unchanged.
    """
    if len(text) <= max_characters:
        return text
    room = max(0, max_characters - len(gap))
    tail = min(max_characters // 4, room)
    return f"{text[: room - tail]}{gap}{text[len(text) - tail :]}"


def split_pieces(text: str) -> Iterator[str]:
    """Yield the lines of a text, with long lines split into pieces.

    A line of over 2,000 characters is split, after a space or ``。`` if possible.
    """
    start = 0
    while start < len(text):
        end = text.find("\n", start, start + PIECE)
        if end >= 0:
            yield text[start:end]
            start = end + 1
            continue
        last = start + PIECE
        cut = (
            last
            if last >= len(text)
            else max(text.rfind(" ", start, last), text.rfind("。", start, last)) + 1 or last
        )
        yield text[start:cut]
        start = cut


def find_matches(pattern: re.Pattern[str], text: str) -> Iterator[re.Match[str]]:
    """Yield the matches of a pattern in a text, in a time proportional to the text's length.

    The matches are those of ``re.finditer``. In a text of over 4,500 characters, a match may be
    missed if the pattern must read more than 500 characters to find it.
    """
    return pattern.finditer(text) if len(text) <= _PART + _BEYOND else _find_in_parts(pattern, text)


def _find_in_parts(pattern: re.Pattern[str], text: str) -> Iterator[re.Match[str]]:
    start = 0
    while start < len(text):
        end = start + _PART
        for match in pattern.finditer(text, start, end + _BEYOND):
            if match.start() >= end:
                break
            if match.end() == end + _BEYOND:  # it may be longer
                match = pattern.match(text, match.start()) or match
            yield match
            end = max(end, match.end())
        start = end


def map_parts(change: Callable[[str], str], text: str) -> str:
    """Apply a function to a long text part by part, so that no call blocks other threads for long.

    Parts of at most 4,000 characters may end within a word, so the function must treat each
    character on its own.
    """
    if len(text) <= _PART:
        return change(text)
    return "".join(change(text[at : at + _PART]) for at in range(0, len(text), _PART))


# --- Pasted text, errors and markup ---------------------------------------------------------------

ERROR = re.compile(
    r"(?i:error|exception|fail|fatal|critical|panic|crash|timed out|npm err!"
    r'|" 50\d |エラー|失敗|例外|異常)'
)
"""Words that report an error. ``" 503`` is the status of a request in a web server's log."""

_LOG_LINE = re.compile(
    r"(?:^|[:：])\W{0,3}\d{4}-\d\d-\d\d[T ]\d\d:\d\d[^\n]{0,2000}$", re.MULTILINE
)
_PASTED = re.compile(
    r"```[\s\S]{0,2000}?(?:```|\Z)"  # code
    r"|^Traceback \(most recent call last\):\n(?:[ \t][^\n]{0,500}\n){0,100}[^\n]{0,2000}"
    r"|\"[\w .-]{1,60}\"\s?:\s?(?:\"[^\"\n]{0,300}\"|[-\w.]{1,40})"  # a field of JSON
    r"|^ {0,3}> ?[^\n]{0,2000}$|" + _LOG_LINE.pattern,  # a quoted line
    re.MULTILINE,
)

_BLOB = re.compile(
    r"(?<![\w+/])([A-Za-z0-9+/]{24})"
    r"(?:[A-Za-z0-9+/]{176,}|[A-Za-z0-9+/]{36,76}(?:\n[A-Za-z0-9+/]{60,100}){3,})"
)
_HTML = re.compile(
    r"(?i)\A(?:\s{0,200}<\?xml[^<>]{0,200}>)?(?:[^<`]{0,4000}<(?:!doctype )?html"
    r"|\s{0,200}<(?:body|div|main|p|ul|span|script|style|h[1-6]))\b"
)
"""Beginning of a text whose first tag is of HTML. Other texts may quote tags."""

_MARKUP = {
    re.compile(pattern, re.IGNORECASE | re.DOTALL): visible
    for pattern, visible in {
        r"<(script|style|svg)\b.*?(?:</\1\b[^<>]*>?|\Z)|<!--.*?(?:-->|\Z)": " ",
        r">\s+<": "> <",
        r"</?(?:a|abbr|b|code|em|font|i|mark|s|small|span|strong|su[bp]|u)\b[^<>]*>|</t[dh]> ?": "",
        r" ?<t[dh]\b[^<>]*> ?": "\t",
        r" ?</?!?[a-z][^<>]*> ?": "\n",
    }.items()
}
"""Patterns of invisible HTML with their replacements, in the order of use."""


def without_pasted(text: str) -> str:
    """Remove pasted text, which is not the author's: code, JSON fields, quoted and log lines."""
    return _PASTED.sub("\n", text)


def without_log_lines(text: str) -> str:
    """Remove the lines of a log from a text, except those that report errors."""
    return _LOG_LINE.sub(lambda line: line[0] if ERROR.search(line[0]) else "", text)


def strip_markup(text: str) -> str:
    """Remove HTML markup from a text, and shorten each long base64 value in it to its beginning.

    Rows of HTML tables become lines with tabs between their cells. Other text is unchanged.
    """
    text = _BLOB.sub(r"\1...", text)
    if _HTML.match(text) is None:
        return text
    for pattern, visible in _MARKUP.items():
        text = pattern.sub(visible, text)
    return "\n".join(line.strip("\t") for line in unescape(text).split("\n") if line.strip())


# --- Tokens ---------------------------------------------------------------------------------------

SENTENCE_END = re.compile(r"(?<=[.!?])\s+|(?<=[。！？])")

_SCRIPTS = re.compile(
    r"(?P<word>[A-Z][a-z]+|[a-z]+|[A-Z]+)|(?P<digits>[0-9]+)|(?P<spaces>["
    r" \t]{2,})|(?P<lines>[\r\n]+)"
    r"|(?P<kana>[\u3040-\u30ff]+)|(?P<kanji>[\u3400-\u9fff\uf900-\ufaff]+)|(?P<wide>[\u3001-\u303f\uff00-\uff60]+)"
    r"|(?P<hangul>[\uac00-\ud7af]+)|(?P<signs>[!-/:-@\[-`{-~]+)|(?P<latin>[\u0080-\u024f]+)|(?P<letters>[\u0370-\u06ff]+)"
    r"|(?P<other>[^ \t])"
)
_PER_CHARACTER = {
    "kana": 1.0,
    "kanji": 1.8,
    "wide": 1.2,
    "hangul": 1.3,
    "latin": 1.0,
    "letters": 0.95,
}


def estimate_tokens(text: str) -> int:
    """Estimate the number of tokens of a text, by its script.

    An English word counts as 1 token, or as more if it is long or capitalized. Three digits count
    as 1, a kana as 1, and a kanji as 1.8. The estimate is on average 10 to 25 % above tiktoken's
    cl100k.
    """
    tokens = 0.0
    for match in _SCRIPTS.finditer(text):
        kind, start, end = match.lastgroup, match.start(), match.end()
        length = end - start
        if kind == "word":
            tokens += _word(text[start], text[end - 1], length)
        elif kind == "digits":
            tokens += (length + 2) // 3
        elif kind == "signs":
            tokens += 0.4 + 0.6 * length
        elif kind in _PER_CHARACTER:
            tokens += _PER_CHARACTER[kind] * length
        elif kind == "other":
            tokens += 0.9 * len(match.group().encode("utf-8", "replace"))
        else:
            tokens += 1
    return int(tokens) + (tokens % 1 > 0)


def _word(first: str, last: str, length: int) -> float:
    tokens = 1.05 if length <= 5 else 1.2 if length <= 8 else 1.5 if length <= 11 else length / 4.5
    if first.isupper():
        tokens += 0.3 if last.islower() else max(0.0, 0.4 * length - 0.4)
    return tokens


def truncate_to_tokens(text: str, max_tokens: int) -> str:
    """Shorten a text to at most ``max_tokens`` estimated tokens by removing its end.

    The result ends with a whole sentence if one ends in its second half, and otherwise with ``…``.
    A text that fits is returned unchanged.
    """
    if estimate_tokens(text) <= max_tokens:
        return text
    low, high = 0, len(text)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (
            (middle, high)
            if estimate_tokens(f"{text[:middle]}…") <= max_tokens
            else (low, middle - 1)
        )
    kept = text[:low]
    ends = [found.start() for found in SENTENCE_END.finditer(kept)]
    if ends and ends[-1] >= low // 2:
        return kept[: ends[-1]].rstrip()
    return f"{kept.rstrip()}…" if kept.strip() else ""


def shorten_line(text: str, max_characters: int) -> str:
    """Convert a text to one line of at most ``max_characters`` characters.

    White space becomes single spaces. A shortened line ends with ``…``.
    """
    line = " ".join(text.split())
    return line if len(line) <= max_characters else f"{line[: max_characters - 1].rstrip()}…"
