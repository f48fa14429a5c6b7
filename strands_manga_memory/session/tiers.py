"""Tiers: what all conversations of a session manager share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from strands_manga_memory.session.ttl import TtlPolicy
from strands_manga_memory.stores.codec import Codec
from strands_manga_memory.stores.health import TierHealth
from strands_manga_memory.stores.hot import HotStore
from strands_manga_memory.stores.table import Table
from strands_manga_memory.stores.writer import Writer


@dataclass(frozen=True, kw_only=True)
class Tiers:
    """The stores, their writer and health, and the rules of saving; the fields are those of ``TieredSessionManager``."""

    hot: HotStore | None
    durable: Table | None
    writer: Writer
    codec: Codec
    clock: Callable[[], float]
    ttl: TtlPolicy = field(default_factory=TtlPolicy)
    flush_every: int = 5
    on_conflict: Literal["merge", "raise"] = "merge"
    on_store_error: Literal["degrade", "raise"] = "degrade"
    resume_cold: bool = True
    hot_health: TierHealth = field(default_factory=TierHealth)
    durable_health: TierHealth = field(default_factory=TierHealth)

    @property
    def hot_survives(self) -> bool:
        """Whether there is a hot tier whose copies outlive the process."""
        return self.hot is not None and self.hot.survives_process
