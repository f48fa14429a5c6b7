"""Estimates the monthly cost and the capacity of a deployment.

``CostModel.measured(workload)`` uses measurements of this package and current prices. ``CostModel.paper()`` uses the
figures of a published design. ``differences()`` compares the two. ``prices.json`` contains the prices, each with a date.
"""

from __future__ import annotations

from strands_manga_memory.ops.cost.capacity import CapacityPlan, capacity_plan
from strands_manga_memory.ops.cost.cost_model import (
    Cost,
    CostModel,
    Difference,
    NodePrice,
    Prices,
    TokenPrice,
    differences,
    prices,
)
from strands_manga_memory.ops.cost.use import MonthlyUse, SessionUse, Workload, session_use

__all__ = [
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
    "session_use",
]
