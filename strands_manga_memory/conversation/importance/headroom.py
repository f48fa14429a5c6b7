"""Headroom: room for what the user says, beyond the budget in the current turn, and within it for the next one. Pure."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from strands.types.content import Message

from strands_manga_memory.conversation.tokens.calibration import Calibration
from strands_manga_memory.conversation.tokens.thresholds import UNKNOWN_WINDOW, window_of
from strands_manga_memory.messages import is_turn_start

if TYPE_CHECKING:
    from strands.agent.agent import Agent

_SHARE_OF_REQUEST = 16
"""At the end of a turn at most this part of the budget is left free for the next request."""

_LEAST_WITH_ROOM = 1_024
"""A smaller budget has nothing to spare, and choosing twice from so few messages costs little."""


class Headroom(NamedTuple):
    """By how many tokens the budget grows, and whether that is enough to leave the user's message whole."""

    tokens: int
    is_enough: bool


NO_HEADROOM = Headroom(0, is_enough=False)


def headroom_for(
    messages: Sequence[Message],
    budget: int,
    agent: Agent | None,
    calibration: Calibration,
    count: Callable[[Message], int],
) -> Headroom:
    """Return what comes on top of a budget for what the user says in the current turn.

    Half of the budget is for that message. What it has beyond comes on top, as far as the model's window has room; without an
    agent there is none.
    """
    said = next(filter(is_turn_start, reversed(messages)), None)
    if said is None or agent is None:
        return NO_HEADROOM
    wanted = max(0, count(said) - budget // 2)
    room = max(0, calibration.budget(_in_window(agent)) - budget)
    return Headroom(min(wanted, room), wanted <= room)


def _in_window(agent: Agent) -> int:
    """Return the tokens that a history may have in the window of an agent's model: three quarters of it."""
    return (window_of(agent.model) or UNKNOWN_WINDOW) * 3 // 4


def next_request(messages: Sequence[Message], budget: int, count: Callable[[Message], int]) -> int:
    """Return how many tokens the user's next message may have: those of the largest of the last four, within reason."""
    if budget < _LEAST_WITH_ROOM:
        return 0
    latest = itertools.islice(filter(is_turn_start, reversed(messages)), 4)
    return min(max(map(count, latest), default=0), budget // _SHARE_OF_REQUEST)
