"""Entry point of the package: ``MangaMemory``, with its settings and results.

``MangaMemory`` opens the stores of a process, and builds agents on them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from strands_manga_memory.assembly.facade import MangaMemory
from strands_manga_memory.assembly.process_stores import MemoryStats
from strands_manga_memory.assembly.provenance import RetractionReport, Source
from strands_manga_memory.assembly.settings import MangaMemorySettings
from strands_manga_memory.lazy_imports import lazy_names

if TYPE_CHECKING:
    from strands_manga_memory.assembly.finalizer import SessionFinalizer

_NAMES = {"finalizer": "SessionFinalizer"}
"""Names that are imported at their first use, keyed by module."""

__all__ = [
    "MangaMemory",
    "MangaMemorySettings",
    "MemoryStats",
    "RetractionReport",
    "SessionFinalizer",
    "Source",
]

__getattr__, __dir__ = lazy_names(__name__, _NAMES, __all__)
