"""Latency of the servers' clients alone, without this package: the part of a latency that is the machine's."""

from __future__ import annotations

import time

import boto3
import redis
from botocore.config import Config

_BYTES = 6_000
"""Approximate bytes that the restore for a message reads from either tier."""


def exchanges(hot: str, endpoint: str, rate: float, seconds: float) -> dict[str, list[float]]:
    """Read a value from each server ``rate`` times per second for ``seconds``, and return the seconds of each read.

    Args:
        hot: URL of a Valkey.
        endpoint: URL of a DynamoDB API.
        rate: Reads per second.
        seconds: Duration of the reads.
    """
    config = Config(retries={"mode": "standard", "total_max_attempts": 1})
    dynamodb = boto3.client("dynamodb", region_name="us-east-1", endpoint_url=endpoint, config=config)
    name, key = f"bare{time.time_ns()}", {"pk": {"S": "k"}}
    dynamodb.create_table(
        TableName=name,
        BillingMode="PAY_PER_REQUEST",
        KeySchema=[{"AttributeName": "pk", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "pk", "AttributeType": "S"}],
    )
    dynamodb.put_item(TableName=name, Item={**key, "data": {"B": b"x" * _BYTES}})
    taken: dict[str, list[float]] = {"hot": [], "durable": []}
    with redis.Redis.from_url(hot) as client:
        client.set(name, b"x" * _BYTES)
        for _ in range(round(rate * seconds)):
            time.sleep(1 / rate)  # as between messages: a processor that was away has emptied its caches
            start = time.perf_counter()
            client.get(name)
            between = time.perf_counter()
            dynamodb.get_item(TableName=name, Key=key)
            taken["hot"].append(between - start)
            taken["durable"].append(time.perf_counter() - between)
        client.delete(name)
    dynamodb.delete_table(TableName=name)
    return taken
