"""Truncation of a text according to its format: JSON, HTML, tables, code, or prose.

Truncated JSON keeps its keys and identifiers, such as ids, names and numbers, and the number of
items missing from long lists. Of HTML the visible text stays. Tables and code keep whole lines, and
prose keeps whole sentences if possible. Lines of a log and items of JSON that report errors are
kept first. A marker counts the removed characters. A truncated text is never empty.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from itertools import accumulate, chain
from typing import Any

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
    """Return a marker that replaces removed characters in a text and shows their number.

    The marker also shows ``name``, if given, with which the model can read the full text.
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
    json_text = None if tail else _JsonText.parse(head, max_characters)
    if json_text is not None:
        if (shorter := json_text.shorten_to_fit(fits)) is not None:
            return shorter if shorter == json_text.render() and not gone else marked(shorter)
        head = json_text.render(1, _STRINGS[-1])
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

    The marker shows ``name``, under which the full text can be read. An excerpt of JSON has field
    names and short values, such as ids, names, numbers and dates. Longer sentences stay only in
    list items that report an error. If no excerpt is shorter than the text, the text is returned
    unchanged.
    """
    json_text = None
    if CUT_MARKER.search(text) is None:
        json_text = _JsonText.parse(text, characters, is_excerpt=True)
    if json_text is not None:
        shorter = json_text.shorten_to_fit(
            lambda kept: len(kept) + len(cut_marker(len(text), name)) <= characters
        )
        if shorter is not None:
            shorter += cut_marker(max(1, len(text) - len(shorter)), name)
            return shorter if len(shorter) < len(text) else text
    return truncate_text(text, characters, len, name)


# --- Prose, tables and code -----------------------------------------------------------------------

_SPARED = 0.25
"""Largest share of prose that is removed in addition, to end at a sentence or a space."""

_MOST_SPARED, _MOST_SPARED_CHARACTERS = 0.6, 80
"""Largest share, and number of characters, that are removed so that no key or word is cut."""

_SENTENCE_END = re.compile(r"[.!?][\"')\]”’]*(?=\s)|[。！？][」』）】]*|\n")
_SPACE = re.compile(r"\s")
_LINE_END = re.compile(r"\n")
_WITHIN_WORD = re.compile(r"(?<=[0-9A-Za-z])[0-9A-Za-z]")
_PHRASE_END = re.compile(r"[、，]|(?<=[\u3041-\u309f])(?=[\u30a1-\u30fe\u3400-\u9fff])")
"""End of a Japanese phrase, after a particle and before the next word in kanji or katakana."""
_FENCE = re.compile(r"^[ \t]*(?:```|~~~)", re.MULTILINE)
_ROW = re.compile(
    r"^(?:[ ]{0,20}[|<]|[^\n\t]{0,200}\t[^\n\t]{0,200}\t|[^\n,]{1,80},(?! )[^\n,]{0,80},(?! )|["
    r" ]{4}|\t)",
    re.MULTILINE,
)
"""Beginning of a line of a table, of code or of XML. Such a line is kept whole."""

_ERROR_LINE = re.compile(
    rf"^(?!  )[^\n]{{0,300}}?{ERROR.pattern}[^\n]{{0,300}}(?:\n|\Z)", re.MULTILINE
)


def _error_lines(text: str) -> list[tuple[int, str]]:
    return [
        (match.start(), match[0])
        for match in _ERROR_LINE.finditer(text)
        # An indented line or a row of a table means little without its neighbours.
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

    If possible, the kept text ends after a line, a sentence, a word or a Japanese phrase.
    """
    if size >= len(text):
        return len(text)
    if _is_in_rows(text, text.rfind("\n", 0, size) + 1, size):
        end = text.rfind("\n", 0, size) + 1
        if end >= size // 4:
            return end
    near, far = _search_lengths(size)
    boundaries = (_SENTENCE_END, near), (_SPACE, near), (_PHRASE_END, near), (_SPACE, far)
    for boundary, spared in boundaries:
        ends = [match.end() for match in boundary.finditer(text, size - spared, size + 1)]
        if ends := [end for end in ends if end <= size]:
            return ends[-1]
    return size


def _tail_length(text: str, size: int) -> int:
    """Return how many characters, at most ``size``, to keep at the end of a text.

    If possible, the kept text starts with a line, a sentence, a word or a Japanese phrase. The
    result is 0 if it would start within a row of a table, an identifier or a number.
    """
    if size <= 0 or size >= len(text):
        return max(0, min(size, len(text)))
    start = len(text) - size
    if _is_in_rows(text, text.rfind("\n", 0, start) + 1, start):
        at = text.find("\n", start - 1) + 1
        return len(text) - at if at else 0
    near, far = _search_lengths(size)
    boundaries = (_SENTENCE_END, near), (_LINE_END, far), (_SPACE, near), (_PHRASE_END, near)
    for boundary, spared in (*boundaries, (_SPACE, far)):
        match = boundary.search(text, start - 1, start + spared)
        if match is not None and match.end() < len(text):
            return len(text) - match.end()
    return 0 if _WITHIN_WORD.match(text, start) else size


def _search_lengths(size: int) -> tuple[int, int]:
    """Return two lengths of text to search for a boundary: of the first try, and the longest."""
    near = int(size * _SPARED)
    return near, max(near, min(int(size * _MOST_SPARED), _MOST_SPARED_CHARACTERS))


def _is_in_rows(text: str, line_start: int, position: int) -> bool:
    """Return whether a position is in a table or in code, of which only whole lines are kept."""
    if "\n" not in text:
        return False
    return _ROW.match(text, line_start) is not None or (
        len(_FENCE.findall(text, 0, position)) % 2 == 1
    )


# --- JSON -----------------------------------------------------------------------------------------


class _Rank(IntEnum):
    """Rank of a JSON value: truncation keeps the values with the lowest ranks first."""

    KEY = 0
    """Value that identifies an item of a list: its id or, without an id, its name.
    Names and details outside of lists, and items that report errors, have this rank, too.
    """

    NAME = 1
    """Other id or name."""

    DETAIL = 2
    """Number, code, type, state, date, other short string, item of a list of such values, or prose
    outside of lists.
    """

    PROSE = 3
    """Other value."""


@dataclass(eq=False, slots=True)
class _Node:
    """Value in JSON: object, list, or leaf (a number, string or the like).

    Attributes:
        parent: Object or list that contains the value. None for a document.
        rank: Rank of a leaf, or of the leaves in a list.
        order: Rank of the surrounding list item. Items with low numbers are kept first.
        has_key: Whether the surrounding list item has an id or a name.
        has_error: Whether the surrounding list item reports an error.
        left_out: Number of list items that this node replaces in a long list. 0 for a value.
        members: Values in an object or list, by name or position.
    """

    value: Any
    parent: _Node | None = None
    rank: _Rank = _Rank.DETAIL
    order: int = 0
    is_listed: bool = False
    has_key: bool = False
    has_error: bool = False
    left_out: int = 0
    members: dict[Any, _Node] = field(default_factory=dict)

    def add(self, name: Any, value: Any, rank: _Rank) -> _Node:
        member = _Node(value, self, rank, self.order, self.is_listed, self.has_key, self.has_error)
        self.members[name] = member
        return member


_STRINGS = (1_000_000_000, 3_840, 1_920, 960, 480, 240, 120, 60)
"""Limits for the characters of a string. The first limit with which all values fit is used."""

_ITEM_CHARACTERS = 4
"""Assumed characters of a list item, to estimate the number of items that can fit."""

_LARGE_OBJECT_MEMBERS = 24
"""JSON objects with more members than this number are shortened like lists."""

_FEW_RECORDS = 4
"""Least number of members with equal keys with which a JSON object is shortened like a list."""

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

_SHORT_VALUE = 24
"""Largest size of a string that counts as a detail, such as a unit or a label, in UTF-8 bytes."""


class _JsonText:
    """Text with JSON in it, which can be shortened to the most important JSON values.

    With ``is_excerpt``, values of the rank ``PROSE`` are left out.
    """

    def __init__(
        self, text: str, found: Sequence[Documents], max_characters: int, *, is_excerpt: bool
    ) -> None:
        self._max_characters, self._is_excerpt = max_characters, is_excerpt
        self._leaves: list[_Node] = []
        self._parts: list[str | _Node] = []
        end = 0
        for each in found:
            root = _Node(each.values)
            is_alone = len(each.values) == 1
            self._add_leaves(root.add(0, each.values[0], root.rank) if is_alone else root)
            self._parts += [text[end : each.start], root]
            end = each.end
        self._parts.append(text[end:])

    @classmethod
    def parse(cls, text: str, max_characters: int, *, is_excerpt: bool = False) -> _JsonText | None:
        """Find and parse all JSON in a text. None if less than half of the characters are JSON."""
        source, found = find_json(text)
        if not is_mostly_json(found, source):
            return None
        return cls(source, found, max_characters, is_excerpt=is_excerpt)

    def _add_leaves(self, node: _Node, shared: Collection[str] = ()) -> None:
        """Collect the numbers, strings and the like of a JSON value, each with its importance.

        Members named in ``shared``, such as a shop id, are less important, because all items of the
        list have the same value.
        """
        value = node.value
        if not value or not isinstance(value, dict | list):
            is_prose = node.rank is _Rank.PROSE and not node.has_error
            if is_prose and self._is_excerpt:
                return
            if node.has_error or not node.is_listed:
                node.rank = _Rank.DETAIL if is_prose else _Rank.KEY
            self._leaves.append(node)
        elif isinstance(value, list):
            self._add_items(node, dict(enumerate(value)))
        elif _is_shortened_as_list(value):
            self._add_items(node, value)
        else:
            ranks = _ranks(value, shared, has_key=node.has_key or not node.is_listed)
            node.has_key |= _Rank.KEY in ranks.values()
            for name, each in value.items():
                self._add_leaves(node.add(name, each, ranks[name]))

    def _add_items(self, node: _Node, items: dict[Any, Any]) -> None:
        names = [name for name, value in items.items() if not _omitted_count(name, value)]
        errors = [name for name in names if _has_error(items[name])]
        errors = errors if 4 * len(errors) <= len(names) else []
        # Three items of the beginning are followed by one that reports an error, or one of the end.
        others = [*errors, *reversed(names)]
        mixed = ((*names[3 * at : 3 * at + 3], *others[at : at + 1]) for at in range(len(names)))
        kept = list(dict.fromkeys(chain.from_iterable(mixed)))[
            : self._max_characters // _ITEM_CHARACTERS
        ]
        order = {name: at for at, name in enumerate(kept)}
        failed, shared = {*errors}, _shared_members([items[name] for name in kept])
        hidden: _Node | None = None  # one node stands for neighboring items that never stay
        for name, value in items.items():
            if name not in order:
                hidden = hidden or node.add(name, None, node.rank)
                hidden.left_out += _omitted_count(name, value) or 1
                continue
            item, hidden = node.add(name, value, node.rank), None
            item.order, item.is_listed = max(node.order, order[name]), True
            if isinstance(value, dict):
                item.has_error |= name in failed
                if type(name) is str and _CODE.match(name):  # the name identifies the object
                    item.rank = _Rank.KEY
                    self._leaves.append(item)
            self._add_leaves(item, shared)

    def shorten_to_fit(self, fits: Callable[[str], bool]) -> str | None:
        """Return the text with as many of its JSON values as fit, or None if no value fits.

        Ids and names of list items are kept first. If not all of them fit, only some items of each
        list stay, but with their details.
        """

        def is_too_long(count: int) -> bool:
            return not fits(self.render(count, _STRINGS[-1]))

        leaves = self._leaves
        if 0 < len(leaves) == self._count_limit():
            for characters in _STRINGS[-1:] if self._is_excerpt else _STRINGS:
                if fits(text := self.render(len(leaves), characters)):
                    return text
        leaves.sort(key=lambda leaf: (leaf.rank, leaf.order))
        if is_too_long(sum(leaf.rank is _Rank.KEY for leaf in leaves)):
            leaves.sort(key=lambda leaf: (leaf.rank is _Rank.PROSE, leaf.order, leaf.rank))
        counts = range(1, self._count_limit() + 1)
        count = bisect_left(counts, 1, key=is_too_long)
        return self.render(count, _STRINGS[-1]) if count else None

    def _count_limit(self) -> int:
        # Names and brackets are not counted, so fewer leaves may fit.
        values = [leaf.value for leaf in self._leaves]
        sizes = [min(len(each), _STRINGS[-1]) if isinstance(each, str) else 2 for each in values]
        return sum(size <= self._max_characters for size in accumulate(sizes))

    def render(self, count: int | None = None, characters: int = _STRINGS[0]) -> str:
        """Return the text with its first ``count`` leaves (such as numbers), or with all leaves.

        Strings have at most ``characters`` characters.
        """
        kept: set[_Node] = set()
        for leaf in self._leaves[:count]:
            node: _Node | None = leaf
            while node is not None and node not in kept:
                kept.add(node)
                node = node.parent
        shown: list[str] = []
        for part in self._parts:
            if isinstance(part, _Node):
                shown.append("\n".join(map(write_json, _pruned(part, kept, characters))))
                continue
            shorter = _shorten_string(part, max(80, characters))
            ends_line = part.endswith("\n") and not shorter.endswith("\n")
            shown.append(f"{shorter}\n" if ends_line else shorter)
        return "".join(shown)


def _pruned(node: _Node, kept: Collection[_Node], characters: int) -> Any:
    """Return the JSON value of a node, with only those members that are in ``kept``.

    A note counts the items left out of a list. Strings have at most ``characters`` characters.
    """
    value, members = node.value, node.members
    if not members:
        limit = max(characters, _MAX_ERROR_CHARACTERS) if node.has_error else characters
        return _shorten_string(value, limit) if type(value) is str else value
    missing = sum(each.left_out or 1 for each in members.values() if each not in kept)
    shown: dict[Any, Any] = {}
    for name, member in members.items():
        if member in kept:
            shown[name] = _pruned(member, kept, characters)
        elif _is_shortened_as_list(value):
            shown[_OMISSION_KEY] = missing
    if isinstance(value, dict):
        return shown
    return [
        f"[... {item} more items ...]" if name == _OMISSION_KEY else item
        for name, item in shown.items()
    ]


def _is_shortened_as_list(value: Any) -> bool:
    """Return whether a JSON value is a list, or an object that is shortened like a list.

    Such an object has more than 24 members, was shortened before, or has several members that are
    all objects with the same keys, such as the nodes of a cluster by name.
    """
    if isinstance(value, list) or len(value) > _LARGE_OBJECT_MEMBERS or _OMISSION_KEY in value:
        return True
    records = [each.keys() for each in value.values() if isinstance(each, dict)]
    return len(value) == len(records) >= _FEW_RECORDS and all(map(records[0].__eq__, records))


def _omitted_count(name: Any, value: Any) -> int:
    """Return the count in a note such as ``[... 3 more items ...]``. 0 for any other value."""
    if name == _OMISSION_KEY:
        return int(value or 0)
    match = _OMISSION.fullmatch(value) if type(value) is str else None
    return int(match[1]) if match is not None else 0


def _has_error(value: Any) -> bool:
    members = value.items() if isinstance(value, dict) else [("", value)]
    return any(
        ERROR.search(f"{key} {each}", 0, _MAX_ERROR_CHARACTERS)
        for key, each in members
        if each is True or (type(each) is str and each)
    )


def _shared_members(items: Sequence[Any]) -> frozenset[str]:
    objects = [item for item in items if isinstance(item, dict)]
    return frozenset(
        name
        for name, value in (objects[0].items() if len(objects) > 1 else ())
        if all(name in each and each[name] == value for each in objects)
    )


def _ranks(value: dict[str, Any], shared: Collection[str], *, has_key: bool) -> dict[str, _Rank]:
    """Return the rank of each member of an object.

    Unless ``has_key``, an id or else a name gets the rank ``KEY``. Members in ``shared`` never get
    it, because they are equal in all objects of a list.
    """
    ranks = {name: _member_rank(name, each) for name, each in value.items()}
    for name in shared:
        ranks[name] = max(ranks[name], _Rank.DETAIL)
    candidates = [
        name
        for name, rank in ranks.items()
        if rank < _Rank.PROSE and name not in shared and not isinstance(value[name], dict | list)
    ]
    keys = (name for key in (_ID_KEY, _NAME_KEY) for name in candidates if key.search(name))
    if not has_key and (key := next(keys, None)) is not None:
        ranks[key] = _Rank.KEY
    return ranks


def _member_rank(name: str, value: Any) -> _Rank:
    if value is None or isinstance(value, bool) or not value:
        return _Rank.PROSE
    is_number = isinstance(value, Number)
    if _ID_KEY.search(name) or (_NAME_KEY.fullmatch(name) and not is_number):
        return _Rank.NAME
    if not isinstance(value, str) or is_number or _CODE.match(value):
        return _Rank.DETAIL
    is_short = len(value.encode(errors="replace")) <= _SHORT_VALUE
    is_detail = is_short or _NAME_KEY.search(name) or _KIND_KEY.search(name)
    return _Rank.DETAIL if is_detail else _Rank.PROSE


def _shorten_string(text: str, characters: int) -> str:
    if len(text) <= characters + 8:
        return text
    text = strip_markup(text)
    behind = characters // 4 if len(text) > characters >= 240 else 0
    end = text[len(text) - _tail_length(text, behind) :] if behind else ""
    return f"{text[: _head_length(text, characters - behind)].rstrip()} [...]{end and ' '}{end}"
