"""Pairs: one piece of work stands at each of its calls of a store while another one is done from its beginning to its end."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

from tests.faults.simulation.drawing import Step
from tests.faults.simulation.runs import SETS, played
from tests.faults.simulation.world import OverError

_SETTLE = Step("settle")


@dataclass(frozen=True)
class Work:
    """A piece of work.

    Args:
        owner: Whose tasks do it.
        begins: What it begins with.
        before: What has to have happened.
        needs_table: Whether there must be a durable tier.
    """

    owner: str
    begins: Step
    before: tuple[Step, ...] = ()
    needs_table: bool = False


_IN_TURN = (Step("begin_turn", "p1"), _SETTLE)

FIRST = {
    "a turn": Work("p1", Step("end_turn", "p1", (0, "plain", True)), _IN_TURN),
    "a flush": Work("p1", Step("flush", "p1")),
    "a redaction": Work("p1", Step("redact", "p1"), _IN_TURN),
    "a restore": Work("p3", Step("start")),
    "a sweep": Work("sweeper", Step("sweep"), (Step("nobody_uses_it_for_a_while"),)),
    "a deletion": Work("d3", Step("delete_unopened")),
    "a deletion of what is listed": Work("d3", Step("delete_listed"), needs_table=True),
    "an erasure": Work("f3", Step("forget_user"), needs_table=True),
}
"""Work that stands; p1 has said something, p2 has read it, and both go on."""

SECOND = {
    "a turn": Work("p2", Step("end_turn", "p2", (2, "sparse", True)), (Step("begin_turn", "p2"),)),
    "a flush": Work("p2", Step("flush", "p2")),
    "a refresh": Work("p2", Step("refresh", "p2")),
    "a deletion": Work("p2", Step("delete", "p2")),
    "a deletion of what is listed": Work("", Step("delete_listed"), needs_table=True),
    "an erasure": Work("", Step("forget_user"), needs_table=True),
    "a restore": Work("", Step("start")),
}
"""Work that is done meanwhile."""


def failures(first: Work, second: Work, set_: str) -> Iterator[str]:
    """Yield what goes wrong, at whichever call of the first work the second one is done.

    Args:
        first: What stands.
        second: What is done meanwhile.
        set_: The name of the set of options, which says what tiers there are.
    """
    if not SETS[set_].durable and (first.needs_table or second.needs_table):
        return
    for is_flushed in (False, True):
        for calls in itertools.count():
            error = played(SETS[set_], list(_steps(first, second, calls, is_flushed=is_flushed)))
            if isinstance(error, OverError):
                break
            if error is not None:
                yield f"flushed={is_flushed}, after {calls} calls: {type(error).__name__}: {error}"


def _steps(first: Work, second: Work, calls: int, *, is_flushed: bool) -> Iterator[Step]:
    yield from (Step("start"), _SETTLE, Step("begin_turn", "p1"), _SETTLE, Step("end_turn", "p1", (0, "plain", True)), _SETTLE)
    if is_flushed:
        yield from (Step("flush", "p1"), _SETTLE)
    yield from (Step("start"), _SETTLE)
    yield from (*first.before, first.begins, Step("goes_on", None, (first.owner, calls)))
    for step in (*second.before, second.begins):
        yield from (step, Step("others_end", None, (first.owner,)))
