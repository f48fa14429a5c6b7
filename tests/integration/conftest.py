"""The stores of the session tests."""

import pytest

from strands_manga_memory.session import session_agent
from tests.unit.session.support import SHAPES, Stores, open_stores


@pytest.fixture(autouse=True)
def _turns_are_saved_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """A turn held up by a busy machine must not be saved in parts while calls are counted."""
    monkeypatch.setattr(session_agent, "_PENDING_SECONDS", 1.0)


@pytest.fixture(params=SHAPES)
def stores(request: pytest.FixtureRequest) -> Stores:
    """Each shape of tiers in turn."""
    return open_stores(request.param, request)


@pytest.fixture
def both(request: pytest.FixtureRequest) -> Stores:
    """Both tiers, in the cheapest way."""
    return open_stores("valkey+sqlite", request)
