"""Conversion of values to DynamoDB's format and back, and of conditions and table definitions, without I/O."""

from __future__ import annotations

import math
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from strands_manga_memory.stores.table import Condition, Item, TableSchema


def attributes_of(item: Item) -> dict[str, Any]:
    """Convert a record from Python to DynamoDB's format.

    Raises:
        ValueError: A number is not finite.
        TypeError: A value has a type that a record cannot store.
    """
    return {name: value_of(value) for name, value in item.items()}


def item_of(stored: Mapping[str, Any]) -> Item:
    """Convert a record from DynamoDB's format to Python.

    Whole numbers become ``int``, other numbers ``float``, and sets become lists.
    """
    return {name: _plain(value) for name, value in stored.items()}


def expression_of(when: Condition | None, partition: str) -> dict[str, Any]:
    """Return the request arguments that express the condition of a write; empty for no condition.

    ``partition`` is the name of the partition key, which exists in every record.
    """
    if when is None:
        return {}
    names: dict[str, str] = {}
    values: dict[str, Any] = {}
    terms: list[str] = []

    def named(name: str, alias: str) -> str:
        if len(name) == 1:  # never a reserved word
            return name
        names[alias] = name
        return alias

    for number, (name, value) in enumerate(when.equals.items()):
        values[f":e{number}"] = value_of(value)
        attribute = named(name, f"#e{number}")
        equals = f"{attribute} = :e{number}"
        terms.append(f"(attribute_not_exists({attribute}) OR {equals})" if value is None else equals)
    for number, (name, limit) in enumerate(when.below.items()):
        values[f":b{number}"] = value_of(limit)
        terms.append(f"{named(name, f'#b{number}')} < :b{number}")
    if not values:  # no existing record meets the condition
        terms.append("attribute_not_exists(#key)")
    if not when.below and all(value is None for value in when.equals.values()):  # otherwise a value implies existence
        terms.append("attribute_exists(#key)")
    text = " AND ".join(terms)
    if when.absent:
        text = f"attribute_not_exists(#key) OR ({text})" if values else "attribute_not_exists(#key)"
    if "#key" in text:
        names["#key"] = partition
    expression = {"ConditionExpression": text, "ExpressionAttributeNames": names, "ExpressionAttributeValues": values}
    return {part: value for part, value in expression.items() if value}


def value_of(value: Any) -> dict[str, Any]:
    """Convert a Python value to DynamoDB's format. NaN, an infinite number or an unsupported type raises an error."""
    if value is None:
        return {"NULL": True}
    if isinstance(value, str):
        return {"S": value}
    if isinstance(value, bool):
        return {"BOOL": value}
    if isinstance(value, int):
        return {"N": str(value)}
    if isinstance(value, bytes | bytearray):
        return {"B": bytes(value)}
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError(f"a stored number must be finite, got {value!r:.80}")
        return {"N": str(Decimal(str(value)))}
    if isinstance(value, list | tuple):
        return {"L": [value_of(item) for item in value]}
    if isinstance(value, Mapping):
        return {"M": attributes_of(dict(value))}
    raise TypeError(f"a stored value must be str, int, float, bool, bytes, None, list or dict, got {type(value).__name__}")


def _plain(value: Mapping[str, Any]) -> Any:
    """Convert a value from DynamoDB's format to Python."""
    [(kind, content)] = value.items()
    if kind == "N":
        return _number(content)
    if kind == "L":
        return [_plain(item) for item in content]
    if kind == "M":
        return item_of(content)
    if kind == "NS":
        return [_number(text) for text in content]
    return None if kind == "NULL" else content


def _number(text: str) -> int | float:
    number = Decimal(text)
    return int(number) if number == number.to_integral_value() else float(number)


def table_definition(schema: TableSchema, name: str) -> dict[str, Any]:
    """Return the arguments of the request that creates a table with the keys and indexes of a schema, billed on demand."""
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
