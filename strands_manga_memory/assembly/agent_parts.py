"""Functions that make the parts of an agent for ``MangaMemory``, such as its plugins."""

from __future__ import annotations

import inspect
import weakref
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import fields, replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypedDict

from strands import Agent
from strands.agent.conversation_manager import ConversationManager
from strands.plugins import Plugin
from strands.types.content import Message

from strands_manga_memory.arguments import Clock, check_instance, check_method, unknown_setting_text
from strands_manga_memory.assembly.settings import MangaMemorySettings, SettingsError
from strands_manga_memory.lifecycle import attachments
from strands_manga_memory.scope import ConversationScope
from strands_manga_memory.session import TieredSessionManager, TtlPolicy
from strands_manga_memory.session.tiers import Refresh
from strands_manga_memory.stores import Codec, HotStore

if TYPE_CHECKING:
    from strands.tools.mcp import MCPClient

    from strands_manga_memory import conversation, mcp, prompt, state
    from strands_manga_memory.language.search import Embed


class SessionSettings(TypedDict, total=False):
    """Settings of a session manager, as keyword arguments of ``TieredSessionManager``."""

    flush_every: int
    ttl: TtlPolicy | None
    refresh: Refresh
    codec: Codec | None
    hot_deadline: float
    durable_deadline: float
    max_unsaved: int
    clock: Clock


SESSION_OPTIONS = tuple(SessionSettings.__annotations__)
AGENT_OPTIONS = tuple(
    name for name in inspect.signature(Agent).parameters if name not in ("model", "agent_id")
)
"""Keyword arguments of ``strands.Agent`` that ``MangaMemory.agent_kwargs`` passes through."""


def check_options(
    given: Iterable[str],
    known: Iterable[str],
    *,
    call: Callable[..., object] | None = None,
    agent_method: Callable[..., object] | None = None,
) -> None:
    """Raise a ``SettingsError`` with suggestions if keyword arguments are unknown.

    Args:
        given: Names of the given arguments that are not parameters of ``call``.
        known: Accepted names. The error suggests a similar one.
        call: Called function or class, whose parameters the error may also suggest.
        agent_method: Method with the parameters of ``memory.agent``. For a name among them, or
            among those of ``strands.Agent``, the error refers to ``memory.agent``.
    """
    unknown = set(given).difference(known)
    if not unknown:
        return
    names = (*_parameters(call), *known)
    elsewhere = (*_parameters(agent_method), *AGENT_OPTIONS) if agent_method else ()
    problems = []
    for name in (name for name in given if name in unknown):
        text = f"Unknown setting {name!r:.80}. It belongs to memory.agent(model, ..., {name}=...)"
        if name not in elsewhere:
            text = unknown_setting_text(name, names, elsewhere)
        problems.append((name, text))
    raise SettingsError(problems)


def _parameters(call: Callable[..., object] | None) -> list[str]:
    found = inspect.signature(call).parameters.values() if call else ()
    return [each.name for each in found if each.kind is not each.VAR_KEYWORD]


def scope_of(scope: ConversationScope | None, **ids: str | None) -> ConversationScope:
    """Return the given scope of a conversation, or a scope made from the given ids.

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


def merge_arguments(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> dict[str, Any]:
    """Merge this package's arguments for ``strands.Agent`` (``ours``) with the application's.

    An argument of the application replaces the package's argument of the same name, unless its
    value is None. The plugins of both are kept. A ``context_manager`` of the application also
    removes the package's ``conversation_manager``.
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


def guard_client(
    owner: object,
    client: MCPClient,
    policy: mcp.BreakerPolicy | None,
    options: dict[str, Any],
    settings: MangaMemorySettings,
) -> mcp.GuardedMCPTools:
    """Return the tools of an MCP client with circuit breakers, which all agents of ``owner`` share.

    Args:
        owner: The ``MangaMemory``.
        client: The MCP client.
        policy: Breaker policy of tools without a policy of their own. None: that of ``settings``.
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
    if owner not in by_owner:
        made = mcp.GuardedMCPTools(client, policy or settings.breaker_policy(), **options)
        by_owner[owner] = made, given
    guarded: mcp.GuardedMCPTools
    guarded, known = by_owner[owner]
    if given not in ({}, known):
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

    Token limits that are not set are derived from the context window of the agent's model.

    Args:
        settings: Settings of history, summaries and recall.
        schedule: When to log a warning that a summary will soon be written, and whether turns wait
            for the summary. None: as in ``settings``.
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
    check_instance("summary_schedule", schedule, conversation.SummarySchedule)
    log = None if session is None else session.history
    tokens, summary_tokens = settings.max_tokens, settings.summary_tokens
    trigger = settings.summary_trigger_tokens
    if settings.history == "summarize" and tokens is not None:
        tokens = min(tokens, trigger or tokens)
        summary_tokens = max(1, min(summary_tokens, tokens // 4))
    limits: dict[str, Any] = {"max_tokens": tokens, "trim_every": settings.trim_every}
    if settings.history == "compact":  # bounded by the model's context window, not by max_tokens
        limits = {}
    if settings.history == "importance" and session is not None:
        limits["recent_log"] = partial(_end_of_log, session)
    trimmer = conversation.ImportanceWeightedConversationManager(
        includes_recall=settings.recall, log=log, max_turns=settings.max_turns, **limits
    )
    if settings.history == "importance":
        return trimmer
    cache = None
    if seconds := settings.summary_cache_hours * 3600:
        with suppress(ImportError):  # without the extra, no drafts are stored in the clear
            cache = conversation.SummaryCache(hot, seconds=seconds)
    summary: dict[str, Any] = {"summary_tokens": summary_tokens, "trimmer": trimmer, "log": log}
    summary |= {"schedule": schedule, "cache": cache}
    if settings.history == "compact":
        from strands_manga_memory.conversation.compaction import default_stages

        return conversation.TieredCompactionConversationManager(default_stages(**summary))
    return conversation.VerifiedSummarizingConversationManager(
        conversation.SummaryTrigger(
            tokens=trigger,
            turns=settings.summary_trigger_turns,
            keep_recent_turns=settings.summary_keep_turns,
        ),
        **summary,
    )


def _end_of_log(session: TieredSessionManager, max_messages: int) -> list[Message]:
    # without evicted messages, the history itself has the end of the log
    if not session.stats()["left_messages"]:
        return []
    return [record["message"] for record in session.records(last=max_messages)]


def make_recall_plugin(
    settings: MangaMemorySettings,
    *,
    session: TieredSessionManager | None,
    embed: Embed | None,
    clock: Clock,
) -> conversation.HistoryRecall:
    """Return the plugin that quotes evicted messages (removed from the history) in requests.

    Args:
        settings: Settings of the process.
        session: Session manager, whose log is searched. None: the plugin searches only messages
            that it has received from its agent.
        embed: Function from texts to vectors, for a search by meaning. None: a search by words.
        clock: Function that returns seconds since 1970.
    """
    from strands_manga_memory import conversation

    log = None if session is None else partial(_searched_records, session)
    recall = conversation.HistoryRecall(
        settings.recall_tokens, embed=embed, history=log, clock=clock
    )
    if session is not None:
        recall.archive.version = session.removal_version
    return recall


def _searched_records(session: TieredSessionManager) -> Iterable[Mapping[str, Any]]:
    return session.records() if session.stats()["left_messages"] else session.window_records()


def with_customer_tier(policy: TtlPolicy, tracker: state.EnvironmentTracker) -> TtlPolicy:
    """Return a copy of a time-to-live policy that uses the user's customer tier from ``tracker``.

    The tier, such as ``premium``, decides the time to live of conversations. While it is unknown,
    the tier in ``policy`` applies.
    """

    def tier() -> str:
        known = policy.tier() if callable(policy.tier) else policy.tier
        return tracker.environment.tier or known

    return replace(policy, tier=tier)


def make_coordinator(
    options: bool | Mapping[str, Any],  # noqa: FBT001 - as agent_kwargs takes it
    settings: MangaMemorySettings,
    session: TieredSessionManager | None,
    **arguments: Any,
) -> state.StateCoordinator:
    """Return the plugin that keeps an agent's task state: dialogue, entities, goals and task.

    Args:
        options: True, or a mapping with arguments of ``StateCoordinator``, which replace those in
            ``arguments``.
        settings: Settings of the process, including the limits of goals and steps.
        session: Session manager that saves the conversation; None if there is none.
        arguments: Arguments of ``StateCoordinator``.

    Raises:
        ValueError: ``options`` is neither True nor a mapping.
    """
    from strands_manga_memory import state

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
        given = check_method("task_state", options, "keys()", "True, False or a mapping")
        check_options(given, inspect.signature(state.StateCoordinator).parameters)
        arguments |= given
    coordinator = state.StateCoordinator(**arguments)
    if session is not None:
        session.when_redacted(coordinator.retract)
    return coordinator


def make_prompt_plugins(
    instructions: bool | prompt.InstructionFiles,  # noqa: FBT001 - as agent_kwargs takes it
    cache_monitor: prompt.PromptCacheMonitor | None,
) -> list[Plugin]:
    """Return the plugin that adds instruction files to a prompt, and ``cache_monitor`` if given.

    ``instructions`` are the files. True: the files in the default folders. False: no files.

    Raises:
        ValueError: An argument has a wrong type.
    """
    from strands_manga_memory import prompt

    plugins: list[Plugin] = []
    if instructions is not False:
        files = prompt.InstructionFiles() if instructions is True else instructions
        words = "True, False or InstructionFiles(...)"
        check_instance("instructions", files, prompt.InstructionFiles, words)
        plugins.append(prompt.StableTexts(files))
    if cache_monitor is not None:
        words = "a PromptCacheMonitor or None"
        check_instance("cache_monitor", cache_monitor, prompt.PromptCacheMonitor, words)
        plugins.append(cache_monitor)
    return plugins
