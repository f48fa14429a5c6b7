"""MemoryStats: what a MangaMemory knows of itself, in process (mission E4)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, TypedDict

from strands_manga_memory.session import TieredSessionManager
from strands_manga_memory.stores.writer import Writer
from strands_manga_memory.telemetry import OperationStats

if TYPE_CHECKING:
    from strands_manga_memory.mcp import GuardedMCPTools
    from strands_manga_memory.mcp.health import ToolStatus


class MemoryStats(TypedDict):
    """What a ``MangaMemory`` knows of itself.

    Attributes:
        hot: ``up`` or ``down``.
        durable: ``up`` or ``down``.
        backlog: Pieces of background work that wait or run.
        sessions: Sessions that are open here.
        turns: User requests in these sessions.
        messages: Messages in their logs.
        unsaved_messages: Messages that no tier has confirmed.
        tokens: Tokens of their agents' histories.
        token_budget: What those may have together.
        compression: Tokens that trimming removed, as a share of those and what the histories have now; 0 if nothing was.
        operations: What is known of each kind of operation of this process: ``hot.write``, ``durable.get``, ``turn``, ``trim``,
            ``summary``, ``recall``, ``handoff``, ``breaker.transition`` and others; empty without telemetry.
        tools: What is known of each guarded tool.
    """

    hot: str
    durable: str
    backlog: int
    sessions: int
    turns: int
    messages: int
    unsaved_messages: int
    tokens: int
    token_budget: int
    compression: float
    operations: dict[str, OperationStats]
    tools: dict[str, ToolStatus]


def memory_stats(
    writer: Writer,
    managers: Iterable[TieredSessionManager],
    guards: Iterable[GuardedMCPTools],
    operations: dict[str, OperationStats],
) -> MemoryStats:
    """Return what is known of the tiers, the open sessions, the tools and the operations, without any I/O."""
    managers = list(managers)
    sessions = [stats for manager in managers for stats in manager.live_stats()]
    tokens = sum(stats["tokens"] or 0 for stats in sessions)
    trimmed = operations["trim"].sums["tokens"] if "trim" in operations else 0.0
    return MemoryStats(
        hot="up" if writer.hot_health.is_up else "down",
        durable="up" if writer.durable_health.is_up else "down",
        backlog=writer.backlog,
        sessions=len(managers),
        turns=sum(stats["turns"] for stats in sessions),
        messages=sum(stats["messages"] for stats in sessions),
        unsaved_messages=sum(stats["unsaved_messages"] for stats in sessions),
        tokens=tokens,
        token_budget=sum(stats["budget"] or 0 for stats in sessions),
        compression=trimmed / max(1.0, trimmed + tokens),
        operations=operations,
        tools={name: status for guarded in guards for name, status in guarded.status().items()},
    )
