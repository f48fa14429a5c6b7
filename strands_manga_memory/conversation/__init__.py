"""What the model sees now: conversation managers, budgets, scoring, token counting."""

from strands_manga_memory.conversation.budget import BudgetPlan, budget_plan
from strands_manga_memory.conversation.fates import MessageFate
from strands_manga_memory.conversation.importance import ImportanceWeightedConversationManager
from strands_manga_memory.conversation.scoring import Bands, ImportanceScorer, ImportanceWeights, RuleScorer
from strands_manga_memory.conversation.tokens import EstimateCounter, TiktokenCounter, TokenCounter, default_counter

__all__ = [
    "Bands",
    "BudgetPlan",
    "EstimateCounter",
    "ImportanceScorer",
    "ImportanceWeightedConversationManager",
    "ImportanceWeights",
    "MessageFate",
    "RuleScorer",
    "TiktokenCounter",
    "TokenCounter",
    "budget_plan",
    "default_counter",
]
