"""Truncation of a text according to its format: JSON, HTML, tables, code, or prose.

Truncated JSON keeps its keys and identifiers, such as ids, names and numbers, and the number of
items missing from long lists. Of HTML the visible text stays. Tables and code keep whole lines, and
prose keeps whole sentences if possible. Lines of a log and items of JSON that report errors are
kept first. A marker counts the removed characters. A truncated text is never empty.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Sequence
from enum import IntEnum
from functools import cache
from itertools import accumulate, islice
from typing import Any, NamedTuple

from strands_manga_memory.messages.injection import CUT, READER
from strands_manga_memory.messages.json_text import (
    Documents,
    Number,
    find_json,
    is_mostly_json,
    write_json,
)
from strands_manga_memory.messages.texts import ERROR, strip_markup

CUT_MARKER = re.compile(rf"\n{CUT}\n")

_SPARE_TOKENS = 10  # left unused, so that a small change of the history fits without an eviction
_HEAD_SHARE = 0.6
_LEAST_CHARACTERS = 8
"""Least number of characters at the beginning of a text that are kept."""

_CHARACTERS_PER_TOKEN = 10
"""Number of characters per token above which a text is too long without being counted."""


def cut_marker(characters: int, name: str = "") -> str:
    """Return a marker with the number of removed characters, which replaces them in a text.

    Unless ``name`` is empty, the marker also shows this name, with which a tool returns the full
    text.
    """
    reader = f"; {READER}({name!r})" if name else ""
    return f"\n[... {characters} characters cut{reader} ...]\n"


def truncate_text(text: str, tokens: int, count: Callable[[str], int], name: str = "") -> str:
    """Truncate a text to about ``tokens`` tokens. A shorter text is returned unchanged.

    A truncated text can be truncated again. Its marker then counts all removed characters.

    Args:
        text: The text.
        tokens: Maximum tokens of the result, including the marker. At least the marker and the
            first characters stay.
        count: Function that counts the tokens of a text. ``len`` for a limit in characters.
        name: Name under which the full text can be read. The marker shows the name if there is
            room.
    """
    if count(text) <= tokens:
        return text
    name = name if 3 * count(cut_marker(len(text), name)) <= 2 * tokens else ""
    marker = CUT_MARKER.search(text)
    head, tail, gone = text, "", 0
    if marker is not None:
        head, tail, gone = text[: marker.start()], text[marker.end() :], int(marker[1])
    present = len(head) + len(tail)

    def marked(kept: str, behind: str = "") -> str:
        cut = present - len(kept) - len(behind) + gone
        return f"{kept}{cut_marker(cut, name)}{behind}" if cut > 0 else text

    def fits(kept: str) -> bool:
        return len(kept) <= max_characters and count(marked(kept)) <= tokens

    max_characters = tokens * (1 if count is len else _CHARACTERS_PER_TOKEN)
    json_text = None if tail else _JsonText.parse(head, tokens, max_characters)
    if json_text is not None:
        if (shorter := json_text.shorten_to_fit(fits, _LEVELS)) is not None:
            return shorter if shorter == json_text.render(_WHOLE) and not gone else marked(shorter)
        head = json_text.render(_LEAST, is_limited=False) or ""
    elif marker is None:
        head = tail = strip_markup(text)
        text, present, gone = head, len(head), len(text) - len(head)
        if fits(head):
            return marked(head)
    room = max(0, tokens - count(cut_marker(present + gone, name)) - _SPARE_TOKENS)
    characters = int(present * room / count(text))
    errors = [] if json_text is not None else _error_lines(text)
    while True:
        of_head, of_tail = _kept_lengths(head, tail, characters)
        spared = len(_error_text(errors, of_head, len(text) - of_tail, characters // 3))
        of_head, of_tail = _kept_lengths(head, tail, characters - spared)
        between = _error_text(errors, of_head, len(text) - of_tail, spared)
        shorter = marked(head[:of_head], between + tail[len(tail) - of_tail :])
        if not characters or count(shorter) <= tokens:
            return shorter
        characters = characters * 4 // 5


def excerpt_text(text: str, characters: int, name: str = "") -> str:
    """Return an excerpt of at most about ``characters`` characters, with a truncation marker.

    The marker shows ``name``, under which the full text can be read. An excerpt of JSON contains
    only keys and identifiers, even if there is room for more. An excerpt of another text is as long
    as allowed. If no excerpt would be shorter than the text, the text is returned unchanged.
    """
    json_text = None
    if CUT_MARKER.search(text) is None:
        json_text = _JsonText.parse(text, characters, characters)
    if json_text is not None:
        shorter = json_text.shorten_to_fit(
            lambda kept: len(kept) + len(cut_marker(len(text), name)) <= characters, _EXCERPT_LEVELS
        )
        if shorter is not None:
            shorter += cut_marker(max(1, len(text) - len(shorter)), name)
            return shorter if len(shorter) < len(text) else text
    return truncate_text(text, characters, len, name)


# --- Prose, tables and code -----------------------------------------------------------------------

_SPARED = 0.25
"""Largest share of prose that is removed in addition, to end at a sentence or a space."""

_SENTENCE_END = re.compile(r"[.!?][\"')\]”’]*(?=\s)|[。！？][」』）】]*|\n")
_SPACE = re.compile(r"\s")
_FENCE = re.compile(r"^[ \t]*(?:```|~~~)", re.MULTILINE)
_ROW = re.compile(
    r"^(?:[ ]{0,20}\||[^\n\t]{0,200}\t[^\n\t]{0,200}\t|[^\n,]{1,80},(?! )[^\n,]{0,80},(?! )|["
    r" ]{4}|\t)",
    re.MULTILINE,
)
"""Beginning of a line of a table or of code. Such a line is kept whole."""

_ERROR_LINE = re.compile(
    rf"^(?!  )[^\n]{{0,300}}?{ERROR.pattern}[^\n]{{0,300}}(?:\n|\Z)", re.MULTILINE
)


def _error_lines(text: str) -> list[tuple[int, str]]:
    """Return each line of a text that reports an error, with its position in the text.

    Such lines occur for example in logs. Very long lines are left out, and lines that mean little
    away from their neighbours: indented lines, and rows of tables and code.
    """
    return [
        (match.start(), match[0])
        for match in _ERROR_LINE.finditer(text)
        if _ROW.match(match[0]) is None
    ]


def _error_text(errors: Sequence[tuple[int, str]], start: int, end: int, max_size: int) -> str:
    lines = [line for at, line in errors if start <= at and at + len(line) <= end]
    sizes = accumulate(map(len, lines))
    return "".join(line for line, size in zip(lines, sizes, strict=True) if size <= max_size)


def _kept_lengths(head: str, tail: str, characters: int) -> tuple[int, int]:
    of_head = int(characters * _HEAD_SHARE)
    of_tail = _tail_length(tail, characters - of_head)
    return _head_length(head, max(of_head, _LEAST_CHARACTERS)), of_tail


def _head_length(text: str, size: int) -> int:
    """Return how many characters, at most ``size``, to keep at the beginning of a text.

    The kept beginning ends after a line, a sentence or a word if possible.
    """
    if size >= len(text):
        return len(text)
    if _is_of_rows(text, text.rfind("\n", 0, size) + 1, size):
        end = text.rfind("\n", 0, size) + 1
        return end if end >= size // 4 else size
    least = size - int(size * _SPARED)
    for boundary in (_SENTENCE_END, _SPACE):
        ends = [match.end() for match in boundary.finditer(text, least, size + 1)]
        if ends := [end for end in ends if end <= size]:
            return ends[-1]
    return size


def _tail_length(text: str, size: int) -> int:
    """Return how many characters, at most ``size``, to keep at the end of a text.

    The kept end starts with a line, a sentence or a word if possible.
    """
    if size <= 0 or size >= len(text):
        return max(0, min(size, len(text)))
    start = len(text) - size
    if _is_of_rows(text, text.rfind("\n", 0, start) + 1, start):
        at = text.find("\n", start - 1) + 1
        return len(text) - at if 0 < at < len(text) else size
    for boundary in (_SENTENCE_END, _SPACE):
        match = boundary.search(text, start - 1, start + int(size * _SPARED))
        if match is not None and match.end() < len(text):
            return len(text) - match.end()
    return size


def _is_of_rows(text: str, line_start: int, position: int) -> bool:
    """Return whether a position is within a table or code, of which only whole lines are kept."""
    if "\n" not in text:
        return False
    return _ROW.match(text, line_start) is not None or (
        len(_FENCE.findall(text, 0, position)) % 2 == 1
    )


# --- JSON -----------------------------------------------------------------------------------------


class _Members(IntEnum):
    """Members (keys with their values) that a shortened JSON object keeps, from fewest to all.

    - ``KEY``: the id or, without an id, the name. Without both, nested objects and lists.
    - ``IDS``: ids, names, and nested values.
    - ``IDENTIFYING``: also numbers, codes, types, states and dates.
    - ``ALL``: all members.
    """

    KEY = 0
    IDS = 1
    IDENTIFYING = 2
    ALL = 3


class _Level(NamedTuple):
    """Level of detail: the parts of JSON that stay when a text is shortened.

    Attributes:
        members: Members that objects in a list keep.
        characters: Maximum characters of a string.
        items: Maximum items of each list, not counting some items that report errors.
        outside: Members that objects outside of lists keep.
        detailed: Number of objects at the start of each list that keep more members than
            ``members``: those of the next value of ``_Members``.
    """

    members: _Members
    characters: int
    items: int
    outside: _Members = _Members.ALL
    detailed: int = 0


_ALL = 1_000_000_000
_STRINGS = (3_840, 1_920, 960, 480, 240, 120, 60)
_WHOLE, _LEAST = _Level(_Members.ALL, _ALL, _ALL), _Level(_Members.KEY, 40, 1, _Members.KEY)
_REDUCED = (
    _Level(_Members.IDENTIFYING, 60, _ALL),
    _Level(_Members.IDS, 40, _ALL),
    _Level(_Members.KEY, 40, _ALL),
)
_FEWER_ITEMS = (
    _Level(_Members.IDENTIFYING, 60, 3),
    _Level(_Members.IDS, 40, 1, _Members.IDS),
    _LEAST,
)
_LEVELS = (
    _WHOLE,
    *(_Level(_Members.ALL, characters, _ALL) for characters in _STRINGS),
    *(level._replace(detailed=detailed) for level in _REDUCED for detailed in (1, 0)),
    *_FEWER_ITEMS,
)
"""Levels of detail of a truncated JSON text, from most to least detail.
Lists keep all items for as long as possible.
"""

_EXCERPT_LEVELS = (
    *(level._replace(outside=max(level.members, _Members.IDS)) for level in _REDUCED),
    *_FEWER_ITEMS,
)
"""Levels of detail of an excerpt, which contains only keys and identifiers.
Outside of lists, ``KEY`` would keep ``{"code": 0}`` of a result, and not its list.
"""

_LARGE_OBJECT_MEMBERS = 24
"""JSON objects with more members than this number are shortened like lists."""

_MAX_ERROR_CHARACTERS = 240
"""Maximum characters of a string in a JSON object that reports an error."""

_OMISSION = re.compile(r"\[\.\.\. (\d{1,12}) more items \.\.\.\]")
_OMISSION_KEY = "[... more items ...]"

_ID_KEY = re.compile(
    r"(?:^|[\W_])(?i:ids?|uuid|guid|key|code|sku|asin|isbn|ean|jan|no|nr|num|number|ref|reference|tracking)$"
    r"|[a-z0-9](?:I[dD]s?|U[uU][iI][dD]|Key|Code|S[kK][uU]|Number|No|Ref)$|(?:番号|コード|識別子|I[dD])$"
)
_NAME_KEY = re.compile(
    r"(?:name|title|label|subject|series|author|product|item|名|名前|題名|タイトル|氏名|商品)$",
    re.IGNORECASE,
)
_KIND_KEY = re.compile(
    r"(?:type|kind|status|state|date|level|severity|message|msg|種類|状態|日付?|メッセージ)$",
    re.IGNORECASE,
)
_CODE = re.compile(r"\A(?=\S{0,64}\d)\S{2,64}\Z")


class _UnsuitableLevelError(Exception):
    """A level of detail gives too long a text, or makes the objects of a list all equal."""


class _JsonText:
    """Text with its parsed JSON, which can be written at several levels of detail."""

    def __init__(
        self, text: str, found: Sequence[Documents], tokens: int, max_characters: int
    ) -> None:
        self._max_characters = max_characters
        self._parts: list[str | list[Any]] = []
        end = 0
        for each in found:
            values = _limit_lists(each.values, tokens)
            self._parts += [text[end : each.start], values]
            end = each.end
        self._parts.append(text[end:])
        self._max_items = _longest_list(self._parts)

    @classmethod
    def parse(cls, text: str, tokens: int, max_characters: int) -> _JsonText | None:
        """Parse the JSON in a text. None if less than half of the text's characters are JSON.

        Args:
            text: The text.
            tokens: Maximum tokens of the shortened text, and therefore also the maximum number of
                items of each list.
            max_characters: Number of characters above which :meth:`render` stops.
        """
        source, found = find_json(text)
        if not is_mostly_json(found, source):
            return None
        return cls(source, found, tokens, max_characters)

    def shorten_to_fit(self, fits: Callable[[str], bool], levels: Sequence[_Level]) -> str | None:
        """Return the text at the highest level of detail that fits; None if no level fits.

        If that level limits the number of items, or of detailed items, in each list, the largest
        number that fits is used instead.

        Args:
            fits: Function that returns whether a text is short enough.
            levels: The levels of detail, the highest first.
        """

        @cache
        def attempt(level: _Level) -> str | None:
            text = self.render(level)
            return text if text is not None and fits(text) else None

        # Shorter strings make a shorter text. A smaller group of members may be a longer one.
        with_all = sum(level.members is _Members.ALL for level in levels)
        at = bisect_left(levels, 1, hi=with_all, key=lambda level: attempt(level) is not None)
        level = next((level for level in levels[at:] if attempt(level) is not None), None)
        if level is None:
            return None
        least = level.detailed or level.items
        more = [
            level._replace(detailed=number) if level.detailed else level._replace(items=number)
            for number in range(least, max(least, self._max_items) + 1)
        ]
        return attempt(
            more[bisect_left(more, 1, lo=1, key=lambda level: attempt(level) is None) - 1]
        )

    def render(self, level: _Level, *, is_limited: bool = True) -> str | None:
        """Return the text with its JSON shortened to a level of detail.

        The result is None if the level makes the objects of a list all equal, or if ``is_limited``
        is true and the JSON is longer than the maximum length.
        """
        pruning = _Pruning(level, self._max_characters if is_limited else None)
        shown: list[str] = []
        try:
            for part in self._parts:
                if isinstance(part, str):
                    shorter = _shorten_string(part, max(80, level.characters))
                    shown.append(
                        f"{shorter}\n"
                        if part.endswith("\n") and not shorter.endswith("\n")
                        else shorter
                    )
                elif len(part) == 1:
                    shown.append(write_json(pruning.shorten(part[0], in_list=False)))
                else:
                    shown.append("\n".join(map(write_json, pruning.shorten_list(part))))
        except _UnsuitableLevelError:
            return None
        return "".join(shown)


def _limit_lists(value: Any, max_items: int) -> Any:
    """Return a copy of a JSON value in which longer lists are shortened to ``max_items`` items.

    A note in each shortened list counts the removed items. Objects that report errors stay, as
    ``_ErrorReport``, unless they are over a quarter of the list.
    """
    if isinstance(value, dict):
        return {key: _limit_lists(each, max_items) for key, each in value.items()}
    if not isinstance(value, list):
        return value
    items = [_limit_lists(item, max_items) for item in value]
    reports = [at for at, item in enumerate(items) if isinstance(item, dict) and _has_error(item)]
    for at in reports if 4 * len(reports) <= len(items) else ():
        items[at] = _ErrorReport(items[at])
    first, note, last = _split_list(items, max_items)
    return [*first, *note, *last]


class _ErrorReport(dict[str, Any]):
    """JSON object of a list that reports an error, and is therefore shortened less than others."""


def _has_error(value: Any) -> bool:
    members = value.items() if isinstance(value, dict) else [("", value)]
    return any(
        ERROR.search(f"{key} {each}", 0, _MAX_ERROR_CHARACTERS)
        for key, each in members
        if each is True or (type(each) is str and each)
    )


def _longest_list(value: Any) -> int:
    if not isinstance(value, dict | list):
        return 0
    members = value.values() if isinstance(value, dict) else value
    return max(len(value), *map(_longest_list, members), 0)


class _Pruning:
    """Makes smaller copies of JSON values by removing members, list items and characters."""

    def __init__(self, level: _Level, max_characters: int | None) -> None:
        self._level = level
        self._left = max_characters

    def shorten(self, value: Any, *, in_list: bool = True) -> Any:
        """Return a smaller copy of a JSON value.

        The level of detail has separate rules for the members of objects in a list (``in_list``)
        and of other objects. An object with more than 24 members is shortened like a list.
        """
        if isinstance(value, _ErrorReport) and self._level.characters < _MAX_ERROR_CHARACTERS:
            level = self._level._replace(members=_Members.ALL, characters=_MAX_ERROR_CHARACTERS)
            return _Pruning(level, self._left).shorten(value)
        if isinstance(value, dict):
            return self._shorten_object(value, in_list=in_list)
        if isinstance(value, list):
            return self.shorten_list(value)
        if type(value) is str and _OMISSION.fullmatch(value) is None:
            value = _shorten_string(value, self._level.characters)
        self._count_characters(len(value) + 2 if isinstance(value, str) else 4)
        return value

    def _count_characters(self, characters: int) -> None:
        if self._left is not None:
            self._left -= characters
            if self._left < 0:
                raise _UnsuitableLevelError

    def shorten_list(self, values: Sequence[Any]) -> list[Any]:
        """Shorten a list to its first and last items, and a note with the number of the others.

        An error is raised if the shortened objects are all equal, for example all the same shop id.
        """
        first, note, last = _split_list(values, self._level.items)
        detailed, others = first[: self._level.detailed], first[self._level.detailed :]
        shown = [*map(self.shorten, others)]
        if (
            len(shown) > 1
            and isinstance(shown[0], dict)
            and any(map(_ID_KEY.search, shown[0]))
            and shown != others
            and all(each == shown[0] for each in shown)
        ):
            raise _UnsuitableLevelError
        return [*map(self._finer().shorten, detailed), *shown, *note, *map(self.shorten, last)]

    def _finer(self) -> _Pruning:
        members = _Members(min(self._level.members + 1, _Members.ALL))
        return _Pruning(
            self._level._replace(members=members, characters=60, detailed=0), self._left
        )

    def _shorten_object(self, value: dict[str, Any], *, in_list: bool) -> dict[str, Any]:
        if len(value) > _LARGE_OBJECT_MEMBERS or _OMISSION_KEY in value:
            return self._shorten_large_object(value)
        members = self._level.members if in_list else self._level.outside
        kept = _select_members(value, members) or dict(list(value.items())[:1])
        self._count_characters(sum(map(len, kept)))
        pruned = {key: self.shorten(each, in_list=in_list) for key, each in kept.items()}
        if members is _Members.ALL:
            return pruned
        return {key: each for key, each in pruned.items() if each not in ({}, [])} or pruned

    def _shorten_large_object(self, value: dict[str, Any]) -> dict[str, Any]:
        """Shorten a large JSON object to its first and last members.

        An additional member has the number of the members left out.
        """
        names = [
            *(name for name in value if name != _OMISSION_KEY),
            *_omission_note(int(value.get(_OMISSION_KEY) or 0)),
        ]
        first, note, last = _split_list(names, self._level.items)
        finer, detailed = self._finer(), self._level.detailed
        pruned = {name: finer.shorten(value[name]) for name in first[:detailed]}
        pruned |= {name: self._shorten_member(name, value[name]) for name in first[detailed:]}
        if note:
            pruned[_OMISSION_KEY] = _omitted_items(note[0])
        return pruned | {name: self._shorten_member(name, value[name]) for name in last}

    def _shorten_member(self, name: str, value: Any) -> Any:
        """Shorten the value under the key ``name`` of a large JSON object.

        If only identifiers are to be kept, and the key is an identifier such as an order number, a
        nested object becomes ``{}``: the key identifies it.
        """
        is_known_by_name = self._level.members is _Members.KEY and _CODE.match(name) is not None
        self._count_characters(len(name))
        return {} if is_known_by_name and isinstance(value, dict) else self.shorten(value)


def _split_list(values: Sequence[Any], max_items: int) -> tuple[list[Any], list[str], list[Any]]:
    """Split a list into its first items, a note with the number of items left out, and its last.

    Of ``max_items`` kept items, three quarters are first items and the others last items. Before
    the last items, up to a quarter more items that report errors are kept. The number in the note
    of an earlier split is added.
    """
    whole = [value for value in values if not _omitted_items(value)]
    behind = max_items // 4 if len(whole) > max_items else 0
    first, rest = whole[: max_items - behind], whole[max_items - behind :]
    middle, last = rest[: len(rest) - behind], rest[len(rest) - behind :]
    errors = (
        each
        for each in middle
        if isinstance(each, _ErrorReport) or (type(each) is str and _has_error(each))
    )
    last = [*islice(errors, -(-max_items // 4)), *last]
    return first, _omission_note(sum(map(_omitted_items, values)) + len(rest) - len(last)), last


def _omission_note(missing: int) -> list[str]:
    return [f"[... {missing} more items ...]"] if missing else []


def _omitted_items(value: Any) -> int:
    """Return 3 for the note "[... 3 more items ...]" in a list, and 0 for an item of the list."""
    match = _OMISSION.fullmatch(value) if type(value) is str else None
    return int(match[1]) if match is not None else 0


def _select_members(value: dict[str, Any], members: _Members) -> dict[str, Any]:
    """Return the part of a JSON object that ``members`` keeps, see ``_Members``."""
    if members is _Members.ALL:
        return value
    if members is not _Members.KEY:
        return {key: each for key, each in value.items() if _is_kept(key, each, members)}
    scalars = {key: each for key, each in value.items() if not isinstance(each, dict | list)}
    for pattern in (_ID_KEY, _NAME_KEY):
        for key, each in scalars.items():
            if each not in (None, "") and pattern.search(key) is not None:
                return {key: each}
    return {key: each for key, each in value.items() if each and key not in scalars}


def _is_kept(key: str, value: Any, members: _Members) -> bool:
    if isinstance(value, list) and members is _Members.IDS and _ID_KEY.search(key) is None:
        return any(isinstance(each, dict | list) for each in value)  # they may hold identifiers
    if isinstance(value, dict | list):
        return bool(value)
    if value is None or isinstance(value, bool) or value == "":
        return False
    if _ID_KEY.search(key) is not None:
        return True
    if members is _Members.IDS:
        return _NAME_KEY.fullmatch(key) is not None and not isinstance(value, Number)
    is_code = isinstance(value, Number) or _CODE.match(value) is not None
    return is_code or any(pattern.search(key) is not None for pattern in (_NAME_KEY, _KIND_KEY))


def _shorten_string(text: str, characters: int) -> str:
    """Return the beginning of a long string and, if there is room, its end.

    ``[...]`` replaces the rest of the string.
    """
    if len(text) <= characters + 8:
        return text
    text = strip_markup(text)
    behind = characters // 4 if len(text) > characters >= 240 else 0
    end = text[len(text) - _tail_length(text, behind) :] if behind else ""
    return f"{text[: _head_length(text, characters - behind)].rstrip()} [...]{end and ' '}{end}"
