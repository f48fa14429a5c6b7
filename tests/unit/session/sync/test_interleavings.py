"""Two writers and both tiers: every order of their calls of the stores, and every order of their operations with every fault.

``python -m tests.unit.session.sync.test_interleavings`` tries every order of every call of two turns each; that takes long.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest
from greenlet import getcurrent, greenlet

from strands_manga_memory.exceptions import StoreUnavailableError
from strands_manga_memory.stores import Codec
from strands_manga_memory.testing import FakeClock
from tests.unit.session.replicas.parts import Process
from tests.unit.session.support import MemoryTable, SurvivingHotStore

MOST_CALLS = 60
"""Calls of one writer. More of them, and it would go round in circles."""

Fault = tuple[int, str] | None
"""Which call of a tier fails, counted from 0, and how: ``refused``, or ``lost``, which is done and not answered."""


class Stepped:
    """A store each call of which lets the other writer go on first."""

    def __init__(self, store: Any) -> None:
        self._store, self.calls = store, 0
        self.fault: Fault = None

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self._store, name)
        if not callable(attribute):
            return attribute

        def call(*given: Any, **named: Any) -> Any:
            here = getcurrent()
            if here.parent is not None:
                here.parent.switch()
            number, self.calls = self.calls, self.calls + 1
            kind = self.fault[1] if self.fault is not None and self.fault[0] == number else ""
            if kind == "refused":
                raise StoreUnavailableError("refused")
            answer = attribute(*given, **named)
            if kind == "lost":
                raise StoreUnavailableError("the answer was lost")
            return answer

        return call


class Scope:
    """The two writers, who have looked into the empty stores; each saves its turns and flushes them."""

    def __init__(self, hot_fault: Fault = None, durable_fault: Fault = None, *, turns: int = 2) -> None:
        self.turns = turns
        self.clock = FakeClock()
        self.store, self.table = SurvivingHotStore(clock=self.clock), MemoryTable()
        stores = Stepped(self.store), Stepped(self.table)
        self.writers = [self._process(*stores, tag=tag) for tag in "ab"]
        for writer in self.writers:
            writer.open()
        for store, fault in zip(stores, (hot_fault, durable_fault), strict=True):
            store.fault, store.calls = fault, 0
        self.tasks = [self._task(writer) for writer in self.writers]

    def _process(self, *stores: Any, tag: str = "") -> Process:
        return Process(*stores, "s", tag=tag, clock=self.clock, codec=Codec(compress_from=1 << 30), entry=False)

    def _task(self, writer: Process) -> greenlet:
        def body() -> None:
            for work in self.work(writer):
                work()

        return greenlet(body)

    def work(self, writer: Process) -> Iterator[Callable[[], object]]:
        for turn in range(1, self.turns + 1):
            writer.talk(f"{writer.tag}{turn}")
            yield writer.save
        yield writer.flush

    def run(self, choices: tuple[int, ...]) -> list[int]:
        """Let the writers go on in this order, then the first one that can; return how many could each time."""
        width: list[int] = []
        calls = 0
        while alive := [task for task in self.tasks if not task.dead]:
            at = choices[len(width)] % len(alive) if len(width) < len(choices) else 0
            width.append(len(alive))
            alive[at].switch()
            calls += 1
            assert calls <= 2 * MOST_CALLS, "it goes round in circles"
        return width

    def check(self) -> None:
        """Everything said is there once; both writers and a new one show the same; then nobody has anything to write."""
        for writer in (*self.writers, *self.writers):
            writer.save()
            writer.flush()
        for writer in self.writers:
            writer.refresh()
        new = self._process(self.store, self.table).open()
        said = [f"{tag}{turn}" for tag in "ab" for turn in range(1, self.turns + 1)]
        assert sorted(new.log()) == sorted([*said, *["ok"] * len(said)])
        assert [writer.shown() for writer in self.writers] == [new.shown()] * 2
        assert self._process(None, self.table).open().live == new.live, "without the hot tier"
        before = {key: dict(row) for key, row in self.table.rows.items()}
        for writer in self.writers:
            writer.flush()
        assert self.table.rows == before, "whoever has merged what is stored writes nothing"


def every_order(make: Callable[[], Scope], most: int) -> int:
    """Run and check every order of the calls, in depth-first order; return how many there are, or ``most``."""
    choices: tuple[int, ...] = ()
    for count in itertools.count(1):
        scope = make()
        width = scope.run(choices)
        scope.check()
        taken = [*choices, *[0] * (len(width) - len(choices))]
        while taken and taken[-1] + 1 >= width[len(taken) - 1]:
            taken.pop()
        if not taken or count == most:
            return count
        choices = (*taken[:-1], taken[-1] + 1)
    raise AssertionError


FAULTS: list[Fault] = [None, *itertools.product(range(5), ["refused", "lost"])]
ORDERS = [
    order if number % 2 else tuple("ab"[tag == "a"] for tag in order)
    for number, order in enumerate(sorted(set(itertools.permutations("aaabbb")))[:10])
]
"""Every order of three operations each, by whoever is first: a fault strikes a call of a tier, whoever makes it."""


def test_every_order_in_which_two_writers_break_in_on_each_other_once_loses_nothing_and_comes_to_an_end() -> None:
    for first, second in itertools.product(range(12), range(1, 12)):
        scope = Scope(turns=1)
        scope.run((*[0] * first, *[1] * second, *[0] * MOST_CALLS))
        scope.check()


@pytest.mark.long
def test_every_order_of_every_call_of_a_save_and_a_flush_loses_nothing_and_comes_to_an_end() -> None:
    assert every_order(lambda: Scope(turns=1), 10_000) == 1_766


@pytest.mark.parametrize("hot_fault", FAULTS, ids=str)
def test_every_order_of_two_turns_each_survives_a_fault_in_each_tier(hot_fault: Fault) -> None:
    count = 0
    for durable_fault, order in itertools.product(FAULTS, ORDERS):
        scope = Scope(hot_fault, durable_fault)
        works = {writer.tag: scope.work(writer) for writer in scope.writers}
        for tag in order:
            with suppress(StoreUnavailableError):
                next(works[tag])()
        scope.check()
        count += 1
    assert count == 11 * 10


if __name__ == "__main__":
    print(every_order(Scope, 10**9))
