"""Cost: what a deployment costs a month, how large it has to be, and what that depends on.

``CostModel.paper()`` reproduces a published design from its own inputs; ``CostModel.measured(workload)`` uses what sessions of
this package were measured to take, and current prices. Prices are data with a date: ``prices.json``, or a file of yours in its
form. ``differences()`` says where the two part. ``strands-manga-memory cost`` prints all of it.
"""

from __future__ import annotations

from strands_manga_memory.ops.cost.capacity import CapacityPlan, capacity_plan
from strands_manga_memory.ops.cost.cost_model import Cost, CostModel, Difference, differences, sensitivity
from strands_manga_memory.ops.cost.prices import NodePrice, Prices, TokenPrice, prices
from strands_manga_memory.ops.cost.use import MEASURED, MonthlyUse, SessionUse, Workload, session_use

__all__ = [
    "MEASURED",
    "CapacityPlan",
    "Cost",
    "CostModel",
    "Difference",
    "MonthlyUse",
    "NodePrice",
    "Prices",
    "SessionUse",
    "TokenPrice",
    "Workload",
    "capacity_plan",
    "differences",
    "prices",
    "sensitivity",
    "session_use",
]
