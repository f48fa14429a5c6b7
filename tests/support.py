"""Helpers of tests in several folders: the command line, and the background writes of a pair of stores."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from unittest import mock

from strands_manga_memory.cli import main
from strands_manga_memory.conversation import EstimateCounter
from strands_manga_memory.stores import HotRecord, HotStore
from strands_manga_memory.stores.writer import Writer, shared_writer

UNREADABLE_TEXT = "[message could not be read]"
CUT_TEXT = "[This turn was interrupted before it was finished.]"
PLACEHOLDER = "[…]"
"""Texts that the package writes into histories and requests."""

DAY = 86_400.0

estimate_tokens = EstimateCounter().text


def run(arguments: Sequence[str]) -> int:
    """Run ``strands-manga-memory`` with arguments in this process and return its exit status."""
    with mock.patch.object(sys, "argv", ["strands-manga-memory", *arguments]):
        try:
            main()
        except SystemExit as end:
            return int(end.code or 0)
    raise AssertionError("main() returned")


def hot_copy(store: HotStore, name: str) -> HotRecord | None:
    """Return the hot tier's copy of a conversation without its messages; None without a copy, or if it was deleted."""
    found = store.load(name, ["head"], touch=False)
    return None if found is None or found.state == "deleted" or "head" not in found.fields else found


def background_writer(hot: object, durable: object) -> Writer:
    """Return the writer that saves in the background for all users of a pair of stores."""
    return shared_writer(hot, durable)


def finish_writes(hot: object, durable: object) -> None:
    """Wait until nothing is left to write to a pair of stores in the background."""
    assert background_writer(hot, durable).drain(20)
