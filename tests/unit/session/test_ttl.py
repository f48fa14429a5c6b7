from typing import Any

import pytest

from strands_manga_memory import TtlPolicy


@pytest.mark.parametrize(
    ("tier", "turns", "seconds"),
    [
        ("standard", 0, 1800),
        ("standard", 9, 1800),
        ("standard", 10, 2700),
        ("standard", 1000, 2700),
        ("premium", 0, 2700),
        ("premium", 7, 2700),
        ("premium", 8, 3600),
        ("vip", 0, 3600),
        ("vip", 4, 3600),
        ("vip", 5, 7200),
        ("VIP", 5, 7200),
        ("Premium", 8, 3600),
        ("gold", 9, 1800),
        ("gold", 10, 2700),
        ("", 10, 2700),
    ],
)
def test_hybrid(tier: str, turns: int, seconds: float) -> None:
    """Each tier of users, at its boundaries; an unknown tier is standard."""
    assert TtlPolicy(tier).ttl(turns) == seconds


@pytest.mark.parametrize(
    ("turns", "times"),
    [(0, 1.0), (1, 1.0), (2, 1.05), (11, 1.5), (21, 2.0), (100, 2.0), (10**9, 2.0)],
)
def test_by_activity_more_turns_are_more_time_up_to_twice_as_much(turns: int, times: float) -> None:
    assert TtlPolicy("vip", "activity").ttl(turns) == pytest.approx(1800 * times)
    assert TtlPolicy(mode="activity", seconds=90).ttl(turns) == pytest.approx(90 * times)


@pytest.mark.parametrize("mode", ["fixed", "sliding"])
def test_the_other_modes_know_no_depth(mode: Any) -> None:
    assert {TtlPolicy("vip", mode).ttl(turns) for turns in range(30)} == {1800.0}
    assert {TtlPolicy("vip", mode, seconds=90).ttl(turns) for turns in range(30)} == {90.0}


def test_seconds_mean_the_same_for_every_tier_and_depth() -> None:
    assert {
        TtlPolicy(tier, seconds=42).ttl(turns)
        for tier in ("standard", "vip", "x")
        for turns in (0, 99)
    } == {42.0}


@pytest.mark.parametrize(
    ("mode", "reads"), [("hybrid", True), ("sliding", True), ("activity", False), ("fixed", False)]
)
def test_what_refreshes(mode: Any, reads: bool) -> None:
    assert TtlPolicy(mode=mode).refreshed_by_reads is reads


def test_defaults() -> None:
    policy = TtlPolicy()
    assert (policy.tier, policy.mode, policy.session, policy.grace) == (
        "standard",
        "hybrid",
        86_400.0,
        3600.0,
    )
