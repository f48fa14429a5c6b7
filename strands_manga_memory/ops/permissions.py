"""Least permissions of the package: an IAM policy for its tables, a Redis ACL for its keys. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

SESSION_ACTIONS = ("BatchGetItem", "BatchWriteItem", "DeleteItem", "GetItem", "PutItem", "Query")
MEMORY_ACTIONS = ("BatchGetItem", "BatchWriteItem", "ConditionCheckItem", "DeleteItem", "GetItem", "PutItem", "Query")
"""DynamoDB actions of workers and sweepers on each table. A transaction needs those of its parts; indexes are not
queried.
"""

SETUP_ACTIONS = ("CreateTable", "DescribeTable", "DescribeTimeToLive", "UpdateTimeToLive")
"""DynamoDB actions of ``create_if_missing`` and ``init-table``."""

REDIS_COMMANDS = (
    *("del", "eval", "evalsha", "exists", "get", "hdel", "hget", "hmget", "hset", "pexpire", "set", "time"),
    *("zadd", "zrangebyscore", "zrem", "zremrangebyscore"),
)
"""Commands of ``RedisHotStore``, including those inside its scripts."""

_CLUSTER_COMMANDS = ("cluster|slots", "cluster|shards", "command")
"""Commands with which redis-py reads the topology of a cluster."""

_PREFIX = re.compile(r"[^\s*?\[\]\\]+")


def iam_policy(
    sessions: str,
    *,
    memories: str | None = None,
    setup: bool = False,
    stream: str | None = None,
) -> dict[str, Any]:
    """Return the IAM policy with the least permissions of a worker or sweeper.

    Args:
        sessions: ARN of the sessions table.
        memories: ARN of the memory table, if there is one.
        setup: Whether to allow creating the tables; not needed if CloudFormation creates them.
        stream: ARN of the Kinesis stream, if ``KinesisPreferenceSink`` is used.

    Raises:
        ValueError: ``sessions`` is empty.
    """
    if not sessions:
        raise ValueError(f"sessions must be the ARN of a table, got {sessions!r:.80}")
    statements = [_statement("Sessions", "dynamodb", SESSION_ACTIONS, sessions)]
    if memories:
        statements.append(_statement("Memories", "dynamodb", MEMORY_ACTIONS, memories))
    if setup:
        statements.append(_statement("Setup", "dynamodb", SETUP_ACTIONS, *filter(None, (sessions, memories))))
    if stream:
        statements.append(_statement("Preferences", "kinesis", ("PutRecord",), stream))
    return {"Version": "2012-10-17", "Statement": statements}


def redis_acl(user: str = "manga-memory", *, prefix: str = "smm", cluster: bool = False) -> str:
    """Return the arguments of ``ACL SETUSER`` for a worker or sweeper. Replace ``PASSWORD`` with a password.

    Args:
        user: Name of the Redis user.
        prefix: ``prefix`` of the ``RedisHotStore``.
        cluster: Whether the server is a Redis Cluster.

    Raises:
        ValueError: The name or the prefix is empty, or contains a space or a wildcard.
    """
    for name, value in (("user", user), ("prefix", prefix)):
        if not _PREFIX.fullmatch(value):
            raise ValueError(f"{name} must be a text without spaces or wildcards, got {value!r:.80}")
    commands = " ".join(f"+{name}" for name in (*REDIS_COMMANDS, *(_CLUSTER_COMMANDS if cluster else ())))
    return f"{user} reset on >PASSWORD ~{prefix}:* resetchannels -@all {commands}"


def _statement(sid: str, service: str, actions: Sequence[str], *resources: str) -> dict[str, Any]:
    return {
        "Sid": sid,
        "Effect": "Allow",
        "Action": [f"{service}:{action}" for action in sorted(actions)],
        "Resource": list(resources),
    }
