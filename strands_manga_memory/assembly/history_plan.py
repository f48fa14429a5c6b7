"""HistoryPlan: the conversation manager of an agent, from its settings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from strands.agent.conversation_manager import ConversationManager
from strands.types.content import Message

from strands_manga_memory.arguments import of_kind
from strands_manga_memory.assembly.settings import MangaMemorySettings
from strands_manga_memory.session import TieredSessionManager
from strands_manga_memory.stores import HotStore

if TYPE_CHECKING:
    from strands_manga_memory import conversation

_SUMMARY_TOKENS = 500

_TRIM_EVERY = 7
"""So many turns apart a full history is trimmed: of six requests in seven the whole one before is the beginning."""

_RECALLED = 1_024
"""Tokens that are reserved for quotes, but at most a quarter of the history's."""


@dataclass(frozen=True)
class HistoryPlan:
    """Plan of an agent's history manager. Budgets that are not set follow the window of the agent's model.

    Attributes:
        settings: Settings of its history, its summaries and its recall.
        schedule: Longest wait for its summaries; None: none.
    """

    settings: MangaMemorySettings
    schedule: conversation.SummarySchedule | None = None

    def __post_init__(self) -> None:
        """Raise ``ValueError`` for a schedule that is none."""
        if self.schedule is not None:
            from strands_manga_memory import conversation  # with summaries alone

            of_kind("summary_schedule", self.schedule, conversation.SummarySchedule)

    @property
    def recall_tokens(self) -> int | None:
        """Most tokens of quotes in a request; None: they follow the window of the agent's model."""
        asked = self.settings
        if asked.recall_tokens is not None or asked.max_tokens is None:
            return asked.recall_tokens
        return max(1, min(_RECALLED, asked.max_tokens // 4))

    def manager(self, *, session: TieredSessionManager | None, hot: HotStore) -> ConversationManager:
        """Return a manager that reads the session's log, and shares drafts of summaries through the hot tier."""
        from strands_manga_memory import conversation

        asked = self.settings
        log = None if session is None else session.history
        beside: dict[str, Any] = {"includes_recall": asked.recall, "log": log, "max_turns": asked.max_turns}
        if asked.history == "compact":  # the window bounds this one
            from strands_manga_memory.conversation.compaction import default_stages  # loaded with it alone

            trimmer = conversation.ImportanceWeightedConversationManager(**beside)
            return conversation.TieredCompactionConversationManager(
                default_stages(trimmer=trimmer, log=log, cache=_drafts(hot), schedule=self.schedule), log=log
            )
        tokens, trigger = asked.max_tokens, asked.summary_trigger_tokens
        if asked.history == "summarize" and tokens is not None and trigger is not None:
            tokens = min(tokens, trigger)
        trim_to = asked.trim_to if tokens is None or asked.trim_to is None else min(asked.trim_to, tokens)
        if asked.history == "importance" and session is not None:
            beside["recent_log"] = _end_of_log(session)
        steps: dict[str, Any] = {"trim_every": _TRIM_EVERY} if trim_to is None else {"trim_to": trim_to}
        trimmer = conversation.ImportanceWeightedConversationManager(tokens, **steps, **beside)
        if asked.history == "importance":
            return trimmer
        summary_tokens = _SUMMARY_TOKENS if tokens is None else max(1, min(_SUMMARY_TOKENS, tokens // 4))
        return conversation.VerifiedSummarizingConversationManager(
            conversation.SummaryTrigger(
                tokens=trigger, turns=asked.summary_trigger_turns, keep_recent_turns=asked.summary_keep_turns
            ),
            sizes=conversation.SummarySizes(summary_tokens=summary_tokens, keep_important=True),
            schedule=self.schedule,
            trimmer=trimmer,
            log=log,
            cache=_drafts(hot),
        )


def _end_of_log(session: TieredSessionManager) -> Callable[[int], list[Message]]:
    """Return a function that reads the last messages of a session's log, if the history does not hold all of them."""

    def read(most: int) -> list[Message]:
        if not session.stats()["left_messages"]:
            return []
        return [record["message"] for record in session.records(last=most)]

    return read


def _drafts(hot: HotStore) -> conversation.SummaryCache | None:
    from strands_manga_memory import conversation

    try:
        return conversation.SummaryCache(hot)
    except ImportError:  # without the extra there is no cache: drafts are never stored in the clear
        return None
