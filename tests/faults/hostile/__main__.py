"""``python -m tests.faults.hostile --seconds 600``: draw cases; print failures."""

import argparse
import random
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from tests.faults.hostile import commands, turns
from tests.faults.hostile.sessions import Case, Open, drawn, played, shrunk
from tests.faults.hostile.stores import embedded, served

Play = Callable[[random.Random], None]
"""Plays what is drawn; raises if it does not hold."""


def main(arguments: list[str] | None = None) -> int:
    """Return 1 if a case failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults.hostile")
    parser.add_argument("--seconds", type=float, default=600.0, help="how long to draw cases")
    parser.add_argument("--seed", type=int, default=None, help="play the case of this seed alone")
    parser.add_argument("--start", type=int, default=0, help="the first seed")
    parser.add_argument("--embedded", action="store_true", help="no Valkey, no DynamoDB API")
    given = parser.parse_args(arguments)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        opens = [embedded(folder / "m.db")]
        others: list[Play] = [lambda rng: commands.played(rng, folder / "commands.sqlite3")]
        if not given.embedded:
            opens.append(stack.enter_context(served()))
            shop = stack.enter_context(turns.shop())
            others.append(lambda rng: turns.played(turns.drawn(rng), shop))
        end, seed = (
            time.monotonic() + given.seconds,
            given.start if given.seed is None else given.seed,
        )
        while True:
            if not all(_held(seed, open_) for open_ in opens) or not all(
                _plays(seed, play) for play in others
            ):
                return 1
            seed += 1
            if given.seed is not None or time.monotonic() >= end:
                break
    print(f"hostile: seeds {given.start if given.seed is None else given.seed} to {seed - 1} hold")
    return 0


def _held(seed: int, open_: Open) -> bool:
    case = drawn(random.Random(seed))
    try:
        played(case, open_)
    except Exception:
        print(f"hostile: seed {seed} fails: python -m tests.faults.hostile --seed {seed}")
        traceback.print_exc(limit=-6)
        print(f"hostile: shrunken case: {_text(shrunk(case, lambda less: _fails(less, open_)))}")
        return False
    return True


def _plays(seed: int, play: Play) -> bool:
    try:
        play(random.Random(seed))
    except Exception:
        print(f"hostile: seed {seed} fails: python -m tests.faults.hostile --seed {seed}")
        traceback.print_exc(limit=-6)
        return False
    return True


def _fails(case: Case, open_: Open) -> bool:
    try:
        played(case, open_)
    except Exception:  # any failure will do
        return True
    return False


def _text(case: Case) -> str:
    try:
        return f"{case!r:.4000}"
    except RecursionError:
        return "too deeply nested to be shown"


if __name__ == "__main__":
    sys.exit(main())
