"""Histories: steps in which something went wrong once, each as few as show it."""

from __future__ import annotations

from collections.abc import Iterable

from tests.faults.simulation.drawing import Step

TURN = [Step("begin_turn", "p1"), Step("end_turn", "p1", (0, "plain", True)), Step("flush", "p1")]


def one_after_the_other(steps: Iterable[Step]) -> list[Step]:
    """Return steps each of which ends before the next one begins."""
    return [part for step in steps for part in (step, Step("settle"))]


def while_others_stand(steps: Iterable[Step], process: str) -> list[Step]:
    """Return steps of one process that end before the next one begins, while every other one stands where it is."""
    goes_on = [Step("go_on", None, (f"{process} {work}",)) for work in ("agent", "main", "flush")]
    return [part for step in steps for part in (step, *25 * goes_on)]


def go(labels: str) -> list[Step]:
    """Return steps in which tasks go on, each so many times: ``"p1 agent 2, p1 hot 1"``."""
    words = [one.rpartition(" ") for one in labels.split(", ")]
    return [Step("go_on", None, (label,)) for label, _, times in words for _ in range(int(times))]


IDLE = one_after_the_other(
    [
        Step("start"),
        *TURN,
        Step("delete_unopened"),
        Step("the_session_ends", None, ("three days",)),
        Step("the_table_deletes_what_has_expired"),
    ]
)

CUT = one_after_the_other(
    [
        Step("start"),
        Step("begin_turn", "p1"),
        *2 * [Step("use_a_tool", "p1", (True,))],
        Step("kill", "p1"),
        Step("start"),
        Step("begin_turn", "p2"),
        Step("end_turn", "p2", (0, "plain", True)),
    ]
)

GONE_ON_WITH = [
    *one_after_the_other([Step("start"), *TURN]),
    Step("the_session_ends", None, ("a day",)),
    Step("start"),
    *3 * [Step("go_on", None, ("p2 agent",))],  # it has read that the session is over
    *while_others_stand(TURN, "p1"),
]

ENDED_AS_IT_GOES_ON = [
    *one_after_the_other([Step("start"), *TURN]),
    Step("the_session_ends", None, ("a day",)),
    Step("start"),
    *go("p2 agent 1, p2 hot 3, p2 agent 3"),  # it is about to end the life
    Step("begin_turn", "p1"),
    *go("p1 agent 9, p1 main 25, p1 agent 9"),
    Step("end_turn", "p1", (0, "plain", True)),
    *go("p1 agent 9, p1 main 25, p1 agent 9"),  # its flush stands, beside its save
    Step("kill", "p1"),
]

CLAIMED = [
    Step("start"),
    *go("p1 agent 1, p1 hot 2, p1 agent 2, p1 hot 1, p1 agent 1"),
    Step("begin_turn", "p1"),
    *go("p1 agent 1"),
    Step("end_turn", "p1", (2, "plain", False)),
    *go("p1 agent 1, p1 main 2"),
    Step("goes_down_or_comes_back", None, ("durable",)),
    Step("sweep"),
    *go("sweeper agent 1"),
    Step("nobody_uses_it_for_a_while"),
    *go("sweeper agent 7"),
]

ENDED_IN_A_TURN = [
    Step("start"),
    *go("p1 agent 3, p1 hot 3, p1 agent 1"),
    Step("begin_turn", "p1"),
    *go("p1 agent 1"),
    Step("set_metadata", "p1"),
    Step("settle"),
    Step("the_session_ends", None, ("a day",)),
    Step("start"),
    *go("p2 agent 1, p2 hot 3, p2 agent 9"),
    Step("flush", "p2"),
    *go("p2 agent 1, p2 main 1"),
    Step("goes_down_or_comes_back", None, ("durable",)),
    *go("p2 main 3, p2 agent 1"),
    Step("begin_turn", "p2"),
]

UNLISTED = [
    Step("start"),
    Step("start"),
    Step("start"),
    *go("p3 agent 3, p3 hot 3, p3 agent 1"),
    Step("begin_turn", "p3"),
    Step("start"),
    *go("p4 agent 1, p4 hot 1, p4 agent 1, p4 hot 2, p4 agent 2, p3 agent 1"),
    Step("delete", "p4"),
    *go("p4 agent 1, p4 main 8"),
    Step("end_turn", "p3", (1, "plain", False)),
    *go("p3 agent 1, p3 main 3"),
    Step("begin_turn", "p3"),
    *go("p3 main 1"),
    Step("forget_user"),
]

GONE_BACK = [
    Step("start"),
    *go("p1 agent 1, p1 hot 2, p1 agent 1, p1 hot 1, p1 agent 2"),
    Step("begin_turn", "p1"),
    *go("p1 agent 1"),
    Step("end_turn", "p1", (4, "sparse", True)),
    *go("p1 agent 1, p1 main 3, p1 flush 2"),
    Step("inspect"),
    *go("p1 flush 4, p1 agent 1, p1 flush 2"),
    Step("begin_turn", "p1"),
    *go("p1 agent 1"),
    Step("use_a_tool", "p1", (True,)),
    *go("p1 agent 1, p1 main 3"),
    Step("start"),
    *go("p3 agent 1, p3 hot 1, p3 agent 1, p3 hot 1, p3 agent 1, p3 hot 1, p3 agent 1"),
    Step("begin_turn", "p3"),
    Step("start"),
    *go("p4 agent 1, p4 hot 1, p4 agent 1, p4 hot 1"),
    Step("goes_down_or_comes_back", None, ("durable",)),
    *go("p4 hot 1, p4 agent 1"),
    Step("begin_turn", "p4"),
    *go("p4 agent 1, p1 agent 1, p3 agent 1"),
    Step("end_turn", "p3", (3, "plain", True)),
    *go("p3 agent 1, p3 main 3, p3 flush 2, p3 timer retry 1"),
    Step("end_turn", "p1", (0, "sparse", True)),
    *go("p1 agent 1, p1 main 2"),
    Step("end_turn", "p4", (2, "plain", True)),
    *go("p1 main 6, p1 flush 2"),
]

REPLACED = [
    Step("start"),
    Step("inspect"),
    Step("inspect"),
    Step("start"),
    *go("p4 agent 1, p4 hot 1, p4 agent 1, p4 hot 1, p4 agent 1, p4 hot 1, p4 agent 1"),
    Step("delete", "p4"),
    *go("p4 agent 1, p4 main 9, p4 agent 1"),
    Step("inspect"),
    Step("goes_down_or_comes_back", None, ("hot",)),
    Step("start"),
    Step("begin_turn", "p4"),
    *go("p4 agent 1, p4 main 2, p4 agent 1"),
    Step("inspect"),
    Step("inspect"),
    *go("i8 agent 2, p4 main 2"),
    Step("end_turn", "p4", (1, "edited", True)),
    *go("p4 main 2, p4 agent 1"),
]

REDACTED = [
    Step("start"),
    *go("p1 agent 1, p1 hot 1, p1 agent 1, p1 hot 1, p1 agent 1, p1 hot 1, p1 agent 1"),
    Step("flush", "p1"),
    *go("p1 agent 1, p1 main 9, p1 agent 1"),
    Step("close", "p1"),
    *go("p1 agent 1, p1 main 3, p1 agent 1"),
    Step("the_session_ends", None, ("three days",)),
    Step("start"),
    *go("p2 agent 3, p2 hot 3"),
    Step("delete_unopened"),
    *go("d3 agent 1, p2 agent 7, d3 main 7"),
    Step("begin_turn", "p2"),
    *go("p2 agent 1, p2 main 3, p2 flush 8, p2 agent 1"),
    Step("set_metadata", "p2"),
    *go("p2 agent 1, p2 main 3, p2 agent 1"),
    Step("redact", "p2"),
]

NOWHERE = [
    Step("start"),
    *go("p1 agent 1, p1 hot 1, p1 agent 1, p1 hot 2, p1 agent 2"),
    Step("start"),
    *go("p2 agent 1, p2 hot 2, p2 agent 2, p2 hot 1, p2 agent 1"),
    Step("start"),
    *go("p3 agent 1, p3 hot 1, p3 agent 1, p3 hot 1, p3 agent 1, p3 hot 1"),
    Step("set_metadata", "p1"),
    *go("p1 agent 1, p3 agent 1, p1 main 2"),
    Step("set_metadata", "p2"),
    *go("p2 agent 1, p2 main 8, p2 flush 2"),
    Step("start"),
    *go("p4 agent 1, p4 hot 1"),
    Step("begin_turn", "p3"),
    *go("p3 agent 1, p4 agent 1, p4 hot 1, p4 agent 1, p4 hot 1, p4 agent 1"),
    Step("end_turn", "p3", (2, "plain", True)),
    *go("p3 agent 1, p3 main 1"),
    Step("begin_turn", "p4"),
    *go("p3 main 2, p4 agent 1"),
    Step("use_a_tool", "p4", (True, "sparse")),
    *go("p4 agent 1, p4 main 2, p3 main 1, p4 main 1, p3 main 2, p4 agent 1, p3 main 2, p4 flush 3"),
    *go("p4 main 1, p4 flush 1, p2 agent 1, p4 flush 3, p4 main 1"),
    Step("begin_turn", "p2"),
    *go("p4 main 1, p2 agent 1, p4 flush 1, p3 flush 1, p4 main 1, p3 flush 2, p4 main 1, p2 main 1"),
    *go("p4 main 2, p2 main 1, p3 flush 1, p2 main 1, p3 flush 2, p2 main 1"),
    Step("the_durable_tier_goes_back", None, (-1,)),
    *go("p2 main 1, p3 flush 1, p2 main 1, p3 flush 2, p2 main 2, p2 flush 1, p3 flush 1, p2 flush 1"),
    *go("p2 agent 1, p2 flush 2, p3 agent 1"),
    Step("begin_turn", "p3"),
    *go("p3 agent 1, p2 flush 6, p4 main 1"),
    Step("end_turn", "p2", (1, "sparse", True)),
    *go("p2 agent 1, p4 agent 1"),
    Step("set_metadata", "p3"),
    *go("p3 agent 1"),
    Step("end_turn", "p4", (3, "plain", True)),
    *go("p4 agent 1, p2 main 1, p3 main 1, p4 main 1, p2 main 1, p4 main 3, p3 main 1, p4 main 3"),
    *go("p3 main 3"),
    Step("the_durable_tier_goes_back", None, (-1,)),
    *go("p3 main 3, p3 agent 1"),
    Step("end_turn", "p3", (1, "plain", True)),
    *go("p3 agent 1, p3 main 3, p3 agent 1"),
    Step("begin_turn", "p3"),
]
