"""dynamodb_client: a client of DynamoDB as ``DynamoDBTable`` wants it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import boto3
from botocore.config import Config

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

_UNREAD = ("md/", "ua/", "os/", "lang/", "m/", "cfg/")
"""Beginnings of what botocore says in the user agent of this machine and of its own settings."""


def dynamodb_client(*, region: str | None = None, endpoint: str | None = None) -> DynamoDBClient:
    """Return a client as this package wants it: no retries, timeouts of 2 s and 1 s, up to 50 connections, short headers.

    Its user agent names this package, boto3, botocore, and an application's id and environment if there are.

    Args:
        region: AWS region. Default: that of the AWS configuration.
        endpoint: URL of the service. Default: that of AWS.
    """
    config = Config(
        retries={"mode": "standard", "total_max_attempts": 1},
        connect_timeout=2,
        read_timeout=1,
        tcp_keepalive=True,
        parameter_validation=False,  # DynamoDB validates as well, and this package makes every request itself
        max_pool_connections=50,
        user_agent_extra="strands-manga-memory",
    )
    client = boto3.session.Session().client("dynamodb", region_name=region, endpoint_url=endpoint, config=config)
    client.meta.events.register("before-send.dynamodb", _shorten)
    return client


def _shorten(request: Any, **_: Any) -> None:
    """Leave out 210 of the 700 bytes of a request's headers; none of them is signed.

    Which try it is would be wrong: botocore knows of one, ``DynamoDBTable`` counts them.
    """
    for name in ("amz-sdk-invocation-id", "amz-sdk-request"):
        request.headers.pop(name, None)
    agent = request.headers.get("User-Agent", b"")
    said = agent.decode() if isinstance(agent, bytes) else agent
    request.headers["User-Agent"] = " ".join(part for part in said.split() if not part.startswith(_UNREAD))
