"""How long, and with which pauses, a save that others keep overtaking is tried again."""

from __future__ import annotations

import pytest

from strands_manga_memory.session import contention
from strands_manga_memory.session.contention import ContendedError, tries


class _Time:
    """A clock that only sleeping moves on."""

    def __init__(self) -> None:
        self.now = 0.0
        self.pauses: list[float] = []

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += seconds


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> _Time:
    clock = _Time()
    monkeypatch.setattr(contention, "time", clock)
    return clock


def test_it_is_given_up_after_30_seconds_however_many_tries_that_takes(time: _Time, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contention._random, "uniform", lambda low, high: high / 4)  # so that there are more than 2,000
    numbers: list[int] = []
    with pytest.raises(ContendedError, match="the copy keeps changing"):
        numbers.extend(tries("the copy"))
    assert numbers == list(range(len(numbers)))
    assert len(numbers) > 2000
    assert 30.0 <= time.now < 31.0


def test_pauses_grow_and_are_short(time: _Time, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contention._random, "uniform", lambda low, high: high)
    for number in tries("the copy"):
        if number == 20:
            break
    assert time.pauses == sorted(time.pauses)
    assert time.pauses[0] < 0.001
    assert time.pauses[-1] == 0.05
