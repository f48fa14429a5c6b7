"""Arguments of DynamoDB's CreateTable. Pure."""

from __future__ import annotations

from typing import Any

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


def _key_schema(partition: str, sort: str) -> list[dict[str, str]]:
    return [{"AttributeName": partition, "KeyType": "HASH"}, {"AttributeName": sort, "KeyType": "RANGE"}]
