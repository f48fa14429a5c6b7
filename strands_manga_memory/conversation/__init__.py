"""What the model sees now: conversation managers, budgets, scoring, token counting, summaries, compaction."""

from strands_manga_memory.conversation.archive import Archived, Bm25Retriever, Hit, Retriever
from strands_manga_memory.conversation.budget import BudgetPlan, budget_plan
from strands_manga_memory.conversation.compaction import TieredCompactionConversationManager
from strands_manga_memory.conversation.dense import DenseRetriever
from strands_manga_memory.conversation.fates import MessageFate
from strands_manga_memory.conversation.importance import ImportanceWeightedConversationManager
from strands_manga_memory.conversation.judging import BackgroundScorer, EmbeddingScorer, ModelScorer
from strands_manga_memory.conversation.model_slots import ModelSlotExtractor
from strands_manga_memory.conversation.recall import HistoryRecall
from strands_manga_memory.conversation.scoring import Bands, ImportanceScorer, ImportanceWeights, RuleScorer
from strands_manga_memory.conversation.signals import SignalWeights
from strands_manga_memory.conversation.stages import (
    Compaction,
    MicroCompaction,
    Reactive,
    Snip,
    Stage,
    ToolResultCap,
    VerifiedSummary,
)
from strands_manga_memory.conversation.summary import Segment, Summary
from strands_manga_memory.conversation.summary_cache import SummaryCache
from strands_manga_memory.conversation.thresholds import Thresholds, thresholds
from strands_manga_memory.conversation.tokens import EstimateCounter, TiktokenCounter, TokenCounter, default_counter
from strands_manga_memory.conversation.verified import VerifiedSummarizingConversationManager

__all__ = [
    "Archived",
    "BackgroundScorer",
    "Bands",
    "Bm25Retriever",
    "BudgetPlan",
    "Compaction",
    "DenseRetriever",
    "EmbeddingScorer",
    "EstimateCounter",
    "HistoryRecall",
    "Hit",
    "ImportanceScorer",
    "ImportanceWeightedConversationManager",
    "ImportanceWeights",
    "MessageFate",
    "MicroCompaction",
    "ModelScorer",
    "ModelSlotExtractor",
    "Reactive",
    "Retriever",
    "RuleScorer",
    "Segment",
    "SignalWeights",
    "Snip",
    "Stage",
    "Summary",
    "SummaryCache",
    "Thresholds",
    "TieredCompactionConversationManager",
    "TiktokenCounter",
    "TokenCounter",
    "ToolResultCap",
    "VerifiedSummarizingConversationManager",
    "VerifiedSummary",
    "budget_plan",
    "default_counter",
    "thresholds",
]
