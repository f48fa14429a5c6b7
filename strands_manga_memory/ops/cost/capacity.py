"""Calculates the capacity that a deployment needs."""

from __future__ import annotations

import math
from dataclasses import dataclass

from strands_manga_memory.ops.cost.cost_model import USABLE_MEMORY, CostModel
from strands_manga_memory.ops.cost.use import Workload, session_use
from strands_manga_memory.session.tiers import BUCKETS

_SECONDS_A_DAY = 86_400.0
_SCRIPTS_A_SECOND = 25_000.0
_PARTITION_WRITES, _PARTITION_READS, _PARTITION_GB = 1_000.0, 3_000.0, 10.0
_TABLE_WRITES = 40_000.0
_LAYER_SECONDS, _TURN_SECONDS, _TURNS_AT_A_TIME = 0.0015, 3.0, 50
_EXPIRY_WRITES = 6.0

ASSUMPTIONS = (
    "messages are spread evenly over users, and over the day with the stated peak; all sessions have the mean length",
    f"a shard runs {_SCRIPTS_A_SECOND:,.0f} scripts of this package per second (a quarter of a Valkey node's rate of simple "
    f"scripts), and {USABLE_MEMORY:.0%} of a node's memory is for data",
    "conversations are spread over 1,024 hash tags, so more than 512 shards would be filled unevenly",
    f"a DynamoDB partition takes {_PARTITION_WRITES:,.0f} write units and {_PARTITION_READS:,.0f} read units per second and "
    f"holds {_PARTITION_GB:g} GB; it splits automatically between partition keys, not within one",
    f"an on-demand table takes {_TABLE_WRITES:,.0f} write units per second until AWS raises the quota",
    f"the expiry index has {BUCKETS} partition keys and {_EXPIRY_WRITES:g} writes per session",
    f"a worker runs {_TURNS_AT_A_TIME} turns at once, a turn takes {_TURN_SECONDS:g} s, and the layer takes "
    f"{1000 * _LAYER_SECONDS:g} ms of one core per turn",
    "the plan is calculated from measured units; no deployment of this size was run",
)
"""Assumptions of the capacity plan."""


@dataclass(frozen=True, kw_only=True)
class CapacityPlan:
    """Capacity that a deployment needs at its peak.

    Attributes:
        messages_per_second: User messages per second at the peak.
        live_sessions: Conversations in the hot tier at the peak.
        hot_gb: Size of the conversations in the hot tier, in GB without replicas.
        node: Node type of the hot tier.
        shards: Number of shards of the hot tier, enough for the data and for this package's Lua scripts per second.
        nodes: Number of nodes of the hot tier, including replicas.
        write_units_per_second: DynamoDB write units per second at the peak.
        read_units_per_second: DynamoDB read units per second at the peak.
        stored_gb: Size of the tables in GB, including indexes.
        partitions: Least number of DynamoDB partitions.
        expiry_writes_per_key: Write units per second for each partition key of the expiry index.
        workers: Number of processes that run turns.
        cores: Number of CPU cores that this package uses.
        limits: Limits that a deployment of this size exceeds, with remedies; may be empty.
    """

    messages_per_second: float
    live_sessions: float
    hot_gb: float
    node: str
    shards: int
    nodes: int
    write_units_per_second: float
    read_units_per_second: float
    stored_gb: float
    partitions: int
    expiry_writes_per_key: float
    workers: int
    cores: float
    limits: tuple[str, ...]


def capacity_plan(model: CostModel) -> CapacityPlan:
    """Return the capacity that the workload of a cost model needs, for up to 1 billion messages per day.

    ``ASSUMPTIONS`` lists the assumptions of the plan.
    """
    workload, use = model.workload, model.use()
    cost = model.cost()
    a_second = workload.peak / _SECONDS_A_DAY
    messages, sessions = workload.messages_per_day * a_second, workload.sessions_per_day * a_second
    month = 30 * _SECONDS_A_DAY
    writes = (use.write_units + use.index_write_units) / month * workload.peak
    reads = use.read_units / month * workload.peak
    hot_gb = use.hot_gb * workload.peak
    by_memory = math.ceil(hot_gb * 1e9 / (model.prices.nodes[cost.node].memory_gib * 2**30 * USABLE_MEMORY))
    shards = max(1, by_memory, math.ceil((messages + 3 * sessions) / _SCRIPTS_A_SECOND), cost.nodes // (1 + model.replicas))
    stored = use.stored_gb + use.index_gb
    partitions = math.ceil(max(writes / _PARTITION_WRITES, reads / _PARTITION_READS, stored / _PARTITION_GB, 1))
    expiry = sessions * _EXPIRY_WRITES / BUCKETS
    return CapacityPlan(
        messages_per_second=messages,
        live_sessions=use.live_sessions * workload.peak,
        hot_gb=hot_gb,
        node=cost.node,
        shards=shards,
        nodes=shards * (1 + model.replicas),
        write_units_per_second=writes,
        read_units_per_second=reads,
        stored_gb=stored,
        partitions=partitions,
        expiry_writes_per_key=expiry,
        workers=max(2, math.ceil(messages * _TURN_SECONDS / _TURNS_AT_A_TIME)),
        cores=messages * _LAYER_SECONDS,
        limits=tuple(_limits(workload, shards, writes, expiry)),
    )


def _limits(workload: Workload, shards: int, writes: float, expiry: float) -> list[str]:
    """Return texts about the limits that a deployment exceeds. Empty if it exceeds none.

    Args:
        workload: Load of the deployment.
        shards: Number of shards of the hot tier.
        writes: DynamoDB write units per second.
        expiry: Write units per second for each partition key of the expiry index.
    """
    found = []
    if expiry > _PARTITION_WRITES:
        most = workload.messages_per_day * _PARTITION_WRITES / expiry
        found.append(
            f"the {BUCKETS} partition keys of the expiry index take {expiry:,.0f} write units per second each, DynamoDB allows "
            f"{_PARTITION_WRITES:,.0f}: split users over several tables, one per {most:,.0f} messages per day"
        )
    if writes > _TABLE_WRITES:
        found.append(
            f"{writes:,.0f} write units per second exceed the default quota of a table: ask AWS to raise it in advance"
        )
    if shards > 512:
        found.append(f"{shards:,} shards are too many for 1,024 hash tags: use larger nodes, or several clusters")
    if session_use(workload).memory_bytes > 10e9:
        found.append("a session's memories are larger than a partition")
    return found
