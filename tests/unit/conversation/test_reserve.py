"""The reserve: what left the window is at hand in the order of speech, and nothing comes back that somebody else took out."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from strands_manga_memory.conversation.history.stubs import is_stub, stub_of
from strands_manga_memory.conversation.importance.choosing.choice import Choice
from strands_manga_memory.conversation.importance.reserve import Reserve
from strands_manga_memory.conversation.importance.view import View
from strands_manga_memory.messages import problems
from tests.unit.conversation.messages import assistant, user


def one(message: Any) -> int:
    return 1


def talk(turns: int) -> list[Any]:
    return [message for number in range(turns) for message in (user(f"question {number}"), assistant(f"answer {number}"))]


def begun(history: list[Any], chosen: list[Any]) -> Reserve:
    reserve = Reserve()
    reserve.take_in(history, one)
    reserve.around(history)
    reserve.show(history, chosen)
    return reserve


@given(st.lists(st.sampled_from(["keep", "mark", "drop"]), min_size=6, max_size=6), st.integers(0, 3))
def test_what_was_said_comes_back_whole_and_in_order(fates: list[str], more: int) -> None:
    said = talk(6)
    window = []
    for number, fate in enumerate(fates):
        question, answer = said[2 * number : 2 * number + 2]
        if fate != "drop":
            window += [question, stub_of(answer) if fate == "mark" else answer]
    reserve = begun(said, window)
    new = talk(more)
    window += new
    reserve.take_in(window, one)
    assert reserve.around(window) == [*said, *new]
    assert problems(reserve.around(window)) == []


def test_what_somebody_else_changed_counts_as_it_is_now() -> None:
    said = talk(3)
    window = [said[0], stub_of(said[1]), *said[2:]]
    reserve = begun(said, window)
    window[0] = {**said[0], "content": [{"text": "[redacted]"}]}
    window[1] = {**window[1], "content": [{"text": "[redacted too]"}]}
    reserve.take_in(window, one)
    assert reserve.around(window) == [*window[:2], *said[2:]]


def test_a_mark_that_was_changed_in_place_does_not_bring_back_what_it_stood_for() -> None:
    said = talk(3)
    window = [said[0], stub_of(said[1]), *said[2:]]
    reserve = begun(said, window)
    window[1]["content"] = [{"text": "[redacted]"}]
    reserve.show(window, window)  # another choice was made since, and left it as it was
    reserve.take_in(window, one)
    assert reserve.around(window)[1]["content"] == [{"text": "[redacted]"}]


def test_what_was_changed_before_it_left_does_not_come_back_as_it_was_said() -> None:
    said = talk(3)
    reserve = begun(said, said)
    window = [said[0], {**said[1], "content": [{"text": "[redacted]"}]}, *said[2:]]
    reserve.take_in(window, one)
    reserve.show(window, left := [said[0], stub_of(said[1]), *said[2:]])
    reserve.take_in(left, one)
    assert reserve.around(left)[1]["content"] == [{"text": "[redacted]"}]


def test_what_is_narrowed_to_a_mark_or_to_nothing_while_the_history_has_it_is_told_to_have_left() -> None:
    said = talk(4)
    pool = [said[0], stub_of(said[1]), *said[4:]]
    choice = Choice(dict(enumerate(pool)), frozenset(), {}, 5, 8).as_history(len(pool))
    view = View(said, said, pool, choice)
    assert sorted(message["tracking_id"] for message in view.left) == [message["tracking_id"] for message in said[1:4]]
    assert view.newly_marked == [1]


def test_nothing_comes_back_once_something_was_taken_out_or_put_between() -> None:
    said = talk(4)
    for change in (
        lambda window: window.pop(0),
        lambda window: window.insert(1, assistant("a summary")),
        lambda window: window.clear(),
    ):
        window = said[4:]
        reserve = begun(said, window)
        change(window)
        window += talk(1)
        reserve.take_in(window, one)
        assert reserve.around(window) == window
        assert list(reserve) == window


def test_what_is_forgotten_does_not_come_back() -> None:
    said = talk(3)
    reserve = begun(said, said[2:])
    reserve.forget(said[0]["tracking_id"])
    assert is_stub(reserve.around(said[2:])[0])
    assert reserve.around(said[2:])[1:] == said[1:]


def test_it_is_due_when_enough_was_said_since_or_enough_room_is_left() -> None:
    reserve = begun(said := talk(4), said)
    assert not reserve.is_due(80, 9)
    assert reserve.is_due(80, 10)
    reserve.take_in([*said, *talk(5)], one)
    assert reserve.is_due(80, 0)
