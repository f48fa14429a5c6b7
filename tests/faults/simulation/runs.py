"""Runs: the steps of a seed, what went wrong with them, and as few of them as still go wrong in the same way."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from tests.faults.simulation.drawing import Drawing, Step
from tests.faults.simulation.engine import Engine
from tests.faults.simulation.promises import check
from tests.faults.simulation.world import Happens, World

STEPS = 400
"""Steps of a seed. A step is something that happens, or one call of a store."""

_ITEM_BYTES = 300

_ALL = frozenset({"refresh", "delete", "sweep", "redact"})

SETS = {
    "turns": Happens(),
    "everything": Happens(options=_ALL | {"end"}),
    "deletions": Happens(options=frozenset({"delete", "idle", "refresh"})),
    "time": Happens(options=frozenset({"sweep", "end", "idle", "skew", "refresh"})),
    "crowd": Happens(options=frozenset({"refresh", "slow", "skew"}), most_processes=5),
    "rollback": Happens(options=frozenset({"rollback", "refresh"})),
    "hot": Happens(durable=False, options=frozenset({"refresh", "delete", "redact", "idle", "skew"})),
    "durable": Happens(hot=False, options=_ALL | {"end", "idle", "slow", "skew"}),
    "requests": Happens(options=frozenset({"requests", "sweep"}), most_processes=2),
    "split": Happens(options=frozenset({"refresh", "delete", "redact", "split"})),
}
"""Sets of options, by name."""


def played(happens: Happens, steps: Sequence[Step], *, engine: Callable[[], Engine] = Engine) -> Exception | None:
    """Let steps happen; return what went wrong, on the way or in the end."""
    return _run(happens, lambda world: iter(steps), engine)[1]


def drawn_steps(happens: Happens, seed: int, *, engine: Callable[[], Engine] = Engine) -> tuple[list[Step], Exception | None]:
    """Let the steps of a seed happen; return them, and what went wrong."""

    def steps(world: World) -> Iterator[Step]:
        drawing = Drawing(random.Random(seed))
        yield Step("start")
        for _ in range(STEPS):
            yield drawing.next(world)

    return _run(happens, steps, engine)


def shrunk(happens: Happens, steps: list[Step], *, engine: Callable[[], Engine] = Engine) -> list[Step]:
    """Return as few of the steps as possible that still go wrong in the same way."""
    kind = kind_of(played(happens, steps, engine=engine))
    size = max(1, len(steps) // 2)
    while True:
        at, before = 0, len(steps)
        while at < len(steps):
            fewer = steps[:at] + steps[at + size :]
            if kind_of(played(happens, fewer, engine=engine)) == kind:
                steps = fewer
            else:
                at += size
        if size == 1 and len(steps) == before:
            return steps
        size = max(1, size // 2)


def kind_of(error: Exception | None) -> str:
    """Return in which way something went wrong, without the names of messages and processes."""
    return "" if error is None else f"{type(error).__name__} {str(error).partition(':')[0][:40]}"


def _run(
    happens: Happens, steps_in: Callable[[World], Iterator[Step]], engine: Callable[[], Engine]
) -> tuple[list[Step], Exception | None]:
    made = engine()
    world = World(made, happens)
    taken: list[Step] = []
    with _quiet(), made.running(world.schedule, **({"most_bytes": _ITEM_BYTES} if "split" in happens.options else {})):
        try:
            for step in steps_in(world):
                taken.append(step)
                step.happen(world)
            world.finish()
            check(world)
        except Exception as error:  # whatever it is, the run goes on
            return taken, error
    return taken, None


@contextmanager
def _quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)
