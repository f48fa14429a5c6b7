"""Command ``init-table``: create the tables, or print them as CloudFormation."""

from __future__ import annotations

from typing import Annotated

import typer

from strands_manga_memory.cli.options import Durable, Json, Users, settings_of
from strands_manga_memory.cli.output import messages, print_json
from strands_manga_memory.ops.cloudformation import cloudformation_yaml
from strands_manga_memory.stores import SESSIONS, USER_MEMORY, open_table
from strands_manga_memory.stores.aws.dynamodb import DynamoDBTable
from strands_manga_memory.stores.urls import users_table_url, without_password


def init_table(
    durable: Durable = None,
    users: Users = None,
    print_: Annotated[
        bool, typer.Option("--print", help="Print a CloudFormation template instead of creating the tables.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Create missing tables, indexes and TTL settings."""
    settings = settings_of(durable=durable, users=users)
    urls = {SESSIONS: settings.durable_url}
    users_url = users_table_url(settings.users_url, settings.durable_url)
    if users_url is not None:
        urls[USER_MEMORY] = users_url
    if print_:
        named = []
        for schema, url in urls.items():
            table = open_table(url, schema) if url.startswith("dynamodb:") else None
            named.append((table.schema, table.name) if isinstance(table, DynamoDBTable) else (schema, schema.name))
        print(cloudformation_yaml(*named), end="")  # noqa: T201
        return
    made = []
    for schema, url in urls.items():
        table = open_table(url, schema)
        with messages.status(f"creating {schema.name}"):
            table.create_if_missing()
        table.close()
        made.append({"table": getattr(table, "name", schema.name), "url": without_password(url)})
    if as_json:
        print_json({"tables": made})
    else:
        for entry in made:
            messages.print(f"{entry['table']} exists: {entry['url']}", markup=False)
