"""Where the task stands: typed state that survives, what the model is told of it, and the prompt cache it leaves alone."""

from strands_manga_memory.state.changes import EnvironmentChanges
from strands_manga_memory.state.conversation import Clarification, ConversationLayer, Phase
from strands_manga_memory.state.coordinator import StateCoordinator, coordinator_of
from strands_manga_memory.state.entities import ActiveEntity, Confidence, EntityLayer, Origin
from strands_manga_memory.state.environment import (
    CallableEnvironmentSource,
    Environment,
    EnvironmentSource,
    TableEnvironmentSource,
)
from strands_manga_memory.state.escalation import Escalation, SpokenTurn, export_for_human
from strands_manga_memory.state.execution import ExecutionKind, ExecutionLayer, ExecutionStep
from strands_manga_memory.state.goals import Goal, GoalArchive, GoalsLayer, GoalStatus
from strands_manga_memory.state.instructions import InstructionFiles, StableTexts
from strands_manga_memory.state.prompt_cache import CacheStats, Cause, Drop, Prices, PromptCacheMonitor
from strands_manga_memory.state.slots import DialogueSlot, SlotStatus
from strands_manga_memory.state.statistics import StateStats
from strands_manga_memory.state.subtasks import Subtask, SubtaskStatus
from strands_manga_memory.state.task import StepStatus, TaskLayer, TaskStep

__all__ = [
    "ActiveEntity",
    "CacheStats",
    "CallableEnvironmentSource",
    "Cause",
    "Clarification",
    "Confidence",
    "ConversationLayer",
    "DialogueSlot",
    "Drop",
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
    "InstructionFiles",
    "Origin",
    "Phase",
    "Prices",
    "PromptCacheMonitor",
    "SlotStatus",
    "SpokenTurn",
    "StableTexts",
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
