"""Entries of a vector as JSON: those of writers that are not described in full, in the order of their clocks. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from strands_manga_memory.session.core.vector import Entry

_MOST_ENTRIES = 100_000
"""A vector that names more writers is damaged."""


def pack_entries(entries: Mapping[str, Entry]) -> list[list[Any]]:
    """Return entries as JSON.

    Each is ``[writer, number, clock, saves, opened, unlogged, left]``: the clock is what it goes up from the entry before, and
    ``unlogged`` says how many messages are not known to be in the log. Zeros at the end are left out.
    """
    packed: list[list[Any]] = []
    before = 0
    for writer, entry in sorted(entries.items(), key=lambda item: (item[1].clock, item[0])):
        row = [writer, entry.number, entry.clock - before, entry.saves, entry.opened, entry.number - entry.logged, entry.left]
        before = entry.clock
        while row[-1] == 0:
            row.pop()
        packed.append(row)
    return packed


def unpack_entries(packed: Any) -> dict[str, Entry]:
    """Return what :func:`pack_entries` was given; raise ``ValueError`` or ``TypeError`` for anything else."""
    if len(packed) > _MOST_ENTRIES:
        raise ValueError(f"it names over {_MOST_ENTRIES} writers")
    entries: dict[str, Entry] = {}
    clock = 0
    for writer, *numbers in packed:
        number, step, saves, opened, unlogged, left = (*map(int, numbers), *(0,) * (6 - len(numbers)))
        clock += step
        entries[str(writer)] = Entry(number, clock, saves, opened=opened, logged=number - unlogged, left=left)
    return entries
