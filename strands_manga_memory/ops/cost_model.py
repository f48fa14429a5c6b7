"""Estimate of a deployment's monthly cost, from its resources and the providers' list prices.

``CostModel.measured(workload)`` uses measurements of this package and current prices.
``CostModel.paper()`` uses the figures of a published paper with another design. ``differences()``
compares the paper with this package. ``prices.json`` contains the prices, each with a date.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib.resources import files
from typing import Any, Literal

from pydantic import TypeAdapter

from strands_manga_memory.ops.workload import (
    DAYS_A_MONTH,
    MonthlyUse,
    Workload,
    measured_use,
    tokens_used,
)

USABLE_MEMORY = 0.75
"""Share of a node's memory that ElastiCache makes available for data."""

_HOURS_A_MONTH = 730.0
_PAPER_PRICES = "2024-10-31"
_PAPER_NODE = "cache.r6g.large"


@dataclass(frozen=True)
class NodePrice:
    """Price of a server (node) of the hot store.

    Attributes:
        usd_hour: US dollars per hour.
        memory_gib: Memory of the node in GiB. ElastiCache reserves a quarter of this memory.
    """

    usd_hour: float
    memory_gib: float


@dataclass(frozen=True)
class TokenPrice:
    """Prices of a language model in US dollars per million tokens.

    Attributes:
        input: Price of input tokens that are not cached.
        output: Price of output tokens.
        cache_read: Price of tokens read from the prompt cache.
        cache_write: Price of tokens written to the prompt cache.
    """

    input: float
    output: float
    cache_read: float
    cache_write: float


@dataclass(frozen=True, kw_only=True)
class Prices:
    """List prices in US dollars, valid from a day on.

    Attributes:
        date: Day from which the prices are valid, as YYYY-MM-DD.
        region: AWS region.
        source: Source of the prices.
        write_units_per_million: Price of a million on-demand write units of DynamoDB.
        read_units_per_million: Price of a million on-demand read units of DynamoDB.
        storage_gb_month: Price of storing a GB of 1e9 bytes in DynamoDB for a month.
        nodes: Prices of the hot tier's nodes, keyed by node type.
        models: Prices of language models, keyed by model name.
    """

    date: str
    region: str
    source: str
    write_units_per_million: float
    read_units_per_million: float
    storage_gb_month: float
    nodes: Mapping[str, NodePrice]
    models: Mapping[str, TokenPrice]


def prices(date: str | None = None) -> Prices:
    """Return the prices that are valid on a day.

    Args:
        date: The day, as YYYY-MM-DD. The latest prices from this day or earlier are returned.
            Default: the latest prices.

    Raises:
        ValueError: All prices are from later days.
    """
    text = (files(__package__) / "prices.json").read_text(encoding="utf-8")
    known = sorted(TypeAdapter(list[Prices]).validate_json(text), key=lambda entry: entry.date)
    found = [entry for entry in known if date is None or entry.date <= date]
    if not found:
        raise ValueError(f"date must be {known[0].date} or later, got {date!r:.80}")
    return found[-1]


_PAPER_NODE_PRICE = NodePrice(usd_hour=188.0 / _HOURS_A_MONTH, memory_gib=13.07)


@dataclass(frozen=True, kw_only=True)
class Cost:
    """Monthly cost of a deployment in US dollars.

    Attributes:
        redis_usd_month: Cost of the hot tier's nodes.
        dynamodb_usd_month: Cost of requests to the tables and of storage.
        model_usd_month: Cost of the models' tokens.
        usd_per_message: Total cost per user message.
        parts: Cost per month of each billed item, keyed by the name of the item.
        nodes: Number of nodes of the hot tier.
        node: Node type of the hot tier.
        use: Resources that the deployment uses per month.
        prices_date: Date of the prices.
    """

    redis_usd_month: float
    dynamodb_usd_month: float
    model_usd_month: float
    usd_per_message: float
    parts: Mapping[str, float]
    nodes: int
    node: str
    use: MonthlyUse
    prices_date: str

    @property
    def total_usd_month(self) -> float:
        """Total cost of the deployment per month in US dollars."""
        return self.redis_usd_month + self.dynamodb_usd_month + self.model_usd_month


@dataclass(frozen=True, kw_only=True)
class CostModel:
    """Model that calculates the resources and the cost of a deployment.

    Args:
        workload: Load of the deployment.
        prices: List prices.
        preset: ``measured`` calculates with measurements of this package, ``paper`` with the
            figures of the paper that ``CostModel.paper`` describes.
        node: Node type of the hot store. None: the type whose nodes hold the data of the workload
            at the lowest price.

    Raises:
        ValueError: The list has no price for ``node`` or for a model of the workload.
    """

    workload: Workload
    prices: Prices
    preset: Literal["measured", "paper"] = "measured"
    node: str | None = None

    def __post_init__(self) -> None:
        for name, known in (
            (self.node, self.prices.nodes),
            *((model, self.prices.models) for model in self.workload.models),
        ):
            if name is not None and name not in known:
                raise ValueError(
                    f"there is no price for {name!r:.80} of {self.prices.date}; there are"
                    f" {', '.join(known)}"
                )

    @classmethod
    def measured(cls, workload: Workload | None = None, *, at: Prices | None = None) -> CostModel:
        """Return a cost model that calculates with measurements of this package.

        Args:
            workload: Load of the deployment. Default: ``Workload()``.
            at: List prices. Default: the latest prices.
        """
        return cls(workload=workload or Workload(), prices=at or prices())

    @classmethod
    def paper(cls, workload: Workload | None = None, *, at: Prices | None = None) -> CostModel:
        """Return a cost model with the figures of a published paper, for comparison.

        The paper's design uses Redis and DynamoDB. For 1 million messages per day, the paper
        assumes 400,000 writes and 1 million reads per day, of one unit each. There are 200,000
        users of 250 KB, and two indexes of 30 GB that receive every write. Redis has 10,000
        sessions of 2 KB on one ``cache.r6g.large`` without a replica. The paper's price of this
        node is 188 US dollars per month, which is above the list price of us-east-1. The figures
        are scaled to ``workload``.

        Args:
            workload: Load of the deployment. Default: ``Workload()``.
            at: List prices. A price of ``cache.r6g.large`` in this list overrides the price of the
                paper. Default: the prices of 2024-10-31.
        """
        asked = at or prices(_PAPER_PRICES)
        asked = replace(asked, nodes={_PAPER_NODE: _PAPER_NODE_PRICE, **asked.nodes})
        return cls(workload=workload or Workload(), prices=asked, preset="paper", node=_PAPER_NODE)

    @property
    def replicas(self) -> int:
        """Number of replicas per shard of the hot store.

        The number is 0 for the preset ``paper``.
        """
        return 0 if self.preset == "paper" else self.workload.replicas

    def use(self) -> MonthlyUse:
        """Return the resources that the deployment uses per month."""
        return _paper_use(self.workload) if self.preset == "paper" else measured_use(self.workload)

    def cost(self) -> Cost:
        """Return the cost of the deployment per month."""
        use, ask = self.use(), self.prices
        node, nodes = self._cheapest_nodes(use)
        parts = {
            "redis nodes": nodes * ask.nodes[node].usd_hour * _HOURS_A_MONTH,
            "dynamodb writes": use.write_units * ask.write_units_per_million / 1e6,
            "dynamodb index writes": use.index_write_units * ask.write_units_per_million / 1e6,
            "dynamodb reads": use.read_units * ask.read_units_per_million / 1e6,
            "dynamodb storage": use.stored_gb * ask.storage_gb_month,
            "dynamodb index storage": use.index_gb * ask.storage_gb_month,
        }
        for name, tokens in use.tokens.items():
            parts[f"model {name}"] = (
                sum(count * getattr(ask.models[name], kind) for kind, count in tokens.items()) / 1e6
            )
        sums = {
            kind: sum(usd for name, usd in parts.items() if name.startswith(kind))
            for kind in ("redis", "dynamodb", "model")
        }
        return Cost(
            redis_usd_month=sums["redis"],
            dynamodb_usd_month=sums["dynamodb"],
            model_usd_month=sums["model"],
            usd_per_message=sum(sums.values()) / use.messages if use.messages else 0.0,
            parts={name: usd for name, usd in parts.items() if usd},
            nodes=nodes,
            node=node,
            use=use,
            prices_date=ask.date,
        )

    def _cheapest_nodes(self, use: MonthlyUse) -> tuple[str, int]:
        peak_bytes = use.hot_gb * 1e9 * (self.workload.peak if self.preset == "measured" else 1.0)
        counts = []
        for name, node in self.prices.nodes.items():
            if self.node in (None, name):
                shards = math.ceil(peak_bytes / (node.memory_gib * 2**30 * USABLE_MEMORY))
                count = (1 + self.replicas) * max(1, shards)
                counts.append((count * node.usd_hour, count, name))
        _, count, name = min(counts)
        return name, count


def _paper_use(workload: Workload) -> MonthlyUse:
    load = workload.messages_per_day / 1e6
    writes = 400_000 * load * DAYS_A_MONTH
    live = 10_000 * load
    return MonthlyUse(
        messages=workload.messages_per_day * DAYS_A_MONTH,
        write_units=writes,
        index_write_units=2 * writes,
        read_units=1_000_000 * load * DAYS_A_MONTH,
        stored_gb=workload.users * 250_000 / 1e9,
        index_gb=2 * 30.0 * workload.users / 200_000,
        live_sessions=live,
        hot_gb=live * 2_000 / 1e9,
        tokens=tokens_used(workload),
    )


@dataclass(frozen=True)
class Difference:
    """Difference in resources or cost between the design of a published paper and this package.

    Attributes:
        what: Name of the compared quantity.
        paper: Value of the quantity by ``CostModel.paper``.
        measured: Value of the quantity by ``CostModel.measured``.
        why: Reason for the difference.
    """

    what: str
    paper: float
    measured: float
    why: str


def differences(workload: Workload | None = None) -> list[Difference]:
    """Return the differences in resources and cost between a published paper and this package.

    ``CostModel.paper`` describes the paper's design.
    """
    paper, ours = CostModel.paper(workload).cost(), CostModel.measured(workload).cost()
    rows: list[tuple[str, Any, str]] = [
        (
            "write units per month",
            lambda cost: cost.use.write_units + cost.use.index_write_units,
            (
                "the paper writes 0.4 items of one unit per message; this package logs the text of"
                " every turn, flushes it every 5 turns, stores memories with two indexes, and"
                " deletes the log"
            ),
        ),
        (
            "read units per month",
            lambda cost: cost.use.read_units,
            (
                "the paper reads one unit per message; this package makes some 60 reads per"
                " session, and reads all memories of the user at its start and end, a unit for"
                " each 4 KB"
            ),
        ),
        (
            "GB stored",
            lambda cost: cost.use.stored_gb + cost.use.index_gb,
            (
                "the paper stores 250 KB per user; this package stores memories of a session for 90"
                " days, its log for a day"
            ),
        ),
        (
            "live sessions",
            lambda cost: cost.use.live_sessions,
            "the paper states 10,000; this package derives it from session length and TTL",
        ),
        (
            "GB in the hot tier",
            lambda cost: cost.use.hot_gb,
            (
                "the paper counts 2 KB per session; this package counts the window, the states and"
                " the user's memories"
            ),
        ),
        (
            "USD per month for Redis",
            lambda cost: cost.redis_usd_month,
            (
                "the paper has one node without a replica; this package the cheapest nodes for the"
                " peak, at Valkey's price"
            ),
        ),
        (
            "USD per million write units",
            lambda cost: prices(cost.prices_date).write_units_per_million,
            "DynamoDB on-demand was halved on 2024-11-01",
        ),
        ("USD per month for DynamoDB", lambda cost: cost.dynamodb_usd_month, "all of the above"),
    ]
    return [Difference(what, value(paper), value(ours), why) for what, value, why in rows]
