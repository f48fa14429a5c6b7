"""The definition of a table, as DynamoDB's CreateTable takes it and as CloudFormation does. Pure."""

from __future__ import annotations

import re
from typing import Any

import yaml

from strands_manga_memory.stores.table import TableSchema


def table_definition(schema: TableSchema, name: str) -> dict[str, Any]:
    """Return the arguments of CreateTable: on-demand, with the schema's keys and indexes."""
    types = {schema.partition: "S", schema.sort: "S"}
    for index in schema.indexes:
        types |= {index.partition: "S", index.sort: "N" if index.sort_is_number else "S"}
    definition: dict[str, Any] = {
        "TableName": name,
        "BillingMode": "PAY_PER_REQUEST",
        "KeySchema": _key_schema(schema.partition, schema.sort),
        "AttributeDefinitions": [{"AttributeName": attribute, "AttributeType": kind} for attribute, kind in types.items()],
    }
    if schema.indexes:
        definition["GlobalSecondaryIndexes"] = [
            {
                "IndexName": index.name,
                "KeySchema": _key_schema(index.partition, index.sort),
                "Projection": {"ProjectionType": "ALL"},
            }
            for index in schema.indexes
        ]
    return definition


def cloudformation_yaml(*tables: TableSchema | tuple[TableSchema, str]) -> str:
    """Return a CloudFormation template in YAML that makes the same tables as ``create_if_missing``, with their TTL.

    Tables are kept when their stack is deleted.

    Args:
        tables: Schemas, or pairs of a schema and the name of its table; the name is the schema's by default.

    Raises:
        ValueError: There is no table, or two have one name.
    """
    named = [(table, table.name) if isinstance(table, TableSchema) else table for table in tables]
    if not named or len({name for _, name in named}) < len(named):
        raise ValueError(f"tables must be at least one, each with a name of its own, got {[name for _, name in named]}")
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


def _key_schema(partition: str, sort: str) -> list[dict[str, str]]:
    return [{"AttributeName": partition, "KeyType": "HASH"}, {"AttributeName": sort, "KeyType": "RANGE"}]
