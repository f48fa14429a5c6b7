"""Statistics of a provider's prompt cache, with the causes of cache misses."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TypedDict


class Cause(StrEnum):
    """Reason why the cache could not serve a prompt."""

    PROMPT = "prompt changed"
    CONSTRAINTS = "constraints changed"
    TOOLS = "tools changed"
    VARIANT = "variant changed"
    HISTORY = "history was rewritten"
    GAP = "gap over the cache's lifetime"
    DEPLOY = "deploy"
    UNKNOWN = "unknown"


OF_PREFIX = frozenset({Cause.PROMPT, Cause.CONSTRAINTS, Cause.TOOLS, Cause.VARIANT})
"""Causes for which the beginning (prefix) of a request differs from the previous request."""


@dataclass(frozen=True)
class CacheMiss:
    """Model call that missed the prompt cache or had a changed prefix (system prompt, tools, model or prompt variant).

    Attributes:
        at: Time of the call, in seconds since 1970.
        agent_id: Id of the calling agent.
        causes: All causes that apply.
        tokens: Number of input tokens that the cache did not serve.
    """

    at: float
    agent_id: str
    causes: tuple[Cause, ...]
    tokens: int


@dataclass(frozen=True)
class CachePrices:
    """Prices of input tokens, as multiples of the price of an uncached token.

    Attributes:
        read: Price of a token read from the cache. Default 0.1.
        write: Price of a token written to the cache. Default 1.25.
    """

    read: float = 0.1
    write: float = 1.25


class CacheUse(TypedDict):
    """Use of the prompt cache by a group of model calls.

    Attributes:
        calls: Number of calls.
        input_tokens: Number of input tokens, including cached tokens.
        read_tokens: Number of tokens read from the cache.
        write_tokens: Number of tokens written to the cache.
        hit_rate: Share of the input tokens that was read from the cache.
    """

    calls: int
    input_tokens: int
    read_tokens: int
    write_tokens: int
    hit_rate: float


class CacheStats(CacheUse):
    """Statistics of the prompt cache over the recorded model calls.

    The prefix of a request is its system prompt, tools, model and prompt variant. The first request of a conversation has no
    previous request. It does not count for ``prefix_changes``, ``prefix_stability``, ``whole_prefixes`` and
    ``uncached_history_tokens``.

    Attributes:
        by_hour: Cache use in the last 31 days, keyed by hour in UTC, such as ``2026-11-03 14:00``.
        worst_day: Day with the lowest hit rate, and its hit rate. None without calls.
        saved_tokens: Saved cost, as the number of uncached input tokens of the same price. Negative if writing to the cache
            cost more than reading saved.
        drops: Number of calls that missed the cache or had a changed prefix, keyed by cause.
        prefix_changes: Number of calls with a changed prefix.
        prefix_stability: Share of calls with an unchanged prefix. 1 without calls.
        whole_prefixes: Share of requests that began with the whole previous request. 1 without calls. Text that plugins add
            after the cache point of the last message does not count.
        uncached_history_tokens: Estimated tokens, per call, of messages that repeat the previous request, but
            come after the first difference from it. The cache cannot serve these messages.
    """

    by_hour: dict[str, CacheUse]
    worst_day: tuple[str, float] | None
    saved_tokens: float
    drops: dict[str, int]
    prefix_changes: int
    prefix_stability: float
    whole_prefixes: float
    uncached_history_tokens: float
