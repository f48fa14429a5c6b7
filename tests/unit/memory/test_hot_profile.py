from __future__ import annotations

from typing import Any

import pytest

from strands_manga_memory.exceptions import StoreUnavailableError
from strands_manga_memory.memory import ProfileCache
from strands_manga_memory.memory.records import AgentContext
from strands_manga_memory.stores.hot import InMemoryHotStore
from strands_manga_memory.stores.writer import shared_writer


def test_a_failed_read_of_a_profile_shortens_the_waits_for_the_hot_tier(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The profile is opened before any session, so that no other object keeps a writer."""
    hot = InMemoryHotStore()
    cache = ProfileCache(hot, user_id="u1")

    def fail(*_: Any, **__: Any) -> None:
        raise StoreUnavailableError("down")

    monkeypatch.setattr(hot, "load", fail)
    cache.load(AgentContext)
    assert not cache.writer.hot_health.is_up
    assert not shared_writer(hot, object()).hot_health.is_up
