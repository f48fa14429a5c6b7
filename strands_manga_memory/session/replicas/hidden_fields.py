"""Hidden fields: messages of a hot replica that no restore reads, by the numbers of their fields. Pure."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from strands_manga_memory.session.core.cells import Key, Version
from strands_manga_memory.session.core.identity import Name
from strands_manga_memory.session.core.records import framed, unframed
from strands_manga_memory.stores.encoding.codec import trusted

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
