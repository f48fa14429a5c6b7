"""Parts from which ``MangaMemory`` builds an agent, such as plugins, circuit breakers and the user's tier (``premium``)."""

from __future__ import annotations

import logging
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

from strands import Agent
from strands.plugins import Plugin

from strands_manga_memory.arguments import of_kind, with_method
from strands_manga_memory.attachments import attachments
from strands_manga_memory.scope import ConversationScope
from strands_manga_memory.session import TieredSessionManager, TtlPolicy

if TYPE_CHECKING:
    from strands.tools.mcp import MCPClient

    from strands_manga_memory import conversation, mcp, prompt, state
    from strands_manga_memory.assembly.settings import MangaMemorySettings
    from strands_manga_memory.language.search import Embed

logger = logging.getLogger(__name__)


class ClientGuards:
    """Guarded tools (tools with circuit breakers) of each MCP client.

    All agents of a process share the guarded tools of a client, and therefore one circuit breaker per tool.

    Args:
        settings: Settings of the process, for the default breaker policy.
    """

    def __init__(self, settings: MangaMemorySettings) -> None:
        self._settings = settings
        self._guards: weakref.WeakValueDictionary[int, mcp.GuardedMCPTools] = weakref.WeakValueDictionary()
        self._options: weakref.WeakKeyDictionary[mcp.GuardedMCPTools, dict[str, Any]] = weakref.WeakKeyDictionary()

    def __iter__(self) -> Iterator[mcp.GuardedMCPTools]:
        return iter(list(self._guards.values()))

    def guard(self, client: MCPClient, policy: mcp.BreakerPolicy | None, settings: dict[str, Any]) -> mcp.GuardedMCPTools:
        """Return the guarded tools of an MCP client, which the first call for this client creates.

        Raises:
            ValueError: The client is guarded with other settings already, or a setting is not allowed.
        """
        from strands_manga_memory import mcp

        options = {name: value for name, value in {"policy": policy, **settings}.items() if value is not None}
        existing = self._guards.get(id(client))
        if existing is not None:
            if options not in ({}, self._options[existing]):
                raise ValueError(f"client is guarded already, with {self._options[existing]!r:.80}; got {options!r:.80}")
            return existing
        if policy is None:
            ours = self._settings
            policy = mcp.BreakerPolicy(
                ours.breaker_failures, ours.breaker_reset_after, ours.breaker_timeout, users=ours.breaker_users
            )
        guarded = self._guards[id(client)] = mcp.GuardedMCPTools(client, policy, **settings)
        self._options[guarded] = options
        return guarded


def make_recall_plugin(
    tokens: int | None, *, session: TieredSessionManager | None, embed: Embed | None, clock: Callable[[], float]
) -> conversation.HistoryRecall:
    """Return the plugin that quotes evicted messages in each request, in at most ``tokens`` tokens.

    None for ``tokens``: 1,024, but at most a quarter of the history's budget. The plugin searches the log of ``session``, read
    from the stores only if messages were evicted or truncated. Without a session (None), it searches only the messages that it
    has seen.
    """
    from strands_manga_memory import conversation

    def log() -> Iterable[Mapping[str, Any]]:
        if session is None:
            return ()
        return session.records() if session.stats()["left_messages"] else session.window_records()

    return conversation.HistoryRecall(
        tokens,
        retriever=None if embed is None else conversation.DenseRetriever(embed),
        history=log if session is not None else None,
        clock=clock,
    )


def make_coordinator(
    options: bool | Mapping[str, Any],  # noqa: FBT001 - as agent_kwargs takes it
    basis: AgentBasis,
    settings: MangaMemorySettings,
    *,
    is_saved: bool,
    **arguments: Any,
) -> state.StateCoordinator:
    """Return the plugin that keeps an agent's task state.

    ``arguments`` are those of ``StateCoordinator``. ``options`` is True, or a mapping that overrides them. ``settings`` contain
    the limits of the goals and steps. ``is_saved`` means that a session manager saves the conversation.

    Raises:
        ValueError: ``options`` is neither True nor a mapping.
    """
    from strands_manga_memory import state

    arguments["environment"] = basis.environment
    arguments["limits"] = state.StateLimits(
        **{limit.name: getattr(settings, limit.name) for limit in fields(state.StateLimits)}
    )
    if is_saved and basis.manager is not None:
        reference = weakref.ref(basis.manager)  # the coordinator does not keep the session manager alive

        def is_stored(agent_id: str) -> bool:
            manager = reference()
            return manager is None or manager.exists(agent_id)

        arguments["is_stored"] = is_stored
    if options is not True:
        arguments |= with_method("task_state", options, "keys()", "True, False or a mapping")
    coordinator = state.StateCoordinator(**arguments)
    basis.tier.follow(coordinator)
    return coordinator


def make_instructions_plugin(instructions: bool | prompt.InstructionFiles) -> prompt.StableTexts:  # noqa: FBT001 - as agent_kwargs takes it
    """Return the plugin that adds instruction files to the system prompt. True: the files in the default folders.

    Raises:
        ValueError: ``instructions`` is neither True nor ``InstructionFiles``.
    """
    from strands_manga_memory import prompt

    files = prompt.InstructionFiles() if instructions is True else instructions
    return prompt.StableTexts(of_kind("instructions", files, prompt.InstructionFiles, "True, False or InstructionFiles(...)"))


def check_cache_monitor(monitor: prompt.PromptCacheMonitor) -> prompt.PromptCacheMonitor:
    """Return ``monitor`` if it is a ``PromptCacheMonitor``.

    Raises:
        ValueError: ``monitor`` has another type.
    """
    from strands_manga_memory import prompt

    return of_kind("cache_monitor", monitor, prompt.PromptCacheMonitor, "a PromptCacheMonitor or None")


class EnvironmentMetadata(Plugin):
    """Plugin that stores the user's locale and cart, read from an ``EnvironmentSource``, in the conversation's metadata."""

    name = "strands-manga-memory:environment"

    def __init__(self, environment: state.Environment) -> None:
        super().__init__()
        self._environment = environment

    def init_agent(self, agent: Agent) -> None:
        """Register the locale and the cart as metadata, which is stored at each save of the agent's conversation."""
        attachments(agent)["metadata"] = self._environment.announced


def load_environment(source: state.EnvironmentSource | None, scope: ConversationScope) -> state.Environment | None:
    """Read data about the user (tier, locale, cart) from ``source``. None without a source, or if reading fails."""
    if source is None:
        return None
    try:
        return source.load(scope)
    except Exception as error:  # noqa: BLE001 - a source is the user's code, and a conversation begins without it, too
        logger.warning("error=<%s> | the environment could not be read, the session starts without it", type(error).__name__)
        return None


class UserTier:
    """Tier of a user, such as ``premium``, which determines the time to live of the user's conversations.

    Args:
        environment: Data that an ``EnvironmentSource`` returned when the session started, including the tier; or None.
    """

    def __init__(self, environment: state.Environment | None) -> None:
        self._environment = environment
        self._coordinator: weakref.ref[state.StateCoordinator] | None = None

    def follow(self, coordinator: state.StateCoordinator) -> None:
        """From now on, read the tier from the user data that an agent's ``StateCoordinator`` keeps current."""
        self._coordinator = weakref.ref(coordinator)

    def policy(self, base: TtlPolicy) -> TtlPolicy:
        """Return ``base`` with the user's tier. While the user's tier is unknown, the tier of ``base`` applies."""
        return replace(base, tier=lambda: self._current() or (base.tier() if callable(base.tier) else base.tier))

    def _current(self) -> str | None:
        coordinator = None if self._coordinator is None else self._coordinator()
        environment = self._environment if coordinator is None else coordinator.environment
        return None if environment is None else environment.tier


@dataclass(frozen=True)
class AgentBasis:
    """Parts from which an agent is built.

    ``manager`` (the session manager) is None for an agent without one, such as a node of a graph. ``environment`` (data about
    the user, such as the cart) is None without a source of such data, or if the source failed.
    """

    manager: TieredSessionManager | None
    tier: UserTier
    environment: state.Environment | None
