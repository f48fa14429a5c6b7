"""CloudFormation template of the package's tables. Pure."""

from __future__ import annotations

import re

import yaml

from strands_manga_memory.stores.aws.dynamodb_tables import table_definition
from strands_manga_memory.stores.table import TableSchema


def cloudformation_yaml(*tables: TableSchema | tuple[TableSchema, str]) -> str:
    """Return a CloudFormation template in YAML of the tables that ``create_if_missing`` creates, with their TTL.

    Deleting the stack retains the tables.

    Args:
        tables: Schemas, or pairs of a schema and a table name. Default name: that of the schema.

    Raises:
        ValueError: There is no table, or two tables have the same name.
    """
    named = [(table, table.name) if isinstance(table, TableSchema) else table for table in tables]
    if not named or len({name for _, name in named}) < len(named):
        raise ValueError(f"tables must be at least one, with distinct names, got {[name for _, name in named]}")
    resources = {
        "".join(part.capitalize() for part in re.split(r"[^A-Za-z0-9]+", name)) + "Table": {
            "Type": "AWS::DynamoDB::Table",
            "DeletionPolicy": "Retain",
            "UpdateReplacePolicy": "Retain",
            "Properties": {
                **table_definition(schema, name),
                "TimeToLiveSpecification": {"AttributeName": schema.ttl, "Enabled": True},
            },
        }
        for schema, name in named
    }
    template = {
        "AWSTemplateFormatVersion": "2010-09-09",
        "Description": "Tables of strands_manga_memory",
        "Resources": resources,
    }
    return yaml.safe_dump(template, sort_keys=False)
