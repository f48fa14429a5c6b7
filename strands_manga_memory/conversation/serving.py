"""Who serves whom: the agent that a conversation manager serves, and what keeps an agent's history within its budget."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
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

    def beside(self, messages: Sequence[Message], quoted: int) -> tuple[list[Message], int]:
        """Return what a history has left when up to ``quoted`` tokens of its budget go to quotes, and how many do."""

    def reduce_context(self, agent: Agent, e: Exception | None = None, **kwargs: Any) -> None:
        """Make an agent's history smaller, because of an overflow if ``e`` says so."""


_trimmers: weakref.WeakKeyDictionary[Agent, Trimmer] = weakref.WeakKeyDictionary()


def trimmer_of(agent: Agent) -> Trimmer | None:
    """Return the trimmer of an agent; None if it has none of ours."""
    return _trimmers.get(agent)


def serves(trimmer: Trimmer, agent: Agent) -> None:
    """Take note of the trimmer of an agent."""
    _trimmers[agent] = trimmer
