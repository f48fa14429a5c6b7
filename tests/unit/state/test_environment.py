"""Environments and their sources."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from strands_manga_memory import ConversationScope, CorruptRecordError, Environment, TtlPolicy
from strands_manga_memory.state import CallableEnvironmentSource

SCOPE = ConversationScope("u1", "s1", tenant="shop")


def test_a_function_may_say_anything_that_is_an_environment() -> None:
    assert CallableEnvironmentSource(lambda scope: {"tier": scope.user_id}).load(
        SCOPE
    ) == Environment(tier="u1")
    assert CallableEnvironmentSource(lambda scope: None).load(SCOPE) is None
    with pytest.raises(CorruptRecordError):
        CallableEnvironmentSource(lambda scope: 5).load(SCOPE)  # type: ignore[arg-type, return-value]
    with pytest.raises(
        CorruptRecordError, match="returned an invalid value: tier; return an Environment"
    ):
        CallableEnvironmentSource(lambda scope: {"tier": 5}).load(SCOPE)
    with pytest.raises(ValueError, match="function must be callable"):
        CallableEnvironmentSource("x")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("hour", "part"),
    [(3, "night"), (8, "morning"), (14, "afternoon"), (19, "evening"), (23, "night")],
)
def test_the_time_of_day_is_that_of_the_user(hour: int, part: str) -> None:
    assert Environment(timezone="Asia/Tokyo").part_of_day((hour - 9) % 24 * 3600) == part
    assert Environment(timezone="Asia/Tokyo", time_of_day="tea time").part_of_day(0) == "tea time"
    assert Environment().part_of_day(0) is None
    with pytest.raises(ValidationError, match="IANA name"):
        Environment(timezone="../etc/passwd")


@pytest.mark.parametrize(
    ("given", "kept"), [(1200, "1,200"), (12.5, "12.5"), ("1,200 JPY", "1,200 JPY"), (None, None)]
)
def test_total_of_the_cart_is_kept_as_text(given: object, kept: str | None) -> None:
    assert (
        Environment.model_validate({"cart": ["B07X1234"], "cart_total": given}).cart_total == kept
    )
    with pytest.raises(ValidationError):
        Environment.model_validate({"cart_total": ["1"]})


def test_the_agent_cannot_change_it() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        Environment().tier = "vip"  # type: ignore[misc]
    assert (
        len(Environment.model_validate({"cart": [str(number) for number in range(500)]}).cart) == 50
    )


def test_a_policy_asks_for_the_tier_at_each_use() -> None:
    tiers = iter(["standard", "vip", "unheard of"])
    policy = TtlPolicy(tier=lambda: next(tiers))
    assert [policy.ttl(1) for _ in range(3)] == [1800, 3600, 1800]
    with pytest.raises(ValueError, match="tier must be a string or a function"):
        TtlPolicy(tier=5)  # type: ignore[arg-type]
