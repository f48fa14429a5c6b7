"""Builds the conversation manager of an agent from settings."""

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
"""Turns between two trims of a full history. Six of seven requests then begin with the whole previous request."""

_RECALLED = 1_024
"""Tokens reserved for quotes, unless a quarter of the history's tokens is less."""


@dataclass(frozen=True)
class HistoryPlan:
    """Settings of an agent's conversation manager.

    Budgets that are not set are derived from the context window of the agent's model.

    Attributes:
        settings: Settings of the process, including those of history, summaries and recall.
        schedule: When summaries are written, and how long a model call waits for summaries. None: the default.
    """

    settings: MangaMemorySettings
    schedule: conversation.SummarySchedule | None = None

    def __post_init__(self) -> None:
        """Raise ``ValueError`` if ``schedule`` is not a ``SummarySchedule``."""
        if self.schedule is not None:
            from strands_manga_memory import conversation  # imported only for summaries

            of_kind("summary_schedule", self.schedule, conversation.SummarySchedule)

    @property
    def recall_tokens(self) -> int | None:
        """Most tokens for quotes of evicted messages in a request. None to derive them from the model's context window."""
        asked = self.settings
        if asked.recall_tokens is not None or asked.max_tokens is None:
            return asked.recall_tokens
        return max(1, min(_RECALLED, asked.max_tokens // 4))

    def manager(self, *, session: TieredSessionManager | None, hot: HotStore) -> ConversationManager:
        """Return a conversation manager that reads the log of ``session`` and caches drafts of summaries in ``hot``."""
        from strands_manga_memory import conversation

        asked = self.settings
        log = None if session is None else session.history
        beside: dict[str, Any] = {"includes_recall": asked.recall, "log": log, "max_turns": asked.max_turns}
        if asked.history == "compact":  # bounded by the model's context window, not by max_tokens
            from strands_manga_memory.conversation.compaction import default_stages  # imported only here

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
            sizes=conversation.SummarySizes(summary_tokens=summary_tokens),
            schedule=self.schedule,
            trimmer=trimmer,
            log=log,
            cache=_drafts(hot),
        )


def _end_of_log(session: TieredSessionManager) -> Callable[[int], list[Message]]:
    def read(most: int) -> list[Message]:
        # without evicted messages, the history itself has the end of the log
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
