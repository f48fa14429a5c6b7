"""The options that several commands have, and what they open."""

from __future__ import annotations

import importlib
from typing import Annotated, Any

import typer

from strands_manga_memory.assembly.facade import MangaMemory
from strands_manga_memory.assembly.settings import MangaMemorySettings
from strands_manga_memory.stores.encoding.codec import Codec

Hot = Annotated[str | None, typer.Option("--hot", metavar="URL", help="Hot tier; default MANGA_MEMORY_HOT_URL.")]
Durable = Annotated[
    str | None, typer.Option("--durable", metavar="URL", help="Durable tier; default MANGA_MEMORY_DURABLE_URL.")
]
Users = Annotated[
    str | None,
    typer.Option(
        "--users",
        metavar="URL",
        help="Memory table, 'true': beside the durable tier, or 'none': there is none; default MANGA_MEMORY_USERS_URL.",
    ),
]
CodecName = Annotated[
    str | None,
    typer.Option("--codec", metavar="MODULE:NAME", help="Codec of the application, where it encrypts what it stores."),
]
ModelName = Annotated[
    str | None,
    typer.Option("--model", metavar="MODULE:NAME", help="Strands model, or a function that returns one; default: rules."),
]
Tenant = Annotated[str | None, typer.Option("--tenant", metavar="ID", help="Tenant, if there is one.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON value.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


def settings_of(*, hot: str | None = None, durable: str | None = None, users: str | None = None) -> MangaMemorySettings:
    """Return the settings of the variables, with the options over them."""
    given: dict[str, Any] = {"hot_url": hot, "durable_url": durable, "users_url": users}
    return MangaMemorySettings.from_env(**{name: value for name, value in given.items() if value is not None})


def unnamed_hot_tier(settings: MangaMemorySettings) -> list[str]:
    """Return why the hot tier was not looked at, if it was not: beside a durable tier that is a service, it is one too."""
    if "hot_url" in settings.model_fields_set or settings.durable_url.startswith("sqlite:"):
        return []
    return ["hot tier: none is named (MANGA_MEMORY_HOT_URL or --hot); memory:// says that no other process has one"]


def opened(settings: MangaMemorySettings, codec: str | None = None) -> MangaMemory:
    """Open the stores as they are: nothing is created."""
    kept: dict[str, Any] = {} if codec is None else {"codec": codec_of(codec)}
    return MangaMemory.from_settings(settings, create_tables=False, **kept)


def loaded(name: str) -> Any:
    """Return what ``module:name`` stands for; a function is called.

    Raises:
        BadParameter: There is no such thing.
    """
    module, _, attribute = name.partition(":")
    try:
        found = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise typer.BadParameter(f"{name!r} cannot be loaded: {error}; write it as package.module:name") from error
    return found() if callable(found) and not hasattr(found, "stream") else found


def codec_of(name: str | None) -> Codec | None:
    """Return the application's codec, or None if none is named; raise ``BadParameter`` if it is none."""
    if name is None:
        return None
    codec = loaded(name)
    if not isinstance(codec, Codec):
        raise typer.BadParameter(f"{name!r} must be a Codec, got {type(codec).__name__}")
    return codec
