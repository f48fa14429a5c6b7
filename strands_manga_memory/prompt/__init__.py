"""What stays the same at the head of a request: instruction files, and how much a provider's cache had of the prompts."""

from typing import TYPE_CHECKING

from strands_manga_memory.lazy import door

if TYPE_CHECKING:
    from strands_manga_memory.prompt.cache_monitor import PromptCacheMonitor
    from strands_manga_memory.prompt.cache_stats import CacheStats, Cause, Drop, Prices
    from strands_manga_memory.prompt.instruction_files import InstructionFiles, StableTexts
else:
    __getattr__, __dir__ = door(
        __name__,
        {
            "cache_monitor": "PromptCacheMonitor",
            "cache_stats": "CacheStats Cause Drop Prices",
            "instruction_files": "InstructionFiles StableTexts",
        },
    )

__all__ = ["CacheStats", "Cause", "Drop", "InstructionFiles", "Prices", "PromptCacheMonitor", "StableTexts"]
