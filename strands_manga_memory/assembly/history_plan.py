"""HistoryPlan: how the history of an agent is kept small, as its settings say."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from strands.agent.conversation_manager import ConversationManager

from strands_manga_memory import conversation
from strands_manga_memory.assembly.settings import MangaMemorySettings
from strands_manga_memory.session import TieredSessionManager
from strands_manga_memory.stores import HotStore

_TRIGGER, _MAX_TOKENS, _SUMMARY_TOKENS = 8_000, 4_096, 500

_TRIM_EVERY = 7
"""So many turns apart a full history is trimmed: of six requests in seven the whole one before is the beginning."""

_RECALLED = 3, 4
"""Of the history's tokens at most so many parts in so many are for what is recalled."""


@dataclass(frozen=True)
class HistoryPlan:
    """How the history of an agent is kept small.

    Attributes:
        settings: What was asked for of its history, its summaries and its recall.
        window: Tokens of the model's window; None: they are not known.
    """

    settings: MangaMemorySettings
    window: int | None = None

    @property
    def tokens(self) -> int:
        """Tokens of history."""
        return conversation.history_tokens(self.window) if self.settings.max_tokens is None else self.settings.max_tokens

    @property
    def recall_tokens(self) -> int:
        """Tokens of what is recalled."""
        return self.settings.recall_tokens or max(1, self.tokens * _RECALLED[0] // _RECALLED[1])

    def manager(self, *, session: TieredSessionManager | None, hot: HotStore) -> ConversationManager:
        """Return a manager that reads the session's log, and shares drafts of summaries through the hot tier."""
        asked = self.settings
        log = None if session is None else session.history
        beside: dict[str, Any] = {"includes_recall": asked.recall, "log": log, "max_turns": asked.max_turns}
        if asked.history == "compact":  # the window bounds this one
            from strands_manga_memory.conversation.compaction.stages import default_stages  # loaded with it alone

            trimmer = conversation.ImportanceWeightedConversationManager(**beside)
            return conversation.TieredCompactionConversationManager(
                default_stages(trimmer=trimmer, log=log, cache=_drafts(hot)), log=log
            )
        tokens = self.tokens if asked.history == "importance" else min(self.tokens, self._trigger)
        steps: dict[str, Any] = (
            {"trim_every": _TRIM_EVERY} if asked.trim_to is None else {"trim_to": min(asked.trim_to, tokens)}
        )
        trimmer = conversation.ImportanceWeightedConversationManager(tokens, **steps, **beside)
        if asked.history == "importance":
            return trimmer
        return conversation.VerifiedSummarizingConversationManager(
            conversation.SummaryTrigger(
                tokens=self._trigger, turns=asked.summary_trigger_turns, keep_recent_turns=asked.summary_keep_turns
            ),
            sizes=conversation.SummarySizes(summary_tokens=max(1, min(_SUMMARY_TOKENS, tokens // 4)), keep_important=True),
            trimmer=trimmer,
            log=log,
            cache=_drafts(hot),
        )

    @property
    def _trigger(self) -> int:
        """Where it is not set, half the window at most: a request may wait for a summary at half as much again."""
        if self.settings.summary_trigger_tokens is not None:
            return self.settings.summary_trigger_tokens
        trigger = self.tokens * _TRIGGER // _MAX_TOKENS
        return max(1, trigger if self.window is None else min(trigger, max(self.tokens, self.window // 2)))


def _drafts(hot: HotStore) -> conversation.SummaryCache | None:
    try:
        return conversation.SummaryCache(hot)
    except ImportError:  # without the extra there is no cache: drafts are never stored in the clear
        return None
