"""The class ``MangaMemory``, which opens the stores of a process and builds agents on them."""

from __future__ import annotations

import dataclasses
import time
import weakref
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, ParamSpec, Self, TypeVar, Unpack, cast

from strands import Agent
from strands.memory import MemoryManager
from strands.models import Model, ModelRouter

from strands_manga_memory import memory
from strands_manga_memory.arguments import check_callable, checked
from strands_manga_memory.assembly import agent_parts, process_stores, provenance
from strands_manga_memory.assembly.settings import History, MangaMemorySettings
from strands_manga_memory.deadline import in_thread
from strands_manga_memory.exceptions import StoreUnavailableError
from strands_manga_memory.lifecycle import members_of
from strands_manga_memory.memory.records import Owner
from strands_manga_memory.scope import ConversationScope
from strands_manga_memory.session import (
    HistoryPage,
    SessionSweeper,
    TieredSessionManager,
    TtlPolicy,
)
from strands_manga_memory.session.tiers import Tiers
from strands_manga_memory.session.ttl import gaps_of
from strands_manga_memory.stores import Codec, HotStore, SQLiteTable, Table, TieredStorage
from strands_manga_memory.telemetry import (
    ObservedStore,
    flush,
    observed_codec,
    recorder,
    set_enabled,
)

if TYPE_CHECKING:
    from strands.tools.mcp import MCPClient

    from strands_manga_memory import conversation, language, mcp, prompt, state, user_data
    from strands_manga_memory.assembly.finalizer import SessionFinalizer
    from strands_manga_memory.language.search import Embed

P = ParamSpec("P")
_Opened = TypeVar("_Opened")


class MangaMemory:
    """Entry point of the package: opens the stores of a process, and builds agents on them.

    ``with MangaMemory.open() as memory`` and ``async with`` close the stores at the end.

    Args:
        hot: URL or store of the hot tier, which holds active conversations. Default ``memory://``:
            the memory of this process.
        durable: URL or table of the durable tier, the database. Default: a SQLite file below the
            working directory.
        memories: URL or table of users' long-term memory. True: the default table, next to the
            durable tier. False: no table. None (default): no table, but ``forget_user`` also
            deletes the user's memories from the default table, if it exists.
        create_tables: Whether to create missing tables, with their TTL setting. Default True.
        sink: Destination of preferences that are extracted from users' messages; needs
            ``memories``. Default: ``memories``.
        profile: Source of users' profiles in another service.
        pii: Policy for personal data in memories. Default: that of ``defaults``.
        environment: Source of the user's locale, cart and customer tier. The tier, such as
            ``premium``, sets the TTL of conversations.
        embed: Function from texts to vectors of equal length, for searches by meaning, called in
            threads. Vectors of stored texts are cached. Default: searches by words.
        defaults: Settings of the process, which apply where no other argument is given. Default
            ``MangaMemorySettings()``.
        settings: Further arguments of every ``TieredSessionManager``, such as ``codec`` or ``ttl``.

    Attributes:
        hot: The hot tier.
        durable: The durable tier.
        memories: Long-term memory of users, or None.
        settings: Settings of the process.
        codec: Codec that compresses, encrypts and checksums stored sessions.

    Raises:
        ValueError: A URL is not understood, or a setting is not allowed.
        StoreUnavailableError: The durable tier does not answer.
    """

    @checked
    def __init__(
        self,
        hot: str | HotStore | None = None,
        durable: str | Table | None = None,
        *,
        memories: str | Table | bool | None = None,
        create_tables: bool | None = None,
        sink: memory.PreferenceSink | None = None,
        profile: memory.ProfileSource | None = None,
        pii: memory.PiiPolicy | None = None,
        environment: state.EnvironmentSource | None = None,
        embed: Embed | None = None,
        defaults: MangaMemorySettings | None = None,
        **settings: Unpack[agent_parts.SessionSettings],
    ) -> None:
        of_session, agent_method = agent_parts.SESSION_OPTIONS, self.agent_kwargs
        agent_parts.check_options(settings, of_session, call=MangaMemory, agent_method=agent_method)
        ours = self.settings = defaults or MangaMemorySettings()
        clock = self._clock = settings.get("clock", time.time)
        # Without a codec, memories can be read with plain boto3.
        codec = self._memory_codec = settings.get("codec")
        self.codec = codec or Codec()
        hot = ours.hot_url if hot is None else hot
        durable = ours.durable_url if durable is None else durable
        memories = ours.memory_table() if memories is None else memories
        stores, self._names = process_stores.open_stores(hot, durable, memories)
        self.hot: HotStore = stores["hot"]
        self.durable: Table = stores["durable"]
        self.memories: Table | None = stores["memories"]
        own = {**ours.session_arguments(), **settings, "clock": clock}
        # raises an error for an invalid setting
        self._writer = Tiers.of(self.hot, self.durable, **own).writer
        takes_scope = "a function that takes a scope"
        self._environment = environment and check_callable("environment", environment, takes_scope)
        self._embed = embed and check_callable("embed", embed, "a function from texts to vectors")
        set_enabled(enabled=ours.telemetry)
        self._agent_arguments = ours.agent_arguments()
        if ours.telemetry:
            stores = {tier: store and ObservedStore(store, tier) for tier, store in stores.items()}
            self.codec = observed_codec(self.codec)
        self._stores = stores
        tiers = {"hot": stores["hot"], "durable": stores["durable"]}
        self._tiers: dict[str, Any] = {**tiers, "codec": self.codec, "clock": clock}
        self._session_settings: dict[str, Any] = {**own, **self._tiers}
        sealed: dict[str, Any] = {"codec": codec, "clock": clock}
        self._memory_options: dict[str, Any] = {
            **sealed,
            "hot": stores["hot"],
            "pii": pii or ours.pii_policy(codec),
            "embed": self._embed,
            "retention": ours.retention(),
            "profile": memory.ProfileReader.wrap(profile, deadline=ours.profile_deadline),
        }
        if sink is not None:
            outbox = memory.PreferenceOutbox(self._memory_table(), sink=sink, **sealed)
            self._memory_options["outbox"] = outbox
        self._user_table: Any = False if memories is False else stores["memories"]
        if ours.create_tables if create_tables is None else create_tables:
            for table in filter(None, (self.durable, self.memories)):
                table.create_if_missing()
        self._guards: weakref.WeakSet[mcp.GuardedMCPTools] = weakref.WeakSet()
        self._managers: weakref.WeakSet[TieredSessionManager] = weakref.WeakSet()
        self._parts: weakref.WeakKeyDictionary[Any, ConversationScope] = weakref.WeakKeyDictionary()

    @classmethod
    def open(cls: Callable[P, _Opened], *args: P.args, **arguments: P.kwargs) -> _Opened:
        """Return a ``MangaMemory`` with open stores. The arguments are those of the class."""
        return cls(*args, **arguments)

    @classmethod
    def from_env(cls, **settings: Any) -> Self:
        """Open the stores that environment variables name, such as ``MANGA_MEMORY_HOT_URL``.

        See ``MangaMemorySettings``. Arguments of ``open`` override the variables.
        """
        return cls(defaults=MangaMemorySettings.from_env(), **settings)

    def agent(self, model: Model | ModelRouter | str | None = None, **options: Any) -> Agent:
        """Build a ``strands.Agent`` from the keyword arguments that ``agent_kwargs`` returns.

        Example: ``memory.agent(model, user_id="u1", session_id="s1", tools=[search])``.

        Args:
            model: The model, a router, or the id of a Bedrock model. Default: that of Strands.
            options: Arguments of ``agent_kwargs``, including those of ``strands.Agent``.
        """
        return Agent(model=model, **self.agent_kwargs(**options))

    @checked
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
        trim_every: int | None = None,
        max_turns: int | None = None,
        recall: bool | None = None,
        summary_schedule: conversation.SummarySchedule | None = None,
        learn: memory.Learn | None = None,
        task_state: bool | Mapping[str, Any] | None = None,
        instructions: bool | prompt.InstructionFiles = False,
        cache_monitor: prompt.PromptCacheMonitor | None = None,
        **options: Any,
    ) -> dict[str, Any]:
        """Return keyword arguments for ``strands.Agent``: managers, plugins and ``agent_id``.

        With a memory table, the result includes a ``memory_manager`` that searches the user's
        memories. Other optional parts are included only on request.

        Pass further arguments of ``Agent`` here, as in ``agent_kwargs(..., plugins=[mine])``,
        because in ``Agent(...)`` they would collide with the result. Your plugins are added. Your
        ``conversation_manager``, ``session_manager`` or ``memory_manager`` replaces the package's,
        and your ``context_manager`` replaces the package's ``conversation_manager``.

        Args:
            scope: The conversation, in place of the next four arguments.
            user_id: The user.
            session_id: The session, unique within the user.
            agent_id: The agent, unique within the session. Default ``default``, the id of Strands.
            tenant: The tenant. None: users without a tenant, separate from those of every tenant.
            session: Whether the agent gets a session manager. Set False for a node of a Graph or
                Swarm, and for an agent that is a tool. Default True.
            history: Method that limits the agent's history.

                - ``importance`` (default): the history fits ``max_tokens`` at every model call.
                - ``summarize``: a checked summary replaces all turns except the last 3 and pinned
                  messages. It is written after a response if there were 20 turns without a summary,
                  or the history has reached about twice ``max_tokens`` (by default, 8,000 tokens
                  or, if less, half the model's context window). Its writer is the ``aux_model``,
                  else the ``summary_model`` of the settings, else the agent's model.
                - ``compact``: the history grows until a request comes near the context window, and
                  then shrinks in stages.
            max_tokens: Most tokens of the history. Default: a quarter of the model's context
                window, at most 16,384 (with ``summarize``, 4,096); 4,096 for an unknown window. See
                ``budget_plan``.
            trim_every: Approximate number of turns between two trimmings of a full history. At
                least two thirds (with large results, a third) of ``max_tokens`` stay. Meanwhile,
                the prompt cache can serve the previous request. 0: every turn trims. Default 7.
            max_turns: Most turns of a history. Default: as many as fit.
            recall: Whether requests quote evicted messages that match the user's question, and the
                model can search them by a tool. Quotes have at most 1,024 tokens or, if less, a
                quarter of ``max_tokens``. Default False.
            summary_schedule: When to log a warning before a summary, and when to wait for it. By
                default, a model call waits up to 30 s at 1.5 times the history that starts a
                summary.
            learn: How preferences are extracted. ``rules``: by rules for English and Japanese.
                ``model``: also by the agent's ``aux_model``, in the background. ``nothing``: never.
                Default: ``model`` if there is an ``aux_model`` or ``summary_model``, else rules.
            task_state: Whether a ``StateCoordinator`` shows the task state and the environment to
                the model; or a mapping with its arguments, such as ``intents``. Default False.
            instructions: Whether instruction files are read once and added to the system prompt;
                True: the files in the working directory, ``~/.agent`` and ``/etc/agent/global``.
                Default False.
            cache_monitor: Monitor of the share of cached prompt tokens; agents may share one.
            options: Further arguments of ``TieredSessionManager`` and of ``Agent``.

        The constructor's argument ``defaults`` replaces the default values above.
        """
        of_session = agent_parts.SESSION_OPTIONS
        known = (*of_session, *agent_parts.AGENT_OPTIONS)
        agent_parts.check_options(options, known, call=self.agent_kwargs)
        settings = {name: options.pop(name) for name in of_session if name in options}
        limits = {"max_tokens": max_tokens, "trim_every": trim_every, "max_turns": max_turns}
        wanted = self.settings.with_values(history=history, recall=recall, **limits)
        scope = agent_parts.scope_of(
            scope, user_id=user_id, session_id=session_id, agent_id=agent_id, tenant=tenant
        )
        plugins = agent_parts.make_prompt_plugins(instructions, cache_monitor)
        state_options = wanted.task_state if task_state is None else task_state
        hot = None if state_options is False else self.hot
        shared: Any = {"hot": hot, "deadline": self._session_settings["hot_deadline"]}
        manager = tracker = None
        if self._environment is not None:
            from strands_manga_memory.state import EnvironmentTracker

            of_source: Any = {"source_deadline": wanted.profile_deadline, **shared}
            tracker = EnvironmentTracker(self._environment, scope, **of_source)
        if session and options.get("session_manager") is None:
            manager = self._manager(scope, settings, tracker)
        history_manager = agent_parts.make_history_manager(
            wanted, summary_schedule, session=manager, hot=self._stores["hot"]
        )
        arguments = {**self._agent_arguments, "conversation_manager": history_manager}
        if scope.agent_id != "default":
            arguments["agent_id"] = scope.agent_id
        if manager is not None:
            arguments["session_manager"] = manager
        if self.memories is not None or learn not in (None, "nothing"):
            store = self.user(scope.user_id, tenant=scope.tenant)
            # Without a shared hot tier, each model call looks for changes in a local file.
            reads = isinstance(self.memories, SQLiteTable) and not self.hot.survives_process
            user = memory.UserContext(
                store, session_id=scope.session_id, learn=learn, reads_revision=reads
            )
            plugins.append(user)
            if manager is not None:
                manager.when_redacted(user.redacted)
            injection: Any = {"query": user.query, "format": user.collect_results}
            arguments["memory_manager"] = MemoryManager(stores=[store], injection=injection)
        if state_options is not False:
            shared |= {"environment": tracker, "scope": scope, "codec": self._memory_codec}
            shared["wall_clock"] = self._clock
            plugins.append(agent_parts.make_coordinator(state_options, wanted, manager, **shared))
        elif tracker is not None:
            plugins.append(tracker)
        if wanted.recall:
            searched: Any = {"session": manager, "embed": self._embed, "clock": self._clock}
            plugins.append(agent_parts.make_recall_plugin(wanted, **searched))
        self._parts.update(dict.fromkeys([history_manager, *plugins], scope))
        return agent_parts.merge_arguments({**arguments, "plugins": plugins}, options)

    def session(
        self, scope: str | ConversationScope, **settings: Unpack[agent_parts.SessionSettings]
    ) -> TieredSessionManager:
        """Return the session manager of a conversation, to read its messages or to build an agent.

        ``scope`` is a ``ConversationScope``, or the session id of a session without a user.
        ``settings`` are arguments of the session manager, which override the process's settings.
        """
        agent_parts.check_options(settings, agent_parts.SESSION_OPTIONS)
        return self._manager(scope, settings)

    def _manager(
        self,
        scope: str | ConversationScope,
        settings: Mapping[str, Any],
        tracker: state.EnvironmentTracker | None = None,
    ) -> TieredSessionManager:
        given = {**self._session_settings, **settings}
        if self.settings.telemetry and isinstance(settings.get("codec"), Codec):
            given["codec"] = observed_codec(settings["codec"])
        if tracker is not None and "ttl" not in settings:  # an explicit policy keeps its own tier
            given["ttl"] = agent_parts.with_customer_tier(given["ttl"] or TtlPolicy(), tracker)
        manager = TieredSessionManager(scope, **given)
        self._managers.add(manager)
        return manager

    def user(self, user_id: str, *, tenant: str | None = None) -> memory.UserMemoryStore:
        """Return a user's long-term memory. ValueError is raised if ``self.memories`` is None."""
        return memory.UserMemoryStore(
            self._memory_table(), user_id=user_id, tenant=tenant, **self._memory_options
        )

    def _memory_table(self) -> Table:
        if self.memories is None:
            raise ValueError("memories is None: pass memories=True to open(), or --users true")
        return cast("Table", self._stores["memories"])

    def storage(self, *, user_id: str, tenant: str | None = None) -> TieredStorage:
        """Return a key-value ``Storage`` of one user, for ``SnapshotSessionManager`` or ``Agent``.

        The durable tier has all values. The hot tier caches large values for half an hour.

        Raises:
            ValueError: An id is not allowed.
        """
        return TieredStorage(user_id=user_id, tenant=tenant, **self._tiers)

    def changes(
        self, *, user_id: str, session_id: str, tenant: str | None = None
    ) -> state.EnvironmentChanges:
        """Return the object that announces changes to a session's environment, such as the cart.

        Its ``publish`` makes the agents of the session read the environment again.
        """
        from strands_manga_memory import state

        scope = ConversationScope(user_id, session_id, tenant=tenant)
        return state.EnvironmentChanges(self.hot, scope)

    def guard(
        self, client: MCPClient, policy: mcp.BreakerPolicy | None = None, **settings: Any
    ) -> mcp.GuardedMCPTools:
        """Return the tools of an MCP server with circuit breakers, which all agents share.

        Example: ``memory.agent(model, scope=scope, tools=[memory.guard(client)])``.

        Args:
            client: The MCP client.
            policy: Breaker policy of tools without a policy of their own. Default: that of the
                process (a breaker opens for 30 s after 5 failures, and a call fails after 2 s).
            settings: Further arguments of ``GuardedMCPTools``.

        Raises:
            ValueError: The client is guarded with other settings, or a setting is not allowed.
        """
        guarded = agent_parts.guard_client(self, client, policy, settings, self.settings)
        self._guards.add(guarded)
        return guarded

    def sessions(
        self, user_id: str, *, tenant: str | None = None, limit: int = 20, after: str | None = None
    ) -> user_data.SessionPage:
        """Return a page of a user's sessions: title, last use and number of turns.

        The pages follow the order of session ids. Within a page, the latest session is first.

        Args:
            user_id: The user.
            tenant: The user's tenant.
            limit: Maximum number of sessions on the page. Default 20.
            after: ``next`` of the previous page; None for the first page.

        Raises:
            ValueError: An id is not allowed, or ``limit`` is below 1.
            StoreUnavailableError: A tier does not answer.
        """
        from strands_manga_memory import user_data

        table, owner = self._stores["durable"], Owner(user_id, tenant)
        return user_data.list_sessions(table, owner, self.session, limit=limit, after=after)

    def users(self, *, limit: int = 100, after: str | None = None) -> user_data.UserPage:
        """Return a page of at most ``limit`` users who have sessions.

        Each call reads the index of all sessions. ``after`` is the ``next`` of the previous page.

        Raises:
            StoreUnavailableError: The durable tier does not answer.
        """
        from strands_manga_memory import user_data

        return user_data.list_users(self._stores["durable"], limit=limit, after=after)

    def delete_session(self, user_id: str, session_id: str, *, tenant: str | None = None) -> None:
        """Delete a session with its conversations, dialogue state and announced changes.

        Memories of the session stay until ``user(...).forget`` or ``forget_user`` deletes them. If
        a store does not answer, StoreUnavailableError is raised: repeat the call.
        """
        self.session(ConversationScope(user_id, session_id, tenant=tenant)).delete_session()
        self.changes(user_id=user_id, session_id=session_id, tenant=tenant).erase()

    @checked
    def history(
        self, scope: ConversationScope, *, limit: int = 50, after: str | None = None
    ) -> HistoryPage:
        """Return a page of a conversation's log: see ``TieredSessionManager.history_page``."""
        return self.session(scope).history_page(scope.agent_id, limit=limit, after=after)

    @checked
    def fork(self, scope: ConversationScope, at_turn: int, *, session_id: str) -> ConversationScope:
        """Copy turns to a new session, and return its scope: see ``TieredSessionManager.fork``."""
        self.session(scope).fork(at_turn, session_id=session_id)
        return dataclasses.replace(scope, session_id=session_id)

    @checked
    def rewind(self, scope: ConversationScope, at_turn: int) -> None:
        """Remove turns after ``at_turn`` and preferences in them: see ``session(scope).rewind``."""
        provenance.rewind(self, scope, at_turn)

    def finalizer(
        self, model: Model | language.SessionSummarizer | None = None
    ) -> SessionFinalizer:
        """Return a ``SessionFinalizer``, which makes users' memories from ended sessions.

        ``model`` writes the summaries of sessions; without a model, rules make the summaries. There
        must be a memory table (``memories``).
        """
        from strands_manga_memory.assembly.finalizer import SessionFinalizer

        options = {name: self._memory_options[name] for name in ("pii", "retention")}
        options |= {"memory_codec": self._memory_codec, "ttl": self._session_settings["ttl"]}
        options |= {"memories": self._memory_table(), **self._tiers}
        return SessionFinalizer(model=model, **options)

    def sweeper(self, model: Model | language.SessionSummarizer | None = None) -> SessionSweeper:
        """Return a ``SessionSweeper``, which ends the sessions whose time to live is over.

        With a memory table, the sweeper also stores summaries of these sessions. They are written
        by ``model`` or, without a model, by rules. A model needs a memory table.
        """
        finalizer = self.finalizer(model) if self.memories is not None or model else None
        return SessionSweeper(finalizer=finalizer, ttl=self._session_settings["ttl"], **self._tiers)

    @checked
    def finalize(
        self, scope: ConversationScope, *, model: Model | language.SessionSummarizer | None = None
    ) -> memory.MemoryRecord | None:
        """Close a session, store memories made from its messages, and return the summary.

        Raises:
            ValueError: There is no memory table (``memories``).
            ConflictError: Another process uses or finalizes the conversation now. A sweeper
                finalizes the conversation later.
            StoreUnavailableError: A store does not answer.
        """
        for manager in members_of(self._managers):
            if manager.session_id == scope.storage_session_id:
                manager.close()
        return self.finalizer(model).run(scope)

    @checked
    def disconnected(self, scope: ConversationScope) -> bool:
        """Restart the time to live of a conversation whose user has disconnected and may return.

        Return whether the hot tier has the conversation. A sweeper ends it after the time to live.
        """
        from strands_manga_memory.assembly.finalizer import restart_ttl

        return restart_ttl(self._stores["hot"], scope)

    def forget_user(
        self,
        user_id: str,
        *,
        tenant: str | None = None,
        progress: Callable[[str], object] = lambda name: None,
    ) -> user_data.ErasureReport:
        """Delete all data of a user from all stores. See ``user_data.forget_user``."""
        from strands_manga_memory import user_data

        stores = {**self._tiers, "ttl": self._session_settings["ttl"], "memories": self._user_table}
        return user_data.forget_user(user_id, tenant=tenant, progress=progress, **stores)

    def export_user(self, user_id: str, *, tenant: str | None = None) -> dict[str, Any]:
        """Return all data that the stores have of a user. See ``user_data.export_user``."""
        from strands_manga_memory import user_data

        stores = {**self._tiers, "memories": self._user_table, "memory_codec": self._memory_codec}
        return user_data.export_user(user_id, tenant=tenant, **stores)

    @checked
    def explain(self, agent: Agent) -> list[provenance.Source]:
        """Return the texts about the user in an agent's last request, each with its origin.

        The list is empty for an agent of another ``MangaMemory``. The call may read the tables.
        """
        return provenance.explain(dict(self._parts), agent)

    def retract(self, source: provenance.Source) -> provenance.RetractionReport:
        """Remove a text, found by ``explain``, from memories, dialogue state and live agents.

        If the source message of the text is known, all preferences from this message are deleted,
        and so are the summaries of its session and copies of the session's messages. Otherwise,
        only the memory with the text is deleted. The log keeps the message; redact it there.

        Raises:
            StoreUnavailableError: The memory table does not answer; repeat the call.
        """
        return provenance.retract(self, dict(self._parts), source)

    def stats(self) -> process_stores.MemoryStats:
        """Return statistics of the stores and operations of this process, without I/O."""
        operations = recorder.stats() if self.settings.telemetry else {}
        live = members_of(self._managers), members_of(self._guards)
        return process_stores.memory_stats(self._writer, *live, operations, list(self._parts))

    def __repr__(self) -> str:
        return f"MangaMemory({', '.join(f'{tier}={store}' for tier, store in self._names.items())})"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close_async()

    def close(self) -> None:
        """Write the unwritten sessions of this process to the durable tier, and close the stores.

        All sessions of live agents are written first. Then, for at most 5 s, the latest 1,000 other
        sessions are written. A sweeper (background job) later writes the rest.

        Raises:
            StoreUnavailableError: A session is not stored (call ``close`` again), or a preference
                is not (keep the process running, which stores it later).
            ConflictError: Another writer's change of a session cannot be merged. The stores stay
                open.
        """
        gaps = gaps_of(self._writer, self._stores["durable"])
        saved = self._writer.submit(gaps, partial(gaps.save, self._clock()), slow=True)
        process_stores.close_sessions(members_of(self._managers), self._writer, saved)
        are_stored = self.memories is None or process_stores.close_memories(self.hot, self.memories)
        self.hot.close()
        self.durable.close()
        flush()
        if not are_stored:
            raise StoreUnavailableError(
                "the memory table has not accepted all preferences: keep the process running, which"
                " stores them later"
            )

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
