"""State of a conversation, such as the user's intent, mentioned orders and goals.

The state consists of typed values that survive a restart. The model receives them as a text block
in its requests.
"""

from strands_manga_memory.state.active_entities import ActiveEntities, ActiveEntity
from strands_manga_memory.state.coordinator import StateCoordinator, StateStats, coordinator_of
from strands_manga_memory.state.dialogue import (
    Clarification,
    Dialogue,
    DialogueSlot,
    Phase,
    SlotStatus,
)
from strands_manga_memory.state.environment import (
    Environment,
    EnvironmentChanges,
    EnvironmentSource,
    EnvironmentTracker,
)
from strands_manga_memory.state.escalation import Escalation, export_for_human
from strands_manga_memory.state.goals import (
    Goal,
    GoalArchive,
    Goals,
    GoalStatus,
    Subtask,
    SubtaskStatus,
)
from strands_manga_memory.state.state_item import StateLimits
from strands_manga_memory.state.task import StepKind, StepStatus, TaskState, TaskStep

__all__ = [
    "ActiveEntities",
    "ActiveEntity",
    "Clarification",
    "Dialogue",
    "DialogueSlot",
    "Environment",
    "EnvironmentChanges",
    "EnvironmentSource",
    "EnvironmentTracker",
    "Escalation",
    "Goal",
    "GoalArchive",
    "GoalStatus",
    "Goals",
    "Phase",
    "SlotStatus",
    "StateCoordinator",
    "StateLimits",
    "StateStats",
    "StepKind",
    "StepStatus",
    "Subtask",
    "SubtaskStatus",
    "TaskState",
    "TaskStep",
    "coordinator_of",
    "export_for_human",
]
