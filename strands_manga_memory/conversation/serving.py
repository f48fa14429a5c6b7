"""Who serves whom: the agent that a conversation manager serves, and what keeps an agent's history within its budget."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from strands import Agent
    from strands.types.content import Message


class Served:
    """The one agent that a manager serves; it is not kept alive."""

    __slots__ = ("_agent",)

    def __init__(self) -> None:
        self._agent: weakref.ref[Agent] | None = None

    def take(self, agent: Agent) -> bool:
        """Serve an agent from now on; return False if there is one already, or was."""
        is_first = self._agent is None
        if is_first:
            self._agent = weakref.ref(agent)
        return is_first

    @property
    def agent(self) -> Agent | None:
        """The agent; None before it is there, and once it is gone."""
        return self._agent() if self._agent is not None else None

    def history(self) -> list[Message]:
        """Return the agent's messages; none without an agent."""
        agent = self.agent
        return [] if agent is None else agent.messages


class Trimmer(Protocol):
    """What is asked of a trimmer by the parts beside it."""

    max_tokens: int

    def reserve(self, tokens: int) -> int:
        """Reserve tokens of the history's budget for quotes in every request; return how many the quotes may have."""

    def reduce_context(self, agent: Agent, e: Exception | None = None, **kwargs: Any) -> None:
        """Make an agent's history smaller, because of an overflow if ``e`` says so."""


_trimmers: weakref.WeakKeyDictionary[Agent, Trimmer] = weakref.WeakKeyDictionary()


def trimmer_of(agent: Agent) -> Trimmer | None:
    """Return the trimmer of an agent; None if it has none of ours."""
    return _trimmers.get(agent)


def serves(trimmer: Trimmer, agent: Agent) -> None:
    """Take note of the trimmer of an agent."""
    _trimmers[agent] = trimmer
