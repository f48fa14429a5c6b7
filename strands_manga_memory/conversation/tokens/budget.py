"""BudgetPlan: what one whole request may cost, part by part."""

from __future__ import annotations

from dataclasses import dataclass, fields

from strands_manga_memory.arguments import whole

HISTORY_OF_WINDOW = 4
"""Default share of the history in a model's context window: one part in this number."""

MOST_HISTORY = 16_384
"""Largest default budget of the history: each model call pays for the whole history again."""

UNKNOWN_HISTORY = 4_096
"""Default budget of the history if the model does not know its context window; also that of a published shop assistant."""


def history_tokens(window: int | None) -> int:
    """Return the default budget of the history for a context window: a quarter, at most 16,384; 4,096 if it is unknown.

    The rest is for what is not history - system prompt, tools, what is recalled, the answer - and for the summary that is
    still to be made: a history that is summarized may grow to twice its budget, and to three times at the most.

    Raises:
        ValueError: ``window`` is not positive.
    """
    if window is None:
        return UNKNOWN_HISTORY
    if window < 1:
        raise ValueError(f"window must be a positive number of tokens, got {window!r:.80}")
    return max(1, min(MOST_HISTORY, window // HISTORY_OF_WINDOW))


@dataclass(frozen=True, kw_only=True)
class BudgetPlan:
    """The tokens set aside for each part of a request. The defaults are a published example for a shop assistant.

    Attributes:
        system: System prompt and tool specifications.
        user_context: What is known about the user.
        history: The conversation so far; what ``ImportanceWeightedConversationManager(max_tokens=...)`` keeps to.
        current: The current user message.
        tool_results: Results of tools called while answering.
        recall: Earlier messages brought back for one call.
        state: Task state shown for one call.
        output: The answer.

    Raises:
        ValueError: A part is negative or no whole number.
    """

    system: int = 800
    user_context: int = 500
    history: int = 4_096
    current: int = 200
    tool_results: int = 1_000
    recall: int = 0
    state: int = 0
    output: int = 1_024

    def __post_init__(self) -> None:
        for part in fields(self):
            whole(part.name, getattr(self, part.name), least=0)

    @property
    def total(self) -> int:
        """All parts together, in tokens."""
        return sum(getattr(self, part.name) for part in fields(self))

    def fits(self, window: int) -> bool:
        """Whether the whole request fits a context window of ``window`` tokens."""
        return self.total <= window

    def left(self, window: int) -> int:
        """How many tokens of a context window of ``window`` tokens stay free; negative if the request does not fit."""
        return window - self.total


def budget_plan(*, window: int | None = None, history: int | None = None, **parts: int) -> BudgetPlan:
    """Plan the tokens of a whole request; see :class:`BudgetPlan` for the parts.

    ``history`` is by default the budget of ``MangaMemory`` for a model of this ``window``: a quarter of it, at most 16,384
    tokens; 4,096 without one. ``BudgetPlan.fits(window)`` and ``left(window)`` say what that leaves.

    The history budget already includes the current message and its tool results when
    ``ImportanceWeightedConversationManager`` keeps it, so a plan with them set apart has room to spare.

    Raises:
        ValueError: A part is negative or no whole number, or ``window`` is not positive.
    """
    return BudgetPlan(history=history_tokens(window) if history is None else history, **parts)
