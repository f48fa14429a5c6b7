"""``MangaMemory``: the stores of a process, and the agents that are built on them."""

from __future__ import annotations

import asyncio
import dataclasses
import time
import weakref
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ParamSpec, Self, TypeVar, Unpack, cast

from strands import Agent
from strands.memory import MemoryManager
from strands.models import Model, ModelRouter
from strands.plugins import Plugin

from strands_manga_memory import memory
from strands_manga_memory.arguments import function, of_kind, with_method
from strands_manga_memory.assembly import agent_parts
from strands_manga_memory.assembly.agent_options import (
    STORE_OPTIONS,
    SessionSettings,
    check_options,
    merge_arguments,
    scope_of,
    split_options,
)
from strands_manga_memory.assembly.history_plan import HistoryPlan
from strands_manga_memory.assembly.process_stores import drain_outbox, observe_stores, open_outbox, open_stores, store_names
from strands_manga_memory.assembly.settings import History, MangaMemorySettings
from strands_manga_memory.deadline import in_thread
from strands_manga_memory.memory.records import Owner
from strands_manga_memory.scope import ConversationScope
from strands_manga_memory.session import HistoryPage, SessionSweeper, TieredSessionManager, TtlPolicy
from strands_manga_memory.session.tiers import Tiers
from strands_manga_memory.session.ttl import gaps_of
from strands_manga_memory.stores import Codec, HotStore, SQLiteTable, Table, TieredStorage
from strands_manga_memory.stores.writer import shared_writer
from strands_manga_memory.telemetry import ObservedCodec, flush, recorder, switch

if TYPE_CHECKING:
    from strands.tools.mcp import MCPClient

    from strands_manga_memory import conversation, language, mcp, prompt, state, user_data
    from strands_manga_memory.assembly.finalizer import SessionFinalizer
    from strands_manga_memory.assembly.memory_stats import MemoryStats
    from strands_manga_memory.assembly.provenance import RetractionReport, Source
    from strands_manga_memory.language.search import Embed

P = ParamSpec("P")
_Opened = TypeVar("_Opened")


class MangaMemory:
    """The stores of a process, and the agents that are built on them.

    ``with MangaMemory.open() as memory`` and ``async with`` close it. Every part also works alone, as in the quickstart.

    Args:
        hot: URL or store of the hot tier. Default ``memory://``, this process.
        durable: URL or table of the durable tier. Default: a SQLite file below the working directory.
        memories: URL or table of users' long-term memory; True: in the file or the service of the durable tier.
            Default none: agents know nothing of earlier sessions. False: as none, and an erasure does not look for
            a table that another process may write.
        create_tables: Create missing tables, with their TTL setting. Default True.
        sink: Destination of extracted preferences. Default: ``memories``.
        profile: Source of users' profiles in another service; ``profile_deadline`` of ``defaults`` bounds a read.
        pii: Policy for personal data in memories. Default: that of ``defaults``.
        environment: Source of each conversation's tier, locale and cart. The tier decides the time to live.
        embed: Function from texts to vectors of one length, such as a local model: recall and searches in memories then
            also find texts by meaning. Called in threads, once for each text. Default: by words alone.
        defaults: Further settings of the process: the history of its agents, their breakers, telemetry.
            Default ``MangaMemorySettings()``.
        settings: Further keyword arguments of every ``TieredSessionManager``, such as ``refresh`` or ``flush_every``.

    Attributes:
        hot: The hot tier.
        durable: The durable tier.
        memories: Long-term memory of users, or None.
        settings: Settings of the process.

    Raises:
        ValueError: A URL is not understood, or a setting is not allowed.
        StoreUnavailableError: The durable tier does not answer.
    """

    def __init__(
        self,
        hot: str | HotStore | None = None,
        durable: str | Table | None = None,
        *,
        memories: str | Table | bool | None = None,
        create_tables: bool = True,
        sink: memory.PreferenceSink | None = None,
        profile: memory.ProfileSource | None = None,
        pii: memory.PiiPolicy | None = None,
        environment: state.EnvironmentSource | None = None,
        embed: Embed | None = None,
        defaults: MangaMemorySettings | None = None,
        **settings: Unpack[SessionSettings],
    ) -> None:
        check_options(settings, similar=STORE_OPTIONS)
        of_kind("create_tables", create_tables, bool, "True or False")
        self.settings = of_kind("defaults", defaults or MangaMemorySettings(), MangaMemorySettings)
        self._session_settings: dict[str, Any] = dict(settings)
        self._memory_codec: Codec | None = settings.get("codec")  # without one, memories can be read with plain boto3
        self._clock: Any = {"clock": settings["clock"]} if "clock" in settings else {}
        stores = open_stores(hot, durable, memories)
        self.hot: HotStore = stores["hot"]
        self.durable: Table = stores["durable"]
        self.memories: Table | None = stores["memories"]
        self._names = store_names(stores, hot, durable, memories)
        # Refuses a value that no session could take.
        Tiers.of(self.hot, self.durable, **{"clock": time.time, **self._session_settings})
        self._environment = environment and with_method("environment", environment, "load(scope)")
        self._embed = embed and function("embed", embed, "a function from texts to vectors")
        self._pii = of_kind("pii", pii or self.settings.pii_policy(self._memory_codec), memory.PiiPolicy)
        self._profile = memory.ProfileReader.of(profile, deadline=self.settings.profile_deadline)
        switch(on=self.settings.telemetry)
        self._stores: dict[str, Any] = stores
        if self.settings.telemetry:
            self._stores = observe_stores(**stores)
            self._session_settings["codec"] = ObservedCodec(self._memory_codec or Codec())
        self._memory_options: Any = {"pii": self._pii, "codec": self._memory_codec}
        self._outbox = None
        if self.memories is not None:
            self._outbox = open_outbox(self._stores["memories"], sink, hot=self.hot, **self._memory_options, **self._clock)
        self._memory_options["outbox"] = self._outbox
        self._user_table: Any = False if memories is False else self._stores["memories"]
        for table in (self.durable, self.memories) if create_tables else ():
            if table is not None:
                table.create_if_missing()
        self._managers: weakref.WeakSet[TieredSessionManager] = weakref.WeakSet()
        self._prefetched: dict[ConversationScope, agent_parts.AgentBasis] = {}
        self._guards = agent_parts.ClientGuards(self.settings)
        self._parts: weakref.WeakKeyDictionary[Any, ConversationScope] = weakref.WeakKeyDictionary()

    @classmethod
    def open(cls: Callable[P, _Opened], *args: P.args, **arguments: P.kwargs) -> _Opened:
        """Open the stores, as the constructor does. The class describes the arguments."""
        return cls(*args, **arguments)

    @classmethod
    def from_env(cls, **settings: Any) -> Self:
        """Open the stores that ``MANGA_MEMORY_HOT_URL`` and the other variables of ``MangaMemorySettings`` name.

        Args:
            settings: Keyword arguments of ``open``; they replace those of the variables.

        Raises:
            ValueError: A variable has a value that is not allowed. The message names both.
        """
        return cls.from_settings(MangaMemorySettings.from_env(), **settings)

    @classmethod
    def from_settings(cls, settings: MangaMemorySettings, **others: Any) -> Self:
        """Open the stores that the settings name.

        Args:
            settings: Settings of the process.
            others: Keyword arguments of ``open``; they replace those of the settings.
        """
        return cls.open(**{**settings.open_arguments(), **others})

    def agent(self, model: Model | ModelRouter | str | None = None, **options: Any) -> Agent:
        """Build an agent: ``strands.Agent`` with the keyword arguments of ``agent_kwargs``.

        Example: ``memory.agent(model, user_id="u1", session_id="s1", tools=[search], max_tokens=4_096)``.

        Args:
            model: The model, a router, or the id of a model of Bedrock. Default: the one of Strands.
            options: Arguments of ``agent_kwargs``, those of ``strands.Agent`` among them.

        Raises:
            ValueError: An id or a setting is not allowed.
        """
        return Agent(model=model, **self.agent_kwargs(**options))

    def agent_kwargs(
        self,
        *,
        scope: ConversationScope | None = None,
        user_id: str | None = None,
        session_id: str | None = None,
        agent_id: str | None = None,
        tenant: str | None = None,
        session: bool = True,
        history: History | None = None,
        max_tokens: int | None = None,
        trim_to: int | None = None,
        max_turns: int | None = None,
        recall: bool | None = None,
        summary_schedule: conversation.SummarySchedule | None = None,
        learn: memory.Learn | None = None,
        task_state: bool | Mapping[str, Any] | None = None,
        instructions: bool | prompt.InstructionFiles = False,
        cache_monitor: prompt.PromptCacheMonitor | None = None,
        **options: Any,
    ) -> dict[str, Any]:
        """Return keyword arguments for ``strands.Agent``: managers, plugins, and the ``agent_id``.

        With ``memories``, also a ``memory_manager`` that searches them. A part that was not asked for is left out.

        ``Agent(plugins=[mine], **memory.agent_kwargs(...))`` is a TypeError if there are plugins of ours: give other arguments
        of ``Agent`` here, ``Agent(model=model, **memory.agent_kwargs(..., plugins=[mine], tools=[...]))``, or to
        ``memory.agent(...)``. Plugins are added to ours; a ``conversation_manager``, ``session_manager`` or ``memory_manager``
        replaces ours, and a ``context_manager`` our conversation manager.

        Args:
            scope: The conversation, instead of the four ids.
            user_id: The user.
            session_id: The session, unique within the user.
            agent_id: The agent, unique within the session. Default ``default``, the id of Strands.
            tenant: The tenant; None is a tenant of its own.
            session: False for nodes of a Graph or Swarm and for agents used as tools, which have no session manager.
            history: ``importance``: kept within ``max_tokens`` at every model call. ``summarize``: grows to about twice
                as much (8,000 by default, at most half the model's window) or 20 turns, then a verified summary,
                written after the response by the ``aux_model``, replaces all but the last 3 turns and important messages.
                ``compact``: grows until a request comes near the model's window, then shrinks in stages as
                ``TieredCompactionConversationManager`` does, without ``max_tokens`` and ``trim_to``. Default ``importance``.
            max_tokens: Tokens of history. Default: a quarter of the model's context window, at most 16,384 (4,096 with
                summaries), and 4,096 for an unknown window: see ``budget_plan``.
            trim_to: Tokens to which a history over ``max_tokens`` is trimmed in one step, so that until the next step a
                provider's prompt cache has the whole previous request. ``max_tokens`` itself trims every turn. Default: room
                for about seven turns like the last ones, at least two thirds of ``max_tokens``.
            max_turns: Most turns of a history. Default: as many as fit.
            recall: Quote evicted messages of this session that fit the user's question, and offer the model a tool to
                search them. 1,024 of ``max_tokens``, at most a quarter, are reserved for quotes. The first question of each
                agent reads the session's log, once. Default False.
            summary_schedule: Longest wait for summaries. Default ``SummarySchedule()``: none, in the background.
            learn: Extraction of the user's preferences after a turn: ``rules``, in English and Japanese; ``model``, then also
                by the agent's ``aux_model``, in the background, without values whose words the user did not use; or
                ``nothing``. Default ``rules`` with ``memories``.
            task_state: Whether a ``StateCoordinator`` keeps the task state and shows it to the model; a mapping: its keyword
                arguments, such as ``intents``. It receives changes by ``changes(...)``. Default False.
            instructions: Whether instruction files, read once, are added to the system prompt; True: ``InstructionFiles()``,
                those of the working directory, ``~/.agent`` and ``/etc/agent/global``. Default False.
            cache_monitor: Monitor of the share of cached prompt tokens; one may serve all agents. Default none.
            options: Keyword arguments of this ``TieredSessionManager`` and of ``strands.Agent``.

        Settings that are not given here are those of the process.

        Raises:
            ValueError: An id or a setting is not allowed.
        """
        settings, own = split_options(options)
        of_kind("session", session, bool, "True or False")
        wanted = self.settings.over(history=history, max_tokens=max_tokens, trim_to=trim_to, max_turns=max_turns, recall=recall)
        plan = HistoryPlan(wanted, summary_schedule)
        scope = scope_of(scope, user_id=user_id, session_id=session_id, agent_id=agent_id, tenant=tenant)
        plugins: list[Plugin] = [] if instructions is False else [agent_parts.make_instructions_plugin(instructions)]
        is_saved = session and own.get("session_manager") is None
        basis = (None if settings else self._prefetched.pop(scope, None)) or self._basis(scope, settings, is_saved=is_saved)
        manager = basis.manager if is_saved else None
        arguments: dict[str, Any] = {"conversation_manager": plan.manager(session=manager, hot=self._stores["hot"])}
        if scope.agent_id != "default":
            arguments["agent_id"] = scope.agent_id
        if manager is not None:
            arguments["session_manager"] = manager
        if self.memories is not None or learn not in (None, "nothing"):
            store = self.user(scope.user_id, tenant=scope.tenant)
            cache = self._profile_cache(scope.user_id, scope.tenant)
            plugins.append(user := memory.UserContext(store, cache, session_id=scope.session_id, learn=learn or "rules"))
            if manager is not None:
                manager.when_redacted(user.redacted)
            injection: Any = {"query": user.query, "format": user.collect_found}
            arguments["memory_manager"] = MemoryManager(stores=[store], injection=injection)
        state_options = wanted.task_state if task_state is None else task_state
        if state_options is not False:
            known = {"source": self._environment, "scope": scope, "hot": self.hot, "codec": self._memory_codec}
            known |= {f"wall_{name}": clock for name, clock in self._clock.items()}
            plugins.append(agent_parts.make_coordinator(state_options, basis, is_saved=is_saved, **known))
        elif basis.environment is not None:
            plugins.append(agent_parts.EnvironmentMetadata(basis.environment))
        if wanted.recall:
            clock = self._clock.get("clock", time.time)
            plugins.append(agent_parts.make_recall_plugin(plan.recall_tokens, session=manager, embed=self._embed, clock=clock))
        if cache_monitor is not None:
            plugins.append(agent_parts.check_cache_monitor(cache_monitor))
        self._parts.update(dict.fromkeys([arguments["conversation_manager"], *plugins], scope))
        return merge_arguments({**arguments, "plugins": plugins}, own)

    def session(self, scope: str | ConversationScope, **settings: Unpack[SessionSettings]) -> TieredSessionManager:
        """Return the session manager of a conversation: for its log, its metadata, or an agent that you build yourself.

        Args:
            scope: The conversation, or the plain id of a session without a user.
            settings: Keyword arguments of this ``TieredSessionManager``; they replace those of the process.
        """
        check_options(settings)
        return self._manager(scope, settings, agent_parts.UserTier(None))

    async def prefetch(self, scope: ConversationScope) -> None:
        """Read a conversation off the event loop, so that the next agent of this scope is built without I/O."""
        basis = await asyncio.to_thread(self._basis, scope, {}, is_saved=True)
        if basis.manager is not None:
            await basis.manager.prefetch(scope.agent_id)
        self._prefetched[scope] = basis

    def _basis(self, scope: ConversationScope, settings: Mapping[str, Any], *, is_saved: bool) -> agent_parts.AgentBasis:
        environment = agent_parts.load_environment(self._environment, scope)
        tier = agent_parts.UserTier(environment)
        return agent_parts.AgentBasis(self._manager(scope, settings, tier) if is_saved else None, tier, environment)

    def _manager(
        self, scope: str | ConversationScope, settings: Mapping[str, Any], tier: agent_parts.UserTier
    ) -> TieredSessionManager:
        given = {**self._session_settings, **settings}
        if self.settings.telemetry and isinstance(settings.get("codec"), Codec):
            given["codec"] = ObservedCodec(settings["codec"])
        if "ttl" not in settings:  # a policy that is given for this agent keeps its tier
            given["ttl"] = tier.policy(given.get("ttl") or TtlPolicy())
        manager = TieredSessionManager(scope, **self._tiers(), **given)
        self._managers.add(manager)
        return manager

    def user(self, user_id: str, *, tenant: str | None = None) -> memory.UserMemoryStore:
        """Return the long-term memory of a user.

        Raises:
            ValueError: ``memories`` was not opened, or an id is not allowed.
        """
        return memory.UserMemoryStore(
            self._memory_table(),
            user_id=user_id,
            tenant=tenant,
            retention=self.settings.retention(),
            profile=self._profile,
            embed=self._embed,
            hot=self._stores["hot"],
            **self._memory_options,
            **self._clock,
        )

    def _profile_cache(self, user_id: str, tenant: str | None) -> memory.ProfileCache:
        # With a hot tier of this process alone, a local table has other processes' changes at each model call.
        # A table over the network is not read on the way to a model.
        reads = isinstance(self.memories, SQLiteTable) and not self.hot.survives_process
        options = {**self._memory_options, "log": self.user(user_id, tenant=tenant).preference_log}
        return memory.ProfileCache(self._stores["hot"], user_id=user_id, tenant=tenant, reads_revision=reads, **options)

    def _memory_table(self) -> Table:
        if self.memories is None:
            raise ValueError("memories is None: pass MangaMemory.open(memories=True), or a URL or table")
        return cast("Table", self._stores["memories"])

    def storage(self, *, user_id: str, tenant: str | None = None, hot_ttl: float = 1_800.0) -> TieredStorage:
        """Return a ``Storage`` of a user over both tiers: for ``SnapshotSessionManager``, ``Agent(storage=)``, the stash.

        Values stay in the hot tier for ``hot_ttl`` seconds.

        Raises:
            ValueError: An id is not allowed, or ``hot_ttl`` is not above 0.
        """
        codec = self._session_settings.get("codec")
        return TieredStorage(user_id=user_id, tenant=tenant, codec=codec, hot_ttl=hot_ttl, **self._tiers(), **self._clock)

    def changes(self, *, user_id: str, session_id: str, tenant: str | None = None) -> state.EnvironmentChanges:
        """Return the publisher of outside changes to the live agents of a session: ``changes(...).publish(cart=[...])``.

        Raises:
            ValueError: An id is not allowed.
        """
        from strands_manga_memory import state

        scope = ConversationScope(user_id, session_id, tenant=tenant)
        return state.EnvironmentChanges(self.hot, scope, codec=self._memory_codec)

    def guard(self, client: MCPClient, policy: mcp.BreakerPolicy | None = None, **settings: Any) -> mcp.GuardedMCPTools:
        """Return the tools of an MCP server, each behind a breaker that all agents of the process share.

        Args:
            client: The connection, such as in ``memory.agent(model, scope=scope, tools=[memory.guard(client)])``.
            policy: Policy of tools without their own. Default: that of the process, 5 failures, 30 s, calls of up to 2 s.
            settings: Further keyword arguments of ``GuardedMCPTools``. Fallback results are stored per tenant and user.

        Raises:
            ValueError: The client is guarded with other settings, or a setting is not allowed.
        """
        return self._guards.guard(client, policy, settings)

    def sessions(
        self, user_id: str, *, tenant: str | None = None, limit: int = 20, after: str | None = None
    ) -> user_data.SessionPage:
        """Return a page of a user's sessions, with title, last use and turns. Writes nothing.

        Pages are in the order of the session ids, the sessions of a page by their last use. The title reads the session's log.

        Args:
            user_id: The user.
            tenant: The user's tenant.
            limit: Most sessions of the page. Default 20.
            after: ``next`` of the page before.

        Raises:
            ValueError: An id is not allowed, or ``limit`` is below 1.
            StoreUnavailableError: A tier does not answer.
        """
        from strands_manga_memory import user_data

        owner = Owner(user_id, tenant)
        return user_data.list_sessions(self._stores["durable"], owner, self.session, limit=limit, after=after)

    def users(self, *, limit: int = 100, after: str | None = None) -> user_data.UserPage:
        """Return a page of the users who have sessions. Reads the expiry index of all sessions.

        Args:
            limit: Most users of the page. Default 100.
            after: ``next`` of the page before.

        Raises:
            ValueError: ``limit`` is below 1.
            StoreUnavailableError: The durable tier does not answer.
        """
        from strands_manga_memory import user_data

        return user_data.list_users(self._stores["durable"], limit=limit, after=after)

    def delete_session(self, user_id: str, session_id: str, *, tenant: str | None = None) -> None:
        """Delete a session: its conversations in both tiers, its dialogue state and its published environment.

        Memories that were made of it stay; ``user(...).forget`` and ``forget_user`` delete those.

        Raises:
            ValueError: An id is not allowed.
            StoreUnavailableError: A tier does not answer; repeat the call.
        """
        self.session(ConversationScope(user_id, session_id, tenant=tenant)).delete_session()
        self.changes(user_id=user_id, session_id=session_id, tenant=tenant).erase()

    def history(self, scope: ConversationScope, *, limit: int = 50, after: str | None = None) -> HistoryPage:
        """Return a page of a conversation's log, the last messages first; see ``TieredSessionManager.history_page``."""
        return self.session(scope).history_page(scope.agent_id, limit=limit, after=after)

    def fork(self, scope: ConversationScope, at_turn: int, *, session_id: str) -> ConversationScope:
        """Begin a session with the first turns of a conversation; return its scope. See ``TieredSessionManager.fork``."""
        self.session(scope).fork(at_turn, session_id=session_id)
        return dataclasses.replace(scope, session_id=session_id)

    def rewind(self, scope: ConversationScope, at_turn: int) -> None:
        """Return a conversation to the end of a turn; see ``TieredSessionManager.rewind``."""
        self.session(scope).rewind(at_turn)

    def finalizer(self, model: Model | language.SessionSummarizer | None = None) -> SessionFinalizer:
        """Return the finalizer, which turns ended sessions into memories. Default ``model``: summaries by rules.

        Raises:
            ValueError: ``memories`` was not opened.
        """
        from strands_manga_memory.assembly.finalizer import SessionFinalizer

        return SessionFinalizer(
            memories=self._memory_table(),
            model=model,
            pii=self._pii,
            retention=self.settings.retention(),
            memory_codec=self._memory_codec,
            **self._tiers("ttl", "codec", "clock"),
        )

    def sweeper(self, model: Model | language.SessionSummarizer | None = None) -> SessionSweeper:
        """Return the sweeper, which ends expired sessions; with ``memories`` it turns them into memories."""
        finalizer = None if self.memories is None else self.finalizer(model)
        return SessionSweeper(finalizer=finalizer, **self._tiers("ttl", "codec", "clock"))

    def finalize(
        self, scope: ConversationScope, *, model: Model | language.SessionSummarizer | None = None
    ) -> memory.MemoryRecord | None:
        """Close a session and store its memories; return its summary, or None if it has no messages.

        Raises:
            ValueError: ``memories`` was not opened, or ``scope`` is no ``ConversationScope``.
            StoreUnavailableError: A store does not answer.
        """
        of_kind("scope", scope, ConversationScope)
        for manager in list(self._managers):
            if manager.scope is not None and manager.scope.storage_session_id == scope.storage_session_id:
                manager.close()
        return self.finalizer(model).run(scope)

    def disconnected(self, scope: ConversationScope) -> bool:
        """Start the grace period of a user who has disconnected, as long as the time to live; a return within it resumes.

        Returns:
            Whether the conversation is in the hot tier; ``sweeper()`` finalizes it after the grace period.

        Raises:
            ValueError: ``memories`` was not opened, or ``scope`` is no ``ConversationScope``.
        """
        return self.finalizer().disconnected(of_kind("scope", scope, ConversationScope))

    def forget_user(
        self, user_id: str, *, tenant: str | None = None, progress: Callable[[str], object] = lambda name: None
    ) -> user_data.ErasureReport:
        """Delete all data of a user; see ``user_data.forget_user``."""
        from strands_manga_memory import user_data

        stores = self._tiers("ttl", "codec", "clock")
        return user_data.forget_user(user_id, tenant=tenant, progress=progress, memories=self._user_table, **stores)

    def export_user(self, user_id: str, *, tenant: str | None = None) -> dict[str, Any]:
        """Return all data of a user; see ``user_data.export_user``."""
        from strands_manga_memory import user_data

        stores = {**self._tiers("codec", "clock"), "memories": self._user_table}
        return user_data.export_user(user_id, tenant=tenant, memory_codec=self._memory_codec, **stores)

    def _tiers(self, *settings: str) -> dict[str, Any]:
        """Return hot and durable tier, with those of the given session settings that are set."""
        given = {name: self._session_settings[name] for name in settings if name in self._session_settings}
        return {"hot": self._stores["hot"], "durable": self._stores["durable"], **given}

    def explain(self, agent: Agent) -> list[Source]:
        """Return the sources of the last request of an agent that was built here.

        Each preference, memory, summary, quote, entity and slot of the request is listed with its message and session.
        Empty for an agent of another ``MangaMemory``. May read the memory table.
        """
        from strands_manga_memory.assembly.provenance import explain

        return explain(dict(self._parts), agent)

    def retract(self, source: Source) -> RetractionReport:
        """Remove an entry of ``explain`` from memories, summaries, roll-ups, the hot tier, the dialogue state and live agents.

        The preferences of its message are deleted, as are the summaries and episodes of the message's session. A memory
        without a known message is deleted. The messages of the conversation itself stay: redact them in its session.

        Raises:
            StoreUnavailableError: The memory table does not answer; repeat the call.
        """
        from strands_manga_memory.assembly.provenance import retract

        store = None if self.memories is None else self.user(source.scope.user_id, tenant=source.scope.tenant)
        return retract(dict(self._parts), source, store)

    @property
    def codec(self) -> Codec:
        """Compression, encryption and checksums of stored sessions."""
        return self._session_settings.get("codec") or Codec()

    def stats(self) -> MemoryStats:
        """Return the figures of the tiers, the open sessions, and the operations of this process, without any I/O."""
        from strands_manga_memory.assembly.memory_stats import memory_stats

        operations = recorder.stats() if self.settings.telemetry else {}
        writer = shared_writer(self.hot if self.hot.survives_process else None, self.durable)
        return memory_stats(writer, list(self._managers), list(self._guards), operations, list(self._parts))

    def __repr__(self) -> str:
        return f"MangaMemory({', '.join(f'{tier}={store}' for tier, store in self._names.items())})"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await asyncio.to_thread(self.close)

    def close(self) -> None:
        """Flush every session that was opened here, and close the stores' connections.

        Raises:
            StoreUnavailableError: A tier did not take everything.
        """
        for manager in list(self._managers):
            manager.close()
        self._prefetched.clear()
        clock = self._clock.get("clock", time.time)
        hot = self._stores["hot"] if self.hot.survives_process else None
        gaps_of(shared_writer(hot, self.durable), self._stores["durable"]).save(clock())
        if self.memories is not None:
            drain_outbox(self.hot, self.memories)
            self.memories.close()
        self.hot.close()
        self.durable.close()
        flush()

    # Asynchronous forms of methods with I/O

    sessions_async = in_thread(sessions)
    users_async = in_thread(users)
    history_async = in_thread(history)
    fork_async = in_thread(fork)
    rewind_async = in_thread(rewind)
    delete_session_async = in_thread(delete_session)
    agent_async = in_thread(agent)
    agent_kwargs_async = in_thread(agent_kwargs)
    finalize_async = in_thread(finalize)
    disconnected_async = in_thread(disconnected)
    forget_user_async = in_thread(forget_user)
    export_user_async = in_thread(export_user)
    explain_async = in_thread(explain)
    retract_async = in_thread(retract)
    close_async = in_thread(close)
