"""Limits and base classes of the values in an agent's state, such as an entity or a subtask."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Self, TypeVar

from pydantic import BaseModel, ConfigDict

from strands_manga_memory.arguments import Count, PositiveInt, checked
from strands_manga_memory.exceptions import StateError

_Item = TypeVar("_Item")


@checked
@dataclass(frozen=True)
class StateLimits:
    """Limits of an agent's goals and steps.

    Args:
        goal_tokens: Maximum estimated tokens of the active goal and the archived goals together.
        goal_warn_tokens: If all goals together have more estimated tokens, a warning is logged.
        goal_archive_tokens: Maximum estimated tokens of the archived goals.
        goals_kept: Maximum number of archived goals. 0: goals that end are not archived.
        executions_kept: Number of the active goal's latest tool calls that are kept. Older tool
            calls are only counted.
        failed_subtasks_kept: Maximum number of failed subtasks in the archive record of a goal. The
            last ones are kept.
        goal_context_characters: Maximum characters of the background of a goal. The end is kept.
        steps_kept: Maximum number of steps of a task, such as tool calls and thoughts. The last
            ones are kept.

    Raises:
        ValueError: A value is not a positive whole number; ``goals_kept`` may be 0.
    """

    goal_tokens: PositiveInt = 12_000
    goal_warn_tokens: PositiveInt = 10_000
    goal_archive_tokens: PositiveInt = 6_000
    goals_kept: Count = 10
    executions_kept: PositiveInt = 20
    failed_subtasks_kept: PositiveInt = 5
    goal_context_characters: PositiveInt = 2_000
    steps_kept: PositiveInt = 100


class StateItem(BaseModel):
    """Immutable value within an agent's state, such as an entity or a subtask.

    Unknown fields in stored data are kept, because later releases may have added them.
    """

    model_config = ConfigDict(frozen=True, extra="allow")

    def replaced(self, **fields: Any) -> Self:
        """Return a copy of this value with some fields replaced, without validation."""
        return self.model_copy(update=fields)


def item_of(items: Mapping[str, _Item], kind: str, name: str) -> _Item:
    """Return the item of ``items``, such as a slot, subtask or step, that has the given name.

    ``kind`` is the word for such an item in the error message, for example "slot".

    Raises:
        StateError: There is no item with this name. The message lists the existing names.
    """
    if name not in items:
        known = ", ".join(map(repr, list(items)[-50:])) or "none"
        raise StateError(f"there is no {kind} {name!r:.80}; there are: {known}")
    return items[name]


def check_move(name: str, moves: Mapping[_Item, Iterable[str]], old: _Item, new: str) -> None:
    """Raise a ``StateError`` if a status or phase may not change from ``old`` to ``new``.

    ``moves`` lists the allowed next values. ``name`` is the value's name in the error.
    """
    if new not in moves[old]:
        allowed = ", ".join(sorted(moves[old])) or "none"
        raise StateError(f"{name} cannot go from {old} to {new}; allowed are: {allowed}")
