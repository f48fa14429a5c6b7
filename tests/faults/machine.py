"""The machine campaign: processes on one conversation take random steps, die and find tiers failing; see ``session.world``.

Run it for long with ``python -m tests.faults.machine --seeds 1000 --start 0 --machine two-tiers --refreshes --deletes``.
"""

from __future__ import annotations

import argparse
import logging
import random
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from tests.benchmarks import progress
from tests.unit.session.world import Step, World

MACHINES = {"two-tiers": (True, True), "hot-only": (True, False), "durable-only": (False, True)}
"""Which of hot and durable tier there are, by name."""

EVENTS = {
    "refreshes": "processes also look what others saved",
    "deletes": "processes also delete the conversation",
    "sweeps": "the conversation also leaves the hot tier, unused for a while",
    "ends": "the session also ends when no process has it any more",
    "redacts": "what was asked is also redacted",
}
"""What else may happen, by the names of the options and of a ``World``'s arguments."""
EVERYTHING = dict.fromkeys(EVENTS, True)

_STEPS = 60


@contextmanager
def quiet() -> Iterator[None]:
    """Log nothing."""
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)


def new_world(machine: str, **happens: bool) -> World:
    """Return a world at its beginning; ``happens`` is what a ``World`` may be told to let happen."""
    hot, durable = MACHINES[machine]
    return World(hot=hot, durable=durable, **happens)


def played(world: World, steps: Sequence[Step]) -> Exception | None:
    """Let steps happen; return what was wrong in the end, or on the way."""
    try:
        for step in steps:
            world.take(step)
        world.end()
    except Exception as error:  # whatever it is, the campaign goes on
        return error
    return None


def drawn(world: World, seed: int) -> tuple[list[Step], Exception | None]:
    """Let the steps of a seed happen; return them, and what was wrong."""
    choose = random.Random(seed).choice
    steps = [Step("start")]
    try:
        world.take(steps[0])
        for _ in range(_STEPS):
            steps.append(world.drawn(choose))
            world.take(steps[-1])
        world.end()
    except Exception as error:  # whatever it is, the campaign goes on
        return steps, error
    return steps, None


def shrunk(steps: list[Step], *, machine: str) -> list[Step]:
    """Return as few of the steps as possible that still go wrong in the same way."""
    kind = _kind(played(new_world(machine, **EVERYTHING), steps))
    size = len(steps) // 2
    while size:
        at = 0
        while at < len(steps):
            fewer = steps[:at] + steps[at + size :]
            if _kind(played(new_world(machine, **EVERYTHING), fewer)) == kind:
                steps = fewer
            else:
                at += size
        size = min(size // 2, len(steps) // 2) if size > 1 else 0
    return steps


def _kind(error: Exception | None) -> str:
    """Return in which way something went wrong, without the names of messages and processes."""
    if error is None:
        return ""
    words = str(error).replace(":", " ").split(" ")
    return " ".join([type(error).__name__, *(word for word in words[:8] if word.isalpha())][:4])


def main() -> int:
    """Run seeds from the command line; 1 if any fails."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=1000, help="how many")
    parser.add_argument("--start", type=int, default=0, help="the first one")
    parser.add_argument("--machine", choices=sorted(MACHINES), default="two-tiers")
    for name, what in EVENTS.items():
        parser.add_argument(f"--{name}", action="store_true", help=what)
    parser.add_argument("--shrink", action="store_true", help="print the fewest steps with which a seed fails")
    arguments = parser.parse_args()
    happens = {name: getattr(arguments, name) for name in EVENTS}
    failed = 0
    with quiet():
        for seed in progress(range(arguments.start, arguments.start + arguments.seeds), "seeds"):
            world = new_world(arguments.machine, **happens)
            steps, error = drawn(world, seed)
            if error is None:
                continue
            failed += 1
            print(f"seed {seed}: {type(error).__name__}: {str(error)[:200]}", flush=True)
            if arguments.shrink:
                print(*shrunk(steps, machine=arguments.machine), sep="\n", flush=True)
    print(f"{arguments.seeds - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
