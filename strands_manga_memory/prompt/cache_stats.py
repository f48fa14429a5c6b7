"""CacheStats: what is known of the prompts that a provider's cache had, and why it did not have the others."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TypedDict


class Cause(StrEnum):
    """Why a prompt could not come from the cache."""

    PROMPT = "prompt changed"
    CONSTRAINTS = "constraints changed"
    TOOLS = "tools changed"
    VARIANT = "variant changed"
    HISTORY = "history was rewritten"
    GAP = "gap over the cache's lifetime"
    DEPLOY = "deploy"
    UNKNOWN = "unknown"


OF_PREFIX = frozenset({Cause.PROMPT, Cause.CONSTRAINTS, Cause.TOOLS, Cause.VARIANT})
"""Causes that are changes of the prefix."""


@dataclass(frozen=True)
class Drop:
    """A call whose prompt should have come from the cache and did not, or whose prefix changed.

    Attributes:
        at: Seconds since 1970.
        agent_id: Whose call it was.
        causes: Why, all that apply.
        tokens: Input tokens that were not read from the cache.
    """

    at: float
    agent_id: str
    causes: tuple[Cause, ...]
    tokens: int


@dataclass(frozen=True)
class Prices:
    """What input tokens cost, as multiples of an uncached one, and what that costs.

    Attributes:
        read: A token read from the cache. Default 0.1.
        write: A token written to it. Default 1.25.
        per_million: US dollars for a million uncached input tokens; None: only tokens are reported.
    """

    read: float = 0.1
    write: float = 1.25
    per_million: float | None = None


class CacheUse(TypedDict):
    """Input tokens of some calls: all of them, those read from the cache and written to it, and the share that was read."""

    calls: int
    input_tokens: int
    read_tokens: int
    write_tokens: int
    hit_rate: float


class CacheStats(CacheUse):
    """What is known of all calls.

    Attributes:
        by_hour: Use by hour, UTC, such as ``2026-11-03 14:00``; the last 31 days.
        worst_day: Day and hit rate of the day that was worst; None before there is one.
        saved_tokens: What caching saved, in uncached input tokens; negative if writing cost more than reading saved.
        saved_dollars: The same in US dollars; None without a price.
        drops: How often each cause was seen.
        prefix_changes: How often a prefix changed within a session, of all calls that could tell.
        prefix_stability: Share of those calls whose prefix was the one before; 1 before there are any.
        whole_prefixes: Share of the calls whose request began with the whole one before, of all that could tell; 1 before
            there are any. What a plugin adds behind the cache point of the last message is no part of that.
        uncached_history_tokens: Tokens, by estimate, of a call's history behind what it shares with the request before, its
            new messages aside; on average over the calls that could tell.
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
