"""Runs of the simulation: steps of a seed, the broken promise, the fewest steps."""

import logging
import random
import secrets
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from unittest import mock

from strands_manga_memory.session.protocol import durable_tier, hot_tier, local_copy
from tests.faults.protocol.world import Op, TaskLock, World

OPTIONS = {
    "faults": "calls fail, before or after their effect", "late": "calls have their effect later",
    "split": "a process, or all, cannot reach a tier for a while",
    "lossy": "the hot tier loses everything, or goes back",
    "restored": "the durable tier goes back to a copy, or to nothing",
    "deletes": "the conversation is deleted", "ends": "the session ends by age",
    "rewinds": "the last turns are removed", "redacts": "messages are redacted",
    "sweeps": "a sweeper empties the hot tier", "kills": "processes die",
    "parts": "most turns are saved in parts", "short": "an agent is built for each request",
    "hot-only": "there is no durable tier", "durable-only": "there is no hot tier",
}  # fmt: skip
"""Events that may happen, by name."""

BASIS = frozenset({"faults", "late", "split", "sweeps", "kills"})
SETS = {
    "calm": frozenset({"parts"}),
    "faults": BASIS,
    "parts": BASIS | {"parts"},
    "lossy": BASIS | {"lossy"},
    "restored": BASIS | {"restored"},
    "deletes": BASIS | {"deletes"},
    "ends": BASIS | {"ends"},
    "rewinds": BASIS | {"rewinds", "redacts", "parts"},
    "redacts": BASIS | {"redacts"},
    "short": BASIS | {"short"},
    "hot-only": frozenset(
        {"faults", "late", "kills", "redacts", "deletes", "rewinds", "hot-only", "parts"}
    ),
    "durable-only": frozenset(
        {"faults", "late", "kills", "redacts", "deletes", "rewinds", "durable-only", "parts"}
    ),
    "everything": BASIS | {"lossy", "restored", "deletes", "ends", "redacts", "parts"},
}
"""Sets of options, by name."""

STEPS = 250


@contextmanager
def simulated(world: World) -> Iterator[None]:
    """Let locks, waits and random numbers be those of the simulation."""
    numbers = random.Random(world.seed)
    with ExitStack() as stack:
        for module in (durable_tier, hot_tier, local_copy):
            stack.enter_context(
                mock.patch.object(module, "RLock", side_effect=lambda: TaskLock(world))
            )
        stack.enter_context(
            mock.patch.object(durable_tier, "sleep", side_effect=lambda seconds: world.pause())
        )
        stack.enter_context(
            mock.patch.object(
                secrets, "token_hex", lambda size: f"{numbers.getrandbits(8 * size):0{2 * size}x}"
            )
        )
        stack.enter_context(mock.patch.object(secrets, "randbits", numbers.getrandbits))
        logging.disable(logging.CRITICAL)
        try:
            yield
        finally:
            logging.disable(logging.NOTSET)


def play(
    seed: int,
    options: frozenset[str],
    *,
    most: int = 3,
    steps: int = STEPS,
    ops: Sequence[Op] | None = None,
) -> tuple[list[Op], Exception | None]:
    """Return the steps of a seed, and the promise that they break."""
    numbers = random.Random(seed)
    world = World(seed, options, most)
    done: list[Op] = []
    with simulated(world):
        try:
            for at in range(steps if ops is None else len(ops)):
                op = world.draw(numbers) if ops is None else ops[at]
                done.append(op)
                world.apply(op)
            world.finish()
        except Exception as error:
            return done, error
    return done, None


def kind_of(error: Exception | None) -> str:
    """Return the kind of a broken promise, without names and numbers."""
    return (
        ""
        if error is None
        else (
            f"{type(error).__name__}"
            f" {' '.join(w for w in str(error).replace(':', ' ').split() if w.isalpha())[:40]}"
        )
    )


def shrink(seed: int, options: frozenset[str], ops: Sequence[Op], *, most: int = 3) -> list[Op]:
    """Return the fewest steps found that break the same promise."""
    wanted, ops = kind_of(play(seed, options, most=most, ops=ops)[1]), list(ops)
    size = max(1, len(ops) // 2)
    while size:
        at, removed = 0, False
        while at < len(ops):
            fewer = ops[:at] + ops[at + size :]
            if kind_of(play(seed, options, most=most, ops=fewer)[1]) == wanted:
                ops, removed = fewer, True
            else:
                at += size
        size = size // 2 if size > 1 else int(removed)
    return ops


def first_failure(
    options: frozenset[str], seeds: range, *, most: int = 3, steps: int = STEPS
) -> tuple[int, Exception] | None:
    """Return the first seed that breaks a promise."""
    for seed in seeds:
        error = play(seed, options, most=most, steps=steps)[1]
        if error is not None:
            return seed, error
    return None
