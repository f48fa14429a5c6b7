"""Identity: the names of writers, messages, turns, segments, lives and graves. Made once, never changed."""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from typing import NamedTuple


class Name(NamedTuple):
    """The name of a message: its writer, and which of the writer's messages it is, counted from 1."""

    writer: str
    number: int


class Stamp(NamedTuple):
    """When, by the lamport clock, and by whom something was made: a turn, a window, an entry of a state."""

    clock: int
    writer: str


class Segment(NamedTuple):
    """The key of a segment of the log: the life, and the clock, writer and number of its first message."""

    life: str
    clock: int
    writer: str
    number: int


class OpenSegment(NamedTuple):
    """The segment to which a writer adds what it says, and the number of its first message there."""

    segment: Segment
    first: int


GRAVE_SECONDS = 25 * 3600.0
"""Seconds for which stores keep a grave, at least."""


def new_tag() -> str:
    """Return a random tag for a writer or a life: 12 hexadecimal digits."""
    return secrets.token_hex(6)


def new_grave(lives: Iterable[str] = ()) -> str:
    """Return the id of a new grave of a life, or of all that is in a session, or of a user, when it is dug: it is deleted."""
    return "-".join(["deleted", new_tag(), *sorted(lives)])


def grave_by_age(lives: Iterable[str]) -> str:
    """Return the id of the grave of a life that is over by age: whoever finds that digs the same one."""
    return "-".join(["ended", "", *sorted(lives)])


def is_end_by_age(grave: str) -> bool:
    """Tell whether a grave stands for an end by age; every other one is a deletion."""
    return grave.startswith("ended-")


def lives_ended_by(grave: str) -> set[str]:
    """Return the ids of the life whose grave it is, as far as it names them."""
    return set(grave.split("-")[2:])
