"""MangaMemory: opens the stores and hands out what an Agent takes."""

from __future__ import annotations

import os
import weakref
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, get_args

from strands_manga_memory.conversation import (
    ImportanceWeightedConversationManager,
    SummaryCache,
    VerifiedSummarizingConversationManager,
)
from strands_manga_memory.scope import ConversationScope
from strands_manga_memory.session import TieredSessionManager
from strands_manga_memory.stores import HotStore, Table, open_hot_store, open_table
from strands_manga_memory.stores.writer import shared_writer

if TYPE_CHECKING:
    from strands.tools.mcp import MCPClient

    from strands_manga_memory.mcp import BreakerPolicy, GuardedMCPTools

DEFAULT_DURABLE_URL = "sqlite:///.manga_memory/sessions.sqlite3"
"""Where conversations are kept when nothing is said: a file below the working directory."""

DEFAULT_HOT_URL = "memory://"
"""The hot tier when nothing is said: this process."""

History = Literal["importance", "summarize"]

_TRIGGER, _MAX_TOKENS, _SUMMARY_TOKENS = 8_000, 4_096, 500


class MangaMemory:
    """The stores of a process, and the Agent keyword arguments that go with them.

    Every part also works alone; see ``TieredSessionManager`` and ``ImportanceWeightedConversationManager``.

    Args:
        hot: The hot tier.
        durable: The durable tier.
        settings: Further keyword arguments of every ``TieredSessionManager``, such as ``save_on`` or ``flush_every``.
    """

    def __init__(self, *, hot: HotStore, durable: Table, settings: Mapping[str, Any] | None = None) -> None:
        self.hot = hot
        self.durable = durable
        self._settings = dict(settings or {})
        self._managers: weakref.WeakSet[TieredSessionManager] = weakref.WeakSet()
        self._prefetched: dict[ConversationScope, TieredSessionManager] = {}
        self._guards: weakref.WeakValueDictionary[int, GuardedMCPTools] = weakref.WeakValueDictionary()
        self._guards_asked: weakref.WeakKeyDictionary[GuardedMCPTools, dict[str, Any]] = weakref.WeakKeyDictionary()

    @classmethod
    def open(
        cls,
        hot: str | HotStore | None = None,
        durable: str | Table | None = None,
        *,
        create_tables: bool = True,
        **settings: Any,
    ) -> MangaMemory:
        """Open the stores.

        Args:
            hot: URL or store of the hot tier; default ``memory://``, this process.
            durable: URL or table of the durable tier; default a SQLite file below the working directory.
            create_tables: Create the durable tier's table, with its TTL setting, if it is missing. Default True.
            settings: Further keyword arguments of every ``TieredSessionManager``.

        Raises:
            ValueError: A URL is not understood.
            StoreUnavailableError: The durable tier does not answer.
        """
        hot_store = open_hot_store(hot) if isinstance(hot, str) else hot
        table = open_table(durable) if isinstance(durable, str) else durable
        memory = cls(
            hot=hot_store or open_hot_store(DEFAULT_HOT_URL),
            durable=table or open_table(DEFAULT_DURABLE_URL),
            settings=settings,
        )
        if create_tables:
            memory.durable.create_if_missing()
        return memory

    @classmethod
    def from_env(cls, **settings: Any) -> MangaMemory:
        """Open the stores that ``MANGA_MEMORY_HOT_URL`` and ``MANGA_MEMORY_DURABLE_URL`` name; the defaults where unset."""
        return cls.open(os.environ.get("MANGA_MEMORY_HOT_URL"), os.environ.get("MANGA_MEMORY_DURABLE_URL"), **settings)

    def agent_kwargs(
        self,
        *,
        user_id: str,
        session_id: str,
        agent_id: str = "default",
        tenant: str | None = None,
        session: bool = True,
        history: History = "importance",
        max_tokens: int = _MAX_TOKENS,
        **settings: Any,
    ) -> dict[str, Any]:
        """Return keyword arguments for ``strands.Agent``: ``agent_id``, ``conversation_manager`` and ``session_manager``.

        Args:
            user_id: The user.
            session_id: The session, unique within the user.
            agent_id: The agent, unique within the session.
            tenant: The tenant; None is a tenant of its own.
            session: False for nodes of a Graph or Swarm and for agents used as tools, which carry no session manager.
            history: ``importance``: kept within ``max_tokens`` at every model call. ``summarize``: it may grow to about twice
                as much (8,000 tokens by default) or 20 turns; then a verified summary, written after the response by the
                agent's ``aux_model``, and the last 3 turns and what importance keeps are within ``max_tokens``.
            max_tokens: Tokens of history. Default 4,096.
            settings: Keyword arguments of this ``TieredSessionManager``, over those of the process.

        Raises:
            ValueError: An id or a setting is not allowed.
        """
        if history not in get_args(History):
            raise ValueError(f"history must be one of {', '.join(map(repr, get_args(History)))}, got {history!r}")
        scope = ConversationScope(user_id, session_id, agent_id, tenant=tenant)
        arguments: dict[str, Any] = {"agent_id": agent_id}
        if session:
            prefetched = None if settings else self._prefetched.pop(scope, None)
            arguments["session_manager"] = prefetched or self._manager(scope, settings)
        trimmer = ImportanceWeightedConversationManager(max_tokens)
        arguments["conversation_manager"] = (
            trimmer if history == "importance" else self._summarizing(trimmer, arguments.get("session_manager"), settings)
        )
        return arguments

    def _summarizing(
        self, trimmer: ImportanceWeightedConversationManager, session: TieredSessionManager | None, settings: Mapping[str, Any]
    ) -> VerifiedSummarizingConversationManager:
        """Return a manager that reads the session's log and shares its drafts through the hot tier."""
        return VerifiedSummarizingConversationManager(
            max(1, trimmer.max_tokens * _TRIGGER // _MAX_TOKENS),
            trimmer=trimmer,
            summary_tokens=max(1, min(_SUMMARY_TOKENS, trimmer.max_tokens // 4)),
            keep_important=True,
            log=session.history if session is not None else None,
            cache=SummaryCache(self.hot, codec={**self._settings, **settings}.get("codec")),
        )

    async def prefetch(self, scope: ConversationScope) -> None:
        """Read a conversation off the event loop, so that the next agent of this scope is built without I/O."""
        manager = self._manager(scope, {})
        await manager.prefetch(scope.agent_id)
        self._prefetched[scope] = manager

    def guard(
        self, client: MCPClient, policy: BreakerPolicy | None = None, *, shared: bool = False, **settings: Any
    ) -> GuardedMCPTools:
        """Return the tools of an MCP server, each behind a breaker: ``Agent(tools=[memory.guard(client)])``.

        The same client gives the same object as long as it is in use, so that all agents of the process share its breakers.

        Args:
            client: The connection.
            policy: Of the tools that have none of their own.
            shared: Whether the breakers are shared with the other processes that use the same hot tier.
            settings: Further keyword arguments of ``GuardedMCPTools``. Results that may stand in are kept by tenant and user.

        Raises:
            ValueError: The client is guarded already, and now other settings are asked for; or a setting is not allowed.
        """
        asked = {
            name: value for name, value in {"policy": policy, "shared": shared or None, **settings}.items() if value is not None
        }
        from strands_manga_memory.mcp import GuardedMCPTools, SharedBreakers  # here: whoever uses no MCP does not load it

        found = self._guards.get(id(client))
        if found is not None:
            if asked not in ({}, self._guards_asked[found]):
                raise ValueError(f"client is guarded already, with {self._guards_asked[found]!r}; got {asked!r}")
            return found
        settings.setdefault("user_of", _user_of)
        if shared:
            settings["shared"] = SharedBreakers(self.hot)
        guarded = self._guards[id(client)] = GuardedMCPTools(client, policy, **settings)
        self._guards_asked[guarded] = asked
        return guarded

    def _manager(self, scope: ConversationScope, settings: Mapping[str, Any]) -> TieredSessionManager:
        manager = TieredSessionManager(scope, hot=self.hot, durable=self.durable, **{**self._settings, **settings})
        self._managers.add(manager)
        return manager

    def stats(self) -> dict[str, Any]:
        """Return whether the tiers answer, and how much background work waits."""
        hot = self.hot if self.hot.survives_process else None
        writer = shared_writer(hot, self.durable)
        return {
            "hot": "up" if writer.hot_health.is_up else "down",
            "durable": "up" if writer.durable_health.is_up else "down",
            "backlog": writer.backlog,
            "sessions": len(self._managers),
        }

    def close(self) -> None:
        """Flush every session that was opened here and give back the stores' connections.

        Raises:
            StoreUnavailableError: A tier did not take everything.
        """
        for manager in list(self._managers):
            manager.close()
        self._prefetched.clear()
        self.hot.close()
        self.durable.close()


def _user_of(invocation_state: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return whose a call's result is: the user of the agent's scope, in whatever session."""
    from strands_manga_memory.mcp import user_of_call

    session = getattr(invocation_state.get("agent"), "session_id", "")
    user, separator, _ = session.rpartition(":")
    # The storage id of a ConversationScope: tenant, user and session, each escaped.
    return ("", f"scope:{user}") if separator and user.count(":") == 1 else user_of_call(invocation_state)
