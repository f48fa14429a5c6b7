"""The manager that keeps an agent's history within its budget, for other parts of the agent."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

from strands.hooks import HookEvent


class HistoryManager(Protocol):
    """Keeps the history of an agent within a budget."""

    max_tokens: int

    def reserve(self, tokens: int) -> int:
        """Reserve tokens of the budget for quotes in every request; return how many the quotes may have."""

    def reduce_context(self, agent: Any, e: Exception | None = None, **kwargs: Any) -> None:
        """Make an agent's history smaller, because of an overflow if ``e`` is given."""


@dataclass
class HistoryManagerLookup(HookEvent):
    """Asks the hooks of an agent for the manager of its history.

    Attributes:
        found: The managers that have answered.
    """

    found: list[HistoryManager] = field(default_factory=list)


def history_manager_of(agent: Any) -> HistoryManager | None:
    """Return the manager of an agent's history; None if it has none of this package."""
    lookup = HistoryManagerLookup(agent)
    agent.hooks.invoke_callbacks(lookup)
    return lookup.found[0] if lookup.found else None
