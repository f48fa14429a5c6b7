"""Process: the stores and the settings of a process, and the tools that it guards."""

from __future__ import annotations

import time
import weakref
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from strands_manga_memory import memory
from strands_manga_memory.arguments import function, of_kind, with_method
from strands_manga_memory.assembly.agent_options import check_names
from strands_manga_memory.assembly.settings import MangaMemorySettings
from strands_manga_memory.scope import ConversationScope
from strands_manga_memory.session import TieredSessionManager
from strands_manga_memory.session.basis.tiers import Tiers
from strands_manga_memory.stores import USER_MEMORY, Codec, HotStore, Table
from strands_manga_memory.stores.opened import hot_store_of, table_of
from strands_manga_memory.telemetry import ObservedCodec, observed_hot_store, observed_table, switch

if TYPE_CHECKING:
    from strands.tools.mcp import MCPClient

    from strands_manga_memory import mcp, state
    from strands_manga_memory.language.search import Embed

DEFAULTS = MangaMemorySettings()


class Process:
    """The stores and the settings of a process, as its agents and its upkeep use them; ``MangaMemory`` has the arguments."""

    def __init__(
        self,
        *,
        hot: HotStore,
        durable: Table,
        memories: Table | None = None,
        settings: Mapping[str, Any] | None = None,
        sink: memory.PreferenceSink | None = None,
        profile: memory.ProfileSource | None = None,
        pii: memory.PiiPolicy | None = None,
        environment: state.EnvironmentSource | None = None,
        embed: Embed | None = None,
        defaults: MangaMemorySettings | None = None,
    ) -> None:
        self.hot = hot_store_of(hot)
        self.durable = table_of(durable)
        self.memories = table_of(memories, USER_MEMORY, name="memories")
        self.settings = of_kind("defaults", defaults or DEFAULTS, MangaMemorySettings)
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
        self._profile = memory.ProfileReader.of(profile, deadline=self.settings.profile_deadline)
        self._environment = environment and with_method("environment", environment, "load(scope)")
        self._embed = embed and function("embed", embed, "a function from texts to vectors")
        self._pii = of_kind("pii", pii or self.settings.pii_policy(self._memory_codec), memory.PiiPolicy)
        self._clock = {"clock": self._settings["clock"]} if "clock" in self._settings else {}
        self._outbox = None
        if memories is not None:
            from strands_manga_memory.memory.preferences.hot_profile import HotProfile  # whoever knows nobody does not load it

            table = self._stores["memories"]
            into = with_method("sink", sink or memory.TablePreferenceSink(table, codec=self._memory_codec), "send(signal)")
            self._outbox = memory.PreferenceOutbox(
                table,
                into,
                pii=self._pii,
                codec=self._memory_codec,
                drained=lambda owner, is_removal: HotProfile(hot, owner, codec=self._memory_codec).publish(
                    is_removal=is_removal
                ),
                **self._clock,
            )
        self._managers: weakref.WeakSet[TieredSessionManager] = weakref.WeakSet()
        self._prefetched: dict[ConversationScope, Any] = {}
        self._guards = Guards(self.settings, self._stores["hot"])
        self._parts: weakref.WeakKeyDictionary[Any, ConversationScope] = weakref.WeakKeyDictionary()

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


class Guards:
    """The guarded tools of each client, as long as they are in use, so that all agents of a process share their breakers.

    Args:
        settings: Those of the process: of its breakers.
        hot: What its breakers share with other processes, if they shall.
    """

    def __init__(self, settings: MangaMemorySettings, hot: HotStore) -> None:
        self._settings = settings
        self._hot = hot
        self._of: weakref.WeakValueDictionary[int, mcp.GuardedMCPTools] = weakref.WeakValueDictionary()
        self._asked: weakref.WeakKeyDictionary[mcp.GuardedMCPTools, dict[str, Any]] = weakref.WeakKeyDictionary()

    def __iter__(self) -> Iterator[mcp.GuardedMCPTools]:
        return iter(list(self._of.values()))

    def guard(self, client: MCPClient, policy: mcp.BreakerPolicy | None, *, settings: dict[str, Any]) -> mcp.GuardedMCPTools:
        """Return the guarded tools of a client: those there are, if there are, and they were asked for alike.

        Raises:
            ValueError: Other settings were asked for; or one is not allowed.
        """
        from strands_manga_memory import mcp

        given = {"policy": policy, **settings}
        asked = {name: value for name, value in given.items() if value is not None}
        found = self._of.get(id(client))
        if found is not None:
            if asked not in ({}, self._asked[found]):
                raise ValueError(f"client is guarded already, with {self._asked[found]!r:.80}; got {asked!r:.80}")
            return found
        if policy is None:
            of = self._settings
            policy = mcp.BreakerPolicy(of.breaker_failures, of.breaker_reset_after, of.breaker_timeout, users=of.breaker_users)
        guarded = self._of[id(client)] = mcp.GuardedMCPTools(client, policy, **settings)
        self._asked[guarded] = asked
        return guarded
