"""Tiers: what all conversations of a session manager share: the stores, and the rules of saving."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from strands_manga_memory.arguments import of_kind, positive, seconds, with_method
from strands_manga_memory.session.basis.returns import gaps_of
from strands_manga_memory.session.basis.ttl import TtlPolicy
from strands_manga_memory.stores.encoding.codec import Codec
from strands_manga_memory.stores.health import TierHealth
from strands_manga_memory.stores.hot import HotStore
from strands_manga_memory.stores.table import Table
from strands_manga_memory.stores.writer import Writer, shared_writer
from strands_manga_memory.telemetry import RETURN, note

OnConflict = Literal["merge", "raise"]
OnStoreError = Literal["degrade", "raise"]
Refresh = Literal["never", "turn"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Tiers:
    """The stores, their writer and health, and the rules of saving; most fields are those of ``TieredSessionManager``.

    ``on_conflict`` and ``on_store_error`` are "raise" for maintenance, which must not go on without a store's answer.

    Raises:
        ValueError: A field is out of range, or there is neither a hot nor a durable tier.
    """

    hot: HotStore | None
    durable: Table | None
    writer: Writer
    codec: Codec
    clock: Callable[[], float]
    ttl: TtlPolicy = field(default_factory=TtlPolicy)
    flush_every: int = 5
    on_conflict: OnConflict = "merge"
    on_store_error: OnStoreError = "degrade"
    refresh: Refresh = "never"
    resume_cold: bool = True
    hot_deadline: float = 0.05
    durable_deadline: float = 2.0
    max_unsaved: int = 10_000
    hot_health: TierHealth = field(default_factory=TierHealth)
    durable_health: TierHealth = field(default_factory=TierHealth)

    def __post_init__(self) -> None:
        for name, value, allowed in (("refresh", self.refresh, get_args(Refresh)),):
            if value not in allowed:
                raise ValueError(f"{name} must be one of {', '.join(map(repr, allowed))}, got {value!r:.80}")
        positive("flush_every", self.flush_every)
        positive("max_unsaved", self.max_unsaved)
        seconds("hot_deadline", self.hot_deadline)
        seconds("durable_deadline", self.durable_deadline)
        of_kind("codec", self.codec, Codec, "a Codec(...)")
        of_kind("ttl", self.ttl, TtlPolicy, "a TtlPolicy(...)")
        of_kind("resume_cold", self.resume_cold, bool, "True or False")
        with_method("clock", self.clock, "__call__()", "a function that returns seconds since 1970")
        if self.hot is None and self.durable is None:
            raise ValueError(
                "hot and durable are both None: pass a store or a URL, such as durable='sqlite:///sessions.sqlite3'"
            )

    @classmethod
    def of(
        cls,
        hot: HotStore | None,
        durable: Table | None,
        *,
        codec: Codec | None = None,
        ttl: TtlPolicy | None = None,
        **rules: Any,
    ) -> Tiers:
        """Return tiers with the writer and the health that all who use these stores in this process share.

        A hot tier that ends with the process says nothing that a durable one beside it would not: it is left out.
        """
        if hot is not None and durable is not None and not hot.survives_process:
            hot = None
        writer = shared_writer(hot, durable)
        return cls(
            hot=hot,
            durable=durable,
            writer=writer,
            hot_health=writer.hot_health,
            durable_health=writer.durable_health,
            codec=codec or Codec(),
            ttl=ttl or TtlPolicy(),
            **rules,
        )

    def returned(self, away: float, now: float) -> None:
        """Take note that a user comes back to a conversation ``now`` after some seconds."""
        gaps_of(self.writer, self.durable).add(away, now)
        note(RETURN, away)
