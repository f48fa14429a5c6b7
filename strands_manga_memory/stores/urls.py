"""Functions that open stores by their URLs, and find the table of user memories."""

from __future__ import annotations

import os
import re
import weakref
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Literal
from urllib.parse import SplitResult, parse_qsl, unquote, urlencode, urlsplit, urlunsplit

from strands_manga_memory.arguments import check_protocol, checked
from strands_manga_memory.exceptions import StoreRefusedError
from strands_manga_memory.stores.hot import HotStore, InMemoryHotStore
from strands_manga_memory.stores.table import SESSIONS, USER_MEMORY, Table, TableSchema

_TABLES = (
    "sqlite:///relative/path, sqlite:////absolute/path, dynamodb://table?region=&endpoint= "
    "or postgresql://user:password@host:port/database"
)
_HOT_STORES = (
    "memory://, redis://host:port/db, rediss://, redis+cluster://host:port or rediss+cluster://"
)
_TABLE_NAME = re.compile(r"[A-Za-z0-9_.-]{3,255}")


@checked
def open_table(url: str, schema: TableSchema = SESSIONS) -> Table:
    """Return the durable table that a URL names.

    The table is opened at its first use. A missing table is not created.

    The URL has one of three forms:

    - SQLite: ``sqlite:///relative/path`` or ``sqlite:////absolute/path``. Write ``%23`` for a ``#``
      in the path.
    - DynamoDB: ``dynamodb://table?region=us-east-1&endpoint=http://127.0.0.1:8000``. All parts are
      optional. The default name of the table is that of ``schema``. The defaults of region and
      endpoint come from the AWS configuration of the process.
    - PostgreSQL: a URL of libpq, such as
      ``postgresql://user:password@host:5432/database?sslmode=verify-full``. The name of
      the table is that of ``schema``.

    Args:
        url: The URL.
        schema: Names of the table, its keys and its indexes. Default ``SESSIONS``.

    Raises:
        ValueError: The URL has none of these forms. The message does not contain its password.
    """
    with _opening(url, _TABLES):
        parts, query = _split(url)
        if parts.scheme == "sqlite":
            return _sqlite(parts, query, schema)
        if parts.scheme == "dynamodb":
            return _dynamodb(parts, query, schema)
        if parts.scheme in ("postgresql", "postgres"):
            return _postgres(url, schema)
        raise ValueError(f"its scheme {parts.scheme!r:.80} names no table")


def users_table_url(
    memories: str | bool | None,  # noqa: FBT001 - as MangaMemory takes it
    durable: str,
) -> str | None:
    """Return the URL of the table of user memories, or None if there is no such table.

    Args:
        memories: Argument ``memories`` of ``MangaMemory``: a URL, True for a table in the same file
            or service as the conversations, False or None for no table.
        durable: URL of the table of conversations. If ``memories`` is True, the result is this URL;
            for DynamoDB, without the table's name, as in ``dynamodb://?region=us-east-1``.
    """
    if memories is not True:
        return memories or None
    parts = urlsplit(durable)
    return f"dynamodb://?{parts.query}" if parts.scheme == "dynamodb" else durable


@checked
def open_hot_store(url: str) -> HotStore:
    """Return the hot store (the store of the conversations in use) that a URL names.

    The URL has one of these forms (``rediss`` instead of ``redis`` means TLS):

    - This process: ``memory://``.
    - One server: ``redis://user:password@host:port/db``.
    - Cluster: ``redis+cluster://user:password@host:port``, with the address of any node.

    For Sentinel, or for several addresses, pass your own client to ``RedisHotStore``.

    These query arguments are allowed in a URL of Redis:

    - Of ``RedisHotStore``: ``prefix`` and ``deadline``.
    - Of the client: ``client_name``, ``health_check_interval``, ``max_connections``,
      ``socket_connect_timeout`` and ``socket_timeout``.
    - Of the client, with TLS: ``ssl_ca_certs``, ``ssl_cert_reqs``, ``ssl_certfile``,
      ``ssl_check_hostname`` and ``ssl_keyfile``.

    By default, the client opens up to 50 connections per node, and does not retry. The connect
    timeout is 2 s, and the socket timeout is 1 s. The client of a cluster connects at once. Other
    clients connect at their first use.

    Raises:
        ValueError: The URL has none of these forms, or an invalid argument. The message does not
            contain the URL's password.
        StoreUnavailableError: No node of the cluster is available.
    """
    with _opening(url, _HOT_STORES):
        parts, query = _split(url)
        scheme, _, kind = parts.scheme.partition("+")
        if parts.scheme == "memory":
            if parts.netloc or parts.path.strip("/") or query:
                raise ValueError("memory:// takes no host, path or arguments")
            return InMemoryHotStore()
        if scheme not in ("redis", "rediss") or kind not in ("", "cluster"):
            raise ValueError(f"its scheme {parts.scheme!r:.80} names no hot store")
        return _redis(parts, query)


def _sqlite(parts: SplitResult, query: Mapping[str, str], schema: TableSchema) -> Table:
    from strands_manga_memory.stores.sqlite import SQLiteTable

    if parts.netloc:
        path = parts.netloc + parts.path
        raise ValueError(f"a path follows three slashes: write sqlite:///{path}")
    if query:
        raise ValueError(f"sqlite takes no arguments, got {sorted(query)}")
    return SQLiteTable(unquote(parts.path.removeprefix("/")), schema)


def table_name(url: str, schema: TableSchema) -> str:
    """Return the name of the table that a URL names. The table is not opened.

    Raises:
        ValueError: The URL has none of the forms of ``open_table``.
    """
    with _opening(url, _TABLES):
        parts, query = _split(url)
        if parts.scheme != "dynamodb":
            return schema.name
        _check_dynamodb(parts, query)
        return parts.netloc or schema.name


def _check_dynamodb(parts: SplitResult, query: Mapping[str, str]) -> None:
    if unknown := sorted(query.keys() - {"region", "endpoint"}):
        raise ValueError(f"unknown arguments {unknown}, dynamodb takes region and endpoint")
    if parts.path.strip("/"):
        raise ValueError("a table name has no path: remove the path")
    if parts.netloc and not _TABLE_NAME.fullmatch(parts.netloc):
        raise ValueError("a table name is 3 to 255 of the characters A-Z a-z 0-9 _ . -")
    if not query.get("endpoint", "http://").startswith(("http://", "https://")):
        raise ValueError("its endpoint is not an http:// or https:// URL")


def _dynamodb(parts: SplitResult, query: Mapping[str, str], schema: TableSchema) -> Table:
    from botocore.exceptions import BotoCoreError

    from strands_manga_memory.stores.dynamodb import DynamoDBTable
    from strands_manga_memory.stores.dynamodb_requests import dynamodb_client

    _check_dynamodb(parts, query)
    try:
        client = dynamodb_client(region=query.get("region"), endpoint=query.get("endpoint"))
    except BotoCoreError as error:
        raise ValueError(str(error)) from error
    return DynamoDBTable(client, schema, name=parts.netloc or None)


def _postgres(url: str, schema: TableSchema) -> Table:
    try:
        from strands_manga_memory.stores.postgres import PostgresTable
    except ImportError as error:
        raise ValueError(
            "psycopg or psycopg-pool is missing: pip install 'strands-manga-memory[postgres]'"
        ) from error
    return PostgresTable(url, schema)


_SECONDS = r"(?=.*[1-9])([0-9]{1,6}(\.[0-9]*)?|\.[0-9]+)", "a number of seconds above 0"
_TEXT = r".+", "a text"
_STORE_ARGUMENTS = {"deadline": _SECONDS, "prefix": (r".*", "a text")}
_CLIENT_ARGUMENTS = {
    "client_name": _TEXT,
    "health_check_interval": (r"[0-9]{1,9}", "a whole number from 0"),
    "max_connections": (r"(?=.*[1-9])[0-9]{1,9}", "a whole number from 1"),
    "socket_connect_timeout": _SECONDS,
    "socket_timeout": _SECONDS,
}
_TLS_ARGUMENTS = {
    "ssl_ca_certs": _TEXT,
    "ssl_cert_reqs": (r"none|optional|required", "none, optional or required"),
    "ssl_certfile": _TEXT,
    "ssl_check_hostname": (r"(?i:true|false)", "true or false"),
    "ssl_keyfile": _TEXT,
}


def _redis(parts: SplitResult, query: Mapping[str, str]) -> HotStore:
    from strands_manga_memory.stores.redis_hot_store import RedisHotStore, redis_client

    scheme, _, kind = parts.scheme.partition("+")
    known = _STORE_ARGUMENTS | _CLIENT_ARGUMENTS | (_TLS_ARGUMENTS if scheme == "rediss" else {})
    if unknown := sorted(set(query) - set(known)):
        raise ValueError(f"unknown arguments {unknown}, it takes {sorted(known)}")
    for name, value in query.items():
        pattern, what = known[name]
        if not re.fullmatch(pattern, value):
            raise ValueError(f"argument {name} is not {what}")
    try:
        host = parts.hostname if parts.port != 0 else None
    except ValueError:  # its text may contain a part of the password
        host = None
    if not host or "," in host:
        raise ValueError("its host is not name:port, or [IPv6]:port, with a port from 1 to 65535")
    path = unquote(parts.path.strip("/"))
    if path and not path.isdecimal():
        # the path may be a part of a password that contains a slash
        raise ValueError("its path is not a database number, as in redis://host:6379/0")
    if kind == "cluster" and (path not in ("", "0")):
        raise ValueError("a cluster has only database 0: remove the number")
    others = {name: query[name] for name in query if name not in _STORE_ARGUMENTS}
    plain_url = urlunsplit((scheme, parts.netloc, path, urlencode(others), ""))
    client = redis_client(plain_url, is_cluster=kind == "cluster")
    options: dict[str, Any] = {name: query[name] for name in _STORE_ARGUMENTS if name in query}
    if "deadline" in options:
        options["deadline"] = float(options["deadline"])
    return RedisHotStore(client, **options)


def _split(url: str) -> tuple[SplitResult, dict[str, str]]:
    try:
        parts = urlsplit(url)
        arguments = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
    except (ValueError, AttributeError, TypeError):
        raise ValueError("it is not a URL") from None  # the parser's error may contain the password
    if parts.fragment:
        raise ValueError("a # in it must be written %23")
    names = [name for name, _ in arguments]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ValueError(f"arguments {twice} are given twice: remove one value of each")
    return parts, dict(arguments)


@contextmanager
def _opening(url: object, accepted: str) -> Iterator[None]:
    try:
        yield
    except ValueError as error:
        why = without_password(str(error))
        what = f"url {without_password(str(url))!r:.200} cannot be opened: {why:.300}"
        # the error may contain the password
        raise ValueError(f"{what}; accepted are {accepted}") from None


def without_password(url: str) -> str:
    """Return a URL with ``***`` instead of passwords, for logs and errors.

    User and password (the text between ``//`` and the last ``@``) are replaced, and so is the value
    of each query argument whose name ends in ``password``.
    """
    shown = re.sub(r"//.*@", "//***@", url)  # up to the last @: a password may hold any character
    return re.sub(r"([?&][^=&]*password=)[^&]*", r"\1***", shown)


MemoryTable = Table | Literal[False] | None
"""Table of user memories; False if there is none, None if it is not known."""

_opened: weakref.WeakValueDictionary[tuple[str, ...], Any] = weakref.WeakValueDictionary()
"""Stores in use, by URL; tables also by working directory and name of the schema."""


def table_of(
    given: Table | str | None, schema: TableSchema = SESSIONS, *, name: str = "durable"
) -> Any:
    """Return a table that is given as an object or by its URL; None for None.

    For a URL, the table is opened, and created if it is missing. As long as a table is in use, the
    same URL returns the same object, so that all callers share its connections. ``schema`` is used
    only for a URL. ``name`` is the caller's argument in error messages.

    Raises:
        ValueError: The URL is invalid, or the argument is neither a table nor a URL.
        StoreUnavailableError: The store is unavailable.
    """
    if not isinstance(given, str):
        return given if given is None else check_protocol(name, given, Table, "a Table or its URL")
    key = (os.getcwd(), given, schema.name)
    table: Table | None = _opened.get(key)
    if table is None:
        table = open_table(given, schema)
        table.create_if_missing()
        table = _opened.setdefault(key, table)
    return table


def hot_store_of(given: HotStore | str | None) -> Any:
    """Return a hot store that is given as an object or by its URL; None for None.

    As long as a store is in use, the same URL returns the same object.

    Raises:
        ValueError: The URL is invalid, or the argument is neither a hot store nor a URL.
        StoreUnavailableError: No node of a Redis cluster is available.
    """
    if not isinstance(given, str):
        words = "a HotStore or its URL"
        return given if given is None else check_protocol("hot", given, HotStore, words)
    store: HotStore | None = _opened.get((given,))
    return store if store is not None else _opened.setdefault((given,), open_hot_store(given))


def memory_table(memories: MemoryTable, durable: Table) -> tuple[Table | None, list[str]]:
    """Find the table of user memories that belongs to a table of conversations.

    Args:
        memories: The table of user memories, if it is known. False: there is no such table. None:
            search for the table that ``MangaMemory.open(memories=True)`` creates in the same file
            or service. A table with another name is not found.
        durable: The table of conversations.

    Returns:
        The table or None, and a list of reasons why the search may have missed an existing table.
        Usually, the list is empty.

    Raises:
        StoreUnavailableError: The file or service is unavailable.
    """
    if memories is False:
        return None, []
    if memories is not None:
        return memories, []
    durable = getattr(durable, "observes", durable)
    open_table_in_same_store = getattr(durable, "with_schema", None)
    if open_table_in_same_store is None:
        doubt = "no memory table is set, and it cannot be searched next to this durable tier"
        return None, [f"memories: {doubt}"]
    found: Table = open_table_in_same_store(USER_MEMORY)
    try:
        found.get("nobody", "nothing")
    except StoreRefusedError as error:
        doubt = f"no memory table is set, and there is no {found!r} next to the durable tier"
        if error.reason != "table":
            doubt = f"{found!r} next to the durable tier cannot be read, reason: {error.reason}"
        elif getattr(durable, "name", durable.schema.name) == durable.schema.name:
            return None, []  # with a custom name, the memory table might have one, too
        return None, [f"memories: {doubt}"]
    return found, []
