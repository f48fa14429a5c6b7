"""Thresholds for windows of every size."""

import pytest

from strands_manga_memory.conversation import thresholds


@pytest.mark.parametrize(
    ("window", "trigger"),
    [(8_192, 5_488), (32_768, 21_954), (128_000, 95_000), (200_000, 160_000), (1_000_000, 800_000), (None, 95_000)],
)
def test_the_trigger(window: int | None, trigger: int) -> None:
    found = thresholds(window)
    assert found.trigger == trigger
    assert found.window == (window or 128_000)
    assert 0 < found.target < found.trigger <= found.hard <= found.window


@pytest.mark.parametrize("share", [0, -0.1, 1.01])
def test_a_share_that_is_none(share: float) -> None:
    with pytest.raises(ValueError, match="trigger must be over 0 and at most 1"):
        thresholds(8_192, trigger=share)


def test_a_window_that_is_none() -> None:
    with pytest.raises(ValueError, match="window must be positive, got 0"):
        thresholds(0)
