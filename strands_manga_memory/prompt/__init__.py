"""What stays the same at the head of a request: instruction files, and how much a provider's cache had of the prompts."""

from strands_manga_memory.prompt.cache_monitor import PromptCacheMonitor
from strands_manga_memory.prompt.cache_stats import CacheStats, Cause, Drop, Prices
from strands_manga_memory.prompt.instruction_files import InstructionFiles, StableTexts

__all__ = ["CacheStats", "Cause", "Drop", "InstructionFiles", "Prices", "PromptCacheMonitor", "StableTexts"]
