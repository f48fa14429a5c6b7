"""Guards: the tools of MCP servers that a process guards."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from strands_manga_memory import mcp
from strands_manga_memory.assembly.settings import MangaMemorySettings
from strands_manga_memory.stores import HotStore

if TYPE_CHECKING:
    from strands.tools.mcp import MCPClient


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

    def guard(
        self, client: MCPClient, policy: mcp.BreakerPolicy | None, *, shared: bool, settings: dict[str, Any]
    ) -> mcp.GuardedMCPTools:
        """Return the guarded tools of a client: those there are, if there are, and they were asked for alike.

        Raises:
            ValueError: Other settings were asked for; or one is not allowed.
        """
        given = {"policy": policy, "shared": shared or None, **settings}
        asked = {name: value for name, value in given.items() if value is not None}
        found = self._of.get(id(client))
        if found is not None:
            if asked not in ({}, self._asked[found]):
                raise ValueError(f"client is guarded already, with {self._asked[found]!r:.80}; got {asked!r:.80}")
            return found
        if shared:
            settings = {**settings, "shared": mcp.SharedBreakers(self._hot)}
        if policy is None:
            of = self._settings
            policy = mcp.BreakerPolicy(of.breaker_failures, of.breaker_reset_after, of.breaker_timeout, users=of.breaker_users)
        guarded = self._of[id(client)] = mcp.GuardedMCPTools(client, policy, **settings)
        self._asked[guarded] = asked
        return guarded
