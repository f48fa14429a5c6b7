"""Validation of arguments against a tool's input schema, before the call."""

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
    """Input schema of a tool.

    An unusable schema (invalid, or with a reference to another document) accepts all arguments, because the server
    checks them too. References to other documents are never followed.

    Args:
        schema: JSON Schema of the arguments. Default draft: 2020-12, as in MCP.
        name: Name of the tool, for logs.
    """

    def __init__(self, schema: Mapping[str, Any], *, name: str = "") -> None:
        self.hash = hashlib.sha256(canonical_json(schema).encode()).hexdigest()[:16]
        self._name = name
        self._validator: Any = None
        try:
            dialect = validator_for(schema, default=Draft202012Validator)
            dialect.check_schema(dict(schema))
            # An empty registry keeps jsonschema from fetching documents that a server's schema refers to.
            self._validator = dialect(schema, registry=Registry())
        except (SchemaError, RecursionError, TypeError, ValueError) as error:
            logger.debug("tool=<%s>, error=<%s> | the input schema is not valid, arguments are not checked", name, error)

    def problem(self, arguments: Any) -> str | None:
        """Return a description of an error in ``arguments``, or None."""
        if self._validator is None:
            return None
        try:
            found: ValidationError | None = next(self._validator.iter_errors(arguments), None)
            if found is None:
                return None
            found = best_match(self._validator.iter_errors(arguments)) or found
        except Exception as error:  # noqa: BLE001 - a foreign schema may raise anything; the server checks the arguments
            logger.debug(
                "tool=<%s>, error=<%s> | the input schema cannot be used, arguments are not checked", self._name, error
            )
            return None
        place = "/".join(str(part) for part in found.absolute_path)
        return f"{place}: {found.message[:300]}" if place else found.message[:300]


def canonical_json(value: Any) -> str:
    """Return the canonical JSON text of a value, with sorted keys.

    Raises:
        TypeError: The value is not JSON.
        ValueError: The value contains NaN, an infinity, or a cycle.
    """
    return json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
