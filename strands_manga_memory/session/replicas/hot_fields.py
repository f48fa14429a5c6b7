"""Fields of a hot replica: which cells share one, and which messages no restore reads. Pure."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Set
from typing import Any

from strands_manga_memory.session.core.cells import Cell, Key, Version
from strands_manga_memory.session.core.identity import Name, Stamp
from strands_manga_memory.session.core.records import framed, unframed
from strands_manga_memory.stores.encoding.codec import trusted

_SHORT, _MOST_SHARING = 1_000, 4
"""Bytes of a message up to which it shares a field with others of its turn, and how many of them do: it stays there as long as
one of them is needed."""


def numbered(cells: Mapping[Key, Cell], taken: Collection[int], *, alone: bool) -> dict[Key, int]:
    """Return numbers of new fields for cells: one for some short messages of a turn, one for each other cell.

    Args:
        cells: The cells.
        taken: Numbers of other fields. Low ones are given first: the list of fields stays short.
        alone: Each message has a field of its own.
    """
    free = (number for number in itertools.count(1) if number not in taken)
    sharing: Counter[Stamp] = Counter()
    last: dict[Stamp, int] = {}
    numbers: dict[Key, int] = {}
    for key, cell in cells.items():
        if alone or type(key) is not Name or len(cell.record) > _SHORT:
            numbers[key] = next(free)
            continue
        if sharing[cell.turn] % _MOST_SHARING == 0:
            last[cell.turn] = next(free)
        sharing[cell.turn] += 1
        numbers[key] = last[cell.turn]
    return numbers


def staying_beside(fields: Mapping[Key, int], needed: Set[Key]) -> set[Key]:
    """Return the messages that are not needed, and stay as they are in a field with one that is."""
    others = fields.keys() - needed
    staying = {number for key, number in fields.items() if key not in others} if others else ()
    return {key for key in others if fields[key] in staying}


def written_anew(fields: Mapping[Key, int], changed: Iterable[Key], *, alone: bool) -> set[int]:
    """Return the fields whose needed messages get others: those of changed ones, and shared ones if each is to be ``alone``."""
    anew = {fields[key] for key in changed if type(key) is Name and key in fields}
    return anew | {number for number, count in Counter(fields.values()).items() if count > 1} if alone else anew


Hidden = Mapping[Key, tuple[int, Version]]
"""The number of each message's field, and its revision there."""


def listed_fields(numbers: Iterable[int], hidden: Collection[int]) -> str:
    """Return the fields that a restore reads, as ranges of numbers: ``"1-4,7-7"``."""
    edges = [0, *sorted(hidden), max(numbers, default=0) + 1]
    return ",".join(f"{one + 1}-{other - 1}" for one, other in itertools.pairwise(edges) if one + 1 < other)


def pack_hidden(hidden: Hidden) -> bytes:
    """Return hidden fields as one value: runs of messages of one writer in fields side by side."""
    runs: list[list[Any]] = []
    for key in sorted(hidden):
        writer, number = key
        field, revision = hidden[key]
        run: list[Any] = runs[-1] if runs else ["", 0, 0, 0, 0]
        if run == [writer, number - run[3], field - run[3], run[3], revision]:
            run[3] += 1
        else:
            runs.append([writer, number, field, 1, revision])
    return framed(runs)


def unpack_hidden(data: bytes, record: str) -> dict[Key, tuple[int, Version]]:
    """Return what :func:`pack_hidden` was given; raise ``CorruptRecordError`` naming ``record`` if it is something else."""
    runs, _ = unframed(data, record)
    with trusted(record):
        return {
            Name(writer, number + at): (first + at, revision)
            for writer, number, first, count, revision in runs
            for at in range(count)
        }
