"""Where the task stands: typed state that survives, and what the model is told of it."""

from typing import TYPE_CHECKING

from strands_manga_memory.lazy import door

if TYPE_CHECKING:
    from strands_manga_memory.state.changes import EnvironmentChanges
    from strands_manga_memory.state.coordinator import StateCoordinator, coordinator_of
    from strands_manga_memory.state.escalation import Escalation, SpokenTurn, export_for_human
    from strands_manga_memory.state.layers.dialogue import Clarification, ConversationLayer, Phase
    from strands_manga_memory.state.layers.dialogue_slots import DialogueSlot, SlotStatus
    from strands_manga_memory.state.layers.entity_layer import ActiveEntity, Confidence, EntityLayer, Origin
    from strands_manga_memory.state.layers.environment import (
        CallableEnvironmentSource,
        Environment,
        EnvironmentSource,
        TableEnvironmentSource,
    )
    from strands_manga_memory.state.layers.execution import ExecutionKind, ExecutionLayer, ExecutionStep
    from strands_manga_memory.state.layers.goal import Goal, GoalArchive, GoalStatus
    from strands_manga_memory.state.layers.goals import GoalsLayer
    from strands_manga_memory.state.layers.subtasks import Subtask, SubtaskStatus
    from strands_manga_memory.state.layers.task import StepStatus, TaskLayer, TaskStep
    from strands_manga_memory.state.statistics import StateStats
else:
    __getattr__, __dir__ = door(
        __name__,
        {
            "changes": "EnvironmentChanges",
            "coordinator": "StateCoordinator coordinator_of",
            "escalation": "Escalation SpokenTurn export_for_human",
            "layers.dialogue": "Clarification ConversationLayer Phase",
            "layers.dialogue_slots": "DialogueSlot SlotStatus",
            "layers.entity_layer": "ActiveEntity Confidence EntityLayer Origin",
            "layers.environment": "CallableEnvironmentSource Environment EnvironmentSource TableEnvironmentSource",
            "layers.execution": "ExecutionKind ExecutionLayer ExecutionStep",
            "layers.goal": "Goal GoalArchive GoalStatus",
            "layers.goals": "GoalsLayer",
            "layers.subtasks": "Subtask SubtaskStatus",
            "layers.task": "StepStatus TaskLayer TaskStep",
            "statistics": "StateStats",
        },
    )

__all__ = [
    "ActiveEntity",
    "CallableEnvironmentSource",
    "Clarification",
    "Confidence",
    "ConversationLayer",
    "DialogueSlot",
    "EntityLayer",
    "Environment",
    "EnvironmentChanges",
    "EnvironmentSource",
    "Escalation",
    "ExecutionKind",
    "ExecutionLayer",
    "ExecutionStep",
    "Goal",
    "GoalArchive",
    "GoalStatus",
    "GoalsLayer",
    "Origin",
    "Phase",
    "SlotStatus",
    "SpokenTurn",
    "StateCoordinator",
    "StateStats",
    "StepStatus",
    "Subtask",
    "SubtaskStatus",
    "TableEnvironmentSource",
    "TaskLayer",
    "TaskStep",
    "coordinator_of",
    "export_for_human",
]
