"""MangaMemory: opens the stores and hands out what an Agent takes."""

from __future__ import annotations

import asyncio
import time
import weakref
from collections.abc import Callable, Mapping
from inspect import signature
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, Unpack

from strands.models import Model

from strands_manga_memory.arguments import of_kind, with_method
from strands_manga_memory.assembly.agent_options import SessionSettings, check_names
from strands_manga_memory.assembly.agent_parts import Prepared
from strands_manga_memory.assembly.assembly import Assembly
from strands_manga_memory.assembly.finalizer import SessionFinalizer
from strands_manga_memory.assembly.memory_stats import MemoryStats, memory_stats
from strands_manga_memory.assembly.settings import MangaMemorySettings
from strands_manga_memory.language.summaries.session_summary import SessionSummarizer
from strands_manga_memory.memory import (
    MemoryRecord,
    PiiPolicy,
    PreferenceSink,
    PreferenceSpool,
    ProfileReader,
    ProfileSource,
    TablePreferenceSink,
)
from strands_manga_memory.memory.records.hot_copy import HotCopy
from strands_manga_memory.scope import ConversationScope
from strands_manga_memory.session import SessionSweeper, TieredSessionManager
from strands_manga_memory.session.basis.returns import gaps_of
from strands_manga_memory.session.basis.tiers import Tiers
from strands_manga_memory.state import EnvironmentChanges, EnvironmentSource
from strands_manga_memory.stores import USER_MEMORY, Codec, HotStore, Table, TieredStorage, open_hot_store, open_table
from strands_manga_memory.stores.opened import hot_store_of, table_of
from strands_manga_memory.stores.urls import NO_USERS, users_table_url, without_password
from strands_manga_memory.stores.writer import shared_writer
from strands_manga_memory.telemetry import (
    ObservedCodec,
    flush,
    observed_hot_store,
    observed_table,
    recorder,
    switch,
)
from strands_manga_memory.user_data.erasure import ErasureReport, forget_user
from strands_manga_memory.user_data.reencryption import reencrypt_user
from strands_manga_memory.user_data.user_export import export_user

if TYPE_CHECKING:
    from strands.tools.mcp import MCPClient

    from strands_manga_memory.mcp import BreakerPolicy, GuardedMCPTools

_DEFAULTS = MangaMemorySettings()

_DRAIN_SECONDS = 5.0


class MangaMemory(Assembly):
    """The stores of a process, and the agents that are built on them.

    ``with MangaMemory.open() as memory`` and ``async with`` close it. Every part also works alone; see ``TieredSessionManager``
    and ``ImportanceWeightedConversationManager``.

    Args:
        hot: The hot tier.
        durable: The durable tier.
        memories: What is known about users, a table of the schema ``USER_MEMORY``; None: nothing is.
        settings: Further keyword arguments of every ``TieredSessionManager``, such as ``save_on`` or ``flush_every``.
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
        self.hot = hot_store_of(hot)
        self.durable = table_of(durable)
        self.memories = table_of(memories, USER_MEMORY, name="memories")
        self.settings = of_kind("defaults", defaults or _DEFAULTS, MangaMemorySettings)
        check_names(settings or ())
        self._settings = dict(settings or {})
        Tiers.of(hot, durable, **{"clock": time.time, **self._settings})  # refuses a value that no session could take
        self._memory_codec: Codec | None = self._settings.get("codec")  # without one, memories can be read with plain boto3
        switch(on=self.settings.telemetry)
        self._stores: dict[str, Any] = {"hot": hot, "durable": durable, "memories": memories}
        self._shown = {name: type(store).__name__ for name, store in self._stores.items() if store is not None}
        if self.settings.telemetry:
            self._stores = {
                "hot": observed_hot_store(hot),
                "durable": observed_table(durable),
                "memories": None if memories is None else observed_table(memories, tier="memories"),
            }
            self._settings["codec"] = ObservedCodec(self._settings.get("codec") or Codec())
        self._has_no_memories = False
        self._profile = ProfileReader.of(profile, deadline=self.settings.profile_deadline)
        self._environment = environment and with_method("environment", environment, "load(scope)")
        self._pii = of_kind("pii", pii or self.settings.pii_policy(self._memory_codec), PiiPolicy)
        self._clock = {"clock": self._settings["clock"]} if "clock" in self._settings else {}
        self._spool = None
        if memories is not None:
            table = self._stores["memories"]
            into = with_method("sink", sink or TablePreferenceSink(table, codec=self._memory_codec), "send(signal)")
            self._spool = PreferenceSpool(
                table,
                into,
                pii=self._pii,
                codec=self._memory_codec,
                drained=lambda owner: HotCopy(hot, owner, codec=self._memory_codec).drop(),
                **self._clock,
            )
        self._managers: weakref.WeakSet[TieredSessionManager] = weakref.WeakSet()
        self._parts: weakref.WeakSet[Any] = weakref.WeakSet()
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
            defaults: What else a process can set. Default ``MangaMemorySettings()``.
            settings: Further keyword arguments of every ``TieredSessionManager``.

        Raises:
            ValueError: A URL is not understood, or a setting is not allowed.
            StoreUnavailableError: The durable tier does not answer.
        """
        check_names(settings, beside=signature(cls.open).parameters.keys() - {"settings"})
        hot_store = open_hot_store(hot) if isinstance(hot, str) else hot
        table = open_table(durable) if isinstance(durable, str) else durable
        known = _memories(memories, durable)
        memory = cls(
            hot=hot_store or open_hot_store(_DEFAULTS.hot_url),
            durable=table or open_table(_DEFAULTS.durable_url),
            memories=known,
            settings=dict(settings),
            sink=sink,
            profile=profile,
            pii=pii,
            environment=environment,
            defaults=defaults,
        )
        memory._has_no_memories = memories is False
        given = {"hot": hot or _DEFAULTS.hot_url, "durable": durable or _DEFAULTS.durable_url, "memories": memories}
        memory._shown |= {name: without_password(url) for name, url in given.items() if isinstance(url, str)}
        for each in (memory.durable, known) if create_tables else ():
            if each is not None:
                each.create_if_missing()
        return memory

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

    def changes(self, *, user_id: str, session_id: str, tenant: str | None = None) -> EnvironmentChanges:
        """Return what publishes a change outside to every live agent of a session: ``changes(...).publish(cart=[...])``.

        Raises:
            ValueError: An id is not allowed.
        """
        return EnvironmentChanges(self.hot, ConversationScope(user_id, session_id, tenant=tenant), codec=self._memory_codec)

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
            retention=self.settings.retention(),
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

    def disconnected(self, scope: ConversationScope) -> bool:
        """Let the grace of a user who has just disconnected begin: as long as the time to live; a return within it resumes.

        Returns:
            Whether the conversation is in the hot tier; ``sweeper()`` finalizes it when the grace is over.

        Raises:
            ValueError: ``memories`` was not opened.
        """
        return self.finalizer().disconnected(scope)

    def forget_user(
        self, user_id: str, *, tenant: str | None = None, progress: Callable[[str], object] = lambda name: None
    ) -> ErasureReport:
        """Delete everything there is of a user; see ``erasure.forget_user``."""
        return forget_user(user_id, tenant=tenant, progress=progress, **self._of_user("ttl", "codec", "clock"))

    def reencrypt_user(
        self, user_id: str, *, tenant: str | None = None, progress: Callable[[str], object] = lambda name: None
    ) -> dict[str, int]:
        """Encrypt everything there is of a user with the present key; see ``reencryption.reencrypt_user``.

        Raises:
            ValueError: ``codec`` was not given.
        """
        if self._memory_codec is None:
            raise ValueError("codec is None: pass MangaMemory.open(codec=Codec(cipher=...))")
        given = {name: store for name, store in self._of_user("clock").items() if name != "hot"}
        return reencrypt_user(user_id, tenant=tenant, codec=self._memory_codec, progress=progress, **given)

    def export_user(self, user_id: str, *, tenant: str | None = None) -> dict[str, Any]:
        """Return everything there is of a user; see ``erasure.export_user``."""
        return export_user(user_id, tenant=tenant, memory_codec=self._memory_codec, **self._of_user("codec", "clock"))

    def _of_user(self, *names: str) -> dict[str, Any]:
        kept = {name: self._settings[name] for name in names if name in self._settings}
        return {**self._stores, **kept, **({"memories": False} if self._has_no_memories else {})}

    @property
    def codec(self) -> Codec:
        """How what sessions store is compressed, encrypted and checksummed."""
        codec: Codec = self._settings.get("codec") or Codec()
        return codec

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
                raise ValueError(f"client is guarded already, with {self._guards_asked[found]!r:.80}; got {asked!r:.80}")
            return found
        if shared:
            settings["shared"] = SharedBreakers(self._stores["hot"])
        if policy is None:
            of = self.settings
            policy = BreakerPolicy(of.breaker_failures, of.breaker_reset_after, of.breaker_timeout, users=of.breaker_users)
        guarded = self._guards[id(client)] = GuardedMCPTools(client, policy, **settings)
        self._guards_asked[guarded] = asked
        return guarded

    def stats(self) -> MemoryStats:
        """Return what is known of the tiers, the open sessions, and the operations of this process, without any I/O."""
        writer = shared_writer(self.hot if self.hot.survives_process else None, self.durable)
        operations = recorder.stats() if self.settings.telemetry else {}
        return memory_stats(writer, list(self._managers), list(self._guards.values()), operations, list(self._parts))

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
    url = users_table_url("true", durable or _DEFAULTS.durable_url)
    return None if url is None else open_table(url, USER_MEMORY)
