"""Parts from which ``MangaMemory`` builds an agent, such as its conversation manager."""

from __future__ import annotations

import contextvars
import inspect
import logging
import weakref
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from dataclasses import fields, replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypedDict

from strands import Agent
from strands.agent.conversation_manager import ConversationManager
from strands.plugins import Plugin
from strands.types.content import Message

from strands_manga_memory.arguments import of_kind, unknown_setting, with_method
from strands_manga_memory.assembly.settings import MangaMemorySettings, SettingsError
from strands_manga_memory.exceptions import logged_errors
from strands_manga_memory.lifecycle import attachments
from strands_manga_memory.scope import ConversationScope
from strands_manga_memory.session import TieredSessionManager, TtlPolicy
from strands_manga_memory.session.tiers import Refresh
from strands_manga_memory.stores import Codec, HotStore
from strands_manga_memory.stores.writer import shared_writer

if TYPE_CHECKING:
    from strands.tools.mcp import MCPClient

    from strands_manga_memory import conversation, mcp, prompt, state
    from strands_manga_memory.language.search import Embed

logger = logging.getLogger(__name__)


class SessionSettings(TypedDict, total=False):
    """Settings of a session manager, as keyword arguments of ``TieredSessionManager``."""

    flush_every: int
    ttl: TtlPolicy | None
    refresh: Refresh
    codec: Codec | None
    hot_deadline: float
    durable_deadline: float
    max_unsaved: int
    clock: Callable[[], float]


SESSION_OPTIONS = tuple(SessionSettings.__annotations__)
AGENT_OPTIONS = tuple(
    name for name in inspect.signature(Agent).parameters if name not in ("model", "agent_id")
)
"""Keyword arguments of ``strands.Agent`` that ``MangaMemory.agent_kwargs`` passes through."""
SCOPE_OPTIONS = ("scope", "user_id", "session_id", "agent_id", "tenant", "session")
PART_OPTIONS = (
    *("history", "max_tokens", "trim_every", "max_turns", "recall", "summary_schedule"),
    *("learn", "task_state", "instructions", "cache_monitor"),
)
STORE_OPTIONS = (
    "hot",
    "durable",
    "memories",
    "create_tables",
    "sink",
    "profile",
    "pii",
    "environment",
    "embed",
    "defaults",
)
"""Arguments of ``MangaMemory.open``, except those in ``SESSION_OPTIONS``."""
_CALLS = (
    (STORE_OPTIONS, "MangaMemory.open({}=...)"),
    ((*SCOPE_OPTIONS, *PART_OPTIONS, *AGENT_OPTIONS), "memory.agent(model, ..., {}=...)"),
    (tuple(MangaMemorySettings.model_fields), "defaults=MangaMemorySettings({}=...)"),
)


def scope_of(scope: ConversationScope | None, **ids: str | None) -> ConversationScope:
    """Return ``scope``, or build a scope from ids. The caller gives either a scope or ids.

    Args:
        scope: The scope; None if the caller gives ids.
        ids: ``user_id``, ``session_id``, ``agent_id`` and ``tenant``; None for a missing id.

    Raises:
        ValueError: A scope and ids are both given, the user or session id is missing, or an id is
            invalid (such as empty).
    """
    given = {name: value for name, value in ids.items() if value is not None}
    if scope is None:
        if missing := [name for name in ("user_id", "session_id") if name not in given]:
            raise ValueError(
                f"{' and '.join(missing)} must be given, or scope=ConversationScope(user_id,"
                " session_id)"
            )
        return ConversationScope(**given)
    if given:
        raise ValueError(f"scope has every id already: leave out {', '.join(given)}, or scope")
    return scope


def check_options(
    names: Iterable[str], known: Iterable[str] = SESSION_OPTIONS, *, similar: Iterable[str] = ()
) -> None:
    """Raise an error if a keyword argument is unknown.

    Args:
        names: Names of the given arguments.
        known: Accepted names. Default: those of ``TieredSessionManager``.
        similar: Further names that the error message may suggest.

    Raises:
        SettingsError: A name is unknown. The message suggests the closest name, or the call of this
            package that accepts it.
    """
    known = tuple(known)
    problems = []
    for name in names:
        if name not in known:
            calls = " or ".join(call.format(name) for options, call in _CALLS if name in options)
            problem = unknown_setting(name, (*similar, *known))
            problems.append(
                (name, f"Unknown setting {name!r:.80}. It belongs to {calls}" if calls else problem)
            )
    if problems:
        raise SettingsError(problems)


def split_options(options: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Split keyword arguments into those of ``TieredSessionManager`` and those of ``Agent``.

    Raises:
        SettingsError: An argument belongs neither to ``TieredSessionManager`` nor to
            ``strands.Agent``.
    """
    check_options(
        options, (*SESSION_OPTIONS, *AGENT_OPTIONS), similar=(*SCOPE_OPTIONS, *PART_OPTIONS)
    )
    session = {name: value for name, value in options.items() if name in SESSION_OPTIONS}
    return session, {name: value for name, value in options.items() if name not in session}


def merge_arguments(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> dict[str, Any]:
    """Merge this package's arguments for ``Agent`` (``ours``) with the caller's (``theirs``).

    A caller's argument that is not None replaces the package's argument of the same name. The
    plugins of both are kept. A caller's ``context_manager`` also removes the package's
    ``conversation_manager``.
    """
    if not isinstance(theirs.get("plugins"), list | tuple | None):
        raise ValueError(f"plugins must be a list of plugins, got {theirs['plugins']!r:.80}")
    plugins = [*(ours.get("plugins") or ()), *(theirs.get("plugins") or ())]
    given = {name: value for name, value in theirs.items() if value is not None or name not in ours}
    arguments = {**ours, **given, "plugins": plugins}
    if theirs.get("context_manager") not in (None, False) and "conversation_manager" not in given:
        arguments.pop("conversation_manager", None)
    if not plugins:
        del arguments["plugins"]
    return arguments


_RECALL_TOKENS = 1_024
"""Tokens reserved for quotes, unless a quarter of the history's tokens is less."""


def guard_client(
    owner: object,
    client: MCPClient,
    policy: mcp.BreakerPolicy | None,
    options: dict[str, Any],
    settings: MangaMemorySettings,
) -> mcp.GuardedMCPTools:
    """Return the tools of an MCP client with circuit breakers.

    A circuit breaker rejects calls of a tool that keeps failing. All agents of ``owner`` share the
    tools and the breakers.

    Args:
        owner: Object that keeps the guarded tools: a ``MangaMemory``.
        client: The MCP client.
        policy: Breaker policy of tools without their own policy. None: that of ``settings``.
        options: Further keyword arguments of ``GuardedMCPTools``.
        settings: Settings of the process.

    Raises:
        ValueError: The owner has guarded the client with other settings already, or a setting is
            not allowed.
    """
    from strands.tools.mcp import MCPClient

    from strands_manga_memory import mcp

    asked = {"policy": policy, **options}
    given = {name: value for name, value in asked.items() if value is not None}
    by_owner: Any = {}
    if isinstance(client, MCPClient):
        by_owner = attachments(client).setdefault("guarded_tools", weakref.WeakKeyDictionary())
    guarded: mcp.GuardedMCPTools | None
    guarded, known = by_owner.get(owner, (None, {}))
    if guarded is None:
        guarded = mcp.GuardedMCPTools(client, policy or settings.breaker_policy(), **options)
        by_owner[owner] = guarded, given
    elif given not in ({}, known):
        raise ValueError(f"client is guarded already, with {known!r:.80}; got {given!r:.80}")
    return guarded


def make_history_manager(
    settings: MangaMemorySettings,
    schedule: conversation.SummarySchedule | None,
    *,
    session: TieredSessionManager | None,
    hot: HotStore,
) -> ConversationManager:
    """Return the conversation manager that limits an agent's history.

    Budgets that are not set are derived from the context window of the agent's model.

    Args:
        settings: Settings of history, summaries and recall.
        schedule: When to warn before a summary, and how long to wait for it. None: as in the
            settings.
        session: Session manager, whose log has all messages of the conversation; or None.
        hot: Hot store, which caches drafts of summaries.

    Raises:
        ValueError: ``schedule`` is not a ``SummarySchedule``.
    """
    from strands_manga_memory import conversation

    if schedule is None:
        schedule = conversation.SummarySchedule(
            strategy=settings.summary_strategy, warn_share=settings.summary_warn_share
        )
    of_kind("summary_schedule", schedule, conversation.SummarySchedule)
    log = None if session is None else session.history
    shared: dict[str, Any] = {
        "includes_recall": settings.recall,
        "log": log,
        "max_turns": settings.max_turns,
    }
    tokens, trim_every = settings.max_tokens, settings.trim_every
    if settings.history == "importance":
        if session is not None:
            shared["recent_log"] = _end_of_log(session)
        return conversation.ImportanceWeightedConversationManager(
            tokens, trim_every=trim_every, **shared
        )
    summary: dict[str, Any] = {"log": log, "schedule": schedule}
    summary["cache"] = _drafts(hot, settings.summary_cache_hours * 3600)
    summary_tokens = settings.summary_tokens
    if settings.history == "compact":  # bounded by the model's context window, not by max_tokens
        from strands_manga_memory.conversation.compaction import default_stages

        summary["trimmer"] = conversation.ImportanceWeightedConversationManager(**shared)
        stages = default_stages(summary_tokens=summary_tokens, **summary)
        return conversation.TieredCompactionConversationManager(stages, log=log)
    trigger = settings.summary_trigger_tokens
    if tokens is not None:
        tokens = min(tokens, trigger or tokens)
        summary_tokens = max(1, min(summary_tokens, tokens // 4))
    summary["trimmer"] = conversation.ImportanceWeightedConversationManager(
        tokens, trim_every=trim_every, **shared
    )
    return conversation.VerifiedSummarizingConversationManager(
        conversation.SummaryTrigger(
            tokens=trigger,
            turns=settings.summary_trigger_turns,
            keep_recent_turns=settings.summary_keep_turns,
        ),
        summary_tokens=summary_tokens,
        **summary,
    )


def _end_of_log(session: TieredSessionManager) -> Callable[[int], list[Message]]:
    def read(most: int) -> list[Message]:
        # without evicted messages, the history itself has the end of the log
        if not session.stats()["left_messages"]:
            return []
        return [record["message"] for record in session.records(last=most)]

    return read


def _drafts(hot: HotStore, seconds: float) -> conversation.SummaryCache | None:
    from strands_manga_memory import conversation

    if not seconds:
        return None
    try:
        return conversation.SummaryCache(hot, seconds=seconds)
    except ImportError:  # without the extra there is no cache: drafts are never stored in the clear
        return None


def make_recall_plugin(
    settings: MangaMemorySettings,
    *,
    session: TieredSessionManager | None,
    embed: Embed | None,
    clock: Callable[[], float],
) -> conversation.HistoryRecall:
    """Return the plugin that adds quotes of evicted messages to each request of an agent.

    The setting ``recall_tokens`` limits the tokens of the quotes. The default is 1,024, but at most
    a quarter of the history's budget.

    Args:
        settings: Settings of the process.
        session: Session manager, whose log is searched. None: only messages that the plugin has
            seen are searched.
        embed: Function from texts to vectors, for a search by meaning. None: a search by words.
        clock: Function that returns seconds since 1970.
    """
    from strands_manga_memory import conversation

    tokens = settings.recall_tokens
    if tokens is None and settings.max_tokens is not None:
        tokens = max(1, min(_RECALL_TOKENS, settings.max_tokens // 4))

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
    settings: MangaMemorySettings,
    session: TieredSessionManager | None,
    tier: UserTier,
    **arguments: Any,
) -> state.StateCoordinator:
    """Return the plugin that keeps an agent's task state.

    Args:
        options: True, or a mapping with arguments of ``StateCoordinator``, which replace those in
            ``arguments``.
        settings: Settings of the process, including the limits of goals and steps.
        session: Session manager that saves the conversation; None if there is none.
        tier: Customer tier of the user, which the returned plugin keeps up to date.
        arguments: Arguments of ``StateCoordinator``.

    Raises:
        ValueError: ``options`` is neither True nor a mapping.
    """
    from strands_manga_memory import state

    if tier.is_reading or tier.environment is not None:
        arguments["environment"] = lambda: tier.environment
    arguments["source_deadline"] = settings.profile_deadline
    arguments["limits"] = state.StateLimits(
        **{limit.name: getattr(settings, limit.name) for limit in fields(state.StateLimits)}
    )
    if session is not None:
        reference = weakref.ref(session)  # the coordinator does not keep the session manager alive

        def is_stored(agent_id: str) -> bool:
            manager = reference()
            return manager is None or manager.exists(agent_id)

        arguments["is_stored"] = is_stored
    if options is not True:
        given = with_method("task_state", options, "keys()", "True, False or a mapping")
        check_options(given, inspect.signature(state.StateCoordinator).parameters)
        arguments |= given
    coordinator = state.StateCoordinator(**arguments)
    tier.follow(coordinator)
    return coordinator


def make_prompt_plugins(
    instructions: bool | prompt.InstructionFiles,  # noqa: FBT001 - as agent_kwargs takes it
    cache_monitor: prompt.PromptCacheMonitor | None,
) -> list[Plugin]:
    """Return plugins that add instruction files to the system prompt and count cached tokens.

    Args:
        instructions: The instruction files. True: the files in the default folders. False: no
            plugin.
        cache_monitor: The monitor of cached prompt tokens. None: no plugin.

    Raises:
        ValueError: An argument has another type.
    """
    from strands_manga_memory import prompt

    plugins: list[Plugin] = []
    if instructions is not False:
        files = prompt.InstructionFiles() if instructions is True else instructions
        words = "True, False or InstructionFiles(...)"
        plugins.append(
            prompt.StableTexts(of_kind("instructions", files, prompt.InstructionFiles, words))
        )
    if cache_monitor is not None:
        words = "a PromptCacheMonitor or None"
        plugins.append(of_kind("cache_monitor", cache_monitor, prompt.PromptCacheMonitor, words))
    return plugins


_MOST_READS = 8


class EnvironmentMetadata(Plugin):
    """Plugin that stores the user's locale and cart in the conversation's metadata."""

    name = "strands-manga-memory:environment"

    def __init__(self, tier: UserTier) -> None:
        super().__init__()
        self._tier = tier

    def init_agent(self, agent: Agent) -> None:
        """Make each save of the agent's conversation store the user's locale and cart."""
        attachments(agent)["metadata"] = self._announced

    def _announced(self) -> dict[str, Any]:
        environment = self._tier.environment
        return {} if environment is None else environment.announced()


class UserTier:
    """Customer tier of a user, such as ``premium``, which sets the TTL of the user's conversations.

    Args:
        reading: Background read of the user's data, such as cart and customer tier. None: there is
            no source of such data.
    """

    def __init__(self, reading: Future[state.Environment | None] | None = None) -> None:
        self._reading = reading
        self._coordinator: weakref.ref[state.StateCoordinator] | None = None

    @classmethod
    def load(
        cls,
        source: state.EnvironmentSource | None,
        scope: ConversationScope,
        deadline: float,
    ) -> UserTier:
        """Read the data about a user from ``source``, and return the user's customer tier.

        The call waits at most ``deadline`` seconds. A later answer is used as soon as it arrives.
        The tier is unknown if ``source`` is None, has not answered or fails.
        """
        writer = shared_writer(None, None)
        if source is None or writer.backlog > _MOST_READS:  # sources that hang hold all threads
            return cls()
        load = partial(contextvars.copy_context().run, source.load, scope)
        reading = writer.submit(object(), load, is_needed=lambda: False)
        with logged_errors(logger, "the environment could not be read, starting without it"):
            reading.result(deadline)
        return cls(reading)

    @property
    def is_reading(self) -> bool:
        """Whether the source has not answered yet."""
        return self._reading is not None and not self._reading.done()

    @property
    def environment(self) -> state.Environment | None:
        """Data about the user at the start of the session, such as the customer tier.

        None if there is no source, or if the source has not answered or has failed.
        """
        reading = self._reading
        is_read = reading is not None and reading.done() and reading.exception() is None
        return reading.result() if is_read and reading else None

    def follow(self, coordinator: state.StateCoordinator) -> None:
        """Read the customer tier from an agent's ``StateCoordinator`` from now on."""
        self._coordinator = weakref.ref(coordinator)

    def policy(self, base: TtlPolicy) -> TtlPolicy:
        """Return a copy of the time-to-live policy ``base`` that uses the user's customer tier.

        While the user's tier is unknown, the copy uses the tier of ``base``.
        """
        return replace(
            base,
            tier=lambda: self._current() or (base.tier() if callable(base.tier) else base.tier),
        )

    def _current(self) -> str | None:
        coordinator = None if self._coordinator is None else self._coordinator()
        environment = self.environment if coordinator is None else coordinator.environment
        return None if environment is None else environment.tier
