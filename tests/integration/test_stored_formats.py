"""What earlier releases stored is read, gone on with, and a new format is rolled out in two steps."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from strands import Agent

from strands_manga_memory import CorruptRecordError, MangaMemory, SQLiteTable, TieredSessionManager
from strands_manga_memory.session.core import records
from strands_manga_memory.testing import FakeClock, ScriptedModel
from tests.stored.records import FOLDER, SESSIONS, agent_of, brought_back, opened, told

FILES = {int(path.stem.partition("_")[2]): path for path in FOLDER.glob("format_*.json")}


def brought(version: int, folder: Path) -> tuple[dict[str, Any], MangaMemory]:
    stored = json.loads(FILES[version].read_text(encoding="utf-8"))
    clock = FakeClock(stored["at"])
    return stored, opened(folder, brought_back(stored, folder, clock), clock)


def test_every_version_that_is_read_has_a_file() -> None:
    assert set(FILES) == records.READS
    assert records.WRITES in records.READS


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
            assert [message["content"][0].get("text") for message in after[len(before["history"]) :]][-1] == "Of course."


def test_a_new_format_is_rolled_out_in_two_steps(tmp_path: Path) -> None:
    table = SQLiteTable(tmp_path / "t.sqlite3")
    table.create_if_missing()

    def says(text: str) -> list[str]:
        manager = TieredSessionManager("s1", durable=table)
        agent = Agent(model=ScriptedModel(["yes"]), callback_handler=None, session_manager=manager)
        agent(text)
        manager.close()
        return [message["content"][0]["text"] for message in agent.messages]

    newer = records.WRITES + 1
    says("written before")
    with mock.patch.object(records, "READS", records.READS | {newer}):
        says("by who reads the new one")
        with mock.patch.object(records, "WRITES", newer):
            says("by who writes it")
        said = says("by who only reads it")
    assert said[::2] == ["written before", "by who reads the new one", "by who writes it", "by who only reads it"]
    with mock.patch.object(records, "READS", records.READS | {newer}), mock.patch.object(records, "WRITES", newer):
        says("by who writes it again")
    with pytest.raises(CorruptRecordError, match=f"has version {newer}, this release reads .*: upgrade it"):
        says("by who was not told of it")
    table.close()
