"""What puts the parts together for one deployment: its settings, and ``MangaMemory``."""

from typing import TYPE_CHECKING

from strands_manga_memory.lazy import door

if TYPE_CHECKING:
    from strands_manga_memory.assembly.facade import MangaMemory
    from strands_manga_memory.assembly.finalizer import SessionFinalizer
    from strands_manga_memory.assembly.memory_stats import MemoryStats
    from strands_manga_memory.assembly.provenance import RetractionReport, Source
    from strands_manga_memory.assembly.settings import MangaMemorySettings
else:
    __getattr__, __dir__ = door(
        __name__,
        {
            "facade": "MangaMemory",
            "finalizer": "SessionFinalizer",
            "memory_stats": "MemoryStats",
            "provenance": "RetractionReport Source",
            "settings": "MangaMemorySettings",
        },
    )

__all__ = ["MangaMemory", "MangaMemorySettings", "MemoryStats", "RetractionReport", "SessionFinalizer", "Source"]
