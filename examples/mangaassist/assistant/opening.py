"""Opens and closes a shop with its memory and servers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from mangaassist.assistant.servers import Servers
from mangaassist.assistant.shop import Shop
from mangaassist.model import open_model
from mangaassist.services import Backend
from strands_manga_memory import MangaMemory

_LOCAL_TOKENS = 600


@contextmanager
def open_shop(
    backend: Backend, folder: Path, *, model: str = "scripted", **settings: Any
) -> Iterator[Shop]:
    """Open memory, servers and squad, and close them at the end.

    Args:
        backend: Stores of the memory.
        folder: Folder of the cases.
        model: ``scripted``, ``local``, ``bedrock`` or ``bedrock:<model id>``.
        settings: Further keyword arguments of ``Shop``.
    """
    memory = MangaMemory.open(backend.hot, backend.durable, memories=True)
    try:
        played_by = None if model == "scripted" else open_model(model, local_tokens=_LOCAL_TOKENS)
        with Servers(memory) as servers:
            yield Shop(memory, servers, folder=folder, model=played_by, played_by=model, **settings)
    finally:
        memory.close()
