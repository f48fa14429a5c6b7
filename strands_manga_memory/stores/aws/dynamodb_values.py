"""Translates values and conditions into DynamoDB's form and back. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from strands_manga_memory.stores.table import Condition, Item


def attributes_of(item: Item) -> dict[str, Any]:
    """Return a record as DynamoDB stores it.

    Raises:
        ValueError: A number is not finite.
        TypeError: A value is none of those an ``Item`` may hold.
    """
    return {name: value_of(value) for name, value in item.items()}


def item_of(stored: Mapping[str, Any]) -> Item:
    """Return a record as it was put: a whole number is an ``int``, any other a ``float``; a set is a list."""
    return {name: _plain(value) for name, value in stored.items()}


def expression_of(when: Condition | None, partition: str) -> dict[str, Any]:
    """Return the request arguments that make a write depend on ``when``; ``partition`` is an attribute every record has."""
    if when is None:
        return {}
    names: dict[str, str] = {}
    values: dict[str, Any] = {}
    terms: list[str] = []

    def told(name: str, alias: str) -> str:
        if len(name) == 1:  # no reserved word
            return name
        names[alias] = name
        return alias

    for number, (name, value) in enumerate(when.equals.items()):
        values[f":e{number}"] = value_of(value)
        attribute = told(name, f"#e{number}")
        equals = f"{attribute} = :e{number}"
        terms.append(f"(attribute_not_exists({attribute}) OR {equals})" if value is None else equals)
    for number, (name, limit) in enumerate(when.below.items()):
        values[f":b{number}"] = value_of(limit)
        terms.append(f"{told(name, f'#b{number}')} < :b{number}")
    if not values:  # no record that is there meets it
        terms.append("attribute_not_exists(#key)")
    if not when.below and all(value is None for value in when.equals.values()):  # else it says so that the record is there
        terms.append("attribute_exists(#key)")
    text = " AND ".join(terms)
    if when.absent:
        text = f"attribute_not_exists(#key) OR ({text})" if values else "attribute_not_exists(#key)"
    if "#key" in text:
        names["#key"] = partition
    expression = {"ConditionExpression": text, "ExpressionAttributeNames": names, "ExpressionAttributeValues": values}
    return {part: told for part, told in expression.items() if told}


def value_of(value: Any) -> dict[str, Any]:
    """Return one value as DynamoDB stores it; raises as ``attributes_of`` does."""
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
