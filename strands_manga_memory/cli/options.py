"""Options that several commands share, and functions that open the stores they name."""

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
        help="Memory table, 'true' (next to the durable tier) or 'none'; default MANGA_MEMORY_USERS_URL.",
    ),
]
CodecName = Annotated[
    str | None,
    typer.Option("--codec", metavar="MODULE:NAME", help="Codec of the application, if it encrypts stored data."),
]
ModelName = Annotated[
    str | None,
    typer.Option("--model", metavar="MODULE:NAME", help="Strands model, or a function that returns one; default: rules only."),
]
Tenant = Annotated[str | None, typer.Option("--tenant", metavar="ID", help="Tenant of the user.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON value.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Skip the confirmation.")]


def settings_of(*, hot: str | None = None, durable: str | None = None, users: str | None = None) -> MangaMemorySettings:
    """Return the settings of the environment variables, overridden by the options."""
    given: dict[str, Any] = {"hot_url": hot, "durable_url": durable, "users_url": users}
    return MangaMemorySettings.from_env(**{name: value for name, value in given.items() if value is not None})


def unnamed_hot_tier(settings: MangaMemorySettings) -> list[str]:
    """Return a note that no hot tier is set although the durable tier is a service, or an empty list."""
    if "hot_url" in settings.model_fields_set or settings.durable_url.startswith("sqlite:"):
        return []
    return ["hot tier: not set (MANGA_MEMORY_HOT_URL or --hot); set memory:// if the deployment has none"]


def opened(settings: MangaMemorySettings, codec: str | None = None) -> MangaMemory:
    """Open the stores without creating tables."""
    kept: dict[str, Any] = {} if codec is None else {"codec": codec_of(codec)}
    return MangaMemory.from_settings(settings, create_tables=False, **kept)


def loaded(name: str) -> Any:
    """Return the object that ``module:name`` names. A function is called, and its result returned.

    Raises:
        BadParameter: The module or the name does not exist.
    """
    module, _, attribute = name.partition(":")
    try:
        found = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise typer.BadParameter(f"{name!r} cannot be loaded: {error}; write it as package.module:name") from error
    return found() if callable(found) and not hasattr(found, "stream") else found


def codec_of(name: str | None) -> Codec | None:
    """Return the codec that ``module:name`` names, or None without a name; raise ``BadParameter`` if it is not a codec."""
    if name is None:
        return None
    codec = loaded(name)
    if not isinstance(codec, Codec):
        raise typer.BadParameter(f"{name!r} must be a Codec, got {type(codec).__name__}")
    return codec
