"""The stores of the session tests."""

from __future__ import annotations

import pytest

from tests.unit.session.support import SHAPES, Stores, open_stores


@pytest.fixture(params=SHAPES)
def stores(request: pytest.FixtureRequest) -> Stores:
    """Each shape of tiers in turn."""
    return open_stores(request.param, request)


@pytest.fixture
def both(request: pytest.FixtureRequest) -> Stores:
    """Both tiers, in the cheapest way."""
    return open_stores("valkey+sqlite", request)
