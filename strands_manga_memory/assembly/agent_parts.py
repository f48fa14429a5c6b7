"""The parts that ``MangaMemory`` gives an agent: its recall, what it is told once, and its user's tier."""

from __future__ import annotations

import logging
import weakref
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from strands import Agent
from strands.plugins import Plugin

from strands_manga_memory.announcements import announces
from strands_manga_memory.arguments import with_method
from strands_manga_memory.scope import ConversationScope
from strands_manga_memory.session import TieredSessionManager, TtlPolicy

if TYPE_CHECKING:
    from strands_manga_memory import conversation, prompt, state
    from strands_manga_memory.language.search import Embed

logger = logging.getLogger(__name__)


def make_recall_plugin(
    tokens: int | None, *, session: TieredSessionManager | None, embed: Embed | None, clock: Callable[[], float]
) -> conversation.HistoryRecall:
    """Return the plugin that quotes messages that have left the history, in so many tokens.

    The log is not read as long as the history holds all of it: a worker that answers one message and goes pays nothing for it.
    """
    from strands_manga_memory import conversation

    def log() -> Iterable[Mapping[str, Any]]:
        return session.records() if session is not None and session.stats()["left_messages"] else ()

    return conversation.HistoryRecall(
        tokens,
        retriever=None if embed is None else conversation.DenseRetriever(embed),
        history=log if session is not None else None,
        clock=clock,
    )


def keeping_state(asked: bool | Mapping[str, Any], **given: Any) -> state.StateCoordinator:  # noqa: FBT001 - as agent_kwargs takes it
    """Return the plugin that keeps where the task stands, with what was asked for over what is given.

    Raises:
        ValueError: It is neither True nor a mapping.
    """
    from strands_manga_memory import state

    more = {} if asked is True else with_method("task_state", asked, "keys()", "True, False or a mapping")
    return state.StateCoordinator(**{**given, **more})


def told_once(instructions: bool | prompt.InstructionFiles) -> list[prompt.StableTexts]:  # noqa: FBT001 - as agent_kwargs takes it
    """Return the plugin that tells an agent of instruction files, if there shall be any.

    Raises:
        ValueError: It is neither a truth value nor ``InstructionFiles``.
    """
    if instructions is False:
        return []
    from strands_manga_memory import prompt

    files = prompt.InstructionFiles() if instructions is True else instructions
    if not isinstance(files, prompt.InstructionFiles):
        raise ValueError(f"instructions must be True, False or InstructionFiles(...), got {instructions!r:.80}")
    return [prompt.StableTexts(files)]


def watching(monitor: prompt.PromptCacheMonitor | None) -> list[prompt.PromptCacheMonitor]:
    """Return the plugin that watches the prompt cache, if there shall be one.

    Raises:
        ValueError: It is no ``PromptCacheMonitor``.
    """
    if monitor is None:
        return []
    from strands_manga_memory import prompt

    if not isinstance(monitor, prompt.PromptCacheMonitor):
        raise ValueError(f"cache_monitor must be a PromptCacheMonitor or None, got {monitor!r:.80}")
    return [monitor]


class EnvironmentMetadata(Plugin):
    """Keeps the surroundings of a conversation among its metadata, where no ``StateCoordinator`` does.

    Args:
        environment: The surroundings.
    """

    name = "strands-manga-memory:environment"

    def __init__(self, environment: state.Environment) -> None:
        super().__init__()
        self._environment = environment

    def init_agent(self, agent: Agent) -> None:
        """Let it be told of the agent's conversation."""
        announces(agent, self._environment.announced)


def surroundings(source: state.EnvironmentSource | None, scope: ConversationScope) -> state.Environment | None:
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

    __slots__ = ("_coordinator", "_environment")

    def __init__(self, environment: state.Environment | None) -> None:
        self._environment = environment
        self._coordinator: weakref.ref[state.StateCoordinator] | None = None

    def follow(self, coordinator: state.StateCoordinator) -> None:
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
    """What an agent is built on: its session, if it has one, and its surroundings."""

    manager: TieredSessionManager | None
    tier: UserTier
    environment: state.Environment | None


def check_of_storage(manager: TieredSessionManager) -> Callable[[str], bool]:
    """Return a check whether a session has a conversation of an agent. It does not keep the manager alive."""
    held = weakref.ref(manager)

    def is_stored(agent_id: str) -> bool:
        manager = held()
        return manager is None or manager.exists(agent_id)

    return is_stored
