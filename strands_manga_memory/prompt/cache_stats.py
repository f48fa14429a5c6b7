"""Statistics of a provider's prompt cache, and the causes of its misses."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TypedDict


class Cause(StrEnum):
    """Cause of a prompt that the cache could not serve."""

    PROMPT = "prompt changed"
    CONSTRAINTS = "constraints changed"
    TOOLS = "tools changed"
    VARIANT = "variant changed"
    HISTORY = "history was rewritten"
    GAP = "gap over the cache's lifetime"
    DEPLOY = "deploy"
    UNKNOWN = "unknown"


OF_PREFIX = frozenset({Cause.PROMPT, Cause.CONSTRAINTS, Cause.TOOLS, Cause.VARIANT})
"""Causes that change the prefix."""


@dataclass(frozen=True)
class CacheMiss:
    """Model call that missed the cache, or whose prefix changed.

    Attributes:
        at: Seconds since 1970.
        agent_id: Id of the calling agent.
        causes: All causes that apply.
        tokens: Input tokens that the cache did not serve.
    """

    at: float
    agent_id: str
    causes: tuple[Cause, ...]
    tokens: int


@dataclass(frozen=True)
class CachePrices:
    """CachePrices of input tokens, as multiples of the price of an uncached token.

    Attributes:
        read: Price of a token read from the cache. Default 0.1.
        write: Price of a token written to the cache. Default 1.25.
        per_million: US dollars for a million uncached input tokens. With None, the statistics have no dollars.
    """

    read: float = 0.1
    write: float = 1.25
    per_million: float | None = None


class CacheUse(TypedDict):
    """Input tokens of a group of calls: total, read from the cache, written to the cache, and the share that was read."""

    calls: int
    input_tokens: int
    read_tokens: int
    write_tokens: int
    hit_rate: float


class CacheStats(CacheUse):
    """Statistics of all calls.

    Attributes:
        by_hour: Use by hour, UTC, such as ``2026-11-03 14:00``; the last 31 days.
        worst_day: Day with the lowest hit rate, and that rate; None without calls.
        saved_tokens: Savings in uncached input tokens; negative if writing cost more than reading saved.
        saved_dollars: Savings in US dollars; None without a price.
        drops: Number of drops by cause.
        prefix_changes: Number of changed prefixes, among calls with a previous request.
        prefix_stability: Share of those calls with an unchanged prefix; 1 without calls.
        whole_prefixes: Share of those calls that began with the whole previous request; 1 without calls. Text that plugins
            add after the cache point of the last message does not count.
        uncached_history_tokens: Estimated tokens of old messages after the shared beginning, on average over those calls.
    """

    by_hour: dict[str, CacheUse]
    worst_day: tuple[str, float] | None
    saved_tokens: float
    saved_dollars: float | None
    drops: dict[str, int]
    prefix_changes: int
    prefix_stability: float
    whole_prefixes: float
    uncached_history_tokens: float
