"""Contention: how long, and with which pauses, a save that other writers keep overtaking is tried again."""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Iterator

from strands_manga_memory.exceptions import StoreUnavailableError

_random = random.Random()  # noqa: S311 - jitter; of its own, so that nobody's seeded numbers change
_CONTENTION_SECONDS = 30.0
"""Seconds for which a save that others keep overtaking is tried again before it is put off."""


class ContendedError(StoreUnavailableError):
    """Others keep changing the conversation. Its tier is well, so the save is put off, and nobody else's."""


class OvertakenError(ContendedError):
    """What was read in several steps changed between them: it has to be read anew."""


def tries(what: str) -> Iterator[int]:
    """Yield the numbers of tries; between them wait a random time that grows, so that every writer gets its turn.

    Raises:
        ContendedError: ``what`` kept changing for 30 s.
    """
    end = time.monotonic() + _CONTENTION_SECONDS
    for number in itertools.count():
        yield number
        if time.monotonic() > end:
            raise ContendedError(f"{what} keeps changing; the save is put off")
        time.sleep(_random.uniform(0.0, min(0.05, 0.0005 * 2 ** min(number, 10))))
