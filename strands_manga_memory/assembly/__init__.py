"""What puts the parts together for one deployment: its settings, and ``MangaMemory``."""

from strands_manga_memory.assembly.facade import MangaMemory
from strands_manga_memory.assembly.finalizer import SessionFinalizer
from strands_manga_memory.assembly.memory_stats import MemoryStats
from strands_manga_memory.assembly.provenance import RetractionReport, Source
from strands_manga_memory.assembly.settings import MangaMemorySettings

__all__ = ["MangaMemory", "MangaMemorySettings", "MemoryStats", "RetractionReport", "SessionFinalizer", "Source"]
