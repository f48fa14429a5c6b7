"""Slices of the campaigns of isolation and of sweepers."""

import os
import random
from urllib.parse import quote

import pytest

from strands_manga_memory import scope
from tests.faults import isolation
from tests.faults.sweep import campaign, running


def test_no_two_scopes_share_a_name() -> None:
    compared, found = isolation.pairs(1_000_000, seed=11)
    assert compared >= 1_000_000
    assert found == []


@pytest.mark.parametrize(
    "careless", [lambda value, safe: value, lambda value, safe: quote(value, safe=":")]
)
def test_the_campaign_finds_ids_that_are_not_escaped(
    careless: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scope, "quote", careless)
    assert list(isolation.collisions(random.Random(1), 300))


def test_each_summary_once_whoever_dies() -> None:
    with running() as stores:
        report = campaign(stores, sessions=16, sweepers=3, seed=os.getpid(), within=60)
    assert report.is_clean, report
    assert report.kills >= 3
