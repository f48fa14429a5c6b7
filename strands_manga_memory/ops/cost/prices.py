"""List prices of cloud and model providers, as dated data."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class NodePrice:
    """Price of a node of the hot tier.

    Attributes:
        usd_hour: US dollars per hour.
        memory_gib: Memory in GiB, of which ElastiCache reserves a quarter.
    """

    usd_hour: float
    memory_gib: float


@dataclass(frozen=True)
class TokenPrice:
    """Prices of a model in US dollars per million tokens.

    Attributes:
        input: Input tokens that are not cached.
        output: Output tokens.
        cache_read: Tokens read from the prompt cache.
        cache_write: Tokens written to the prompt cache.
    """

    input: float
    output: float
    cache_read: float
    cache_write: float


@dataclass(frozen=True, kw_only=True)
class Prices:
    """List prices of one day, in US dollars.

    Attributes:
        date: The day, as YYYY-MM-DD.
        region: AWS region.
        source: Source of the prices.
        write_units_per_million: On-demand write request units of DynamoDB.
        read_units_per_million: On-demand read request units.
        storage_gb_month: Storage of a GB (1e9 bytes) per month.
        nodes: Nodes of the hot tier, by type.
        models: Models, by name.
    """

    date: str
    region: str
    source: str
    write_units_per_million: float
    read_units_per_million: float
    storage_gb_month: float
    nodes: Mapping[str, NodePrice]
    models: Mapping[str, TokenPrice]


def prices(date: str | None = None, *, file: Path | None = None) -> Prices:
    """Return the prices in force on a day.

    Args:
        date: The day, as YYYY-MM-DD. Default: the latest available.
        file: Prices in the format of ``prices.json``. Default: those of the package.

    Raises:
        ValueError: There are no prices for that day, or the file has another format.
    """
    text = (files(__package__) / "prices.json" if file is None else file).read_text(encoding="utf-8")
    try:
        known = sorted((_prices(entry) for entry in json.loads(text)), key=lambda entry: entry.date)
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"file must be a list in the format of prices.json, got {file}: {error!r:.80}") from error
    if not known:
        raise ValueError(f"file must contain the prices of at least one day, {file} contains none")
    found = [entry for entry in known if date is None or entry.date <= date]
    if not found:
        raise ValueError(f"date must be {known[0].date} or later, got {date!r:.80}")
    return found[-1]


def _prices(entry: Mapping[str, Any]) -> Prices:
    return Prices(
        date=entry["date"],
        region=entry["region"],
        source=entry["source"],
        **entry["dynamodb"],
        nodes={name: NodePrice(**node) for name, node in entry["nodes"].items()},
        models={name: TokenPrice(**model) for name, model in entry["models"].items()},
    )
