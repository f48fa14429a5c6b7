"""MangaMemory: opens the stores and hands out what an Agent takes."""

from __future__ import annotations

import os
import weakref
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, get_args
from urllib.parse import urlsplit

from strands.memory import MemoryManager
from strands.models import Model
from strands.plugins import Plugin

from strands_manga_memory.conversation import (
    HistoryRecall,
    ImportanceWeightedConversationManager,
    SummaryCache,
    VerifiedSummarizingConversationManager,
)
from strands_manga_memory.erasure import ErasureReport, export_user, forget_user
from strands_manga_memory.finalizer import SessionFinalizer
from strands_manga_memory.language.session_summary import SessionSummarizer
from strands_manga_memory.memory import (
    MemoryRecord,
    PiiPolicy,
    PreferenceSink,
    PreferenceSpool,
    ProfileCache,
    ProfileSource,
    TablePreferenceSink,
    UserContext,
    UserMemoryStore,
)
from strands_manga_memory.scope import ConversationScope
from strands_manga_memory.session import SessionSweeper, TieredSessionManager
from strands_manga_memory.stores import USER_MEMORY, Codec, HotStore, Table, open_hot_store, open_table
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

_RECALL_PART = 4
"""Of ``max_tokens`` one part in so many is for what is recalled."""

_DRAIN_SECONDS = 5.0


class MangaMemory:
    """The stores of a process, and the Agent keyword arguments that go with them.

    Every part also works alone; see ``TieredSessionManager`` and ``ImportanceWeightedConversationManager``.

    Args:
        hot: The hot tier.
        durable: The durable tier.
        memories: What is known about users, a table of the schema ``USER_MEMORY``; None: nothing is.
        settings: Further keyword arguments of every ``TieredSessionManager``, such as ``save_on`` or ``flush_every``.
        sink: Where preferences heard in a session go; default: into ``memories``.
        profile: Where another service keeps users' profiles, if one does.
        pii: What becomes of personal data in memories. Default ``PiiPolicy()``.
    """

    def __init__(
        self,
        *,
        hot: HotStore,
        durable: Table,
        memories: Table | None = None,
        settings: Mapping[str, Any] | None = None,
        sink: PreferenceSink | None = None,
        profile: ProfileSource | None = None,
        pii: PiiPolicy | None = None,
    ) -> None:
        self.hot = hot
        self.durable = durable
        self.memories = memories
        self._settings = dict(settings or {})
        self._profile = profile
        self._pii = pii or PiiPolicy()
        self._clock = {"clock": self._settings["clock"]} if "clock" in self._settings else {}
        self._spool = None
        if memories is not None:
            into = sink or TablePreferenceSink(memories, codec=self._memory_codec)
            self._spool = PreferenceSpool(memories, into, pii=self._pii, codec=self._memory_codec, **self._clock)
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
        memories: str | Table | bool | None = None,
        create_tables: bool = True,
        sink: PreferenceSink | None = None,
        profile: ProfileSource | None = None,
        pii: PiiPolicy | None = None,
        **settings: Any,
    ) -> MangaMemory:
        """Open the stores.

        Args:
            hot: URL or store of the hot tier; default ``memory://``, this process.
            durable: URL or table of the durable tier; default a SQLite file below the working directory.
            memories: URL or table of what is known about users; True: beside the durable tier, in the same file or the same
                service. Default none: agents know nothing of earlier sessions.
            create_tables: Create the tables, with their TTL setting, if they are missing. Default True.
            sink: Where preferences heard in a session go; default: into ``memories``.
            profile: Where another service keeps users' profiles, if one does.
            pii: What becomes of personal data in memories. Default ``PiiPolicy()``.
            settings: Further keyword arguments of every ``TieredSessionManager``.

        Raises:
            ValueError: A URL is not understood.
            StoreUnavailableError: The durable tier does not answer.
        """
        hot_store = open_hot_store(hot) if isinstance(hot, str) else hot
        table = open_table(durable) if isinstance(durable, str) else durable
        known = _memories(memories, durable)
        memory = cls(
            hot=hot_store or open_hot_store(DEFAULT_HOT_URL),
            durable=table or open_table(DEFAULT_DURABLE_URL),
            memories=known,
            settings=settings,
            sink=sink,
            profile=profile,
            pii=pii,
        )
        for each in (memory.durable, known) if create_tables else ():
            if each is not None:
                each.create_if_missing()
        return memory

    @classmethod
    def from_env(cls, **settings: Any) -> MangaMemory:
        """Open the stores that ``MANGA_MEMORY_HOT_URL``, ``MANGA_MEMORY_DURABLE_URL`` and ``MANGA_MEMORY_USERS_URL`` name.

        Those that are unset have the defaults of ``open``.
        """
        settings.setdefault("memories", os.environ.get("MANGA_MEMORY_USERS_URL"))
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
        recall: bool = False,
        **settings: Any,
    ) -> dict[str, Any]:
        """Return keyword arguments for ``strands.Agent``: ``agent_id``, ``conversation_manager`` and ``session_manager``.

        With ``memories``, also ``memory_manager``, which searches them, and among the ``plugins`` one that tells the agent
        about its user; with ``recall`` one that brings back what has left the window.

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
            recall: Keep a quarter of ``max_tokens`` for earlier messages of this session that fit the user's question, and
                offer the model a tool to search them. The first question of each agent reads the session's log, once. Default
                False: worth it for long talks, less so for many short tasks.
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
        manager: TieredSessionManager | None = arguments.get("session_manager")
        quotes = max_tokens // _RECALL_PART if recall else 0
        trimmer = ImportanceWeightedConversationManager(max_tokens - quotes)
        arguments["conversation_manager"] = trimmer if history == "importance" else self._summarizing(trimmer, manager)
        plugins: list[Plugin] = []
        if self.memories is not None:
            store = self.user(user_id, tenant=tenant)
            arguments["memory_manager"] = MemoryManager(stores=[store])
            plugins.append(UserContext(store, self._cache(user_id, tenant), session_id=session_id))
        if recall:
            plugins.append(HistoryRecall(max(1, quotes), history=manager.records if manager is not None else None))
        if plugins:
            arguments["plugins"] = plugins
        return arguments

    def _summarizing(
        self, trimmer: ImportanceWeightedConversationManager, session: TieredSessionManager | None
    ) -> VerifiedSummarizingConversationManager:
        """Return a manager that reads the session's log and shares its drafts through the hot tier."""
        return VerifiedSummarizingConversationManager(
            max(1, trimmer.max_tokens * _TRIGGER // _MAX_TOKENS),
            trimmer=trimmer,
            summary_tokens=max(1, min(_SUMMARY_TOKENS, trimmer.max_tokens // 4)),
            keep_important=True,
            log=session.history if session is not None else None,
            cache=self._drafts(),
        )

    def _drafts(self) -> SummaryCache | None:
        try:
            return SummaryCache(self.hot)
        except ImportError:  # without the extra there is no cache: drafts are never stored in the clear
            return None

    def session(self, scope: ConversationScope, **settings: Any) -> TieredSessionManager:
        """Return a session manager of a conversation: for its log, its metadata, or an agent built by hand.

        Raises:
            ValueError: A setting is not allowed.
        """
        return self._manager(scope, settings)

    def user(self, user_id: str, *, tenant: str | None = None) -> UserMemoryStore:
        """Return what is known about a user.

        Raises:
            ValueError: ``memories`` was not opened, or an id is not allowed.
        """
        return UserMemoryStore(
            self._known(),
            user_id=user_id,
            tenant=tenant,
            profile=self._profile,
            pii=self._pii,
            codec=self._memory_codec,
            **self._clock,
        )

    def finalizer(self, model: Model | SessionSummarizer | None = None) -> SessionFinalizer:
        """Return what turns sessions that ended into memories; ``model`` summarizes them, by default rules do.

        Raises:
            ValueError: ``memories`` was not opened.
        """
        kept = {name: self._settings[name] for name in ("ttl", "codec", "clock") if name in self._settings}
        return SessionFinalizer(
            hot=self.hot,
            durable=self.durable,
            memories=self._known(),
            model=model,
            pii=self._pii,
            memory_codec=self._memory_codec,
            **kept,
        )

    def sweeper(self, model: Model | SessionSummarizer | None = None) -> SessionSweeper:
        """Return what finishes expired sessions; with ``memories`` it turns them into memories."""
        kept = {name: self._settings[name] for name in ("ttl", "codec", "clock") if name in self._settings}
        finalizer = None if self.memories is None else self.finalizer(model)
        return SessionSweeper(hot=self.hot, durable=self.durable, finalizer=finalizer, **kept)

    def finalize(self, scope: ConversationScope, *, model: Model | SessionSummarizer | None = None) -> MemoryRecord | None:
        """Close a session and store what is kept of it; return its summary, or None if nothing was said.

        Raises:
            ValueError: ``memories`` was not opened.
            StoreUnavailableError: A store does not answer.
        """
        for manager in list(self._managers):
            if manager.scope is not None and manager.scope.storage_session_id == scope.storage_session_id:
                manager.close()
        return self.finalizer(model).run(scope)

    def forget_user(self, user_id: str, *, tenant: str | None = None) -> ErasureReport:
        """Delete everything there is of a user; see ``strands_manga_memory.forget_user``."""
        return forget_user(user_id, tenant=tenant, **self._of_user("ttl", "codec", "clock"))

    def export_user(self, user_id: str, *, tenant: str | None = None) -> dict[str, Any]:
        """Return everything there is of a user; see ``strands_manga_memory.export_user``."""
        return export_user(user_id, tenant=tenant, memory_codec=self._memory_codec, **self._of_user("codec", "clock"))

    def _of_user(self, *names: str) -> dict[str, Any]:
        kept = {name: self._settings[name] for name in names if name in self._settings}
        return {"hot": self.hot, "durable": self.durable, "memories": self.memories, **kept}

    @property
    def _memory_codec(self) -> Codec | None:
        return self._settings.get("codec")

    def _known(self) -> Table:
        if self.memories is None:
            raise ValueError("memories is None: pass MangaMemory.open(memories=True), or a URL or table")
        return self.memories

    def _cache(self, user_id: str, tenant: str | None) -> ProfileCache:
        return ProfileCache(
            self.hot, user_id=user_id, tenant=tenant, spool=self._spool, pii=self._pii, codec=self._memory_codec
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
        if self.memories is not None:  # what was heard goes into the cache first, then on to the sink
            shared_writer(self.hot, None).drain(_DRAIN_SECONDS)
            shared_writer(None, self.memories).drain(_DRAIN_SECONDS)
            self.memories.close()
        self.hot.close()
        self.durable.close()


def _user_of(invocation_state: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return whose a call's result is: the user of the agent's scope, in whatever session."""
    from strands_manga_memory.mcp import user_of_call

    session = getattr(invocation_state.get("agent"), "session_id", "")
    user, separator, _ = session.rpartition(":")
    # The storage id of a ConversationScope: tenant, user and session, each escaped.
    return ("", f"scope:{user}") if separator and user.count(":") == 1 else user_of_call(invocation_state)


def _memories(memories: str | Table | bool | None, durable: str | Table | None) -> Table | None:  # noqa: FBT001 - as open's
    """Return the memory table that an argument of ``open`` stands for."""
    if memories is None or memories is False:
        return None
    if isinstance(memories, str):
        return open_table(memories, USER_MEMORY)
    if memories is not True:
        return memories
    if durable is not None and not isinstance(durable, str):
        raise ValueError("memories must be a URL or a table where durable is a table, got True")
    url = durable or DEFAULT_DURABLE_URL
    parts = urlsplit(url)
    # In a file the tables have names of their own; in DynamoDB the name is in the URL, and the other arguments stay.
    return open_table(f"dynamodb://?{parts.query}" if parts.scheme == "dynamodb" else url, USER_MEMORY)
