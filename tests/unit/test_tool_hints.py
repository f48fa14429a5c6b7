"""A tool's annotations decide on stale answers and safe instruction files."""

from __future__ import annotations

from typing import Any

import pytest

from strands_manga_memory import BreakerPolicy
from strands_manga_memory.call_state import declares_read_only
from strands_manga_memory.mcp.guard import Guard


@pytest.mark.parametrize(
    ("annotations", "is_read_only"),
    [
        ({"readOnlyHint": True}, True),
        ({"readOnlyHint": True, "destructiveHint": False}, True),
        ({"readOnlyHint": True, "destructiveHint": True}, False),
        ({"readOnlyHint": "true"}, False),
        ({}, False),
        (None, False),
    ],
)
def test_a_tool_is_read_only_if_it_says_so_and_nothing_against_it(
    annotations: Any, is_read_only: bool
) -> None:
    spec: Any = {
        "name": "look",
        "description": "",
        "inputSchema": {"json": {}},
        "annotations": annotations,
    }
    assert declares_read_only(spec) is is_read_only
    assert Guard(spec, BreakerPolicy()).read_only is is_read_only
    assert Guard(spec, BreakerPolicy(read_only=True)).read_only
