"""Unhurried work: everything in its order, with pauses."""

import pytest

from strands_manga_memory.language import text_features as module
from strands_manga_memory.language.text_features import with_pauses


def test_everything_comes_in_order() -> None:
    assert list(with_pauses(range(1_000))) == list(range(1_000))
    assert list(with_pauses([])) == []


def test_it_pauses_after_each_stretch_of_work(monkeypatch: pytest.MonkeyPatch) -> None:
    now, slept = [0.0], []

    class Clock:
        @staticmethod
        def perf_counter() -> float:
            return now[0]

        @staticmethod
        def sleep(seconds: float) -> None:
            slept.append(seconds)

    monkeypatch.setattr(module, "time", Clock)
    for _ in with_pauses(range(10)):
        now[0] += 0.0004
    assert len(slept) == 3
    assert set(slept) == {0.000_1}
