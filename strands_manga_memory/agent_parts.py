"""What ``MangaMemory`` puts into an agent: how its history is kept small, what it recalls, and its user's tier."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from strands_manga_memory.conversation import (
    HistoryRecall,
    ImportanceWeightedConversationManager,
    SummaryCache,
    VerifiedSummarizingConversationManager,
)
from strands_manga_memory.session import TieredSessionManager, TtlPolicy
from strands_manga_memory.state import Environment, StateCoordinator
from strands_manga_memory.stores import HotStore

_TRIGGER, _MAX_TOKENS, _SUMMARY_TOKENS = 8_000, 4_096, 500

_RECALL_PART = 4
"""Of the history's tokens at most one part in so many is for what is recalled."""


def summarizing(
    trimmer: ImportanceWeightedConversationManager, *, session: TieredSessionManager | None, hot: HotStore
) -> VerifiedSummarizingConversationManager:
    """Return a manager that reads the session's log and shares its drafts through the hot tier."""
    return VerifiedSummarizingConversationManager(
        max(1, trimmer.max_tokens * _TRIGGER // _MAX_TOKENS),
        trimmer=trimmer,
        summary_tokens=max(1, min(_SUMMARY_TOKENS, trimmer.max_tokens // 4)),
        keep_important=True,
        log=session.history if session is not None else None,
        cache=_drafts(hot),
    )


def _drafts(hot: HotStore) -> SummaryCache | None:
    try:
        return SummaryCache(hot)
    except ImportError:  # without the extra there is no cache: drafts are never stored in the clear
        return None


def recalling(tokens: int, *, session: TieredSessionManager | None) -> HistoryRecall:
    """Return the plugin that brings back what has left a history of so many tokens.

    The log is not read as long as the history holds all of it: a worker that answers one message and goes pays nothing for it.
    """

    def log() -> Iterable[Mapping[str, Any]]:
        return session.records() if session is not None and session.stats()["left_messages"] else ()

    return HistoryRecall(max(1, tokens // _RECALL_PART), history=log if session is not None else None)


class UserTier:
    """The tier of a user, as his environment says: at the session's start, and after each change of it."""

    def __init__(self, environment: Environment | None) -> None:
        self._environment = environment
        self._coordinator: weakref.ref[StateCoordinator] | None = None

    def follow(self, coordinator: StateCoordinator) -> None:
        """Go by what this coordinator knows of the environment from now on."""
        self._coordinator = weakref.ref(coordinator)

    def policy(self, base: TtlPolicy) -> TtlPolicy:
        """Return a policy by this tier; where it is not known, by that of ``base``."""
        return replace(base, tier=lambda: self._now() or (base.tier() if callable(base.tier) else base.tier))

    def _now(self) -> str | None:
        live = None if self._coordinator is None else self._coordinator()
        known = self._environment if live is None else live.environment
        return None if known is None else known.tier


@dataclass(frozen=True)
class Prepared:
    """What ``prefetch`` read."""

    manager: TieredSessionManager
    tier: UserTier
    environment: Environment | None
