"""An agent starts in time with its own memories, whatever a profile source does."""

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from strands_manga_memory import MangaMemory, MangaMemorySettings
from strands_manga_memory.exceptions import StoreUnavailableError
from strands_manga_memory.memory import (
    Profile,
    ProfileCache,
    ProfileReader,
    TableProfileSource,
    UserMemoryStore,
)
from strands_manga_memory.stores import SESSIONS, USER_MEMORY, InMemoryHotStore, SQLiteTable
from strands_manga_memory.testing import ScriptedModel
from tests.support import background_writer


class Source:
    """Answers with what it was given, once it may."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer
        self.may = threading.Event()
        self.asked: list[str] = []

    def read(self, user_id: str, *, tenant: str | None = None) -> Any:
        self.asked.append(user_id)
        assert self.may.wait(60)
        if isinstance(self.answer, BaseException):
            raise self.answer
        return self.answer


def told(tmp_path: Path, source: Any, **settings: Any) -> str:
    """Return what a model is told of a user who prefers horror."""
    memory = MangaMemory.open(
        "memory://",
        f"sqlite:///{tmp_path}/m.db",
        memories=True,
        profile=source,
        defaults=MangaMemorySettings(**settings),
    )
    memory.user("u1").prefer("genre", "horror")
    model = ScriptedModel()
    memory.agent(model, user_id="u1", session_id="s")("hello")
    memory.close()
    return str(model.requests[0].system_prompt_content)


def test_an_agent_does_not_wait_for_a_source_that_is_slow(tmp_path: Path) -> None:
    source = Source(Profile(language="ja"))
    text = told(tmp_path, source, profile_deadline=0.01)
    assert "genre: horror" in text
    assert "language" not in text
    assert source.asked[:1] == ["u1"]
    source.may.set()


def test_a_source_that_hangs_holds_few_threads() -> None:
    source = Source(None)
    reader = ProfileReader(source, deadline=0.001)
    before = threading.active_count()
    for number in range(40):
        assert reader.read(f"u{number}") is None
    assert threading.active_count() - before <= 8
    source.may.set()


_FORKS = """
import os
from strands_manga_memory.memory import Profile, ProfileReader

class Source:
    def read(self, user_id, *, tenant=None):
        return Profile(language="ja")

reader = ProfileReader(Source(), deadline=5)
assert reader.read("u1")
child = os.fork()
if not child:
    os._exit(0 if reader.read("u1") else 7)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_forked_process_reads_profiles() -> None:
    subprocess.run([sys.executable, "-W", "ignore", "-c", _FORKS], check=True, timeout=60)


def test_genres_of_a_set_are_read_in_a_stable_order() -> None:
    source = Source({"favorite_genres": {"noir", "horror", "comedy", "drama"}})
    source.may.set()
    assert ProfileReader(source, deadline=60).read("u1") == Profile(
        favorite_genres=("comedy", "drama", "horror", "noir")
    )


@pytest.mark.parametrize(
    "answer",
    [
        {"language": "ja", "purchase_summary": {"secret": 1}},
        Profile(language="ja", purchase_summary={"secret": 1}),
        Profile(language="ja", favorite_genres=({"secret": 1},)),
        {"language": "ja", "favorite_genres": 3, "escalations": "secret"},
    ],
)
def test_a_field_that_is_no_text_is_left_out_and_logged(
    tmp_path: Path, answer: Any, caplog: pytest.LogCaptureFixture
) -> None:
    source = Source(answer)
    source.may.set()
    text = told(tmp_path, source, profile_deadline=60)
    assert "genre: horror" in text
    assert "language: ja" in text
    assert "secret" not in text + caplog.text
    assert "dropped fields of a profile" in caplog.text


@pytest.mark.parametrize(
    "answer",
    [7, "ja", [], object(), {"language": 7}, {"language": ["ja"]}, SystemExit(), KeyError("x")],
)
def test_whatever_a_source_answers_the_own_memories_are_told(tmp_path: Path, answer: Any) -> None:
    source = Source(answer)
    source.may.set()
    text = told(tmp_path, source, profile_deadline=60)
    assert "genre: horror" in text
    assert "language" not in text


def test_a_table_may_hold_fields_of_other_types(tmp_path: Path) -> None:
    table = SQLiteTable(tmp_path / "p.sqlite3", SESSIONS)
    table.create_if_missing()
    table.put(
        {
            "session_id": "u1",
            "sk": "profile",
            "language_pref": ["ja"],
            "purchase_history_summary": [1],
            "favorite_genres": ["noir"],
            "escalation_history": ["2026-01-02", "2026-03-04"],
        }
    )
    assert TableProfileSource(table).read("u1") == Profile(favorite_genres=("noir",), escalations=2)


def test_a_failed_read_of_a_profile_shortens_the_waits_for_the_hot_tier(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The profile is opened before any session, so that no other object keeps a writer."""
    hot = InMemoryHotStore()
    table = SQLiteTable(tmp_path / "m.db", USER_MEMORY)
    table.create_if_missing()
    cache = ProfileCache(UserMemoryStore(table, user_id="u1", hot=hot))

    def fail(*_: Any, **__: Any) -> None:
        raise StoreUnavailableError("down")

    monkeypatch.setattr(hot, "load", fail)
    cache.load()
    assert not cache.writer.hot_health.is_up
    assert not background_writer(hot, object()).hot_health.is_up
