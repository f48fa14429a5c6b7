"""What processes that share a conversation once did to it, each in the fewest steps with which it went wrong."""

from __future__ import annotations

import time

import pytest

from tests.unit.session.world import Step, World

HOT, DURABLE = (
    Step("a_tier_goes_down_or_comes_back", None, ("hot",)),
    Step("a_tier_goes_down_or_comes_back", None, ("durable",)),
)
HOT_FAILS = Step("a_call_fails", None, ("hot", False))
START = Step("start")


def begin(process: int) -> Step:
    return Step("begin_turn", process)


def end(process: int, drop: int = 0, *, edit: bool = False) -> Step:
    return Step("end_turn", process, (drop, edit))


def tool(process: int, *, save: bool) -> Step:
    return Step("use_a_tool", process, (save,))


def flush(process: int) -> Step:
    return Step("flush", process)


def kill(process: int, *, closing: bool) -> Step:
    return Step("kill", process, (closing,))


def work(process: int) -> Step:
    return Step("work_in_the_background", process)


def hot_goes_back(replica: int = -1) -> Step:
    return Step("the_hot_tier_loses_something", None, (replica,))


COPY = Step("copy_the_hot_tier")

TWO_TIERS = {
    "the rest of a turn is stored anew when the next one has begun": [
        *(START, begin(1), flush(1), work(1), START, tool(1, save=False), START, end(1, edit=True)),
        *(hot_goes_back(), flush(2), begin(1)),
    ],
    "a turn is carried on by someone who opened it in its middle": [
        *(START, START, begin(2), tool(2, save=True), START, flush(2), flush(3), hot_goes_back(), DURABLE),
        *(end(2, 1), begin(2), end(2, 1, edit=True)),
    ],
    "an agent is shown notes that nobody has saved": [
        *(START, START, COPY, begin(2), end(2), START, begin(3), end(3, edit=True), hot_goes_back(0)),
        *(begin(3), begin(2), work(2), tool(3, save=True), end(2, 1)),
    ],
    "the hot tier goes back to before a deletion": [
        *(START, START, begin(2), COPY, START, end(2, edit=True), COPY, kill(1, closing=True), START),
        *(Step("delete", 4), kill(2, closing=False), hot_goes_back(1), kill(3, closing=False)),
    ],
    "a deletion reaches one tier": [
        *(START, START, begin(2), tool(2, save=True), HOT, Step("delete", 1), flush(2), end(2), begin(2)),
    ],
    "an unfinished turn is opened where its rest cannot be looked at": [
        *(START, begin(1), flush(1), tool(1, save=True), end(1, edit=True), HOT_FAILS, START, kill(2, closing=True)),
        *(kill(1, closing=False),),
    ],
    "a flush that was stored without an answer is given other numbers": [
        *(START, START, begin(1), flush(1), end(1, 3), HOT_FAILS, begin(1), begin(2), end(2, 3)),
        *(Step("time_passes", 2, (0.05,)), Step("a_call_fails", None, ("durable", True)), flush(1)),
    ],
    "the rest of a turn is carried again after the hot tier has gone": [
        *(START, kill(1, closing=False), START, START, START, kill(2, closing=True), kill(4, closing=False), DURABLE),
        *(kill(3, closing=True), DURABLE, START, kill(5, closing=False), START, START, begin(7), START, HOT_FAILS, begin(8)),
        *(tool(8, save=True), flush(7), kill(6, closing=False), end(7, 3), end(8, 3, edit=True), START, HOT, begin(8)),
        *(begin(9), end(9, 4)),
    ],
    "a turn that was shown as cut goes on, and is joined with a copy that has it as unfinished": [
        *(START, kill(1, closing=True), START, START, START, kill(3, closing=True), kill(2, closing=False), START, START),
        *(begin(6), end(6, 2), begin(5), tool(5, save=True), kill(6, closing=False), begin(4), START, flush(7)),
        *(end(5, 3, edit=True), HOT_FAILS, end(4, 4)),
    ],
    "the hot tier is lost, and a flush has left a segment among the numbers of another one": [
        *(
            START,
            begin(1),
            tool(1, save=True),
            end(1, 4, edit=True),
            START,
            hot_goes_back(),
            begin(1),
            DURABLE,
            START,
            begin(2),
        ),
        *(end(2, 2), Step("time_passes", 2, (30.0,)), end(1, 1), work(1), Step("time_passes", 2, (0.05,))),
        *(Step("a_call_fails", None, ("durable", True)), hot_goes_back(), begin(1), DURABLE, work(1), START, DURABLE, START),
        *(DURABLE, Step("time_passes", 1, (0.05,)), flush(2), START, begin(6), COPY, tool(1, save=False), hot_goes_back()),
        *(COPY, flush(1), hot_goes_back(1), end(6, 1)),
    ],
    "the hot tier loses a message that was left there by someone who is alive": [
        *(START, START, Step("a_call_fails", None, ("durable", False)), START, begin(1), START, DURABLE),
        *(kill(2, closing=True), end(1, 1), kill(4, closing=True), COPY, begin(1), flush(1), START, end(1, edit=True)),
        *(begin(5), hot_goes_back(0), flush(5), START, begin(1), begin(6), Step("time_passes", 1, (30.0,))),
        *(hot_goes_back(), end(6, edit=True), work(6), work(5), begin(6), flush(1)),
        *(Step("time_passes", 6, (0.05,)), Step("time_passes", 5, (0.05,)), end(6, 4)),
    ],
}


@pytest.mark.parametrize("name", TWO_TIERS)
def test_two_tiers(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "sleep", lambda _: None)
    world = World()
    for step in TWO_TIERS[name]:
        world.take(step)
    world.end()


def test_a_deletion_is_seen_by_who_looks_what_others_saved() -> None:
    world = World(hot=False)
    for step in (START, START, begin(1), flush(1), Step("delete", 1), Step("refresh", 2)):
        world.take(step)
    assert world.processes[1].conversation.model.deleted
    world.end()
