"""MangaMemory: opens the stores and hands out what an Agent takes."""

from __future__ import annotations

import asyncio
import logging
import time
import weakref
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, get_args

from strands.memory import MemoryManager
from strands.models import Model
from strands.plugins import Plugin

from strands_manga_memory.agent_parts import Prepared, UserTier, recalling, summarizing
from strands_manga_memory.conversation import ImportanceWeightedConversationManager
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
from strands_manga_memory.reencryption import reencrypt_user
from strands_manga_memory.scope import ConversationScope
from strands_manga_memory.session import SessionSweeper, TieredSessionManager, TtlPolicy
from strands_manga_memory.session.returns import gaps_of
from strands_manga_memory.settings import History, MangaMemorySettings
from strands_manga_memory.state import Environment, EnvironmentChanges, EnvironmentSource, StateCoordinator
from strands_manga_memory.stats import MemoryStats, memory_stats
from strands_manga_memory.stores import USER_MEMORY, Codec, HotStore, Table, open_hot_store, open_table
from strands_manga_memory.stores.urls import users_table_url
from strands_manga_memory.stores.writer import shared_writer
from strands_manga_memory.telemetry import (
    ObservedCodec,
    flush,
    observed_hot_store,
    observed_table,
    recorder,
    switch,
)

if TYPE_CHECKING:
    from strands.tools.mcp import MCPClient

    from strands_manga_memory.mcp import BreakerPolicy, GuardedMCPTools

logger = logging.getLogger(__name__)

_DEFAULTS = MangaMemorySettings()

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
        environment: Where the surroundings of conversations are read: tier, locale, cart.
        defaults: What else a process can set: the history of its agents, their breakers, telemetry. Default
            ``MangaMemorySettings()``.

    Attributes:
        hot: The hot tier.
        durable: The durable tier.
        memories: What is known about users, or None.
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
        environment: EnvironmentSource | None = None,
        defaults: MangaMemorySettings | None = None,
    ) -> None:
        self.hot = hot
        self.durable = durable
        self.memories = memories
        self.settings = defaults or _DEFAULTS
        self._settings = dict(settings or {})
        self._memory_codec: Codec | None = self._settings.get("codec")  # without one, memories can be read with plain boto3
        switch(on=self.settings.telemetry)
        self._stores: dict[str, Any] = {"hot": hot, "durable": durable, "memories": memories}
        if self.settings.telemetry:
            self._stores = {
                "hot": observed_hot_store(hot),
                "durable": observed_table(durable),
                "memories": None if memories is None else observed_table(memories, tier="memories"),
            }
            self._settings["codec"] = ObservedCodec(self._settings.get("codec") or Codec())
        self._profile = profile
        self._environment = environment
        self._pii = pii or PiiPolicy()
        self._clock = {"clock": self._settings["clock"]} if "clock" in self._settings else {}
        self._spool = None
        if memories is not None:
            table = self._stores["memories"]
            into = sink or TablePreferenceSink(table, codec=self._memory_codec)
            self._spool = PreferenceSpool(table, into, pii=self._pii, codec=self._memory_codec, **self._clock)
        self._managers: weakref.WeakSet[TieredSessionManager] = weakref.WeakSet()
        self._prefetched: dict[ConversationScope, Prepared] = {}
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
        environment: EnvironmentSource | None = None,
        defaults: MangaMemorySettings | None = None,
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
            environment: Where the surroundings of conversations are read; how long they stay hot follows the tier it names.
            defaults: What else a process can set. Default ``MangaMemorySettings()``.
            settings: Further keyword arguments of every ``TieredSessionManager``.

        Raises:
            ValueError: A URL is not understood.
            StoreUnavailableError: The durable tier does not answer.
        """
        hot_store = open_hot_store(hot) if isinstance(hot, str) else hot
        table = open_table(durable) if isinstance(durable, str) else durable
        known = _memories(memories, durable)
        memory = cls(
            hot=hot_store or open_hot_store(_DEFAULTS.hot_url),
            durable=table or open_table(_DEFAULTS.durable_url),
            memories=known,
            settings=settings,
            sink=sink,
            profile=profile,
            pii=pii,
            environment=environment,
            defaults=defaults,
        )
        for each in (memory.durable, known) if create_tables else ():
            if each is not None:
                each.create_if_missing()
        return memory

    @classmethod
    def from_env(cls, **settings: Any) -> MangaMemory:
        """Open the stores that ``MANGA_MEMORY_HOT_URL`` and the other variables of ``MangaMemorySettings`` name.

        Args:
            settings: Keyword arguments of ``open``, over those of the variables.

        Raises:
            ValueError: A variable has a value that is not allowed; the message names it and what it takes.
            StoreUnavailableError: The durable tier does not answer.
        """
        return cls.from_settings(MangaMemorySettings.from_env(), **settings)

    @classmethod
    def from_settings(cls, settings: MangaMemorySettings, **others: Any) -> MangaMemory:
        """Open the stores that the settings name.

        Args:
            settings: What a process can set.
            others: Keyword arguments of ``open``, over those of the settings.

        Raises:
            StoreUnavailableError: The durable tier does not answer.
        """
        users = settings.users_url
        arguments = {
            "hot": settings.hot_url,
            "durable": settings.durable_url,
            "memories": True if users is not None and users.lower() == "true" else users,
            "create_tables": settings.create_tables,
            "defaults": settings,
            **settings.session_settings(),
        }
        return cls.open(**{**arguments, **others})

    def agent_kwargs(
        self,
        *,
        user_id: str,
        session_id: str,
        agent_id: str = "default",
        tenant: str | None = None,
        session: bool = True,
        history: History | None = None,
        max_tokens: int | None = None,
        recall: bool = False,
        state: bool | Mapping[str, Any] = False,
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
                agent's ``aux_model``, and the last 3 turns and what importance keeps are within ``max_tokens``. Default that
                of the process: ``importance``.
            max_tokens: Tokens of history. Default that of the process: 4,096.
            recall: Bring back earlier messages of this session that fit the user's question, and offer the model a tool to
                search them. They take up to a quarter of ``max_tokens`` of a request; the history gives way to them for that
                call. The first question of each agent reads the session's log, once. Default False.
            state: Whether a ``StateCoordinator`` keeps where the task stands and tells the model; a mapping: its keyword
                arguments, such as ``intents``. Changes published by ``changes(...)`` reach it. Default False.
            settings: Keyword arguments of this ``TieredSessionManager``, over those of the process.

        Raises:
            ValueError: An id or a setting is not allowed.
        """
        history = history if history is not None else self.settings.history
        if history not in get_args(History):
            raise ValueError(f"history must be one of {', '.join(map(repr, get_args(History)))}, got {history!r}")
        scope = ConversationScope(user_id, session_id, agent_id, tenant=tenant)
        arguments: dict[str, Any] = {"agent_id": agent_id}
        prepared = None if settings else self._prefetched.pop(scope, None)
        environment = prepared.environment if prepared is not None else self._surroundings(scope)
        plugins: list[Plugin] = []
        tier = prepared.tier if prepared is not None else UserTier(environment)
        if state is not False:
            given = {"source": self._environment, "scope": scope, "hot": self.hot, "codec": self._memory_codec}
            asked = {} if state is True else dict(state)
            coordinator = StateCoordinator(**{**given, "environment": environment, **asked})
            tier.follow(coordinator)
            plugins.append(coordinator)
        if session:
            arguments["session_manager"] = prepared.manager if prepared is not None else self._manager(scope, settings, tier)
        manager: TieredSessionManager | None = arguments.get("session_manager")
        tokens = max_tokens if max_tokens is not None else self.settings.max_tokens
        trimmer = ImportanceWeightedConversationManager(tokens, includes_recall=recall)
        arguments["conversation_manager"] = trimmer
        if history == "summarize":
            arguments["conversation_manager"] = summarizing(trimmer, session=manager, hot=self._stores["hot"])
        if self.memories is not None:
            store = self.user(user_id, tenant=tenant)
            arguments["memory_manager"] = MemoryManager(stores=[store])
            plugins.insert(0, UserContext(store, self._cache(user_id, tenant), session_id=session_id))
        if recall:
            plugins.append(recalling(tokens, session=manager))
        if plugins:
            arguments["plugins"] = plugins
        return arguments

    def changes(self, *, user_id: str, session_id: str, tenant: str | None = None) -> EnvironmentChanges:
        """Return what publishes a change outside to every live agent of a session: ``changes(...).publish(cart=[...])``.

        Raises:
            ValueError: An id is not allowed.
        """
        return EnvironmentChanges(self.hot, ConversationScope(user_id, session_id, tenant=tenant), codec=self._memory_codec)

    def _surroundings(self, scope: ConversationScope) -> Environment | None:
        if self._environment is None:
            return None
        try:
            return self._environment.load(scope)
        except Exception as error:  # noqa: BLE001 - a source is others' code: a conversation begins without it, too
            logger.warning(
                "error=<%s> | the environment could not be read, the session starts without it", type(error).__name__
            )
            return None

    def session(self, scope: str | ConversationScope, **settings: Any) -> TieredSessionManager:
        """Return a session manager of a conversation: for its log, its metadata, or an agent built by hand.

        Args:
            scope: Whose it is, or a plain session id: one that belongs to no user.
            settings: Keyword arguments of this ``TieredSessionManager``, over those of the process.

        Raises:
            ValueError: A setting is not allowed.
        """
        return self._manager(scope, settings, UserTier(None))

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
            hot=self._stores["hot"],
            durable=self._stores["durable"],
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
        return SessionSweeper(hot=self._stores["hot"], durable=self._stores["durable"], finalizer=finalizer, **kept)

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

    def forget_user(
        self, user_id: str, *, tenant: str | None = None, progress: Callable[[str], object] = lambda name: None
    ) -> ErasureReport:
        """Delete everything there is of a user; see ``strands_manga_memory.forget_user``."""
        return forget_user(user_id, tenant=tenant, progress=progress, **self._of_user("ttl", "codec", "clock"))

    def reencrypt_user(
        self, user_id: str, *, tenant: str | None = None, progress: Callable[[str], object] = lambda name: None
    ) -> dict[str, int]:
        """Encrypt everything there is of a user with the present key; see ``strands_manga_memory.reencrypt_user``.

        Raises:
            ValueError: ``codec`` was not given.
        """
        if self._memory_codec is None:
            raise ValueError("codec is None: pass MangaMemory.open(codec=Codec(cipher=...))")
        given = {name: store for name, store in self._of_user("clock").items() if name != "hot"}
        return reencrypt_user(user_id, tenant=tenant, codec=self._memory_codec, progress=progress, **given)

    def export_user(self, user_id: str, *, tenant: str | None = None) -> dict[str, Any]:
        """Return everything there is of a user; see ``strands_manga_memory.export_user``."""
        return export_user(user_id, tenant=tenant, memory_codec=self._memory_codec, **self._of_user("codec", "clock"))

    def _of_user(self, *names: str) -> dict[str, Any]:
        kept = {name: self._settings[name] for name in names if name in self._settings}
        return {**self._stores, **kept}

    @property
    def codec(self) -> Codec:
        """How what sessions store is compressed, encrypted and checksummed."""
        codec: Codec = self._settings.get("codec") or Codec()
        return codec

    def _known(self) -> Table:
        if self.memories is None:
            raise ValueError("memories is None: pass MangaMemory.open(memories=True), or a URL or table")
        table: Table = self._stores["memories"]
        return table

    def _cache(self, user_id: str, tenant: str | None) -> ProfileCache:
        return ProfileCache(
            self._stores["hot"], user_id=user_id, tenant=tenant, spool=self._spool, pii=self._pii, codec=self._memory_codec
        )

    async def prefetch(self, scope: ConversationScope) -> None:
        """Read a conversation off the event loop, so that the next agent of this scope is built without I/O."""
        environment = await asyncio.to_thread(self._surroundings, scope) if self._environment is not None else None
        tier = UserTier(environment)
        manager = self._manager(scope, {}, tier)
        await manager.prefetch(scope.agent_id)
        self._prefetched[scope] = Prepared(manager, tier, environment)

    def guard(
        self, client: MCPClient, policy: BreakerPolicy | None = None, *, shared: bool = False, **settings: Any
    ) -> GuardedMCPTools:
        """Return the tools of an MCP server, each behind a breaker: ``Agent(tools=[memory.guard(client)])``.

        The same client gives the same object as long as it is in use, so that all agents of the process share its breakers.

        Args:
            client: The connection.
            policy: Of the tools that have none of their own. Default that of the process: 5 failures, 30 s, calls of up to 2 s.
            shared: Whether the breakers are shared with the other processes that use the same hot tier.
            settings: Further keyword arguments of ``GuardedMCPTools``. Results that may stand in are kept by tenant and user.

        Raises:
            ValueError: The client is guarded already, and now other settings are asked for; or a setting is not allowed.
        """
        asked = {
            name: value for name, value in {"policy": policy, "shared": shared or None, **settings}.items() if value is not None
        }
        from strands_manga_memory.mcp import (  # whoever uses no MCP does not load it
            BreakerPolicy,
            GuardedMCPTools,
            SharedBreakers,
        )

        found = self._guards.get(id(client))
        if found is not None:
            if asked not in ({}, self._guards_asked[found]):
                raise ValueError(f"client is guarded already, with {self._guards_asked[found]!r}; got {asked!r}")
            return found
        settings.setdefault("user_of", _user_of)
        if shared:
            settings["shared"] = SharedBreakers(self._stores["hot"])
        if policy is None:
            defaults = self.settings
            policy = BreakerPolicy(defaults.breaker_failures, defaults.breaker_reset_after, defaults.breaker_timeout)
        guarded = self._guards[id(client)] = GuardedMCPTools(client, policy, **settings)
        self._guards_asked[guarded] = asked
        return guarded

    def _manager(self, scope: str | ConversationScope, settings: Mapping[str, Any], tier: UserTier) -> TieredSessionManager:
        if self.settings.telemetry and isinstance(settings.get("codec"), Codec):
            settings = {**settings, "codec": ObservedCodec(settings["codec"])}
        asked = {**self._settings, **settings}
        if "ttl" not in settings:  # one that is given for this very agent is left as it is
            asked["ttl"] = tier.policy(asked.get("ttl") or TtlPolicy())
        manager = TieredSessionManager(scope, hot=self._stores["hot"], durable=self._stores["durable"], **asked)
        self._managers.add(manager)
        return manager

    def stats(self) -> MemoryStats:
        """Return what is known of the tiers, the open sessions, and the operations of this process, without any I/O."""
        writer = shared_writer(self.hot if self.hot.survives_process else None, self.durable)
        operations = recorder.stats() if self.settings.telemetry else {}
        return memory_stats(writer, list(self._managers), list(self._guards.values()), operations)

    def close(self) -> None:
        """Flush every session that was opened here and give back the stores' connections.

        Raises:
            StoreUnavailableError: A tier did not take everything.
        """
        for manager in list(self._managers):
            manager.close()
        self._prefetched.clear()
        clock = self._settings.get("clock", time.time)
        hot = self._stores["hot"] if self.hot.survives_process else None
        gaps_of(shared_writer(hot, self.durable), self._stores["durable"]).save(clock())
        if self.memories is not None:  # what was heard goes into the cache first, then on to the sink
            shared_writer(self.hot, None).drain(_DRAIN_SECONDS)
            shared_writer(None, self.memories).drain(_DRAIN_SECONDS)
            self.memories.close()
        self.hot.close()
        self.durable.close()
        flush()


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
    return open_table(users_table_url("true", durable or _DEFAULTS.durable_url), USER_MEMORY)
