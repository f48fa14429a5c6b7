"""CloudFormation template and IAM policy of a deployment."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import yaml

from strands_manga_memory.stores.dynamodb_requests import table_definition
from strands_manga_memory.stores.table import TableSchema

SESSION_ACTIONS = ("BatchGetItem", "BatchWriteItem", "DeleteItem", "GetItem", "PutItem", "Query")
MEMORY_ACTIONS = (*SESSION_ACTIONS, "ConditionCheckItem")
"""DynamoDB actions that workers and sweepers need on the memory table.
On the sessions table, ``SESSION_ACTIONS`` are enough.
"""

SETUP_ACTIONS = ("CreateTable", "DescribeTable", "DescribeTimeToLive", "UpdateTimeToLive")
"""DynamoDB actions that ``create_if_missing`` and ``init-table`` need."""


def iam_policy(
    sessions: str,
    memories: str | None = None,
    *,
    setup: bool = False,
    stream: str | None = None,
) -> dict[str, Any]:
    """Return an IAM policy for a process that runs agents, or that ends expired sessions (sweeper).

    Args:
        sessions: ARN of the sessions table.
        memories: ARN of the memory table, if there is one.
        setup: Whether the policy allows creating the tables. Not needed if CloudFormation creates
            the tables.
        stream: ARN of the Kinesis stream, if the application uses ``KinesisPreferenceSink``.

    Raises:
        ValueError: ``sessions`` is empty.
    """
    if not sessions:
        raise ValueError(f"sessions must be the ARN of a table, got {sessions!r:.80}")
    statements = [_statement("Sessions", "dynamodb", SESSION_ACTIONS, sessions)]
    if memories:
        statements.append(_statement("Memories", "dynamodb", MEMORY_ACTIONS, memories))
    if setup:
        statements.append(
            _statement("Setup", "dynamodb", SETUP_ACTIONS, *filter(None, (sessions, memories)))
        )
    if stream:
        statements.append(_statement("Preferences", "kinesis", ("PutRecord",), stream))
    return {"Version": "2012-10-17", "Statement": statements}


def _statement(sid: str, service: str, actions: Sequence[str], *resources: str) -> dict[str, Any]:
    return {
        "Sid": sid,
        "Effect": "Allow",
        "Action": [f"{service}:{action}" for action in sorted(actions)],
        "Resource": list(resources),
    }


def cloudformation_yaml(*tables: TableSchema) -> str:
    """Return a CloudFormation template, in YAML, that creates tables with TTL enabled.

    Deleting the stack keeps the tables.

    Args:
        tables: Schemas of the tables, with the tables' names.

    Raises:
        ValueError: There is no table, or two tables have the same name.
    """
    names = [table.name for table in tables]
    if not names or len(set(names)) < len(names):
        raise ValueError(f"tables must be at least one, with distinct names, got {names}")
    resources = {
        "".join(part.capitalize() for part in re.split(r"[^A-Za-z0-9]+", table.name)) + "Table": {
            "Type": "AWS::DynamoDB::Table",
            "DeletionPolicy": "Retain",
            "UpdateReplacePolicy": "Retain",
            "Properties": {
                **table_definition(table, table.name),
                "TimeToLiveSpecification": {"AttributeName": table.ttl, "Enabled": True},
            },
        }
        for table in tables
    }
    template = {
        "AWSTemplateFormatVersion": "2010-09-09",
        "Description": "Tables of strands_manga_memory",
        "Resources": resources,
    }
    return yaml.safe_dump(template, sort_keys=False)
