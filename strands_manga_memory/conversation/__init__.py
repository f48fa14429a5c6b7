"""What the model sees now: conversation managers, budgets, scoring, token counting, summaries, compaction."""

from typing import TYPE_CHECKING

from strands_manga_memory.lazy import door

if TYPE_CHECKING:
    from strands_manga_memory.conversation.archive import (
        ArchivedMessage,
        Bm25Retriever,
        DenseRetriever,
        RecallHit,
        Retriever,
    )
    from strands_manga_memory.conversation.compaction import (
        Compaction,
        MicroCompaction,
        Reactive,
        Snip,
        Stage,
        TieredCompactionConversationManager,
        ToolResultCap,
        VerifiedSummary,
    )
    from strands_manga_memory.conversation.history.stubs import as_said
    from strands_manga_memory.conversation.history.summary import Segment, Summary
    from strands_manga_memory.conversation.importance.fates import MessageFate
    from strands_manga_memory.conversation.importance.importance import ImportanceWeightedConversationManager
    from strands_manga_memory.conversation.importance.weighing.judging import BackgroundScorer, EmbeddingScorer, ModelScorer
    from strands_manga_memory.conversation.importance.weighing.scoring import (
        Bands,
        ImportanceScorer,
        ImportanceWeights,
        RuleScorer,
    )
    from strands_manga_memory.conversation.importance.weighing.signals import SignalWeights
    from strands_manga_memory.conversation.recall import HistoryRecall
    from strands_manga_memory.conversation.strategy import PluginStrategy, PolicyStrategy, as_strategy
    from strands_manga_memory.conversation.summaries import SummarySchedule, SummaryTrigger
    from strands_manga_memory.conversation.summarizing import VerifiedSummarizingConversationManager
    from strands_manga_memory.conversation.summary_cache import SummaryCache
    from strands_manga_memory.conversation.summary_writing import ModelFactExtractor, SummarySizes
    from strands_manga_memory.conversation.tokens.budget import BudgetPlan, budget_plan, history_tokens
    from strands_manga_memory.conversation.tokens.thresholds import Thresholds, thresholds
    from strands_manga_memory.conversation.tokens.token_counter import (
        EstimateCounter,
        TiktokenCounter,
        TokenCounter,
        default_counter,
    )
else:
    __getattr__, __dir__ = door(
        __name__,
        {
            "archive": "ArchivedMessage Bm25Retriever DenseRetriever RecallHit Retriever",
            "compaction": "Compaction MicroCompaction Reactive Snip Stage TieredCompactionConversationManager ToolResultCap "
            "VerifiedSummary",
            "history.stubs": "as_said",
            "history.summary": "Segment Summary",
            "importance.fates": "MessageFate",
            "importance.importance": "ImportanceWeightedConversationManager",
            "importance.weighing.judging": "BackgroundScorer EmbeddingScorer ModelScorer",
            "importance.weighing.scoring": "Bands ImportanceScorer ImportanceWeights RuleScorer",
            "importance.weighing.signals": "SignalWeights",
            "recall": "HistoryRecall",
            "strategy": "PluginStrategy PolicyStrategy as_strategy",
            "summaries": "SummarySchedule SummaryTrigger",
            "summarizing": "VerifiedSummarizingConversationManager",
            "summary_cache": "SummaryCache",
            "summary_writing": "ModelFactExtractor SummarySizes",
            "tokens.budget": "BudgetPlan budget_plan history_tokens",
            "tokens.thresholds": "Thresholds thresholds",
            "tokens.token_counter": "EstimateCounter TiktokenCounter TokenCounter default_counter",
        },
    )

__all__ = [
    "ArchivedMessage",
    "BackgroundScorer",
    "Bands",
    "Bm25Retriever",
    "BudgetPlan",
    "Compaction",
    "DenseRetriever",
    "EmbeddingScorer",
    "EstimateCounter",
    "HistoryRecall",
    "ImportanceScorer",
    "ImportanceWeightedConversationManager",
    "ImportanceWeights",
    "MessageFate",
    "MicroCompaction",
    "ModelFactExtractor",
    "ModelScorer",
    "PluginStrategy",
    "PolicyStrategy",
    "Reactive",
    "RecallHit",
    "Retriever",
    "RuleScorer",
    "Segment",
    "SignalWeights",
    "Snip",
    "Stage",
    "Summary",
    "SummaryCache",
    "SummarySchedule",
    "SummarySizes",
    "SummaryTrigger",
    "Thresholds",
    "TieredCompactionConversationManager",
    "TiktokenCounter",
    "TokenCounter",
    "ToolResultCap",
    "VerifiedSummarizingConversationManager",
    "VerifiedSummary",
    "as_said",
    "as_strategy",
    "budget_plan",
    "default_counter",
    "history_tokens",
    "thresholds",
]
