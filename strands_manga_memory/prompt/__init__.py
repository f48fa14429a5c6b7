"""Stable beginnings of requests: instruction files in the system prompt, and statistics of the provider's prompt cache."""

from strands_manga_memory.prompt.cache_monitor import PromptCacheMonitor
from strands_manga_memory.prompt.cache_stats import CacheStats, Cause, Drop, Prices
from strands_manga_memory.prompt.instruction_files import InstructionFiles, StableTexts

__all__ = ["CacheStats", "Cause", "Drop", "InstructionFiles", "Prices", "PromptCacheMonitor", "StableTexts"]
