"""The rights that the package needs, and no more: an IAM policy for its tables, a Redis ACL for its keys. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

SESSION_ACTIONS = ("BatchGetItem", "BatchWriteItem", "DeleteItem", "GetItem", "PutItem", "Query")
MEMORY_ACTIONS = ("BatchGetItem", "BatchWriteItem", "ConditionCheckItem", "DeleteItem", "GetItem", "PutItem", "Query")
"""DynamoDB actions of workers and sweepers on each table. A transaction needs those of its parts; no index is asked."""

SETUP_ACTIONS = ("CreateTable", "DescribeTable", "DescribeTimeToLive", "UpdateTimeToLive")
"""What ``create_if_missing`` and ``init-table`` need."""

REDIS_COMMANDS = (
    *("del", "eval", "evalsha", "exists", "get", "hdel", "hget", "hmget", "hset", "pexpire", "set", "time"),
    *("zadd", "zrangebyscore", "zrem", "zremrangebyscore"),
)
"""Commands of ``RedisHotStore``, those inside its scripts included."""

_CLUSTER_COMMANDS = ("cluster|slots", "cluster|shards", "command")
"""What redis-py asks a cluster for its shape."""

_PREFIX = re.compile(r"[^\s*?\[\]\\]+")


def iam_policy(
    sessions: str,
    *,
    memories: str | None = None,
    setup: bool = False,
    stream: str | None = None,
) -> dict[str, Any]:
    """Return the IAM policy of a worker or sweeper: everything it does, and nothing else.

    Args:
        sessions: ARN of the table of sessions.
        memories: ARN of the table of what is known about users, if there is one.
        setup: Also what makes the tables; leave it out where they are made by CloudFormation.
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
    """Return the arguments of ``ACL SETUSER`` for a worker or sweeper; put a password in the place of ``PASSWORD``.

    Args:
        user: Name of the user.
        prefix: ``prefix`` of the ``RedisHotStore``.
        cluster: Whether it is a Redis Cluster.

    Raises:
        ValueError: The name or the prefix holds a space or a wildcard, or is empty.
    """
    for name, value in (("user", user), ("prefix", prefix)):
        if not _PREFIX.fullmatch(value):
            raise ValueError(f"{name} must be a text without spaces and wildcards, got {value!r:.80}")
    commands = " ".join(f"+{name}" for name in (*REDIS_COMMANDS, *(_CLUSTER_COMMANDS if cluster else ())))
    return f"{user} reset on >PASSWORD ~{prefix}:* resetchannels -@all {commands}"


def _statement(sid: str, service: str, actions: Sequence[str], *resources: str) -> dict[str, Any]:
    return {
        "Sid": sid,
        "Effect": "Allow",
        "Action": [f"{service}:{action}" for action in sorted(actions)],
        "Resource": list(resources),
    }
