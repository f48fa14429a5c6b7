"""Token budgets of a model request, and of the conversation history in it."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from strands_manga_memory.arguments import Count, PositiveInt, PositiveShare, checked
from strands_manga_memory.messages.model_calls import model_setting

# --- The request ----------------------------------------------------------------------------------

HISTORY_OF_WINDOW = 4
"""Divisor of the context window that gives the default budget of the history."""

MOST_HISTORY = 16_384
"""Largest default budget of the history, in tokens.
It limits costs: each model call pays for the whole history again.
"""

UNKNOWN_HISTORY = 4_096
"""Default budget of the history, in tokens, if the context window is unknown."""


@checked
def history_tokens(window: PositiveInt | None) -> int:
    """Return the default budget of a conversation's history, in tokens.

    The budget is a quarter of the model's context window, but at most 16,384 tokens. If the window
    is unknown (None), the budget is 4,096 tokens. The rest of the context window is for the system
    prompt, the tools, quotes of earlier messages and the answer.

    Raises:
        ValueError: ``window`` is not positive.
    """
    if window is None:
        return UNKNOWN_HISTORY
    return max(1, min(MOST_HISTORY, window // HISTORY_OF_WINDOW))


@checked
@dataclass(frozen=True, kw_only=True)
class BudgetPlan:
    """Plan of the number of tokens for each part of a model request.

    The default numbers suit a shop assistant.

    Attributes:
        system: System prompt and tool specifications.
        user_context: Data about the user.
        history: The conversation so far. Same as ``max_tokens`` of
            ``ImportanceWeightedConversationManager``.
        current: The current user message.
        tool_results: Results of the tools that are called for the answer.
        recall: Earlier messages that are quoted in one model call.
        state: Task state that is shown in one model call.
        output: The answer.

    Raises:
        ValueError: A part is negative or not a whole number.
    """

    system: Count = 800
    user_context: Count = 500
    history: Count = 4_096
    current: Count = 200
    tool_results: Count = 1_000
    recall: Count = 0
    state: Count = 0
    output: Count = 1_024

    @property
    def total(self) -> int:
        """Total tokens of the plan: the sum of its parts, from the system prompt to the answer."""
        return sum(getattr(self, part.name) for part in fields(self))

    def fits(self, window: int) -> bool:
        """Return whether the whole plan fits a context window of ``window`` tokens."""
        return self.total <= window

    def left(self, window: int) -> int:
        """Return the number of tokens of a context window that the plan leaves free.

        The number is negative if the plan does not fit.
        """
        return window - self.total


@checked
def budget_plan(
    *, window: int | None = None, history: int | None = None, **parts: int
) -> BudgetPlan:
    """Plan the number of tokens for each part of a model request.

    ``current`` and ``tool_results`` have tokens of their own, although they are also part of the
    history: they fit even if earlier messages fill ``history``. The total is thus an upper bound of
    a request's size.

    Args:
        window: Tokens of the model's context window, for the default of ``history``. None if
            unknown.
        history: Tokens for the conversation so far. Default: a quarter of ``window``, at most
            16,384 tokens; 4,096 tokens without a window.
        **parts: Tokens for the other parts, named as in :class:`BudgetPlan`.

    Raises:
        ValueError: A part is negative or not a whole number, or ``window`` is not positive.
    """
    return BudgetPlan(history=history_tokens(window) if history is None else history, **parts)


# --- The context window ---------------------------------------------------------------------------

UNKNOWN_WINDOW = 128_000
"""Assumed size of an unknown context window, in tokens."""

CUSHION = 13_000
RESERVED_FOR_SUMMARY = 20_000
FULL_RESERVES_FROM = 100_000
"""Smallest context window, in tokens, with the full ``CUSHION`` and ``RESERVED_FOR_SUMMARY``."""

_TARGET = 0.75
_HARD = 0.95


@dataclass(frozen=True)
class Thresholds:
    """Sizes of a request, in tokens, that control the compaction of a conversation's history.

    Compaction makes the history smaller when the request nears the model's context window.

    Attributes:
        window: Size of the model's context window.
        trigger: Size at which the history is compacted.
        target: Size to which the compaction must reduce the request.
        hard: Size at which a model call waits for the end of the compaction.
    """

    window: int
    trigger: int
    target: int
    hard: int


def window_of(model: Any) -> int | None:
    """Return the size of a model's context window in tokens, or None if it is unknown."""
    window = model_setting(model, "context_window_limit")
    return window if isinstance(window, int) and window > 0 else None


@checked
def thresholds(window: PositiveInt | None, *, trigger: PositiveShare = 0.80) -> Thresholds:
    """Return the sizes of a request, in tokens, that control the compaction of a history.

    Compaction makes the history smaller. It starts when a request fills the share ``trigger`` of
    the context window, or leaves less than 33,000 tokens of it free. In a window of 128,000 tokens,
    it starts at 95,000 tokens. In a window below 100,000 tokens, it starts when less than 33 % are
    free.

    Args:
        window: Size of the context window in tokens. None if unknown; 128,000 are then assumed.
        trigger: Share of the window, above 0 and at most 1, that a request may fill. Default 0.80.

    Raises:
        ValueError: ``trigger`` is not above 0 and at most 1, or ``window`` is not positive.
    """
    window = UNKNOWN_WINDOW if window is None else window
    reserves = (CUSHION + RESERVED_FOR_SUMMARY) * min(1.0, window / FULL_RESERVES_FROM)
    tokens = max(1, min(int(window * trigger), int(window - reserves)))
    return Thresholds(
        window, tokens, max(1, int(tokens * _TARGET)), max(tokens, int(window * _HARD))
    )
