"""One object that opens the stores of a process and hands out what an agent needs."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from strands_manga_memory.assembly.facade import MangaMemory
from strands_manga_memory.assembly.memory_stats import MemoryStats
from strands_manga_memory.assembly.settings import MangaMemorySettings

if TYPE_CHECKING:
    from strands_manga_memory.assembly.finalizer import SessionFinalizer
    from strands_manga_memory.assembly.provenance import RetractionReport, Source

_MODULES = {"RetractionReport": "provenance", "SessionFinalizer": "finalizer", "Source": "provenance"}
"""The module of each name that is imported at its first use."""

__all__ = ["MangaMemory", "MangaMemorySettings", "MemoryStats", "RetractionReport", "SessionFinalizer", "Source"]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return __all__
