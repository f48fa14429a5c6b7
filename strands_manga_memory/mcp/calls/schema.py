"""ArgumentSchema: whether arguments fit a tool's input schema, found out before the call."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Mapping
from typing import Any

from jsonschema.exceptions import SchemaError, ValidationError, best_match
from jsonschema.validators import Draft202012Validator, validator_for
from referencing import Registry

logger = logging.getLogger(__name__)


class ArgumentSchema:
    """The input schema of a tool.

    A schema that cannot be used (it is invalid, or refers to another document) lets everything pass: the server checks too.
    References to other documents are never followed.

    Args:
        schema: JSON Schema of the arguments; without ``$schema`` of the draft of 2020-12, as MCP says.
        name: The tool's name, for logs.
    """

    def __init__(self, schema: Mapping[str, Any], *, name: str = "") -> None:
        self.hash = hashlib.sha256(canonical_json(schema).encode()).hexdigest()[:16]
        self._name = name
        self._validator: Any = None
        try:
            dialect = validator_for(schema, default=Draft202012Validator)
            dialect.check_schema(dict(schema))
            # Without a registry of its own jsonschema would fetch what a server's schema refers to.
            self._validator = dialect(schema, registry=Registry())
        except (SchemaError, RecursionError, TypeError, ValueError) as error:
            logger.debug("tool=<%s>, error=<%s> | the input schema is not valid, arguments are not checked", name, error)

    def problem(self, arguments: Any) -> str | None:
        """Return what is wrong with ``arguments``, in words; None if nothing is."""
        if self._validator is None:
            return None
        try:
            found: ValidationError | None = next(self._validator.iter_errors(arguments), None)
            if found is None:
                return None
            found = best_match(self._validator.iter_errors(arguments)) or found
        except Exception as error:  # noqa: BLE001 - a schema of a stranger: whatever it breaks, the server decides
            logger.debug(
                "tool=<%s>, error=<%s> | the input schema cannot be used, arguments are not checked", self._name, error
            )
            return None
        place = "/".join(str(part) for part in found.absolute_path)
        return f"{place}: {found.message[:300]}" if place else found.message[:300]


def canonical_json(value: Any) -> str:
    """Return the one JSON text of a value, keys sorted.

    Raises:
        TypeError: It is no JSON.
        ValueError: It holds NaN, an infinity, or itself.
    """
    return json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
