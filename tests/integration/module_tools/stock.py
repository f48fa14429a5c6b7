"""A module with two decorated tools."""

from __future__ import annotations

from strands import tool


@tool
def in_stock(title: str) -> str:
    """Say whether a volume is in stock."""
    return f"{title}: in stock"


@tool
def on_order(title: str) -> str:
    """Say whether a volume is on order."""
    return f"{title}: on order"
