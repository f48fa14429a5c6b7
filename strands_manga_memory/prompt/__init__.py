"""Stable beginnings of requests, and statistics of the provider's prompt cache."""

from strands_manga_memory.prompt.cache_monitor import PromptCacheMonitor
from strands_manga_memory.prompt.cache_stats import CacheMiss, CachePrices, CacheStats, Cause
from strands_manga_memory.prompt.instruction_files import InstructionFiles, StableTexts

__all__ = ["CacheMiss", "CachePrices", "CacheStats", "Cause", "InstructionFiles", "PromptCacheMonitor", "StableTexts"]
