"""Management of a conversation's history, so that it fits the model's context window.

The package contains conversation managers, and their budgets, scorers, token counters, summaries
and recall (quotes of earlier messages).
"""

from strands_manga_memory.conversation.archive import (
    ArchivedMessage,
    MessageArchive,
    RecallHit,
)
from strands_manga_memory.conversation.background_scorers import (
    BackgroundScorer,
    EmbeddingScorer,
    ModelScorer,
)
from strands_manga_memory.conversation.budget import (
    BudgetPlan,
    Thresholds,
    budget_plan,
    history_tokens,
    thresholds,
)
from strands_manga_memory.conversation.compaction import (
    Compaction,
    MicroCompaction,
    OverflowReduction,
    Stage,
    TieredCompactionConversationManager,
    ToolResultCap,
    TurnEviction,
    VerifiedSummary,
)
from strands_manga_memory.conversation.importance import (
    ImportanceScorer,
    ImportanceWeights,
    RuleScorer,
)
from strands_manga_memory.conversation.importance_manager import (
    ImportanceWeightedConversationManager,
)
from strands_manga_memory.conversation.recall import HistoryRecall
from strands_manga_memory.conversation.selection import MessageOutcome
from strands_manga_memory.conversation.strategy import PolicyStrategy, as_strategy
from strands_manga_memory.conversation.summaries import SummarySchedule, SummaryTrigger
from strands_manga_memory.conversation.summarizing import VerifiedSummarizingConversationManager
from strands_manga_memory.conversation.summary_record import Segment, Summary
from strands_manga_memory.conversation.summary_writing import SummaryCache
from strands_manga_memory.conversation.token_counter import (
    EstimateCounter,
    TiktokenCounter,
    TokenCounter,
    default_counter,
)

__all__ = [
    "ArchivedMessage",
    "BackgroundScorer",
    "BudgetPlan",
    "Compaction",
    "EmbeddingScorer",
    "EstimateCounter",
    "HistoryRecall",
    "ImportanceScorer",
    "ImportanceWeightedConversationManager",
    "ImportanceWeights",
    "MessageArchive",
    "MessageOutcome",
    "MicroCompaction",
    "ModelScorer",
    "OverflowReduction",
    "PolicyStrategy",
    "RecallHit",
    "RuleScorer",
    "Segment",
    "Stage",
    "Summary",
    "SummaryCache",
    "SummarySchedule",
    "SummaryTrigger",
    "Thresholds",
    "TieredCompactionConversationManager",
    "TiktokenCounter",
    "TokenCounter",
    "ToolResultCap",
    "TurnEviction",
    "VerifiedSummarizingConversationManager",
    "VerifiedSummary",
    "as_strategy",
    "budget_plan",
    "default_counter",
    "history_tokens",
    "thresholds",
]
