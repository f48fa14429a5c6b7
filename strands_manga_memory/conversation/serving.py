"""trimmer_of: what keeps the history of an agent within its budget, in whichever form it was given to the agent."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from strands import Agent
    from strands.types.content import Message


class Trimmer(Protocol):
    """What is asked of a trimmer by the parts beside it."""

    def beside(self, messages: Sequence[Message], quoted: int) -> tuple[list[Message], int]:
        """Return what a history has left when up to ``quoted`` tokens of its budget go to quotes, and how many do."""
        ...

    def reduce_context(self, agent: Agent, e: Exception | None = None, **kwargs: Any) -> None:
        """Make an agent's history smaller, because of an overflow if ``e`` says so."""
        ...


_trimmers: weakref.WeakKeyDictionary[Agent, Trimmer] = weakref.WeakKeyDictionary()


def trimmer_of(agent: Agent) -> Trimmer | None:
    """Return the trimmer of an agent; None if it has none of ours."""
    return _trimmers.get(agent)


def serves(trimmer: Trimmer, agent: Agent) -> None:
    """Take note of the trimmer of an agent."""
    _trimmers[agent] = trimmer
