"""What may happen next in a world, drawn from random numbers."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tests.faults.simulation.requests import MOST_AT_ONCE
from tests.faults.simulation.world import World

_NEEDED = {"start", "begin_turn", "end_turn"}
"""Without these there is nothing to see."""


@dataclass(frozen=True)
class Step:
    """One thing that happens: a method of ``World``, the process that it happens to, and how.

    Args:
        name: The method.
        process: The name of its process; None for what happens to none.
        how: Its other arguments.
    """

    name: str
    process: str | None = None
    how: tuple[Any, ...] = ()

    def __str__(self) -> str:
        return f"Step{(self.name, self.process, self.how)!r}"

    def happen(self, world: World) -> None:
        """Happen in a world, if it can; raise what goes wrong."""
        found = [process for process in world.processes if process.name == self.process]
        if self.process is None:
            getattr(world, self.name)(*self.how)
        elif found and (self.name == "kill" or _may(self.name, found[0])):
            getattr(world, self.name)(found[0], *self.how)
        world.look()


@dataclass(frozen=True)
class Offer:
    """Something that may happen.

    Args:
        weight: How likely it is, compared with other offers.
        name: The method of ``World``.
        how: What each of its arguments may be.
        processes: The processes that it may happen to; None for what happens to none.
    """

    weight: int
    name: str
    how: Sequence[Sequence[Any]] = ()
    processes: Sequence[str] | None = None

    def drawn(self, numbers: random.Random) -> Step:
        process = None if self.processes is None else numbers.choice(self.processes)
        return Step(self.name, process, tuple(numbers.choice(values) for values in self.how))


class Drawing:
    """Draws what happens next; each drawing has habits of its own, so that rare things happen often in some of them.

    Args:
        numbers: Random numbers.
    """

    def __init__(self, numbers: random.Random) -> None:
        self._numbers = numbers
        self._goes_on = numbers.choice([0.75, 0.85, 0.95])
        self._habits: dict[str, float] = {}

    def next(self, world: World) -> Step:
        """Return what happens next in a world."""
        ready = world.schedule.ready
        goes_on = bool(ready) and self._numbers.random() < self._goes_on
        while not goes_on:
            offers = list(_offers(world))
            weights = [offer.weight * self._habit(offer.name) for offer in offers]
            offer = self._numbers.choices(offers, weights)[0]
            if offer.processes is None or offer.processes:
                return offer.drawn(self._numbers)
            goes_on = bool(ready)  # those that could do it are busy
        return Step("go_on", None, (self._numbers.choice(ready).label,))

    def _habit(self, name: str) -> float:
        if name not in self._habits:
            self._habits[name] = self._numbers.choice([0.5, 1.0, 2.0] if name in _NEEDED else [0.0, 0.3, 1.0, 1.0, 3.0])
        return self._habits[name]


_ENDS = ["saved", "saved", "saved", "closed", "unanswered"]
"""How requests end."""

_TURNS = {"use_a_tool", "end_turn", "redact"}


def _may(name: str, process: Any) -> bool:
    if process.is_busy:
        return False
    return process.in_turn if name in _TURNS else not (process.in_turn and name in ("begin_turn", "close"))


def _offers(world: World) -> Iterator[Offer]:
    options = world.happens.options
    names = {name: [p.name for p in world.processes if _may(name, p)] for name in ("begin_turn", "use_a_tool", "flush")}
    idle, in_turn, free = names.values()
    if len(world.processes) + len(world.opening) < world.happens.most_processes:
        yield Offer(6, "start")
    yield Offer(16, "begin_turn", processes=idle)
    yield Offer(8, "use_a_tool", [[True, False], ["plain", "plain", "sparse"]], in_turn)
    yield Offer(20, "end_turn", [range(5), ["plain", "plain", "edited", "sparse", "answers"], [True, True, False]], in_turn)
    yield Offer(5, "flush", processes=free)
    yield Offer(2, "close", processes=idle)
    yield Offer(2, "kill", processes=[process.name for process in world.processes])
    yield Offer(2, "time_passes", [[0.05, 0.05, 1.0, 30.0]])
    yield Offer(2, "set_metadata", processes=free)
    yield from _of_stores(world)
    if "refresh" in options:
        yield Offer(3, "refresh", processes=free)
        yield Offer(1, "inspect")
    if "requests" in options:
        if len(world.serving) < MOST_AT_ONCE:
            yield Offer(30, "request", [[0, 0, 1, 2], [0, 0, 0, 1, 2], ["plain", "plain", "edited", "marked"], _ENDS])
        yield Offer(1, "many_requests", [[5, 15, 40], [0, 0, 1, 3], ["saved", "closed"]])
    if "redact" in options:
        yield Offer(4, "redact", processes=in_turn)
    if "delete" in options:
        yield Offer(2, "delete", processes=free)
        if len(world.deleting) < 2:
            yield Offer(1, "delete_unopened")
            if world.happens.durable:
                yield Offer(1, "forget_user")
                yield Offer(1, "delete_listed")
    yield from _of_time(world)


def _of_stores(world: World) -> Iterator[Offer]:
    tiers = [tier for tier in ("hot", "durable") if getattr(world.happens, tier)]
    yield Offer(1, "goes_down_or_comes_back", [tiers])
    yield Offer(2, "call_fails", [tiers, ["refused", "lost", "partial"]])
    if "slow" in world.happens.options:
        yield Offer(1, "is_slow_or_not", [tiers, [0.0, 0.2, 2.0]])
    if world.happens.hot and world.happens.durable:
        yield Offer(1, "copy_the_hot_tier")
        yield Offer(1, "the_hot_tier_goes_back", [range(-1, len(world.hot_copies))])
    if "rollback" in world.happens.options and world.happens.durable:
        yield Offer(1, "copy_the_durable_tier")
        yield Offer(1, "the_durable_tier_goes_back", [range(-1, len(world.durable_copies))])


def _of_time(world: World) -> Iterator[Offer]:
    options = world.happens.options
    if "sweep" in options:
        yield Offer(2, "nobody_uses_it_for_a_while")
        if not any(task.owner == "sweeper" for task in world.schedule.tasks):
            yield Offer(3, "sweep")
        else:
            yield Offer(1, "the_sweeper_dies")
    is_alone = not (world.processes or world.schedule.tasks)
    if "end" in options and is_alone:
        yield Offer(9, "the_session_ends", [["a day", "three days"]])
    if "idle" in options and world.schedule.only_timers and not any(process.in_turn for process in world.processes):
        yield Offer(5, "the_session_ends", [["a day", "three days"]])
    if {"end", "idle"} & options and world.happens.durable:
        yield Offer(1, "the_table_deletes_what_has_expired")
