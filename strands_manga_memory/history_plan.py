"""HistoryPlan: how the history of an agent is kept small, as its settings say."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, get_args

from strands.agent.conversation_manager import ConversationManager

from strands_manga_memory.conversation import (
    ImportanceWeightedConversationManager,
    SummaryCache,
    SummarySizes,
    SummaryTrigger,
    TieredCompactionConversationManager,
    VerifiedSummarizingConversationManager,
    history_tokens,
)
from strands_manga_memory.conversation.compaction.stages import default_stages
from strands_manga_memory.session import TieredSessionManager
from strands_manga_memory.settings import History
from strands_manga_memory.stores import HotStore

_TRIGGER, _MAX_TOKENS, _SUMMARY_TOKENS = 8_000, 4_096, 500

_TRIM_EVERY = 8
"""So many turns apart a full history is trimmed: of seven requests and more in eight, the whole one before is the beginning."""


@dataclass(frozen=True, kw_only=True)
class HistoryPlan:
    """How the history of an agent is kept small.

    Attributes:
        kind: ``importance``, ``summarize`` or ``compact``.
        max_tokens: Tokens of history; None: by the window.
        trim_to: Tokens to which a full history is brought; None: what leaves room for eight turns.
        max_turns: Turns that it keeps at most; None: as many as fit.
        window: Tokens of the model's window, where they are known.
        recall: Whether it gives way to what is recalled.

    Raises:
        ValueError: ``kind`` is none of these.
    """

    kind: History = "importance"
    max_tokens: int | None = None
    trim_to: int | None = None
    max_turns: int | None = None
    window: int | None = None
    recall: bool = False

    def __post_init__(self) -> None:
        if self.kind not in get_args(History):
            raise ValueError(f"history must be one of {', '.join(map(repr, get_args(History)))}, got {self.kind!r}")

    @property
    def tokens(self) -> int:
        """Tokens of history."""
        return history_tokens(self.window) if self.max_tokens is None else self.max_tokens

    def manager(self, *, session: TieredSessionManager | None, hot: HotStore) -> ConversationManager:
        """Return a manager that reads the session's log, and shares drafts of summaries through the hot tier.

        Raises:
            ValueError: A number is not a positive whole one.
        """
        log = None if session is None else session.history
        beside: dict[str, Any] = {"includes_recall": self.recall, "log": log, "max_turns": self.max_turns}
        if self.kind == "compact":  # the window bounds this one
            trimmer = ImportanceWeightedConversationManager(**beside)
            return TieredCompactionConversationManager(default_stages(trimmer=trimmer, log=log, cache=_drafts(hot)), log=log)
        steps: dict[str, Any] = (
            {"trim_every": _TRIM_EVERY} if self.trim_to is None else {"trim_to": min(self.trim_to, self.tokens)}
        )
        trimmer = ImportanceWeightedConversationManager(self.tokens, **steps, **beside)
        if self.kind == "importance":
            return trimmer
        return VerifiedSummarizingConversationManager(
            SummaryTrigger(tokens=self._trigger),
            sizes=SummarySizes(summary_tokens=max(1, min(_SUMMARY_TOKENS, self.tokens // 4)), keep_important=True),
            trimmer=trimmer,
            log=log,
            cache=_drafts(hot),
        )

    @property
    def _trigger(self) -> int:
        """Half the window at most: a request may wait for a summary at half as much again."""
        trigger = self.tokens * _TRIGGER // _MAX_TOKENS
        return max(1, trigger if self.window is None else min(trigger, max(self.tokens, self.window // 2)))


def _drafts(hot: HotStore) -> SummaryCache | None:
    try:
        return SummaryCache(hot)
    except ImportError:  # without the extra there is no cache: drafts are never stored in the clear
        return None
