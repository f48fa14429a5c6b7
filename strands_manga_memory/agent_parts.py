"""The parts that ``MangaMemory`` gives an agent: its conversation manager, its recall, and its user's tier."""

from __future__ import annotations

import logging
import weakref
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from strands_manga_memory.conversation import (
    HistoryRecall,
    ImportanceWeightedConversationManager,
    SummaryCache,
    SummarySizes,
    SummaryTrigger,
    VerifiedSummarizingConversationManager,
)
from strands_manga_memory.exceptions import MangaMemoryError
from strands_manga_memory.scope import ConversationScope
from strands_manga_memory.session import TieredSessionManager, TtlPolicy
from strands_manga_memory.state import Environment, EnvironmentSource, StateCoordinator
from strands_manga_memory.stores import HotStore

logger = logging.getLogger(__name__)

_TRIGGER, _MAX_TOKENS, _SUMMARY_TOKENS = 8_000, 4_096, 500

_TRIM_EVERY = 8
"""So many turns apart a full history is trimmed: of seven requests and more in eight, the whole one before is the beginning."""

_RECALLED = 3, 4
"""Of the history's tokens at most so many parts in so many are for what is recalled."""


def trimming(
    tokens: int, trim_to: int | None, *, recall: bool, session: TieredSessionManager | None = None
) -> ImportanceWeightedConversationManager:
    """Return a manager that keeps a history within ``tokens``, in steps down to ``trim_to``; None: for eight turns each."""
    log = session.history if session is not None else None
    if trim_to is None:
        return ImportanceWeightedConversationManager(tokens, trim_every=_TRIM_EVERY, includes_recall=recall, log=log)
    return ImportanceWeightedConversationManager(tokens, trim_to=min(trim_to, tokens), includes_recall=recall, log=log)


def summarizing(
    trimmer: ImportanceWeightedConversationManager,
    window: int | None = None,
    *,
    session: TieredSessionManager | None,
    hot: HotStore,
) -> VerifiedSummarizingConversationManager:
    """Return a manager that reads the session's log and shares its drafts through the hot tier.

    Of a model's window of so many tokens half is the trigger at most: a request may wait for a summary at half as much again.
    """
    trigger = trimmer.max_tokens * _TRIGGER // _MAX_TOKENS
    return VerifiedSummarizingConversationManager(
        SummaryTrigger(tokens=max(1, trigger if window is None else min(trigger, max(trimmer.max_tokens, window // 2)))),
        sizes=SummarySizes(summary_tokens=max(1, min(_SUMMARY_TOKENS, trimmer.max_tokens // 4)), keep_important=True),
        trimmer=trimmer,
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

    return HistoryRecall(max(1, tokens * _RECALLED[0] // _RECALLED[1]), history=log if session is not None else None)


def announcing(session: TieredSessionManager | None) -> Callable[[Mapping[str, Any]], None] | None:
    """Return what keeps what is announced of a conversation as its metadata; None without a session."""
    if session is None:
        return None
    kept = weakref.ref(session)

    def keep(changed: Mapping[str, Any]) -> None:
        manager = kept()
        try:
            if manager is not None:
                manager.set_metadata(None, **changed)
        except MangaMemoryError as error:
            logger.debug("error=<%s> | metadata of a conversation were not stored yet", type(error).__name__)

    return keep


def surroundings(source: EnvironmentSource | None, scope: ConversationScope) -> Environment | None:
    """Return the surroundings of a conversation; None if there is no source, or it fails."""
    if source is None:
        return None
    try:
        return source.load(scope)
    except Exception as error:  # noqa: BLE001 - a source is others' code: a conversation begins without it, too
        logger.warning("error=<%s> | the environment could not be read, the session starts without it", type(error).__name__)
        return None


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
