"""Options that several commands share, and functions that open the stores."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer

from strands_manga_memory.assembly.facade import MangaMemory
from strands_manga_memory.assembly.settings import MangaMemorySettings, SettingsError
from strands_manga_memory.exceptions import CorruptRecordError
from strands_manga_memory.scope import ConversationScope, checked_id
from strands_manga_memory.session import TieredSessionManager
from strands_manga_memory.session.tiers import stored_heads
from strands_manga_memory.stores.codec import Codec

Hot = Annotated[
    str | None, typer.Option("--hot", metavar="URL", help="Hot tier; default MANGA_MEMORY_HOT_URL.")
]
Durable = Annotated[
    str | None,
    typer.Option(
        "--durable", metavar="URL", help="Durable tier; default MANGA_MEMORY_DURABLE_URL."
    ),
]
Users = Annotated[
    str | None,
    typer.Option(
        "--users",
        metavar="URL",
        help=(
            "Memory table, 'true' (next to the durable tier) or 'none'; default"
            " MANGA_MEMORY_USERS_URL."
        ),
    ),
]
CodecName = Annotated[
    str | None,
    typer.Option(
        "--codec",
        metavar="MODULE:NAME",
        help="Codec of the application, if it encrypts stored data.",
    ),
]
ModelName = Annotated[
    str | None,
    typer.Option(
        "--model",
        metavar="MODULE:NAME",
        help="Strands model, or a function that returns one; default: rules only.",
    ),
]


@contextmanager
def refusing_wrong_values() -> Iterator[None]:
    """Convert a ``ValueError`` in a ``with`` block, such as for a URL, to a ``BadParameter``."""
    try:
        yield
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error


def check_id(parameter: typer.CallbackParam, value: str | None) -> str | None:
    """Return the id that a user of the command line gave, or None if it was not given.

    Raises:
        BadParameter: The id is invalid, for example empty.
    """
    with refusing_wrong_values():
        return None if value is None else checked_id(str(parameter.name), value)


Session = Annotated[
    str,
    typer.Argument(
        metavar="SESSION",
        help="Session id; with --user, the id within that user.",
        callback=check_id,
    ),
]
UserId = Annotated[str, typer.Argument(metavar="USER", help="User id.", callback=check_id)]
User = Annotated[
    str | None,
    typer.Option("--user", metavar="ID", help="User who owns the session.", callback=check_id),
]
AgentName = Annotated[
    str | None,
    typer.Option(
        "--agent", metavar="ID", help="Agent, if the session has several.", callback=check_id
    ),
]
Tenant = Annotated[
    str | None,
    typer.Option("--tenant", metavar="ID", help="Tenant of the user.", callback=check_id),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON value.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Skip the confirmation.")]


def read_settings(**options: Any) -> MangaMemorySettings:
    """Return the settings of a deployment, from environment variables and command options.

    ``options``, such as ``hot_url``, override environment variables, unless they are None.

    Raises:
        BadParameter: An option has a wrong value.
        SettingsError: An environment variable has a wrong value.
    """
    given = {name: value for name, value in options.items() if value is not None}
    try:
        return MangaMemorySettings.from_env(**given)
    except SettingsError as error:
        if given.keys().isdisjoint(name for name, _ in error.problems):
            raise
        raise typer.BadParameter(str(error)) from error


def hot_store_warnings(settings: MangaMemorySettings) -> list[str]:
    """Return a list with a warning if no hot store is set, or an empty list.

    With a durable store in a SQLite file, there is no warning: no other machine uses the file.
    """
    if "hot_url" in settings.model_fields_set or settings.durable_url.startswith("sqlite:"):
        return []
    return [
        "hot tier: not set (MANGA_MEMORY_HOT_URL or --hot); set memory:// if the deployment has"
        " none"
    ]


def open_memory(*, codec: str | None = None, **options: Any) -> MangaMemory:
    """Open the stores of a deployment as a ``MangaMemory``. No tables are created.

    ``codec`` is the name of a codec, in the form ``module:name``. ``options`` are settings, such as
    ``hot_url``, that override environment variables.
    """
    settings, loaded = read_settings(**options), load_codec(codec)
    with refusing_wrong_values():
        return MangaMemory.open(defaults=settings, create_tables=False, codec=loaded)


def session_target(session: str, user: str | None, tenant: str | None) -> str | ConversationScope:
    """Return the scope of a user's session, or the id of a session without a user.

    Raises:
        BadParameter: A tenant is given without a user.
    """
    if user is not None:
        return ConversationScope(user, session, tenant=tenant)
    if tenant is not None:
        raise typer.BadParameter("--tenant needs --user")
    return session


def missing_session_text(session: str, user: str | None, agent: str | None = None) -> str:
    """Return the error text for a session that is not stored.

    The text suggests the option ``--user`` if no user is given, and ``--tenant`` otherwise.
    """
    of = "" if user is None else f" of {user!r:.80}"
    of += "" if agent is None else f" with an agent {agent!r:.80}"
    owner = "a user (--user)" if user is None else "another tenant (--tenant)"
    return f"there is no session {session!r:.80}{of} in these tiers; does it belong to {owner}?"


@contextmanager
def open_conversation(
    session: str, user: str | None, tenant: str | None, agent: str | None, **options: Any
) -> Iterator[tuple[MangaMemory, TieredSessionManager, str]]:
    """Open one conversation for a command, and close the stores after the ``with`` block.

    The block gets the ``MangaMemory``, the session manager, and the id of the agent, which is the
    session's only agent by default. ``options`` are arguments of ``open_memory``.

    Raises:
        BadParameter: The session has several agents, and ``agent`` is None.
        CorruptRecordError: A conversation is damaged, and ``agent`` is None or has no intact one.
        ValueError: The session is not stored, or does not have the given agent.
    """
    target = session_target(session, user, tenant)
    with open_memory(**options) as memory:
        manager = memory.session(target)
        agents = manager.agents()
        heads = [] if agent in agents else stored_heads(memory.durable, manager.session_id)
        for record in (f"{head.key.name}#HEAD" for head in heads if head.is_damaged):
            raise CorruptRecordError(f"record={record!r} is damaged", record=record)
        if agent is None and len(agents) > 1:
            raise typer.BadParameter(
                f"the session has several agents: choose one with --agent: {', '.join(agents)}"
            )
        if not agents or agent not in (None, *agents):
            if agents:
                raise ValueError(
                    f"session {session!r:.80} has no agent {agent!r:.80}; its agents are"
                    f" {', '.join(agents)}"
                )
            raise ValueError(missing_session_text(session, user))
        yield memory, manager, agent or agents[0]


def load_object(option: str, name: str) -> Any:
    """Import the object that a command option names as ``module:name``.

    A function or class is called, and its result returned. ``option`` is named in errors.

    Raises:
        BadParameter: The import or the call fails.
    """
    module, _, attribute = name.partition(":")
    try:
        found = getattr(importlib.import_module(module), attribute)
        return found() if callable(found) and not hasattr(found, "stream") else found
    except Exception as error:  # the application's code may raise any error
        raise typer.BadParameter(
            f"{option} {name!r:.80} cannot be loaded: {type(error).__name__}: {error}; write it as"
            " package.module:name, name an object or a function without arguments, and set"
            " PYTHONPATH if the module is not installed"
        ) from error


def load_codec(name: str | None) -> Codec | None:
    """Import a codec by its name ``module:name``. Return None if no name is given.

    Raises:
        BadParameter: The object cannot be loaded, or is not a codec.
    """
    if name is None:
        return None
    codec = load_object("--codec", name)
    if not isinstance(codec, Codec):
        raise typer.BadParameter(
            f"--codec {name!r:.80} must name a Codec of strands_manga_memory, got an object of type"
            f" {type(codec).__name__}"
        )
    return codec
