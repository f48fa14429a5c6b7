"""Calls that go round in circles are noticed, whatever time their answers tell."""

from __future__ import annotations

from typing import Any

import pytest

from strands_manga_memory.state.task import LoopDetector


def loops(*calls: tuple[str, dict[str, Any], str]) -> list[bool]:
    repeated = LoopDetector()
    return [repeated.is_loop(*call) for call in calls]


@pytest.mark.parametrize(
    "results",
    [
        ["nothing"] * 3,
        [f'{{"found": [], "at": "2026-11-25T03:0{at}:00Z"}}' for at in range(3)],
        [f"none, {1764040000 + at}" for at in range(3)],
        [f"none (request 0e3a9e88-2153-46a6-9929-2c8df14afd4{at})" for at in range(3)],
        [f"none as of 03:00:0{at}.123" for at in range(3)],
    ],
)
def test_the_third_answer_that_says_the_same_is_a_loop(results: list[str]) -> None:
    assert loops(*(("find", {"q": "x"}, result) for result in results)) == [False, False, True]


@pytest.mark.parametrize(
    "results",
    [
        [f"{at}0 % done" for at in range(3)],
        [f"volume {at}" for at in range(3)],
        [f"it comes on 2026-11-2{at}" for at in range(3)],
        [f"order 1234567{at}" for at in range(3)],
    ],
)
def test_answers_that_say_something_new_are_none(results: list[str]) -> None:
    assert loops(*(("poll", {"id": 1}, result) for result in results)) == [False] * 3


def test_odd_arguments_are_counted_like_any() -> None:
    odd: dict[Any, Any] = {1: {2}, "b": float("nan"), None: b"x"}
    assert loops(*(("find", odd, "\ud800") for _ in range(4))) == [False, False, True, False]
    nested = [
        ("find", {"in": {"a": 1, "b": [{"c": 2, "d": 3}]}}, ""),
        ("find", {"in": {"b": [{"d": 3, "c": 2}], "a": 1}}, ""),
    ]
    assert loops(*nested, nested[0]) == [False, False, True]
    assert loops(
        ("find", {"a": 1, "b": 2}, ""),
        ("find", {"b": 2, "a": 1}, ""),
        ("find", {"a": 1, "b": 2}, ""),
    ) == [
        False,
        False,
        True,
    ]
