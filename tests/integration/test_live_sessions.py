"""Sessions of the smaller protocol, through a real agent: restores, two writers, states, redaction, deletion, cut turns."""

from __future__ import annotations

import pytest
from strands import Agent

from strands_manga_memory import TieredSessionManager
from tests.unit.session import support
from tests.unit.session.support import KINDS, Stores, open_stores, same


@pytest.fixture(params=KINDS)
def stores(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Stores:
    """Each shape of tiers, with managers of the smaller protocol."""
    monkeypatch.setattr(support, "TieredSessionManager", TieredSessionManager)
    return open_stores(request.param, request)


def check(stores: Stores, live: Agent) -> None:
    """Check that a new process restores the same history and state, also from the durable tier alone after a flush."""
    restored = stores.agent()
    assert same(restored.messages, live.messages)
    assert restored.state.get() == live.state.get()
    if stores.hot is not None and stores.durable is not None:
        live._session_manager.flush()
        assert same(stores.only_durable().agent().messages, live.messages)


def test_every_turn_is_restored_exactly(stores: Stores) -> None:
    live = stores.agent()
    for number in range(12):
        live.state.set("count", number)
        live(f"question {number}")
        check(stores, live)
    assert live._session_manager.stats()["turns"] == 12
    assert live._session_manager.stats()["unsaved_messages"] == 0


def test_half_a_character_is_kept_in_every_tier(stores: Stores) -> None:
    live = stores.agent()
    live("\ud83d")
    check(stores, live)
