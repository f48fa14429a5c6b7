"""Mends that are taken out again, one at a time, so that it can be seen whether the simulation notices."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any
from unittest import mock

from strands_manga_memory.exceptions import CorruptRecordError
from strands_manga_memory.session.core import showing, window
from strands_manga_memory.session.core.merge import Copy
from strands_manga_memory.session.core.offer import Offering
from strands_manga_memory.session.core.outbox import Outbox
from strands_manga_memory.session.replicas import hot, segments, split
from strands_manga_memory.session.replicas.durable import DurableReplica
from strands_manga_memory.session.replicas.hot import HotReplica
from strands_manga_memory.session.sync import conversation, ending
from strands_manga_memory.session.sync.pair import Pair
from strands_manga_memory.session.sync.watch import Watch
from tests.faults.simulation.drawing import Step

_TURN = [Step("begin_turn", "p1"), Step("end_turn", "p1", (0, "plain", True)), Step("flush", "p1")]


def one_after_the_other(steps: Iterable[Step]) -> list[Step]:
    """Return steps each of which ends before the next one begins."""
    return [part for step in steps for part in (step, Step("settle"))]


def _while_others_stand(steps: Iterable[Step], process: str) -> list[Step]:
    """Return steps of one process that end before the next one begins, while every other one stands where it is."""
    goes_on = [Step("go_on", None, (f"{process} {work}",)) for work in ("agent", "main", "flush")]
    return [part for step in steps for part in (step, *25 * goes_on)]


def _go(labels: str) -> list[Step]:
    """Return steps in which tasks go on, each so many times: ``"p1 agent 2, p1 hot 1"``."""
    words = [one.rpartition(" ") for one in labels.split(", ")]
    return [Step("go_on", None, (label,)) for label, _, times in words for _ in range(int(times))]


_IDLE = one_after_the_other(
    [
        Step("start"),
        *_TURN,
        Step("delete_unopened"),
        Step("the_session_ends", None, ("three days",)),
        Step("the_table_deletes_what_has_expired"),
    ]
)

_CUT = one_after_the_other(
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

_GONE_ON_WITH = [
    *one_after_the_other([Step("start"), *_TURN]),
    Step("the_session_ends", None, ("a day",)),
    Step("start"),
    *3 * [Step("go_on", None, ("p2 agent",))],  # it has read that the session is over
    *_while_others_stand(_TURN, "p1"),
]

_DIFFERENT_LIVES = [
    Step("start"),
    *_go("p1 agent 1, p1 hot 1, p1 agent 2, p1 hot 2, p1 agent 1"),
    Step("delete_unopened"),
    *_go("d2 agent 1, d2 main 8"),
    Step("set_metadata", "p1"),
    *_go("p1 agent 1, p1 main 3, p1 agent 1, p1 flush 4"),
    Step("delete_unopened"),
    *_go("p1 flush 1, d3 agent 1, d3 main 1, p1 flush 1, d3 main 1, p1 flush 2, d3 main 1"),
    Step("set_metadata", "p1"),
    *_go("p1 agent 1, p1 main 2, p1 flush 1, p1 main 1"),
    Step("start"),
    *_go("p1 agent 1, p4 agent 1"),
    Step("start"),
    *_go("d3 main 1, p5 agent 1, p4 hot 1, p1 flush 1, p4 agent 1, d3 main 2, p5 agent 2, p5 hot 1"),
    Step("begin_turn", "p1"),
    *_go("p1 flush 2, p5 hot 2, p5 agent 1, p1 agent 1, p1 flush 2"),
    Step("delete_unopened"),
    Step("kill", "p5"),
    *_go("p1 flush 1, d6 agent 1, d6 main 1"),
    Step("the_hot_tier_goes_back", None, (-1,)),
    *_go("d6 main 2"),
    Step("goes_down_or_comes_back", None, ("durable",)),
    *_go("d6 main 1, p4 agent 1"),
]

_CLAIMED = [
    Step("start"),
    *_go("p1 agent 1, p1 hot 2, p1 agent 2, p1 hot 1, p1 agent 1"),
    Step("begin_turn", "p1"),
    *_go("p1 agent 1"),
    Step("end_turn", "p1", (2, "plain", False)),
    *_go("p1 agent 1, p1 main 2"),
    Step("goes_down_or_comes_back", None, ("durable",)),
    Step("sweep"),
    *_go("sweeper agent 1"),
    Step("nobody_uses_it_for_a_while"),
    *_go("sweeper agent 7"),
]

_ENDED_IN_A_TURN = [
    Step("start"),
    *_go("p1 agent 3, p1 hot 3, p1 agent 1"),
    Step("begin_turn", "p1"),
    *_go("p1 agent 1"),
    Step("set_metadata", "p1"),
    *_go("p1 agent 1, p1 main 3, p1 flush 9"),
    Step("the_session_ends", None, ("a day",)),
    Step("start"),
    *_go("p2 agent 1, p2 hot 3, p2 agent 9"),
    Step("flush", "p2"),
    *_go("p2 agent 1, p2 main 1"),
    Step("goes_down_or_comes_back", None, ("durable",)),
    *_go("p2 main 3, p2 agent 1"),
    Step("begin_turn", "p2"),
]


def _one_life(self: Offering) -> None:
    if not self._copy.has_begun:
        self._copy = replace(self._copy, lives=frozenset({"life"}))


def _but_what_ever_was_pending(self: DurableReplica, copy: Copy) -> list[Any]:
    ever = self.__dict__.setdefault("ever", set())
    found = [message for message in _PENDING(self, copy) if (message.name, message.revision) not in ever]
    ever |= {(message.name, message.revision) for message in found}
    return found


_PENDING = DurableReplica.pending


def _without_graves(self: Pair) -> Copy | None:
    if self.durable is not None:
        self.durable._watched = ()
    return _LOOK(self)


_LOOK = Pair.look_durable


def _damaged(table: Any, item: Any) -> Any:
    raise CorruptRecordError("parts of it are missing", record="head")


Without = Callable[[], AbstractContextManager[Any]]

MUTATIONS: dict[str, tuple[str, int | list[Step], Without]] = {
    "the rest of an evicted turn is shown": (
        "turns",
        0,
        lambda: mock.patch.object(window._Places, "of", lambda self, message: self._end),
    ),
    "an open turn is not closed": ("turns", _CUT, lambda: mock.patch.object(showing, "_ends", return_value={})),
    "a replica is not read after an unknown outcome": ("turns", 0, lambda: mock.patch.object(HotReplica, "is_known", True)),
    "nobody looks whether a life goes on": ("deletions", _IDLE, lambda: mock.patch.object(Watch, "is_silent", False)),
    "what is gone is written again": ("deletions", _IDLE, lambda: mock.patch.object(Watch, "has_lost", return_value=False)),
    "graves of the user are not looked for": (
        "deletions",
        155,
        lambda: mock.patch.object(Pair, "look_durable", _without_graves),
    ),
    "lives are not told apart": ("deletions", _DIFFERENT_LIVES, lambda: mock.patch.object(Offering, "_begin", _one_life)),
    "a segment is written over": ("crowd", 0, lambda: mock.patch.object(segments, "ABSENT", None)),
    "what was stored once is not stored again": (
        "rollback",
        0,
        lambda: mock.patch.object(DurableReplica, "pending", _but_what_ever_was_pending),
    ),
    "a clock decides that a life is over": (
        "durable",
        _GONE_ON_WITH,
        lambda: mock.patch.object(conversation, "end", lambda pair, is_over: ending.end(pair, lambda copy: True)),
    ),
    "the claim of a sweeper binds": ("time", _CLAIMED, lambda: mock.patch.object(hot, "CLOSING", "never")),
    "a turn is torn by the end of its life": (
        "time",
        _ENDED_IN_A_TURN,
        lambda: mock.patch.object(Outbox, "unfinished_of", lambda self, copy: self._said(copy, after=self.kept)),
    ),
    "a head that is replaced while it is read is damaged": (
        "split",
        0,
        lambda: mock.patch.object(split, "_read_anew", _damaged),
    ),
    "a redaction is stored by whoever has not seen it": (
        "everything",
        0,
        lambda: mock.patch.object(Copy, "has", lambda self, one: self.vector.includes(one.name, one.clock)),
    ),
}
"""What is taken out, by what it does: a set of options, a seed to begin with or steps, and how."""
