"""MangaMemory: opens the stores and hands out what an Agent takes."""

from __future__ import annotations

import asyncio
import time
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, Unpack

from strands import Agent

from strands_manga_memory.assembly.agent_options import OF_STORES, SessionSettings, check_names
from strands_manga_memory.assembly.assembly import Assembly
from strands_manga_memory.assembly.process import DEFAULTS
from strands_manga_memory.assembly.settings import MangaMemorySettings
from strands_manga_memory.assembly.upkeep import Upkeep
from strands_manga_memory.memory.records import Owner
from strands_manga_memory.scope import ConversationScope
from strands_manga_memory.session.basis.returns import gaps_of
from strands_manga_memory.stores import USER_MEMORY, HotStore, Table, TieredStorage, open_hot_store, open_table
from strands_manga_memory.stores.urls import NO_USERS, users_table_url, without_password
from strands_manga_memory.stores.writer import shared_writer
from strands_manga_memory.telemetry import flush, recorder

if TYPE_CHECKING:
    from strands.tools.mcp import MCPClient

    from strands_manga_memory import mcp, memory, state, user_data
    from strands_manga_memory.assembly.memory_stats import MemoryStats
    from strands_manga_memory.assembly.provenance import RetractionReport, Source
    from strands_manga_memory.language.search import Embed

_DRAIN_SECONDS = 5.0


class MangaMemory(Assembly, Upkeep):
    """The stores of a process, and the agents that are built on them.

    ``with MangaMemory.open() as memory`` and ``async with`` close it. Every part also works alone; see ``TieredSessionManager``
    and ``ImportanceWeightedConversationManager``.

    Args:
        hot: The hot tier.
        durable: The durable tier.
        memories: What is known about users, a table of the schema ``USER_MEMORY``; None: nothing is.
        settings: Further keyword arguments of every ``TieredSessionManager``, such as ``refresh`` or ``flush_every``.
        sink: Where preferences heard in a session go; default: into ``memories``.
        profile: Where another service keeps users' profiles, if one does; settings' ``profile_deadline`` bounds a read.
        pii: What becomes of personal data in memories. Default that of ``defaults``.
        environment: Where the surroundings of conversations are read: tier, locale, cart.
        defaults: What else a process can set: the history of its agents, their breakers, telemetry. Default
            ``MangaMemorySettings()``.

    Attributes:
        hot: The hot tier.
        durable: The durable tier.
        memories: What is known about users, or None.
    """

    @classmethod
    def open(
        cls,
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
    ) -> Self:
        """Open the stores.

        Args:
            hot: URL or store of the hot tier; default ``memory://``, this process.
            durable: URL or table of the durable tier; default a SQLite file below the working directory.
            memories: URL or table of what is known about users; True: beside the durable tier, in the same file or the same
                service. Default none: agents know nothing of earlier sessions. False: nor is there such a table that
                another process writes, so an erasure looks for none.
            create_tables: Create the tables, with their TTL setting, if they are missing. Default True.
            sink: Where preferences heard in a session go; default: into ``memories``.
            profile: Where another service keeps users' profiles, if one does.
            pii: What becomes of personal data in memories. Default that of ``defaults``.
            environment: Where the surroundings of conversations are read; how long they stay hot follows the tier it names.
            embed: From texts to vectors of one length, such as a local model: recall and searches in memories then also find
                texts by their meaning. Called in threads, for each text once. Default: by words alone.
            defaults: What else a process can set. Default ``MangaMemorySettings()``.
            settings: Further keyword arguments of every ``TieredSessionManager``.

        Raises:
            ValueError: A URL is not understood, or a setting is not allowed.
            StoreUnavailableError: The durable tier does not answer.
        """
        check_names(settings, beside=OF_STORES)
        hot_store = open_hot_store(hot) if isinstance(hot, str) else hot
        table = open_table(durable) if isinstance(durable, str) else durable
        known = _memories(memories, durable)
        opened = cls(
            hot=hot_store or open_hot_store(DEFAULTS.hot_url),
            durable=table or open_table(DEFAULTS.durable_url),
            memories=known,
            settings=dict(settings),
            sink=sink,
            profile=profile,
            pii=pii,
            environment=environment,
            embed=embed,
            defaults=defaults,
        )
        opened._has_no_memories = memories is False
        given = {"hot": hot or DEFAULTS.hot_url, "durable": durable or DEFAULTS.durable_url, "memories": memories}
        opened._shown |= {name: without_password(url) for name, url in given.items() if isinstance(url, str)}
        for each in (opened.durable, known) if create_tables else ():
            if each is not None:
                each.create_if_missing()
        return opened

    @classmethod
    def from_env(cls, **settings: Any) -> Self:
        """Open the stores that ``MANGA_MEMORY_HOT_URL`` and the other variables of ``MangaMemorySettings`` name.

        Args:
            settings: Keyword arguments of ``open``, over those of the variables.

        Raises:
            ValueError: A variable has a value that is not allowed; the message names it and what it takes.
            StoreUnavailableError: The durable tier does not answer.
        """
        return cls.from_settings(MangaMemorySettings.from_env(), **settings)

    @classmethod
    def from_settings(cls, settings: MangaMemorySettings, **others: Any) -> Self:
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
            "memories": users if users is None else {"true": True, NO_USERS: False}.get(users.lower(), users),
            "create_tables": settings.create_tables,
            "defaults": settings,
            **settings.session_settings(),
        }
        return cls.open(**{**arguments, **others})

    def storage(self, *, user_id: str, tenant: str | None = None, hot_ttl: float = 1_800.0) -> TieredStorage:
        """Return a ``Storage`` of a user over both tiers: for ``SnapshotSessionManager``, ``Agent(storage=)``, the stash.

        Args:
            user_id: Whose values it keeps.
            tenant: The user's tenant.
            hot_ttl: Seconds that a value stays in the hot tier.

        Raises:
            ValueError: An id is not allowed, or ``hot_ttl`` is not above 0.
        """
        return TieredStorage(
            durable=self._stores["durable"],
            hot=self._stores["hot"],
            user_id=user_id,
            tenant=tenant,
            codec=self._settings.get("codec"),
            hot_ttl=hot_ttl,
            **self._clock,
        )

    def changes(self, *, user_id: str, session_id: str, tenant: str | None = None) -> state.EnvironmentChanges:
        """Return what publishes a change outside to every live agent of a session: ``changes(...).publish(cart=[...])``.

        Raises:
            ValueError: An id is not allowed.
        """
        from strands_manga_memory import state

        return state.EnvironmentChanges(
            self.hot, ConversationScope(user_id, session_id, tenant=tenant), codec=self._memory_codec
        )

    def guard(self, client: MCPClient, policy: mcp.BreakerPolicy | None = None, **settings: Any) -> mcp.GuardedMCPTools:
        """Return the tools of an MCP server, each behind a breaker: ``Agent(tools=[memory.guard(client)])``.

        The same client gives the same object as long as it is in use, so that all agents of the process share its breakers.

        Args:
            client: The connection.
            policy: Of the tools that have none of their own. Default that of the process: 5 failures, 30 s, calls of up to 2 s.
            settings: Further keyword arguments of ``GuardedMCPTools``. Results that may stand in are kept by tenant and user.

        Raises:
            ValueError: The client is guarded already, and now other settings are asked for; or a setting is not allowed.
        """
        return self._guards.guard(client, policy, settings=settings)

    def sessions(
        self, user_id: str, *, tenant: str | None = None, limit: int = 20, after: str | None = None
    ) -> user_data.SessionPage:
        """Return a page of a user's sessions, with title, last use and turns; nothing is touched.

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

    async def sessions_async(
        self, user_id: str, *, tenant: str | None = None, limit: int = 20, after: str | None = None
    ) -> user_data.SessionPage:
        """Return a page of a user's sessions off the event loop; see ``sessions``."""
        return await asyncio.to_thread(self.sessions, user_id, tenant=tenant, limit=limit, after=after)

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

    async def users_async(self, *, limit: int = 100, after: str | None = None) -> user_data.UserPage:
        """Return a page of the users off the event loop; see ``users``."""
        return await asyncio.to_thread(self.users, limit=limit, after=after)

    def delete_session(self, user_id: str, session_id: str, *, tenant: str | None = None) -> None:
        """Delete a session: its conversations in both tiers, its dialogue state and its published environment.

        Memories that were made of it stay; ``user(...).forget`` and ``forget_user`` delete those.

        Raises:
            ValueError: An id is not allowed.
            StoreUnavailableError: A tier does not answer; repeat the call.
        """
        from strands_manga_memory import state

        scope = ConversationScope(user_id, session_id, tenant=tenant)
        self.session(scope).delete_session()
        state.EnvironmentChanges(self._stores["hot"], scope).erase()

    async def delete_session_async(self, user_id: str, session_id: str, *, tenant: str | None = None) -> None:
        """Delete a session off the event loop; see ``delete_session``."""
        await asyncio.to_thread(self.delete_session, user_id, session_id, tenant=tenant)

    def explain(self, agent: Agent) -> list[Source]:
        """Return the sources of the last request of an agent that was built here.

        Each preference, memory, summary, quote, entity and slot that stood in the request is listed with the message and the
        session that it came from. Empty for an agent of another ``MangaMemory``. May read the memory table.

        Example::

            for source in memory.explain(agent):
                print(source.kind, source.text, source.session_id)
        """
        from strands_manga_memory.assembly.provenance import explain  # whoever asks for none does not load it

        return explain(dict(self._parts), agent)

    def retract(self, source: Source) -> RetractionReport:
        """Remove what a source said from memories, summaries, roll-ups, the hot tier, the dialogue state and live agents.

        The preferences of its message are deleted, as are the summaries and episodes of the message's session. A memory that no
        message is known of is deleted. The messages of the conversation itself stay: redact them in its session.

        Args:
            source: An entry of ``explain``.

        Raises:
            StoreUnavailableError: The memory table does not answer; repeat the call.
        """
        from strands_manga_memory.assembly.provenance import retract

        store = None if self.memories is None else self.user(source.scope.user_id, tenant=source.scope.tenant)
        return retract(dict(self._parts), source, store)

    def stats(self) -> MemoryStats:
        """Return what is known of the tiers, the open sessions, and the operations of this process, without any I/O."""
        from strands_manga_memory.assembly.memory_stats import memory_stats  # whoever asks for none does not load it

        writer = shared_writer(self.hot if self.hot.survives_process else None, self.durable)
        operations = recorder.stats() if self.settings.telemetry else {}
        return memory_stats(writer, list(self._managers), list(self._guards), operations, list(self._parts))

    def __repr__(self) -> str:
        return f"MangaMemory({', '.join(f'{name}={what}' for name, what in self._shown.items())})"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self.close)

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
    url = users_table_url("true", durable or DEFAULTS.durable_url)
    return None if url is None else open_table(url, USER_MEMORY)
