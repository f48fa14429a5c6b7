"""Cells that are none: each is told by its record, and costs nothing else."""

from __future__ import annotations

from typing import Any

import pytest

from strands_manga_memory.session.core.cells import Head, packed, read_cells
from strands_manga_memory.session.core.identity import Name
from strands_manga_memory.session.core.merge import EMPTY
from strands_manga_memory.session.core.records import Body, framed
from strands_manga_memory.session.core.vector import Entry

WINDOW = b'[1,"a",[],0,{}]'
ENTRY = [1, 1, 0, 0, 0.0, 0]


@pytest.mark.parametrize(
    "cell",
    [
        ["w", "x", 0],
        ["v", [1], ENTRY],
        ["v", "a", "b", ENTRY],
        ["r", "a", "1", 1],
        ["m", "a", True, ["life", 1, 1, 1, 0.0, 0]],
        ["s", 5, [1, "a", False]],
        ["q", "a", 1],
        [],
        None,
    ],
)
def test_a_cell_with_a_name_that_its_kind_does_not_have_is_damaged(cell: Any) -> None:
    read = read_cells(Head(EMPTY), [("there", framed([["w", 0]], [WINDOW])), ("odd", framed([cell], [b"{}"]))], "record")
    assert read.damaged == ["odd"]
    assert list(read.records) == [("w",)]
    assert read.copy.window is not None


@pytest.mark.parametrize("cells", [None, 5, ["w", 0], [["w", 0]], [["b", "x", [None, 0, None]]], [["v", "a", ENTRY], 7]])
def test_a_record_that_has_no_cells_is_damaged(cells: Any) -> None:
    read = read_cells(Head(EMPTY), [("odd", framed(cells))], "record")
    assert (read.records, read.damaged) == ({}, ["odd"])


def test_a_record_has_several_cells() -> None:
    cells = {("b", "x"): Body(b"{}"), ("v", "a"): Entry(*ENTRY), ("b", "y"): Body(b"[]", edits=Name("a", 1)), ("r", "a", 1): 2}
    read = read_cells(Head(EMPTY), [("both", packed(cells))], "record")
    assert read.records == dict.fromkeys(cells, "both")
    assert read.damaged == []
