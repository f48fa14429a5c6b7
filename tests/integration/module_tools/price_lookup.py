"""A module tool: a ``TOOL_SPEC`` and a function of its name."""

from __future__ import annotations

from typing import Any

TOOL_SPEC = {
    "name": "price_lookup",
    "description": "Look up the price of a volume.",
    "inputSchema": {
        "json": {
            "type": "object",
            "properties": {"title": {"type": "string"}},
            "required": ["title"],
        }
    },
}


def price_lookup(tool: Any, **kwargs: Any) -> dict[str, Any]:
    """Answer with a price; fail for an unknown title."""
    title = tool["input"]["title"]
    if title == "unknown":
        raise LookupError("there is no such volume")
    return {
        "toolUseId": tool["toolUseId"],
        "status": "success",
        "content": [{"text": f"{title}: 12 dollars"}],
    }
