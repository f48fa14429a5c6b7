from pathlib import Path
from typing import Any

import pytest

from strands_manga_memory.exceptions import StoreUnavailableError
from strands_manga_memory.memory import ProfileCache, UserMemoryStore
from strands_manga_memory.stores import USER_MEMORY, SQLiteTable
from strands_manga_memory.stores.hot import InMemoryHotStore
from strands_manga_memory.stores.writer import shared_writer


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
    assert not shared_writer(hot, object()).hot_health.is_up
