"""Parts: what a coordinator is composed of."""

from __future__ import annotations

from dataclasses import dataclass

from strands_manga_memory.state.keepers.dialogue_keeper import DialogueKeeper
from strands_manga_memory.state.keepers.entity_keeper import EntityKeeper
from strands_manga_memory.state.keepers.execution_keeper import ExecutionKeeper
from strands_manga_memory.state.keepers.goal_keeper import GoalKeeper
from strands_manga_memory.state.keepers.keeper import Shared
from strands_manga_memory.state.keepers.task_keeper import TaskKeeper
from strands_manga_memory.state.keepers.tool_calls import ToolCalls


@dataclass(frozen=True)
class Parts:
    """The keepers of one agent's state, and what they share."""

    shared: Shared
    dialogue: DialogueKeeper
    entities: EntityKeeper
    goals: GoalKeeper
    task: TaskKeeper
    execution: ExecutionKeeper
    calls: ToolCalls
