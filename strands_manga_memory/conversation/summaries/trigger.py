"""Trigger: when a summary is due, and the warning before it."""

from __future__ import annotations

import logging
from collections.abc import Callable

from strands_manga_memory.conversation.summaries.folding import Fold

logger = logging.getLogger(__name__)

WARN_AT = 0.75
"""Share of the trigger from which on a warning is given."""

_WORTH_A_RUN = 8
"""Over the trigger, but with less than this part of it to fold, the history is trimmed and not summarized."""


class Trigger:
    """Tells when a history is to be summarized: at so many tokens, or so many turns that no summary covers."""

    def __init__(self, tokens: int, turns: int, on_warning: Callable[[int, int], None] | None = None) -> None:
        self.tokens = tokens
        self.turns = turns
        self.warnings = 0
        self._on_warning = on_warning
        self.has_warned = False

    def is_due(self, fold: Fold, tokens: int, *, fresh_tokens: Callable[[], int]) -> bool:
        """Whether a history of so many tokens is to be summarized; ``fresh_tokens`` counts those of the turns to be covered."""
        if not fold.fresh or any(not message.get("tracking_id") for message in fold.fresh):
            return False
        if fold.uncovered_turns >= self.turns:
            return True
        return tokens >= self.tokens and fresh_tokens() >= self.tokens // _WORTH_A_RUN

    def watch(self, tokens: int) -> None:
        """Take note of the size of the history; warn once when it comes near the trigger."""
        if tokens < WARN_AT * self.tokens:
            self.has_warned = False
        elif not self.has_warned:
            self.has_warned = True
            self.warnings += 1
            logger.warning("tokens=<%d>, trigger=<%d> | the history will be summarized soon", tokens, self.tokens)
            if self._on_warning is not None:
                self._on_warning(tokens, self.tokens)

    def reset(self) -> None:
        """Warn again when the history, which was summarized, comes near the trigger again."""
        self.has_warned = False
