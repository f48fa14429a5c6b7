"""SummaryStats: what a summarizing manager has done so far."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class SummaryStats:
    """What a manager has done so far.

    Attributes:
        runs: Summaries begun.
        swapped: Summaries that took the place of turns.
        discarded: Summaries not used, because the history had changed meanwhile.
        failed: Runs without any usable prose: refusals, errors, inventions.
        waits: Model calls that had to wait for a summary.
        warnings: How often the history came near the trigger.
        attempts: How often the summarizer was asked.
        tokens_spent: Tokens read and written by the summarizer.
        cache_hit_rate: Share of drafts that the cache had; 0.0 without a cache.
        resting: Whether the summarizer is left alone at the moment.
        tokens_freed: By how much summaries made the history smaller.
        enough: After how many summaries the history was under the trigger.
    """

    runs: int = 0
    swapped: int = 0
    discarded: int = 0
    failed: int = 0
    waits: int = 0
    warnings: int = 0
    attempts: int = 0
    tokens_spent: int = 0
    cache_hit_rate: float = 0.0
    resting: bool = False
    tokens_freed: int = 0
    enough: int = 0
