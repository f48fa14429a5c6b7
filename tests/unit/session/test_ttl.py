from typing import Any

import pytest

from strands_manga_memory import TtlPolicy

POLICIES: dict[Any, dict[int, float]] = {
    ("standard",): {0: 1800, 9: 1800, 10: 2700, 1000: 2700},
    ("premium",): {0: 2700, 7: 2700, 8: 3600},
    ("Premium",): {8: 3600},
    ("vip",): {0: 3600, 4: 3600, 5: 7200},
    ("VIP",): {5: 7200},
    ("gold",): {9: 1800, 10: 2700},
    ("",): {10: 2700},
    ("vip", "fixed"): dict.fromkeys(range(30), 1800),
    ("vip", "sliding"): dict.fromkeys(range(30), 1800),
    ("vip", "fixed", 90): dict.fromkeys(range(30), 90),
    ("vip", "sliding", 90): dict.fromkeys(range(30), 90),
    ("standard", "hybrid", 42): {0: 42, 99: 42},
    ("vip", "hybrid", 42): {0: 42, 99: 42},
    ("x", "hybrid", 42): {0: 42, 99: 42},
}
"""Seconds to live by turns, for the arguments ``tier``, ``mode`` and ``seconds``."""

TIMES = {0: 1.0, 1: 1.0, 2: 1.05, 11: 1.5, 21: 2.0, 100: 2.0, 10**9: 2.0}
"""Growth of the time to live in the mode ``activity``, by turns."""

for given, first in ((("vip", "activity"), 1800), (("standard", "activity", 90), 90)):
    POLICIES[given] = {turns: first * times for turns, times in TIMES.items()}


@pytest.mark.parametrize("given", POLICIES)
def test_time_to_live_follows_tier_mode_and_turns(given: tuple[Any, ...]) -> None:
    """An unknown tier is standard."""
    policy = TtlPolicy(*given[:2], seconds=given[2] if len(given) > 2 else None)
    assert {turns: policy.ttl(turns) for turns in POLICIES[given]} == pytest.approx(POLICIES[given])


@pytest.mark.parametrize(
    ("mode", "reads"), [("hybrid", True), ("sliding", True), ("activity", False), ("fixed", False)]
)
def test_what_refreshes(mode: Any, reads: bool) -> None:
    assert TtlPolicy(mode=mode).refreshed_by_reads is reads


def test_defaults() -> None:
    policy = TtlPolicy()
    found = (policy.tier, policy.mode, policy.session, policy.grace)
    assert found == ("standard", "hybrid", 86_400.0, 3600.0)
