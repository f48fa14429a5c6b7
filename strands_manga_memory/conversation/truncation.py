"""Truncation of a text by its form: JSON, tables, code, or prose. Pure.

JSON keeps its keys and identifiers (ids, names, numbers) and drops items of long lists with a
count. Tables and code keep whole lines, prose keeps sentences. A marker counts the removed characters, and
a truncated text is never empty.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import partial
from itertools import count as numbers
from typing import Any

from strands_manga_memory.messages.injection import CUT, READER
from strands_manga_memory.messages.json_text import Documents, Number, find_json, write_json

CUT_MARKER = re.compile(rf"\n{CUT}\n")

_MARKER_TOKENS, _NAME_TOKENS = 12, 16
LEAST_WITH_NAME = 128
"""A shorter text has no room for the name under which the rest can be read."""

_HEAD_SHARE = 0.6
_LEAST_CHARACTERS = 8
"""A truncated text keeps at least so many characters of its beginning."""

_CHARACTERS_PER_TOKEN = 10
"""A text with more characters per token than this is too long without being counted."""


def cut_marker(characters: int, name: str = "") -> str:
    """Return the marker of a cut: the number of characters, and the name for reading the rest."""
    reader = f"; {READER}({name!r})" if name else ""
    return f"\n[... {characters} characters cut{reader} ...]\n"


def truncate_text(text: str, tokens: int, count: Callable[[str], int], name: str = "") -> str:
    """Return a text truncated to about ``tokens`` tokens; the text itself if it has no more.

    A text that was truncated before is truncated further, and its marker counts all that was cut.

    Args:
        text: The text.
        tokens: Most tokens of the result, marker included. At least the marker and the first
            characters stay.
        count: Counts the tokens of a text; ``len`` for a limit in characters.
        name: The name under which the full text can be read; the marker shows it if there is room.
    """
    size = count(text)
    if size <= tokens:
        return text
    name = name if tokens >= LEAST_WITH_NAME else ""
    marker = CUT_MARKER.search(text)
    head, tail, gone = text, "", 0
    if marker is not None:
        head, tail, gone = text[: marker.start()], text[marker.end() :], int(marker[1])
    present = len(head) + len(tail)

    def marked(kept: str, behind: str = "") -> str:
        cut = present - len(kept) - len(behind) + gone
        return f"{kept}{cut_marker(cut, name)}{behind}" if cut > 0 else text

    def fits(kept: str) -> bool:
        return len(kept) <= most_characters and count(marked(kept)) <= tokens

    most_characters = tokens * (1 if count is len else _CHARACTERS_PER_TOKEN)
    if not tail and (form := _JsonText.read(head, tokens, most_characters)) is not None:
        if (shorter := form.truncate(fits)) is not None:
            return shorter if shorter == form.whole and not gone else marked(shorter)
        head = form.least
    elif marker is None:
        tail = head
    room = max(0, tokens - _MARKER_TOKENS - _NAME_TOKENS * bool(name))
    return _first_that_fits(
        (marked(*_ends(head, tail, kept)) for kept in _smaller(int(present * room / size))),
        lambda shorter: count(shorter) <= tokens,
    )


def excerpt_text(text: str, characters: int) -> str:
    """Return an excerpt of at most about so many characters, marked as truncated.

    Of JSON it has the keys and identifiers alone, even if there is room for more; of other text as
    much as there is room for. A text that has no shorter excerpt is returned unchanged.
    """
    form = None
    if CUT_MARKER.search(text) is None:
        form = _JsonText.read(text, characters, characters)
    if form is not None:
        shorter = form.identify(lambda kept: len(kept) + len(cut_marker(len(text))) <= characters)
        if shorter is not None:
            shorter += cut_marker(max(1, len(text) - len(shorter)))
            return shorter if len(shorter) < len(text) else text
    return truncate_text(text, characters, len)


def _smaller(characters: int) -> Iterator[int]:
    while characters > 0:
        yield characters
        characters = characters * 4 // 5
    yield 0


def _first_that_fits(texts: Iterable[str], fits: Callable[[str], bool]) -> str:
    """Return the first text that fits; the last one if none does."""
    text = ""
    for text in texts:
        if fits(text):
            break
    return text


def _ends(head: str, tail: str, characters: int) -> tuple[str, str]:
    """Return the beginning of ``head`` and the end of ``tail``, together about so many characters."""
    of_head = int(characters * _HEAD_SHARE)
    of_tail = _tail_length(tail, characters - of_head)
    return head[: _head_length(head, max(of_head, _LEAST_CHARACTERS))], tail[len(tail) - of_tail :]


# --- Prose, tables and code -----------------------------------------------------------------------

_SPARED = 0.25
"""At most this part of the characters is given up to end prose at a sentence or a line."""

_SENTENCE_END = re.compile(r"[.!?][\"')\]”’]*(?=\s)|[。！？][」』）】]*|\n")
_SPACE = re.compile(r"\s")
_FENCE = re.compile(r"^[ \t]*(?:```|~~~)", re.MULTILINE)
_ROW = re.compile(
    r"^(?:[ ]{0,20}\||[^\n\t]{0,200}\t[^\n\t]{0,200}\t|[^\n,]{1,80},(?! )[^\n,]{0,80},(?! )|[ ]{4}|\t)",
    re.MULTILINE,
)
"""The beginning of a line of a table or of code; such a line is kept whole."""


def _head_length(text: str, size: int) -> int:
    """Return how many characters to keep of the beginning of a text, at most ``size``."""
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
    """Return how many characters to keep of the end of a text, at most ``size``."""
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
    """Whether a position is within a table or code, whose lines are kept whole."""
    if "\n" not in text:
        return False
    return _ROW.match(text, line_start) is not None or (len(_FENCE.findall(text, 0, position)) % 2 == 1)


# --- JSON -----------------------------------------------------------------------------------------


class _Members(IntEnum):
    """Members of a record that are kept."""

    KEY = 0
    IDS = 1
    IDENTIFYING = 2
    ALL = 3


@dataclass(frozen=True)
class _Detail:
    """How much of each record is kept: the members, and the characters of a string."""

    members: _Members
    characters: int


_DETAILS = (
    *(_Detail(_Members.ALL, int(60 * 1.3**step)) for step in range(36, -1, -1)),
    _Detail(_Members.IDENTIFYING, 60),
    _Detail(_Members.IDS, 40),
    _Detail(_Members.KEY, 40),
)
"""From most to least. A record at the last has only its own id."""

_FEW_ITEMS = 3
_MAP_MEMBERS = 24
"""An object of more members is a map of records, and is shortened as a list is."""

_GAP = re.compile(r"\[\.\.\. (\d{1,12}) more items \.\.\.\]")
_GAP_KEY = "[... more items ...]"

_ID_KEY = re.compile(
    r"(?:^|[\W_])(?i:ids?|uuid|guid|key|code|sku|asin|isbn|ean|jan|no|nr|num|number|ref|reference|tracking)$"
    r"|[a-z0-9](?:I[dD]s?|U[uU][iI][dD]|Key|Code|S[kK][uU]|Number|No|Ref)$|(?:番号|コード|識別子|I[dD])$"
)
_NAME_KEY = re.compile(
    r"(?:name|title|label|subject|series|author|product|item|名|名前|題名|タイトル|氏名|商品)$", re.IGNORECASE
)
_KIND_KEY = re.compile(r"(?:type|kind|status|state|date|種類|状態|日付?)$", re.IGNORECASE)
_CODE = re.compile(r"\A(?=\S{0,64}\d)\S{2,64}\Z")


def _largest(attempt: Callable[[int], str | None], most: int) -> tuple[int, str] | None:
    """Return the largest number up to ``most`` that has a result, and the result, by bisection."""
    low, high, best = 0, most, None
    while low < high:
        middle = (low + high + 1) // 2
        if (text := attempt(middle)) is not None:
            low, best = middle, (middle, text)
        else:
            high = middle - 1
    return best


class _TooLongError(Exception):
    """The rendered text is longer than any text that fits."""


class _JsonText:
    """A text of JSON documents and the prose around them, rendered with more or less detail."""

    def __init__(self, text: str, found: Sequence[Documents], tokens: int, most_characters: int) -> None:
        self._most_characters = most_characters
        self._parts: list[str | list[Any]] = []
        self._longest = 0
        end = 0
        for each in found:
            values = [self._capped(value, tokens) for value in self._capped(each.values, tokens)]
            self._parts += [text[end : each.start], values]
            end = each.end
        self._parts.append(text[end:])

    @classmethod
    def read(cls, text: str, tokens: int, most_characters: int) -> _JsonText | None:
        """Read a text; None if less than half of it is JSON."""
        source, found = find_json(text)
        if 2 * sum(each.end - each.start for each in found) < len(source):
            return None
        return cls(source, found, tokens, most_characters)

    @property
    def whole(self) -> str | None:
        """The text in its most compact form with nothing left out; None if it is too long."""
        return self._rendered(_DETAILS[0], self._longest)

    @property
    def least(self) -> str:
        """The text with the least detail."""
        return self._rendered(_DETAILS[-1], 1, is_strict=True, is_limited=False) or ""

    def truncate(self, fits: Callable[[str], bool]) -> str | None:
        """Return the most detailed form that fits; None if no form fits."""
        longest, last = self._longest, len(_DETAILS) - 1
        with_all = partial(self._attempt, fits, items=longest)
        if (text := with_all(last)) is not None:
            finer, text = _largest(lambda finer: with_all(last - finer), last) or (0, text)
            # The first items get more detail than the others, as far as there is room.
            richer = partial(self._attempt, fits, last - finer, longest)
            _, text = (_largest(richer, longest) if finer < last else None) or (0, text)
            return text
        for detail, least, is_strict in ((last - 2, _FEW_ITEMS, False), (last - 1, 1, True), (last, 0, True)):
            fewer = partial(self._attempt, fits, detail, is_strict=is_strict)
            if (text := fewer(least)) is not None:
                return (_largest(fewer, longest) or (0, text))[1]
        return None

    def identify(self, fits: Callable[[str], bool]) -> str | None:
        """Return a form with identifiers alone, as many as fit; None if none fits."""
        for detail in range(len(_DETAILS) - 3, len(_DETAILS)):
            if (text := self._attempt(fits, detail, self._longest, is_strict=True)) is not None:
                return text
        return self.truncate(fits)

    def _attempt(
        self, fits: Callable[[str], bool], detail: int, items: int, detailed: int = 0, *, is_strict: bool = False
    ) -> str | None:
        first = _DETAILS[max(0, detail - 1)]
        text = self._rendered(_DETAILS[detail], items, first, detailed, is_strict=is_strict)
        return text if text is not None and fits(text) else None

    def _capped(self, value: Any, most: int) -> Any:
        """Return a value without items that never fit: those of a list beyond ``most``."""
        if isinstance(value, dict):
            self._longest = max(self._longest, len(value))
            return {key: self._capped(each, most) for key, each in value.items()}
        if not isinstance(value, list):
            return value
        missing = sum(map(_gap, value))
        whole = [item for item in value if not _gap(item)] if missing else value
        kept, behind = _first_and_last(len(whole), most)
        missing += len(whole) - kept - behind
        self._longest = max(self._longest, kept + behind)
        note = [f"[... {missing} more items ...]"] if missing else []
        shown = [*whole[:kept], *note, *whole[len(whole) - behind :]]
        return [self._capped(item, most) for item in shown]

    def _rendered(
        self,
        detail: _Detail,
        items: int,
        first: _Detail = _DETAILS[0],
        detailed: int = 0,
        *,
        is_strict: bool = False,
        is_limited: bool = True,
    ) -> str | None:
        """Return the text with at most ``items`` items of a list, ``detailed`` of them as ``first``.

        ``is_strict``: records that are in no list lose members too.
        """
        pruning = _Pruning(detail, items, first, detailed, self._most_characters if is_limited else None)
        shown: list[str] = []
        own = detail if is_strict else None
        try:
            for part in self._parts:
                if isinstance(part, str):
                    shorter = _shorten_string(part, max(80, detail.characters))
                    shown.append(f"{shorter}\n" if part.endswith("\n") and not shorter.endswith("\n") else shorter)
                elif len(part) == 1:
                    shown.append(write_json(pruning.value(part[0], own)))
                else:
                    shown.append("\n".join(map(write_json, pruning.items(part, own))))
        except _TooLongError:
            return None
        return "".join(shown)


class _Pruning:
    """Removes members, items and characters from JSON values; the values given stay unchanged."""

    def __init__(self, detail: _Detail, items: int, first: _Detail, detailed: int, most_characters: int | None) -> None:
        self._left = most_characters
        self._detail = detail
        self._items = items
        self._first = first
        self._detailed = detailed

    def value(self, value: Any, detail: _Detail | None = None) -> Any:
        """Return a value pruned; ``detail`` is that of the list item that holds it, if one does."""
        if isinstance(value, dict):
            return self._members(value, detail)
        if isinstance(value, list):
            return self.items(value, detail)
        if type(value) is str and _GAP.fullmatch(value) is None:
            value = _shorten_string(value, (detail or self._detail).characters)
        self._spend(len(value) + 2 if isinstance(value, str) else 4)
        return value

    def _spend(self, characters: int) -> None:
        if self._left is not None:
            self._left -= characters
            if self._left < 0:
                raise _TooLongError

    def items(self, values: Sequence[Any], detail: _Detail | None = None) -> list[Any]:
        """Return the first and last items of a list, and in place of the others their number."""
        whole = [value for value in values if _gap(value) == 0]
        missing = sum(map(_gap, values))
        kept, behind = _first_and_last(len(whole), self._items)
        missing += len(whole) - kept - behind
        last = whole[len(whole) - behind :] if behind else []
        shown = []
        for number, value in zip(numbers(), [*whole[:kept], *last], strict=False):
            own = detail or (self._first if number < self._detailed else self._detail)
            shown.append(self.value(value, own))
        gap = [f"[... {missing} more items ...]"] if missing else []
        return [*shown[:kept], *gap, *shown[kept:]]

    def _members(self, value: dict[str, Any], detail: _Detail | None) -> dict[str, Any]:
        if len(value) > _MAP_MEMBERS or _GAP_KEY in value:
            return self._map(value, detail)
        own = detail or _Detail(_Members.ALL, self._detail.characters)
        kept = _kept_members(value, own.members) or dict(list(value.items())[:1])
        self._spend(sum(map(len, kept)))
        pruned = {key: self.value(each, detail) for key, each in kept.items()}
        if own.members is _Members.ALL:
            return pruned
        return {key: each for key, each in pruned.items() if each not in ({}, [])} or pruned

    def _map(self, value: dict[str, Any], detail: _Detail | None) -> dict[str, Any]:
        entries = [(key, each) for key, each in value.items() if key != _GAP_KEY]
        missing = int(value.get(_GAP_KEY) or 0)
        kept, behind = _first_and_last(len(entries), self._items)
        missing += len(entries) - kept - behind
        pruned: dict[str, Any] = {}
        for number, (key, each) in enumerate(entries[:kept]):
            pruned[key] = self.value(each, detail or (self._first if number < self._detailed else self._detail))
        if missing:
            pruned[_GAP_KEY] = missing
        for key, each in entries[len(entries) - behind :] if behind else []:
            pruned[key] = self.value(each, detail or self._detail)
        return pruned


def _first_and_last(length: int, most: int) -> tuple[int, int]:
    """Return the numbers of items to keep at the beginning and at the end: three quarters and one quarter."""
    if length <= most:
        return length, 0
    behind = most // 4
    return most - behind, behind


def _gap(value: Any) -> int:
    """Return the number of list items that a note such as "[... 3 more items ...]" replaces; else 0."""
    match = _GAP.fullmatch(value) if type(value) is str else None
    return int(match[1]) if match is not None else 0


def _kept_members(value: dict[str, Any], members: _Members) -> dict[str, Any]:
    """Return the members of a record that are kept."""
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
    """Return the beginning of a string and, if there is room, its end."""
    if len(text) <= characters + 8:
        return text
    behind = characters // 4 if characters >= 240 else 0
    end = text[len(text) - _tail_length(text, behind) :] if behind else ""
    return f"{text[: _head_length(text, characters - behind)].rstrip()} [...]{end and ' '}{end}"


def kept_texts(texts: Iterable[str]) -> list[str]:
    """Return the parts of truncated texts before and after the markers."""
    return "\0".join(CUT_MARKER.sub("\0", text) for text in texts).split("\0")
