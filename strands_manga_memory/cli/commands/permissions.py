"""Command ``permissions``: print a worker's permissions as an IAM policy or a Redis ACL."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from strands_manga_memory.cli.options import Durable, Hot, Users, settings_of
from strands_manga_memory.cli.output import print_json
from strands_manga_memory.ops.permissions import iam_policy, redis_acl
from strands_manga_memory.stores import SESSIONS, USER_MEMORY, open_table
from strands_manga_memory.stores.aws.dynamodb import DynamoDBTable
from strands_manga_memory.stores.table import TableSchema
from strands_manga_memory.stores.urls import redis_prefix, users_table_url


class Kind(StrEnum):
    """Format of the permissions."""

    IAM = "iam"
    ACL = "acl"


def permissions(
    print_: Annotated[Kind, typer.Option("--print", help="IAM policy, or arguments of ACL SETUSER.")] = Kind.IAM,
    hot: Hot = None,
    durable: Durable = None,
    users: Users = None,
    user: Annotated[str, typer.Option(help="Name of the Redis user.")] = "manga-memory",
    region: Annotated[str, typer.Option(help="AWS region.")] = "*",
    account: Annotated[str, typer.Option(help="AWS account.")] = "*",
    stream: Annotated[str | None, typer.Option(metavar="ARN", help="Kinesis stream, if preferences are sent to one.")] = None,
    setup: Annotated[bool, typer.Option("--setup", help="Include the permissions to create the tables.")] = False,
) -> None:
    """Print the least permissions that a worker needs."""
    settings = settings_of(hot=hot, durable=durable, users=users)
    if print_ is Kind.ACL:
        is_cluster = "+cluster" in settings.hot_url.partition("://")[0]
        print(redis_acl(user, prefix=redis_prefix(settings.hot_url), cluster=is_cluster))  # noqa: T201
        return

    def arn(url: str, schema: TableSchema) -> str:
        table = open_table(url, schema) if url.startswith("dynamodb:") else None
        name = table.name if isinstance(table, DynamoDBTable) else schema.name
        return f"arn:aws:dynamodb:{region}:{account}:table/{name}"

    durable_url = settings.durable_url
    users_url = users_table_url(settings.users_url, durable_url)
    memories = None if users_url is None else arn(users_url, USER_MEMORY)
    sessions = arn(durable_url, SESSIONS)
    print_json(iam_policy(sessions, memories=memories, setup=setup, stream=stream))
