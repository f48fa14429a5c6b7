"""Data that an earlier release stored are read and continued."""

import json
from pathlib import Path
from typing import Any

import pytest

from strands_manga_memory import MangaMemory
from strands_manga_memory.testing import FakeClock
from tests.stored.records import FOLDER, FORMAT, SESSIONS, agent_of, brought_back, opened, told

FILES = {int(path.stem.partition("_")[2]): path for path in FOLDER.glob("format_*.json")}


def brought(version: int, folder: Path) -> tuple[dict[str, Any], MangaMemory]:
    stored = json.loads(FILES[version].read_text(encoding="utf-8"))
    clock = FakeClock(stored["at"])
    return stored, opened(folder, brought_back(stored, folder, clock), clock)


def test_format_that_is_written_has_a_file() -> None:
    """The recorded files include the format of this release."""
    assert FORMAT in FILES


@pytest.mark.parametrize("version", sorted(FILES))
def test_what_a_release_stored_is_read_as_it_was(version: int, tmp_path: Path) -> None:
    stored, memory = brought(version, tmp_path)
    with memory:
        assert told(memory) == stored["told"]


@pytest.mark.parametrize("version", sorted(FILES))
def test_what_a_release_stored_is_gone_on_with(version: int, tmp_path: Path) -> None:
    stored, memory = brought(version, tmp_path)
    with memory:
        for session in SESSIONS:
            agent = agent_of(memory, session, ["Of course."])
            agent("Is it in stock?")
        now = told(memory)
        for session, before in stored["told"]["sessions"].items():
            after = now["sessions"][session]["history"]
            assert after[: len(before["history"])] == before["history"]
            assert [
                message["content"][0].get("text") for message in after[len(before["history"]) :]
            ][-1] == "Of course."
