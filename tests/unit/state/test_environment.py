"""Environments and their sources."""

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from strands_manga_memory import ConversationScope, Environment, MangaMemory, TtlPolicy
from strands_manga_memory.state import EnvironmentTracker, export_for_human
from strands_manga_memory.testing import ScriptedModel

SCOPE = ConversationScope("u1", "s1", tenant="shop")


@pytest.mark.parametrize(
    ("answer", "known"),
    [
        ({"tier": "vip"}, Environment(tier="vip")),
        (Environment(tier="vip"), Environment(tier="vip")),
        (None, Environment()),
    ],
)
def test_source_returns_an_environment_or_its_fields(answer: Any, known: Environment) -> None:
    assert EnvironmentTracker(lambda scope: answer, SCOPE).environment == known


def test_other_values_of_a_source_are_logged_and_not_used(caplog: pytest.LogCaptureFixture) -> None:
    wrong: Any = 5
    assert EnvironmentTracker(lambda scope: wrong, SCOPE).environment == Environment()
    assert "the environment could not be read, keeping the last values" in caplog.text


def test_wrong_fields_of_a_source_are_logged_and_the_others_used(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    answers = iter([{"tier": "vip"}, {"tier": 5, "cart": ["Gyo"], "timezone": "Mars"}])
    ids = {"user_id": "u1", "session_id": "s1"}
    with MangaMemory.open(
        durable=f"sqlite:///{tmp_path}/s.db", environment=lambda scope: next(answers)
    ) as memory:
        agent = memory.agent(ScriptedModel(lambda _: "Noted."), **ids, task_state=True)
        memory.changes(**ids).publish()
        agent("What is in my cart?")
        assert export_for_human(agent, reason="asked").environment == Environment(
            tier="vip", cart=("Gyo",)
        )
    assert "fields=<tier, timezone> | wrong fields" in caplog.text


def test_source_that_is_no_function_is_refused() -> None:
    wrong: Any = {"tier": "vip"}
    with pytest.raises(
        ValueError, match=r"source must be EnvironmentSource, got \{'tier': 'vip'\}"
    ):
        EnvironmentTracker(wrong, SCOPE)


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
        Environment().tier = "vip"
    assert len(Environment.model_validate({"cart": [str(n) for n in range(500)]}).cart) == 50


def test_a_policy_asks_for_the_tier_at_each_use() -> None:
    tiers = iter(["standard", "vip", "unheard of"])
    policy = TtlPolicy(tier=lambda: next(tiers))
    assert [policy.ttl(1) for _ in range(3)] == [1800, 3600, 1800]
    with pytest.raises(ValueError, match="tier must be a string or a function"):
        TtlPolicy(tier=5)
