"""DynamoDB client with the timeouts and retries that ``DynamoDBTable`` expects."""

from __future__ import annotations

from typing import TYPE_CHECKING

import boto3
from botocore.config import Config

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient


def dynamodb_client(*, region: str | None = None, endpoint: str | None = None) -> DynamoDBClient:
    """Return a client for ``DynamoDBTable``: no retries, timeouts of 2 s and 1 s, up to 50 connections.

    Its user agent names this package.

    Args:
        region: AWS region. Default: that of the AWS configuration.
        endpoint: URL of the service. Default: that of AWS.
    """
    config = Config(
        retries={"mode": "standard", "total_max_attempts": 1},
        connect_timeout=2,
        read_timeout=1,
        tcp_keepalive=True,
        parameter_validation=False,  # DynamoDB validates as well, and all requests are built by this package
        max_pool_connections=50,
        user_agent_extra="strands-manga-memory",
    )
    return boto3.session.Session().client("dynamodb", region_name=region, endpoint_url=endpoint, config=config)
