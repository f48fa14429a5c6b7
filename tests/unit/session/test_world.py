"""What processes that share a conversation once did to it, each in the fewest steps with which it went wrong."""

from __future__ import annotations

from unittest.mock import Mock

import pytest

from tests.unit.session.world import PLACE, Step, World

HOT, DURABLE = (
    Step("a_tier_goes_down_or_comes_back", None, ("hot",)),
    Step("a_tier_goes_down_or_comes_back", None, ("durable",)),
)
HOT_FAILS, HOT_ANSWERS_NOT = Step("a_call_fails", None, ("hot", False)), Step("a_call_fails", None, ("hot", True))
DURABLE_FAILS = Step("a_call_fails", None, ("durable", False))
DURABLE_ANSWERS_NOT = Step("a_call_fails", None, ("durable", True))
SWEEP, SESSION_ENDS = Step("sweep"), Step("the_session_ends")
START = Step("start")


def begin(process: int) -> Step:
    return Step("begin_turn", process)


def end(process: int, drop: int = 0, *, edit: bool = False, mark: bool = False) -> Step:
    return Step("end_turn", process, (drop, edit, mark))


def tool(process: int, *, save: bool) -> Step:
    return Step("use_a_tool", process, (save,))


def flush(process: int) -> Step:
    return Step("flush", process)


def delete(process: int) -> Step:
    return Step("delete", process)


def redact(process: int) -> Step:
    return Step("redact", process)


def time(process: int, seconds: float = 0.05) -> Step:
    return Step("time_passes", process, (seconds,))


def kill(process: int, *, closing: bool) -> Step:
    return Step("kill", process, (closing,))


def work(process: int) -> Step:
    return Step("work_in_the_background", process)


def hot_goes_back(replica: int = -1) -> Step:
    return Step("the_hot_tier_loses_something", None, (replica,))


A_WHILE = Step("nobody_uses_it_for_a_while")
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
        *(START, START, begin(2), tool(2, save=True), HOT, delete(1), flush(2), end(2), begin(2)),
    ],
    "a replica has not heard of the life that began after a deletion": [
        *(START, delete(1), COPY, START, START, begin(2), begin(3), end(2), end(3), hot_goes_back(0)),
        *(flush(3), flush(2), begin(2)),
    ],
    "a replica is of the life that was deleted": [
        *(START, kill(1, closing=True), COPY, START, kill(2, closing=True), START, START, START, begin(4), begin(5), flush(4)),
        *(
            kill(3, closing=False),
            START,
            end(5, 1),
            begin(5),
            Step("delete", 6),
            begin(6),
            end(6, 2),
            hot_goes_back(0),
            work(6),
        ),
        *(end(5, 1),),
    ],
    "what only one process has left is shown in part in another form": [
        *(START, COPY, START, begin(2), COPY, flush(1), begin(1), COPY, DURABLE, START, end(1, 4), end(2, edit=True), begin(2)),
        *(
            end(2, 2),
            kill(2, closing=False),
            START,
            begin(3),
            tool(3, save=True),
            begin(1),
            begin(4),
            hot_goes_back(2),
            DURABLE,
        ),
        *(end(4, 4, edit=True), work(1)),
    ],
    "what nobody has committed begins where something else of that kind ends": [
        *(START, flush(1), kill(1, closing=False), START, begin(2), tool(2, save=False), end(2, edit=True, mark=True), START),
        *(Step("a_call_fails", None, ("durable", True)), HOT, begin(2), flush(3), START, end(2, 3, edit=True, mark=True)),
        *(Step("time_passes", 2, (0.05,)), begin(4), end(4, 1)),
    ],
    "one tier shows a tool call and the other one a mark for the answer": [
        *(START, begin(1), end(1, 2, mark=True), begin(1), START, end(1, 4, edit=True, mark=True), START, begin(3)),
        *(
            tool(3, save=False),
            flush(3),
            work(1),
            flush(2),
            DURABLE,
            begin(2),
            begin(1),
            HOT,
            end(1, mark=True),
            HOT,
            end(3, 2),
        ),
        *(begin(3), end(3, 1, mark=True)),
    ],
    "a process stores for another one what it only knows the beginning of": [
        *(START, begin(1), START, flush(1), START, begin(2), end(2, 4, mark=True), kill(3, closing=False), START),
        *(Step("a_call_fails", None, ("durable", False)), begin(2), kill(2, closing=True), START, hot_goes_back(), begin(5)),
        *(end(5, 4, edit=True, mark=True), hot_goes_back(), begin(5)),
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
    "a copy awaits what it has lost of others": [
        *(START, START, kill(2, closing=True), START, begin(3), START, end(3, 2), DURABLE, begin(4)),
        *(end(4, edit=True), begin(1), end(1, 2), begin(3), hot_goes_back(), begin(1), end(3, 3)),
        *(tool(1, save=True), end(1, 2, edit=True)),
    ],
    "a window shows an edited form of what begins a turn that goes on": [
        *(START, kill(1, closing=True), START, START, begin(3), begin(2), end(3, 1), end(2), begin(2), START),
        *(end(2, 4), begin(2), kill(3, closing=False), flush(2), begin(4), end(4, edit=True), end(2, 1), DURABLE),
        *(START, begin(5), kill(4, closing=False), end(5, 1, edit=True), HOT, begin(5), end(5, 2, edit=True)),
        *(hot_goes_back(), work(5), kill(2, closing=True)),
    ],
    "the hot tier has by other numbers what it lost": [
        *(START, HOT, kill(1, closing=False), START, START, START, kill(4, closing=True), DURABLE, START),
        *(flush(2), COPY, DURABLE, START, HOT, Step("time_passes", 6, (30.0,)), begin(6), flush(3), end(6, 2)),
        *(COPY, begin(2), kill(2, closing=False), Step("refresh", 3, ()), hot_goes_back(1), begin(3)),
        *(end(3, 2, edit=True),),
    ],
    "a turn is cut, and only its first message is carried": [
        *(START, begin(1), tool(1, save=True), tool(1, save=True), COPY, START, begin(2), end(2, edit=True)),
        *(hot_goes_back(), work(2), HOT, START, kill(1, closing=False), START, hot_goes_back(0)),
        *(kill(2, closing=False), begin(3), kill(4, closing=True)),
    ],
    "the hot tier goes back, and a process looks at it": [
        *(START, COPY, START, begin(2), tool(2, save=True), COPY, kill(2, closing=False), START, flush(3)),
        *(begin(1), end(1, 2), hot_goes_back(1)),
    ],
    "turns are called by numbers of two copies": [
        *(START, START, begin(1), end(1), kill(1, closing=False), begin(2), tool(2, save=True)),
        *(kill(2, closing=False), HOT, START, HOT, kill(3, closing=True), START, begin(4)),
        *(Step("a_call_fails", None, ("hot", True)), end(4, 2), DURABLE, DURABLE, begin(4), START, begin(5)),
        *(end(5, 4, edit=True),),
    ],
    "the first part of a turn is stored after its rest": [
        *(START, START, START, begin(2), tool(2, save=True), Step("a_call_fails", None, ("durable", True))),
        *(begin(3), end(3, 3), DURABLE, HOT, begin(3), kill(1, closing=True), work(3), end(3, edit=True), START),
        *(DURABLE, START, begin(5), end(5, 1, edit=True), begin(5), kill(3, closing=True)),
    ],
    "the rest of a turn is stored behind the turns of others": [
        *(START, START, begin(1), START, end(1), kill(3, closing=True), DURABLE, begin(2), end(2, 4), HOT_FAILS),
        *(START, begin(2), end(2, 4), begin(1), end(1, 2), hot_goes_back(), begin(1), end(1, 2), begin(1)),
        *(end(1, 4, edit=True),),
    ],
    "a turn that was cut is known to one process alone": [
        *(START, begin(1), START, START, end(1, 3, edit=True), DURABLE, COPY, begin(3), DURABLE, flush(2)),
        *(begin(1), end(3, 1, edit=True), work(1), DURABLE, kill(3, closing=True), end(1), begin(1)),
        *(hot_goes_back(), end(1, 3), COPY, Step("time_passes", 1, (0.05,)), begin(1)),
        *(Step("time_passes", 1, (0.05,)), START, hot_goes_back(1), kill(1, closing=True)),
    ],
    "a copy that is joined claims saves whose messages it has lost": [
        *(START, begin(1), end(1, 1), begin(1), end(1), START, begin(2), end(2), COPY, START, DURABLE, begin(3)),
        *(end(3, 3), Step("refresh", 1, ()), hot_goes_back(0), begin(1), end(1, 1, edit=True), HOT, flush(3)),
        *(begin(2), end(2, 2, edit=True), hot_goes_back()),
    ],
    "a turn that was cut is carried by someone who knows it as unfinished": [
        *(START, START, begin(1), DURABLE, end(1, 4), begin(2), START, begin(3), end(2, 3), tool(3, save=True)),
        *(begin(1), flush(1), end(1, edit=True), begin(2), tool(3, save=True), Step("refresh", 1, ()), work(2)),
        *(kill(3, closing=False), tool(2, save=True), begin(1), HOT, end(2, 2, edit=True), begin(2), end(1, 1)),
        *(begin(1), hot_goes_back(), end(1, 2, edit=True)),
    ],
    "what is in doubt is in the log before what the last flush left open": [
        *(START, COPY, START, COPY, begin(1), begin(2), end(1, 4), COPY, end(2, 4), begin(2), begin(1)),
        *(end(2, 3, edit=True), COPY, end(1, 1, edit=True), DURABLE, START, kill(2, closing=False), begin(3), begin(1)),
        *(tool(1, save=True), end(1, 4, edit=True), START, DURABLE, hot_goes_back(2), work(1), kill(4, closing=True)),
    ],
    "the end of a turn of someone else is known without its beginning": [
        *(START, DURABLE, kill(1, closing=True), START, COPY, begin(2), end(2, 1), begin(2), end(2, mark=True)),
        *(START, START, Step("a_call_fails", None, ("hot", True)), flush(3), begin(3)),
        *(Step("time_passes", 4, (30.0,)), begin(4), flush(4), DURABLE, end(4, 1), begin(4), hot_goes_back(0)),
        *(end(3, 1), end(4, 3), hot_goes_back(0), kill(2, closing=False)),
    ],
    "a replica has no more than the tombstone of before this conversation": [
        *(START, START, Step("delete", 1, ()), begin(1), COPY, tool(1, save=True), START, end(1, edit=True)),
        *(work(1), begin(3), hot_goes_back(0), end(3, 1), work(3)),
    ],
    "two processes show a turn as cut, and one of them has a mark in place of what says so": [
        *(START, begin(1), flush(1), kill(1, closing=False), START, begin(2), tool(2, save=True)),
        *(kill(2, closing=True), DURABLE, START, START, Step("a_call_fails", None, ("hot", True))),
        *(kill(3, closing=False), flush(4), START, begin(4), end(4, 1, edit=True), START, HOT, begin(6)),
        *(end(6, 1, mark=True), hot_goes_back()),
    ],
    "a window that was evicted shows a turn as cut": [
        *(START, begin(1), DURABLE, end(1, 4), kill(1, closing=True), START, begin(2), end(2, 2), begin(2)),
        *(START, tool(2, save=True), flush(3), begin(3), START, begin(4), kill(2, closing=False), COPY),
        *(kill(4, closing=True), end(3, 1, edit=True), COPY, START, hot_goes_back(), START, DURABLE, flush(5)),
        *(begin(5), Step("time_passes", 3, (30.0,)), START, begin(7), end(7, 1, edit=True, mark=True), flush(7)),
        *(hot_goes_back(1),),
    ],
    "what was given up while the hot tier was down is there when it comes back": [
        *(START, begin(1), COPY, START, end(1), START, hot_goes_back(0), begin(3), end(3, 4, edit=True), DURABLE),
        *(COPY, HOT, begin(3), end(3, edit=True, mark=True), flush(2), DURABLE, Step("time_passes", 2, (0.05,))),
        *(Step("time_passes", 2, (0.05,)), kill(1, closing=False), flush(3), begin(2)),
    ],
    "the log has a message by a number that the hot tier has for another one": [
        *(START, START, begin(2), START, end(2), kill(1, closing=False), begin(2)),
        *(Step("a_call_fails", None, ("hot", True)), work(2), begin(3), end(3, 2), begin(3)),
        *(Step("a_call_fails", None, ("durable", False)), end(3, 3, edit=True), begin(3), end(2, 2), begin(2)),
        *(end(2, 3), begin(2), START, end(3, 1, edit=True, mark=True), Step("time_passes", 4, (30.0,)), work(2)),
        *(HOT_FAILS, hot_goes_back(), end(2, 4, edit=True), Step("a_call_fails", None, ("durable", False))),
        *(begin(3), begin(4)),
    ],
    "someone has forgotten our saves, and the log is read from behind them": [
        *(START, kill(1, closing=False), START, flush(2), HOT_FAILS, kill(2, closing=False), START, START),
        *(begin(4), START, DURABLE, begin(5), tool(4, save=True), kill(3, closing=False), end(5, 1, edit=True)),
        *(end(4, 1, edit=True, mark=True), START, HOT, begin(4), DURABLE, begin(6), end(4, edit=True, mark=True)),
        *(end(6, edit=True), flush(6)),
    ],
    "what says that a turn was cut stays behind, and its question comes along": [
        *(START, START, DURABLE, begin(1), begin(2), end(2), begin(2), flush(2), end(1, 4), START, begin(3)),
        *(hot_goes_back(), end(3, 1), begin(3), DURABLE, end(3, edit=True, mark=True), kill(3, closing=True)),
        *(kill(2, closing=False), flush(1), kill(1, closing=False)),
    ],
    "numbers of ours are taken, and the hot tier has what we let go of": [
        *(START, START, START, flush(3), COPY, DURABLE, begin(2), end(2, 1), begin(2), begin(1), begin(3)),
        *(end(1, 2, edit=True, mark=True), begin(1), hot_goes_back(0), end(3, 4), flush(1), hot_goes_back()),
        *(end(2), end(1, mark=True), work(2), DURABLE, Step("a_call_fails", None, ("durable", True))),
        *(kill(3, closing=True), work(1)),
    ],
    "copies were joined, and another message has a number that is awaited": [
        *(START, START, START, begin(2), begin(1), tool(2, save=True), HOT, flush(1), DURABLE),
        *(kill(2, closing=True), end(1, edit=True, mark=True), HOT, begin(1), START, begin(4)),
        *(end(4, 2, edit=True, mark=True), A_WHILE, DURABLE, tool(1, save=True), work(4)),
    ],
    "copies were joined, and our unfinished turn has another number where ours is somebody else's": [
        *(START, begin(1), flush(1), DURABLE, START, START, begin(3), HOT_FAILS, end(3, 1), begin(3), A_WHILE),
        *(tool(1, save=True), DURABLE, flush(3), end(3, 3, edit=True), begin(3), end(3, 3, edit=True), end(1)),
        *(hot_goes_back(),),
    ],
    "someone left two turns unfinished": [
        *(START, kill(1, closing=True), COPY, START, begin(2), COPY, end(2, 4, mark=True), begin(2), START),
        *(work(2), begin(3), COPY, end(2, 2, mark=True), end(3, 1, mark=True), begin(2), tool(2, save=True)),
        *(work(3), kill(3, closing=True), end(2, 2, edit=True, mark=True), DURABLE, begin(2), START, begin(4)),
        *(tool(2, save=True), kill(2, closing=True), START, START, hot_goes_back(2), begin(5)),
        *(end(5, 4, mark=True), end(4, 2, mark=True)),
    ],
    "what was redacted meanwhile is in a segment that nobody commits": [
        *(START, START, begin(2), redact(2), begin(1), end(1, 2), begin(1), flush(1), START, flush(3), end(2, 4), redact(1)),
    ],
    "a sweeper finds what was said after a deletion": [
        *(START, START, START, HOT, kill(2, closing=False), START, time(3), HOT, time(1), begin(4), delete(1), flush(3)),
        *(delete(3), end(4, 2), begin(4), end(4, 3, mark=True), A_WHILE, begin(3), SWEEP),
    ],
    "someone has edited what is redacted": [
        *(START, START, DURABLE, begin(2), HOT_ANSWERS_NOT, begin(1), flush(1), end(2, 1), redact(1), begin(2)),
        *(end(2, 3, edit=True), DURABLE, begin(2), HOT_FAILS, flush(2)),
    ],
    "what somebody awaits collides again and again": [
        *(START, START, flush(2), DURABLE, begin(1), START, work(2), begin(2), tool(1, save=True), flush(2)),
        *(kill(3, closing=True), A_WHILE, end(2, 4), begin(2), end(2, 2, edit=True, mark=True), START, time(2)),
        *(kill(1, closing=True), HOT, DURABLE, kill(4, closing=True), flush(2)),
    ],
    "a turn of someone else that was cut is stored anew": [
        *(START, HOT, START, time(1), kill(1, closing=True), HOT, time(2), begin(2), START, flush(2), DURABLE),
        *(end(2, 4, mark=True), begin(2), flush(2), DURABLE, HOT_ANSWERS_NOT, flush(3), START, HOT_FAILS, DURABLE_FAILS),
        *(A_WHILE, begin(4), kill(2, closing=True), tool(4, save=True), A_WHILE, HOT, DURABLE_FAILS, work(4)),
    ],
    "a merge brings back what was redacted and has left the window": [
        *(START, flush(1), begin(1), end(1, 3, mark=True), START, begin(1), flush(1), DURABLE, begin(2), end(2, 3), redact(1)),
        *(end(1, 4, edit=True), HOT_ANSWERS_NOT, begin(1), flush(2), work(2), end(1, 3, mark=True)),
    ],
    "the log has the middle of a turn that is stored anew": [
        *(START, begin(1), START, COPY, begin(2), START, end(1, 1), end(2, 2), begin(1), begin(3), flush(3), hot_goes_back(0)),
        *(flush(1), tool(3, save=False), DURABLE, flush(3), end(1, 1), end(3, 4), DURABLE, begin(2), end(2, 3), work(1)),
        *(DURABLE_FAILS, hot_goes_back(0), begin(2), end(2, mark=True), kill(1, closing=True), begin(3), end(3, 2)),
        *(flush(2), START, begin(2), hot_goes_back(0), kill(3, closing=False)),
    ],
    "a replica of what was deleted collides": [
        *(START, COPY, START, START, begin(3), HOT, HOT, end(3, 4, edit=True), COPY, DURABLE, DURABLE, begin(1), delete(3)),
        *(end(1, 4), begin(1), end(1, 1, edit=True, mark=True), hot_goes_back(1)),
    ],
    "what is redacted is awaited, and flushed": [
        *(START, begin(1), end(1, 3), begin(1), end(1, 3, mark=True), begin(1), START, START, redact(1)),
        *(kill(1, closing=False), kill(3, closing=False), START, begin(4), flush(4), START, kill(5, closing=True)),
        *(begin(2), tool(4, save=True), end(2, mark=True), begin(2), end(2, 3, edit=True, mark=True), redact(4)),
    ],
    "a flush is refused, and the hot tier fails while its segments are looked at": [
        *(START, START, START, kill(1, closing=False), flush(3), begin(2), DURABLE_ANSWERS_NOT, begin(3)),
        *(end(2, edit=True), flush(3), begin(2), work(2), START, flush(4), end(3, edit=True), redact(2), HOT, flush(3)),
    ],
    "a segment of messages that have other numbers by now": [
        *(START, flush(1), begin(1), START, START, end(1, mark=True), begin(1), end(1, 3, mark=True), begin(2), flush(3)),
        *(tool(2, save=True), HOT, redact(2), end(2, mark=True), begin(2), end(2, 3, edit=True), HOT, flush(3)),
    ],
    "the session has ended for one, and another one goes on with it": [
        *(START, kill(1, closing=True), HOT_ANSWERS_NOT, DURABLE, START, hot_goes_back(), START, START, START, START, START),
        *(HOT, START, DURABLE_FAILS, DURABLE, START, START, kill(10, closing=True), START, SESSION_ENDS, START, flush(12)),
        *(begin(11), begin(12)),
    ],
    "a session that has ended is swept in the middle of a turn": [
        *(START, begin(1), end(1, 4), work(1), SESSION_ENDS, begin(1), SWEEP, DURABLE, tool(1, save=True), time(1)),
    ],
    "two processes begin anew after the end of a session": [
        *(START, kill(1, closing=True), START, START, kill(3, closing=True), kill(2, closing=True), SESSION_ENDS, START),
        *(START, begin(4), end(4), kill(4, closing=False), DURABLE_FAILS, begin(5), end(5, mark=True)),
    ],
    "a turn that was cut is shown in its edited form alone": [
        *(START, START, flush(1), COPY, begin(1), flush(1), hot_goes_back(0), DURABLE, HOT, START, kill(1, closing=True)),
        *(flush(2), HOT_ANSWERS_NOT, HOT, kill(2, closing=False), START, START, begin(5), redact(5)),
        *(kill(5, closing=False), START, START, begin(7), begin(6), START, end(6, 2, edit=True), redact(7)),
        *(hot_goes_back(0), kill(6, closing=False)),
    ],
}


@pytest.mark.parametrize("name", TWO_TIERS)
def test_two_tiers(name: str) -> None:
    world = World()
    for step in TWO_TIERS[name]:
        world.take(step)
    world.end()


def test_what_the_hot_tier_had_confirmed_is_not_flushed_over_what_is_later() -> None:
    """While the hot tier was down the durable one got more than the hot one had confirmed; a flush beside comes too late."""
    world = World()
    for step in (START, begin(1), end(1), HOT, begin(1), end(1), flush(1), HOT):
        world.take(step)
    (process,) = world.processes
    before = world.table.get(*PLACE.head_key)
    process.conversation._flusher.flush_confirmed()
    assert world.table.get(*PLACE.head_key) == before
    world.end()


def test_a_replica_of_what_was_deleted_has_other_messages_by_the_numbers_that_are_awaited() -> None:
    world = World(deletes=True)
    for step in (
        *(START, begin(1), end(1), COPY, flush(1), delete(1), kill(1, closing=False), DURABLE),
        # Who knows the tombstone of the hot tier alone begins the next life with the same numbers.
        *(START, begin(2), end(2), begin(2), end(2, 1), START, kill(2, closing=False), begin(3), end(3)),
        *(hot_goes_back(0), Step("time_passes", 3, (30.0,)), work(3), hot_goes_back(), DURABLE),
    ):
        world.take(step)
    world.end()


def test_a_replica_of_what_was_deleted_is_written_over_without_looking_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(deletes=True)
    for step in (START, begin(1), end(1), COPY, delete(1), begin(1), end(1), flush(1), hot_goes_back(0), begin(1)):
        world.take(step)
    load = Mock(wraps=world.store.load)
    monkeypatch.setattr(world.store, "load", load)
    world.take(end(1))
    assert not world.processes[0].conversation.is_dirty
    assert load.call_count == 1
    world.end()


def test_a_deletion_is_seen_by_who_looks_what_others_saved() -> None:
    world = World(hot=False)
    for step in (START, START, begin(1), flush(1), delete(1), Step("refresh", 2)):
        world.take(step)
    assert world.processes[1].conversation.model.deleted
    world.end()
