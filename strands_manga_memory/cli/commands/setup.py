"""Commands that create tables, print AWS permissions, and show the settings."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Annotated

import typer

from strands_manga_memory.assembly.settings import MangaMemorySettings, setting_rows
from strands_manga_memory.cli.options import (
    Durable,
    Json,
    Users,
    read_settings,
    refusing_wrong_values,
)
from strands_manga_memory.cli.output import messages, print_json, print_lines
from strands_manga_memory.ops.provisioning import cloudformation_yaml, iam_policy
from strands_manga_memory.stores import SESSIONS, USER_MEMORY, open_table
from strands_manga_memory.stores.table import TableSchema
from strands_manga_memory.stores.urls import table_name, users_table_url, without_password


def init_table(
    durable: Durable = None,
    users: Users = None,
    print_: Annotated[
        bool,
        typer.Option(
            "--print", help="Print a CloudFormation template instead of creating the tables."
        ),
    ] = False,
    as_json: Json = False,
) -> None:
    """Create missing tables, indexes and TTL settings."""
    urls = _table_urls(read_settings(durable_url=durable, users_url=users))
    if print_:
        with refusing_wrong_values():
            tables = [replace(schema, name=table_name(url, schema)) for schema, url in urls.items()]
        print(cloudformation_yaml(*tables), end="")  # noqa: T201
        return
    made = []
    for schema, url in urls.items():
        with refusing_wrong_values():
            table = open_table(url, schema)
        with messages.status(f"creating {schema.name}"):
            table.create_if_missing()
        table.close()
        made.append({"table": getattr(table, "name", schema.name), "url": without_password(url)})
    if as_json:
        print_json({"tables": made})
        return
    for entry in made:
        messages.print(f"{entry['table']} exists: {entry['url']}")


def _table_urls(settings: MangaMemorySettings) -> dict[TableSchema, str]:
    users = users_table_url(settings.memory_table(), settings.durable_url)
    return {SESSIONS: settings.durable_url, **({} if users is None else {USER_MEMORY: users})}


def permissions(
    durable: Durable = None,
    users: Users = None,
    region: Annotated[str, typer.Option(help="AWS region.")] = "*",
    account: Annotated[str, typer.Option(help="AWS account.")] = "*",
    stream: Annotated[
        str | None,
        typer.Option(metavar="ARN", help="Kinesis stream, if preferences are sent to one."),
    ] = None,
    setup: Annotated[
        bool, typer.Option("--setup", help="Include the permissions to create the tables.")
    ] = False,
) -> None:
    """Print the IAM policy with the least permissions that a worker needs."""
    settings = read_settings(durable_url=durable, users_url=users)
    with refusing_wrong_values():
        arns = [
            f"arn:aws:dynamodb:{region}:{account}:table/{table_name(url, schema)}"
            for schema, url in _table_urls(settings).items()
        ]
    print_json(iam_policy(*arns, setup=setup, stream=stream))


def settings(as_json: Json = False) -> None:
    """Show every setting: its value, its source, and the accepted values."""
    values = {
        name: without_password(value) if isinstance(value, str) else value
        for name, value in read_settings()
    }
    if as_json:
        print_json(values)
        return
    lines = []
    for name, variable, _, takes, _ in setting_rows():
        source = "set" if os.environ.get(variable) else "default"
        lines += [
            (variable, f"{values[name]} ({source})"),
            ("", f"accepts {takes.replace('`', '')}"),
        ]
    print_lines(lines)
