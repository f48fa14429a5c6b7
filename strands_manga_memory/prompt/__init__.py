"""Instruction files in the system prompt, and statistics of the provider's prompt cache."""

from strands_manga_memory.prompt.cache_monitor import (
    CacheMiss,
    CacheStats,
    Cause,
    PromptCacheMonitor,
)
from strands_manga_memory.prompt.instruction_files import InstructionFiles, StableTexts

__all__ = [
    "CacheMiss",
    "CacheStats",
    "Cause",
    "InstructionFiles",
    "PromptCacheMonitor",
    "StableTexts",
]
