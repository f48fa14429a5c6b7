"""Opening, closing and statistics of the stores of a process, for ``MangaMemory``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, TypedDict, cast

from strands_manga_memory.exceptions import MangaMemoryError
from strands_manga_memory.html_tables import ReportDict
from strands_manga_memory.session import TieredSessionManager
from strands_manga_memory.session.conversation_saver import flush_saved
from strands_manga_memory.stores import (
    SESSIONS,
    USER_MEMORY,
    HotStore,
    Table,
    open_hot_store,
    open_table,
)
from strands_manga_memory.stores.urls import users_table_url, without_password
from strands_manga_memory.stores.writer import Writer, shared_writer
from strands_manga_memory.telemetry import OperationStats

if TYPE_CHECKING:  # the language packs, which some of these modules load, take long to load
    from strands_manga_memory.conversation.summaries import SummaryStats
    from strands_manga_memory.mcp import GuardedMCPTools
    from strands_manga_memory.mcp.guard import ToolStatus
    from strands_manga_memory.state import StateStats

_DRAIN_SECONDS = 5.0
_SCHEMAS = {"durable": SESSIONS, "memories": USER_MEMORY}


def open_stores(
    hot: str | HotStore,
    durable: str | Table,
    memories: str | Table | bool | None,  # noqa: FBT001 - as MangaMemory takes it
) -> tuple[dict[str, Any], dict[str, str]]:
    """Open the hot store, the durable table and the memory table of a ``MangaMemory``.

    The arguments are those of ``MangaMemory``: URLs, or stores that are open already.

    Returns:
        Two dicts, keyed by argument: the stores (None: no memory table), and their names for
        display (URL without password, or class name).

    Raises:
        ValueError: An argument is neither a store nor a URL, or ``memories`` is True and
            ``durable`` is not a URL.
    """
    if memories is True:
        if not isinstance(durable, str):
            raise ValueError("memories must be a URL or a table where durable is a table, got True")
        memories = users_table_url(memories, durable)
    stores: dict[str, Any] = {
        "hot": hot,
        "durable": durable,
        "memories": None if memories is False else memories,
    }
    names = {}
    for tier, store in stores.items():
        if isinstance(store, str):
            names[tier] = without_password(store)
            schema = _SCHEMAS.get(tier)
            stores[tier] = open_table(store, schema) if schema else open_hot_store(store)
        elif store is not None:
            names[tier] = type(store).__name__
    return stores, names


def close_sessions(
    managers: Iterable[TieredSessionManager], writer: Writer, *others: Future[None]
) -> None:
    """Write the sessions of a process to the durable tier, first those of live agents.

    Then, for at most 5 s, the latest 1,000 other sessions that this process saved only in the hot
    tier are written.

    Args:
        managers: Session managers of the live agents.
        writer: Background writer of the stores.
        others: Futures of further writes to wait for.

    Raises:
        MangaMemoryError: A session of a live agent is not saved. The other sessions are written
            before the first such error is raised.
    """
    failed: MangaMemoryError | None = None
    for manager in managers:
        try:
            manager.close()
        except MangaMemoryError as error:  # the other sessions can still be saved
            failed = failed or error
    flush_saved(writer, *others)
    if failed is not None:
        raise failed


def close_memories(hot: HotStore, memories: Table) -> bool:
    """Write the pending changes of users' memories, for at most 5 s a store, and close the table.

    Return whether the table has all preferences. Their delivery to another service may still be
    pending.
    """
    shared_writer(hot, None).drain(_DRAIN_SECONDS)
    writer = shared_writer(None, memories)
    is_stored = writer.drain(_DRAIN_SECONDS) or not writer.has_repeated
    memories.close()
    return is_stored


class MemoryStats(TypedDict):
    """Statistics that ``MangaMemory.stats()`` returns.

    Attributes:
        hot: State of the hot tier, ``up`` or ``down``.
        hot_error: Cause of the hot tier's outage, possibly with a remedy; empty if ``hot`` is
            ``up``.
        durable: State of the durable tier, ``up`` or ``down``.
        durable_error: Cause of the durable tier's outage, like ``hot_error``.
        backlog: Number of background tasks that wait or run.
        sessions: Number of open sessions of this ``MangaMemory``.
        turns: Number of user requests in the open sessions.
        messages: Number of messages in the logs of the open sessions.
        unsaved_messages: Number of messages that no tier has acknowledged.
        tokens: Number of tokens in the histories of the agents of the open sessions.
        token_budget: Sum of the token budgets of these histories.
        compression: Tokens that trimming removed, divided by the sum of removed and present tokens;
            0 without trimming.
        state: Totals of the ``StateCoordinator`` objects of live agents: ``agents``, active
            ``entities``, ``goals`` and ``archived_goals``, recorded steps (``executions``),
            ``tokens`` of the stored state, and ``unreadable`` parts of the state.
        summaries: Totals of the summarizing conversation managers, as in ``SummaryStats``: started
            summaries (``runs``), summaries that replaced turns (``swapped``), ``failed`` summaries,
            model calls that waited (``waits``), ``tokens_spent``, ``tokens_freed``, and managers
            with an open circuit breaker (``resting``).
        missed_deadlines: Number of times that a tier did not answer this process within the
            deadline; 0 without telemetry.
        operations: Statistics of each kind of operation of this process: ``hot.write``,
            ``durable.get``, ``turn``, ``trim``, ``summary``, ``recall``, ``handoff``
            (finalization), ``breaker.transition`` and others; empty without telemetry.
        tools: State of each guarded tool, keyed by tool name.
    """

    hot: str
    hot_error: str
    durable: str
    durable_error: str
    backlog: int
    sessions: int
    turns: int
    messages: int
    unsaved_messages: int
    tokens: int
    token_budget: int
    compression: float
    state: dict[str, int]
    summaries: dict[str, int]
    missed_deadlines: int
    operations: dict[str, OperationStats]
    tools: dict[str, ToolStatus]


def memory_stats(
    writer: Writer,
    managers: Iterable[TieredSessionManager],
    guards: Iterable[GuardedMCPTools],
    operations: dict[str, OperationStats],
    parts: Iterable[object],
) -> MemoryStats:
    """Return statistics of the stores, open sessions, tools and operations, without I/O.

    Args:
        writer: Background writer of both tiers, which knows whether each tier answers.
        managers: Session managers of the open sessions.
        guards: Guarded MCP clients. Each item has all tools of one client, with circuit breakers.
        operations: Statistics of operations, keyed by operation; empty without telemetry.
        parts: Plugins and conversation managers of live agents.
    """
    from strands_manga_memory.conversation import VerifiedSummarizingConversationManager
    from strands_manga_memory.state import StateCoordinator

    summarizer = VerifiedSummarizingConversationManager
    managers, parts = list(managers), list(parts)
    sessions: list[Any] = [stats for manager in managers for stats in manager.live_stats()]

    def total(name: str) -> int:
        return sum(stats[name] or 0 for stats in sessions)

    tokens = total("tokens")
    trimmed = operations["trim"].sums["tokens"] if "trim" in operations else 0.0
    stats = MemoryStats(
        hot="up" if writer.hot_health.is_up else "down",
        hot_error=writer.hot_health.error,
        durable_error=writer.durable_health.error,
        durable="up" if writer.durable_health.is_up else "down",
        backlog=writer.backlog,
        sessions=len(managers),
        turns=total("turns"),
        messages=total("messages"),
        unsaved_messages=total("unsaved_messages"),
        tokens=tokens,
        token_budget=total("budget"),
        compression=trimmed / max(1.0, trimmed + tokens),
        state=_state_totals([part.stats() for part in parts if isinstance(part, StateCoordinator)]),
        summaries=_summary_totals([part.stats() for part in parts if isinstance(part, summarizer)]),
        missed_deadlines=operations["deadline"].count if "deadline" in operations else 0,
        operations=operations,
        tools={name: status for guarded in guards for name, status in guarded.status().items()},
    )
    return cast("MemoryStats", ReportDict(stats))


def _state_totals(known: Sequence[StateStats]) -> dict[str, int]:
    return {
        "agents": len(known),
        "entities": sum(each["entities"] for each in known),
        "goals": sum(each["goals"][0] for each in known),
        "archived_goals": sum(each["goals"][1] for each in known),
        "executions": sum(each["executions"][1] for each in known),
        "tokens": sum(sum(each["tokens"].values()) for each in known),
        "unreadable": sum(len(each["unreadable"]) for each in known),
    }


def _summary_totals(known: Sequence[SummaryStats]) -> dict[str, int]:
    names = ("runs", "swapped", "failed", "waits", "tokens_spent", "tokens_freed", "resting")
    return {name: sum(int(getattr(each, name)) for each in known) for name in names}
