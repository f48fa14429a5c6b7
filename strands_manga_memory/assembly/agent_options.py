"""Checks, splits and merges the keyword arguments of sessions and agents."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypedDict

from strands import Agent

from strands_manga_memory.arguments import of_kind
from strands_manga_memory.assembly.settings import MangaMemorySettings, SettingsError, unknown_setting
from strands_manga_memory.scope import ConversationScope
from strands_manga_memory.session import TtlPolicy
from strands_manga_memory.session.tiers import Refresh
from strands_manga_memory.stores import Codec


class SessionSettings(TypedDict, total=False):
    """Keyword arguments of ``TieredSessionManager``, whose docstring describes these arguments."""

    flush_every: int
    ttl: TtlPolicy | None
    refresh: Refresh
    codec: Codec | None
    hot_deadline: float
    durable_deadline: float
    max_unsaved: int
    clock: Callable[[], float]


SESSION_OPTIONS = tuple(SessionSettings.__annotations__)
AGENT_OPTIONS = tuple(name for name in inspect.signature(Agent).parameters if name not in ("model", "agent_id"))
"""Keyword arguments of ``strands.Agent`` that ``MangaMemory.agent_kwargs`` passes through."""
SCOPE_OPTIONS = ("scope", "user_id", "session_id", "agent_id", "tenant", "session")
PART_OPTIONS = (
    *("history", "max_tokens", "trim_to", "max_turns", "recall", "summary_schedule"),
    *("learn", "task_state", "instructions", "cache_monitor"),
)
STORE_OPTIONS = ("hot", "durable", "memories", "create_tables", "sink", "profile", "pii", "environment", "embed", "defaults")
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
        ValueError: A scope and ids are both given, the user or session id is missing, or an id is invalid (such as empty).
    """
    given = {name: value for name, value in ids.items() if value is not None}
    if scope is None:
        if missing := [name for name in ("user_id", "session_id") if name not in given]:
            raise ValueError(f"{' and '.join(missing)} must be given, or scope=ConversationScope(user_id, session_id)")
        return ConversationScope(**given)
    if given:
        raise ValueError(f"scope has every id already: leave out {', '.join(given)}, or scope")
    return of_kind("scope", scope, ConversationScope)


def check_options(names: Iterable[str], known: Iterable[str] = SESSION_OPTIONS, *, similar: Iterable[str] = ()) -> None:
    """Raise an error if a keyword argument is unknown.

    Args:
        names: Names of the given arguments.
        known: Accepted names. Default: those of ``TieredSessionManager``.
        similar: Further names that the error message may suggest.

    Raises:
        SettingsError: A name is unknown. The message suggests the closest name, or the call of this package that accepts it.
    """
    known = tuple(known)
    problems = []
    for name in names:
        if name not in known:
            calls = " or ".join(call.format(name) for options, call in _CALLS if name in options)
            problem = unknown_setting(name, (*similar, *known))
            problems.append((name, f"Unknown setting {name!r:.80}. It belongs to {calls}" if calls else problem))
    if problems:
        raise SettingsError(problems)


def split_options(options: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Split keyword arguments into those of ``TieredSessionManager`` and those of ``strands.Agent``.

    Raises:
        SettingsError: An argument belongs neither to ``TieredSessionManager`` nor to ``strands.Agent``.
    """
    check_options(options, (*SESSION_OPTIONS, *AGENT_OPTIONS), similar=(*SCOPE_OPTIONS, *PART_OPTIONS))
    session = {name: value for name, value in options.items() if name in SESSION_OPTIONS}
    return session, {name: value for name, value in options.items() if name not in session}


def merge_arguments(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> dict[str, Any]:
    """Merge the package's arguments for ``strands.Agent`` (``ours``) with the caller's (``theirs``).

    A caller's argument replaces ours, except if it is None. The plugins of both are kept. A caller's ``context_manager``
    also replaces our ``conversation_manager``.
    """
    plugins = [*(ours.get("plugins") or ()), *(theirs.get("plugins") or ())]
    given = {name: value for name, value in theirs.items() if value is not None or name not in ours}
    arguments = {**ours, **given, "plugins": plugins}
    if theirs.get("context_manager") not in (None, False) and "conversation_manager" not in given:
        arguments.pop("conversation_manager", None)
    if not plugins:
        del arguments["plugins"]
    return arguments
