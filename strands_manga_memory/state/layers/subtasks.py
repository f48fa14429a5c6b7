"""Subtask: a part of a goal; together they form a graph without cycles. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from graphlib import CycleError, TopologicalSorter

from pydantic import Field

from strands_manga_memory.exceptions import StateError
from strands_manga_memory.state.layers.layer import Part


class SubtaskStatus(StrEnum):
    """How far a subtask is."""

    OPEN = "open"
    COMPLETED = "completed"
    FAILED = "failed"


class Subtask(Part):
    """A part of a goal.

    Attributes:
        id: Its id, unique within the goal.
        text: What is to be done.
        theme: What it is counted under in the archive.
        depends_on: Ids of those that must be completed before.
        status: How far it is.
        result: What came of it, or why it failed.
    """

    id: str = Field(pattern=r"^[\w.-]{1,60}$")
    text: str = Field(min_length=1, max_length=300)
    theme: str = Field(default="general", min_length=1, max_length=60)
    depends_on: tuple[str, ...] = ()
    status: SubtaskStatus = SubtaskStatus.OPEN
    result: str = Field(default="", max_length=300)


def check_graph(subtasks: Mapping[str, Subtask]) -> None:
    """Check that every dependency exists and that none leads back to itself.

    Raises:
        StateError: One does not; the message names it, or the circle.
    """
    for id_, subtask in subtasks.items():
        for each in subtask.depends_on:
            if each not in subtasks:
                known = ", ".join(map(repr, subtasks))
                raise StateError(f"subtask {id_!r:.80} depends on {each!r:.80}, which is not there; there are: {known}")
    try:
        TopologicalSorter({id_: subtask.depends_on for id_, subtask in subtasks.items()}).prepare()
    except CycleError as error:
        raise StateError(f"subtasks depend on one another in a circle: {' -> '.join(error.args[1])}") from error
